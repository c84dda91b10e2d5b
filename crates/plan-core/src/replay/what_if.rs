//! What-if: one run under pins that are not its own, on purpose and said so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Refused;
use crate::compare::Substitution;
use crate::plan::FrozenPlan;
use crate::rate_card::RateCard;
use crate::skill::Catalog;
use crate::taxonomy::{self, Taxonomy};

/// What stands in for the plan's own pins.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// Skill id to version.
    pub skills: BTreeMap<String, String>,
    pub taxonomy_version: Option<String>,
    pub rate_card: Option<Value>,
}

impl WhatIf {
    /// Whether nothing is substituted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty() && self.taxonomy_version.is_none() && self.rate_card.is_none()
    }

    /// Refuses pins that do not exist: nothing can be decided under them, and what was not looked at is not the same.
    pub(super) fn check(&self, plan: &FrozenPlan, catalog: &dyn Catalog) -> Result<(), Refused> {
        if let Some(version) = self.taxonomy_version.as_ref().filter(|version| Taxonomy::version(version).is_none()) {
            let known = taxonomy::VERSIONS.iter().map(Taxonomy::number).collect::<Vec<_>>();
            return Err(Refused::NoTaxonomy { version: version.clone(), known: known.join(", ") });
        }
        let used: BTreeSet<&str> = plan.plan.steps.iter().map(|step| step.skill_id.as_str()).collect();
        for (skill_id, version) in &self.skills {
            if !used.contains(skill_id.as_str()) {
                let used = used.into_iter().collect::<Vec<_>>().join(", ");
                return Err(Refused::SkillUnused { skill_id: skill_id.clone(), used });
            }
            if catalog.skill(skill_id, version).is_none() {
                let known = catalog.versions(skill_id).join(", ");
                let known = if known.is_empty() { "none".to_owned() } else { known };
                return Err(Refused::NoSkill { skill_id: skill_id.clone(), version: version.clone(), known });
            }
        }
        Ok(())
    }

    /// The plan with other pins, under its own digest, and what was exchanged.
    pub(super) fn substitute(&self, plan: &FrozenPlan) -> Result<(FrozenPlan, Vec<Substitution>), Refused> {
        let mut plan = plan.clone();
        let mut substitutions = Vec::new();
        // A pin that stays as it is was not exchanged.
        let mut exchange = |pin: String, own: &mut String, other: &str| {
            if own == other {
                return;
            }
            substitutions.push(Substitution { pin, original: own.clone(), replay: other.to_owned() });
            other.clone_into(own);
        };
        for (skill_id, version) in &self.skills {
            for step in plan.plan.steps.iter_mut().filter(|step| step.skill_id == *skill_id) {
                exchange(format!("{}: skill {skill_id}", step.step_id), &mut step.skill_version, version);
            }
        }
        let pins = &mut plan.plan.pins;
        if let Some(version) = &self.taxonomy_version {
            exchange("taxonomy_version".to_owned(), &mut pins.taxonomy_version, version);
        }
        if let Some(card) = &self.rate_card {
            let card = RateCard::from_value(card.clone())?;
            if pins.rate_card.hash != *card.digest() {
                let original = pins.rate_card.id.clone();
                substitutions.push(Substitution {
                    pin: "rate_card".to_owned(),
                    original,
                    replay: card.id().to_owned(),
                });
            }
            card.id().clone_into(&mut pins.rate_card.id);
            pins.rate_card.hash = card.digest().clone();
            pins.rate_card.card = Some(card.value().clone());
        }
        if substitutions.is_empty() {
            return Err(Refused::NothingExchanged);
        }
        Ok((plan, substitutions))
    }
}
