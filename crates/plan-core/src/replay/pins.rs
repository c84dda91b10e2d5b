//! Whether what a plan pins is what is here.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::PinViolation;
use crate::plan::{JITTER, Plan, SPEC, TOKEN_ESTIMATOR};
use crate::rate_card;
use crate::skill::Catalog;
use crate::taxonomy::Taxonomy;

/// The pins that do not hold, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub violations: Vec<PinViolation>,
    /// Nothing can be decided without these.
    pub fatal: bool,
    /// Steps from here on may differ because of a pin: their own skill is another one, or an earlier step's is.
    pub tainted_from: Option<usize>,
    pub skill_missing: bool,
    pub skill_disabled: bool,
}

pub(super) fn check(plan: &Plan, catalog: &dyn Catalog) -> Checked {
    let mut checked = Checked::default();
    let mut violate = |kind: &str, subject: &str, why: String| {
        checked.violations.push(PinViolation { kind: kind.to_owned(), subject: subject.to_owned(), why });
    };
    let pins = &plan.pins;
    if Taxonomy::version(&pins.taxonomy_version).is_none() {
        violate("taxonomy", &pins.taxonomy_version, "this version of the taxonomy is not known here".to_owned());
    }
    if let Err(error) = rate_card::pinned(&pins.rate_card, catalog) {
        violate("rate_card", &pins.rate_card.id, error.to_string());
    }
    let words = [("spec", &pins.spec, SPEC), ("jitter", &pins.jitter, JITTER)];
    for (kind, pinned, known) in words.into_iter().chain([("token_estimator", &pins.token_estimator, TOKEN_ESTIMATOR)])
    {
        if pinned != known {
            violate(kind, pinned, format!("only `{known}` is known here"));
        }
    }
    checked.fatal = !checked.violations.is_empty();
    check_skills(plan, catalog, &mut checked);
    checked
}

fn check_skills(plan: &Plan, catalog: &dyn Catalog, checked: &mut Checked) {
    let mut known: BTreeMap<String, Option<PinViolation>> = BTreeMap::new();
    let mut reported = BTreeSet::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let subject = format!("{}@{}", step.skill_id, step.skill_version);
        let violation = known.entry(subject.clone()).or_insert_with(|| {
            let violation =
                |kind: &str, why| Some(PinViolation { kind: kind.to_owned(), subject: subject.clone(), why });
            let Some(registration) = catalog.skill(&step.skill_id, &step.skill_version) else {
                let available = catalog.versions(&step.skill_id).join(", ");
                let available = if available.is_empty() { "none".to_owned() } else { available };
                return violation("skill_missing", format!("it is not registered; registered versions: {available}"));
            };
            let pinned = plan.pins.skill_builds.as_ref().and_then(|builds| builds.get(&subject));
            match (pinned, &registration.build) {
                (Some(pinned), Some(build)) if pinned != build => {
                    return violation("skill_build_changed", format!("the plan pins {pinned}, registered is {build}"));
                }
                _ => {}
            }
            if registration.enabled { None } else { violation("skill_disabled", "it is switched off".to_owned()) }
        });
        let Some(violation) = violation else { continue };
        match violation.kind.as_str() {
            "skill_missing" => checked.skill_missing = true,
            "skill_disabled" => checked.skill_disabled = true,
            _ => {}
        }
        if violation.kind != "skill_disabled" {
            checked.tainted_from.get_or_insert(index);
        }
        if reported.insert(violation.subject.clone()) {
            checked.violations.push(violation.clone());
        }
    }
}
