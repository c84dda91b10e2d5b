//! Preflight: whether a frozen plan can run here, asked as a whole before anything happens.
//!
//! Findings are listed in a fixed order, up to a limit, and the first error gives the code a rejected run ends with.

pub(crate) mod skills;
pub(crate) mod structure;

use serde_json::Value;

use crate::finding::{self, Finding};
use crate::plan::limits::KNOWN_PINS;
use crate::plan::{FrozenPlan, Pins, Plan, plan_hash};
use crate::rate_card::{self, CardUnavailable, RateCard};
use crate::skill::Catalog;
use crate::taxonomy::{self, Taxonomy};

/// Everything that keeps a plan from running here, errors in the order of the checks, then warnings.
///
/// Only what the plan itself can answer: whether a session authorised it is for the caller to ask.
#[must_use]
pub fn preflight(frozen: &FrozenPlan, catalog: &dyn Catalog) -> Vec<Finding> {
    let plan = &frozen.plan;
    let mut found = Vec::new();
    digest(&mut found, frozen);
    found.extend(crate::plan::limits::check(plan));
    structure::step_ids(&mut found, plan);
    structure::references(&mut found, plan);
    let taxonomy = taxonomy(&mut found, &plan.pins);
    let card = pins(&mut found, &plan.pins, catalog);
    if let Some(taxonomy) = taxonomy {
        structure::codes(&mut found, plan, taxonomy);
    }
    skills::check(&mut found, plan, catalog, card.as_ref(), taxonomy);
    finding::bound(&mut found);
    found
}

/// What is wrong with a plan that cannot be frozen, beside what freezing it found: codes and missing skills were
/// looked at there. Without all of its steps nothing is said about what refers to them.
pub(crate) fn draft(plan: &Plan, complete: bool, catalog: &dyn Catalog) -> Vec<Finding> {
    let mut found = crate::plan::limits::check(plan);
    structure::step_ids(&mut found, plan);
    if complete {
        structure::references(&mut found, plan);
    }
    let card = rate_card::pinned(&plan.pins.rate_card, catalog).ok();
    let taxonomy = Taxonomy::version(&plan.pins.taxonomy_version);
    skills::check(&mut found, plan, catalog, card.as_ref(), taxonomy);
    found.retain(|finding| finding.reason != skills::NOT_REGISTERED);
    found
}

/// The finding a run is rejected for, if it is.
#[must_use]
pub fn rejection(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|finding| finding.is_error())
}

fn digest(found: &mut Vec<Finding>, frozen: &FrozenPlan) {
    if plan_hash(&frozen.value).ok().as_ref() != Some(&frozen.hash) {
        found.push(
            Finding::error("AOS-99", "plan_altered", "the plan is not the one its digest names")
                .fix("a frozen plan is never edited; freeze a new one"),
        );
    }
}

fn taxonomy(found: &mut Vec<Finding>, pins: &Pins) -> Option<&'static Taxonomy> {
    let taxonomy = Taxonomy::version(&pins.taxonomy_version);
    if taxonomy.is_none() {
        let problem = format!("the taxonomy {} is not known here", pins.taxonomy_version);
        found.push(
            Finding::error("AOS-38", "taxonomy_unavailable", problem)
                .fix("use a runtime that keeps this version, or freeze the plan with another")
                .available(taxonomy::VERSIONS.iter().map(|version| version.number().to_owned()).collect()),
        );
    }
    taxonomy
}

fn pins(found: &mut Vec<Finding>, pins: &Pins, catalog: &dyn Catalog) -> Option<RateCard> {
    let given = [&pins.spec, &pins.jitter, &pins.token_estimator];
    for ((name, known), given) in KNOWN_PINS.iter().zip(given) {
        if given != known {
            let (reason, problem) = (pin_reason(name), format!("pins.{name} is `{given}`, which is not known here"));
            found.push(
                Finding::error("AOS-99", reason, problem)
                    .fix("freeze the plan again with this runtime")
                    .available(vec![(*known).to_owned()]),
            );
        }
    }
    match rate_card::pinned(&pins.rate_card, catalog) {
        Ok(card) => Some(card),
        Err(error) => {
            let reason = match &error {
                CardUnavailable::Unknown(_) => "rate_card_unavailable",
                CardUnavailable::Unusable { .. } => "rate_card_unusable",
                CardUnavailable::Differs { .. } => "rate_card_differs",
            };
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            found.push(
                Finding::error("AOS-99", reason, format!("{error}{source}"))
                    .fix("install the pinned card, or freeze a new plan with a card that is available"),
            );
            None
        }
    }
}

fn pin_reason(pin: &str) -> &'static str {
    match pin {
        "spec" => "spec_unavailable",
        "jitter" => "jitter_unavailable",
        _ => "token_estimator_unavailable",
    }
}

/// Whether a value claims to be a frozen plan, well-formed or not: only freezing writes all of these pins.
pub(crate) fn looks_frozen(value: &Value) -> bool {
    let pins = value.get("pins");
    let has = |name: &str| pins.is_some_and(|pins| pins.get(name).is_some());
    let hash = pins.and_then(|pins| pins.get("rate_card")).and_then(|card| card.get("hash"));
    has("spec") && has("taxonomy_version") && hash.is_some()
}
