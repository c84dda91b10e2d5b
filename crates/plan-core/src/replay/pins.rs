//! Whether what a plan pins is what is here.

use std::collections::BTreeSet;

use crate::compare::PinViolation;
use crate::journal::REVISION;
use crate::plan::{JITTER, Plan, SPEC, Step, TOKEN_ESTIMATOR};
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

/// Checks what a plan pins, and the revision of the rules that its runs were decided by.
pub(super) fn check(plan: &Plan, revisions: &[u32], catalog: &dyn Catalog) -> Checked {
    let mut checked = Checked::default();
    let mut violate = |kind: &str, subject: &str, why: String| {
        checked.violations.push(PinViolation { kind: kind.to_owned(), subject: subject.to_owned(), why });
    };
    if let Some(unknown) = revisions.iter().find(|revision| !(1..=REVISION).contains(*revision)) {
        violate(
            "revision",
            &unknown.to_string(),
            format!("only revisions of the rules up to {REVISION} are known here"),
        );
    }
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
    let mut known = BTreeSet::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let subject = format!("{}@{}", step.skill_id, step.skill_version);
        // What is wrong with a skill is told at the first step that uses it.
        if !known.insert(subject.clone()) {
            continue;
        }
        for violation in check_skill(plan, step, &subject, catalog) {
            match violation.kind.as_str() {
                "skill_missing" => checked.skill_missing = true,
                "skill_disabled" => checked.skill_disabled = true,
                _ => {}
            }
            if violation.kind != "skill_disabled" {
                checked.tainted_from.get_or_insert(index);
            }
            checked.violations.push(violation);
        }
    }
}

/// Everything that is wrong with the skill of a step: another build of it may be switched off as well.
fn check_skill(plan: &Plan, step: &Step, subject: &str, catalog: &dyn Catalog) -> Vec<PinViolation> {
    let violation = |kind: &str, why| PinViolation { kind: kind.to_owned(), subject: subject.to_owned(), why };
    let Some(registration) = catalog.skill(&step.skill_id, &step.skill_version) else {
        let available = catalog.versions(&step.skill_id).join(", ");
        let available = if available.is_empty() { "none".to_owned() } else { available };
        return vec![violation("skill_missing", format!("it is not registered; registered versions: {available}"))];
    };
    let mut found = Vec::new();
    let pinned = plan.pins.skill_builds.as_ref().and_then(|builds| builds.get(subject));
    if let (Some(pinned), Some(build)) = (pinned, &registration.build)
        && pinned != build
    {
        found.push(violation("skill_build_changed", format!("the plan pins {pinned}, registered is {build}")));
    }
    if !registration.enabled {
        found.push(violation("skill_disabled", "it is switched off".to_owned()));
    }
    found
}
