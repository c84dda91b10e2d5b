//! What a plan asks of the skills it names, and whether they are here.

use std::collections::BTreeSet;

use crate::effect::Idempotency;
use crate::finding::Finding;
use crate::plan::{Plan, Step};
use crate::rate_card::RateCard;
use crate::reference;
use crate::skill::{Catalog, IdempotencyClass, PureSkill, Registration, guarded};
use crate::taxonomy::Taxonomy;

/// The reason of a finding about a skill that is not here.
pub(super) const NOT_REGISTERED: &str = "skill_not_registered";

/// One check after the other over all steps, because the order of checks decides which finding comes first.
pub(super) fn check(
    found: &mut Vec<Finding>,
    plan: &Plan,
    catalog: &dyn Catalog,
    card: Option<&RateCard>,
    taxonomy: Option<&Taxonomy>,
) {
    let registered: Vec<(&Step, Option<Registration>)> =
        plan.steps.iter().map(|step| (step, registration(step, catalog))).collect();
    for (step, registration) in &registered {
        found.extend(available(step, registration.as_ref(), catalog).map(|finding| finding.at(&step.step_id)));
    }
    let allowed: BTreeSet<&str> = plan.context.allowed_skills.iter().map(String::as_str).collect();
    for step in plan.steps.iter().filter(|step| !allowed.contains(step.skill_id.as_str())) {
        let problem = format!("the skill `{}` is not among the plan's allowed_skills", step.skill_id);
        found.push(
            Finding::error("AOS-69", "skill_not_allowed", problem)
                .code("ERR_PERMISSION_DENIED")
                .at(&step.step_id)
                .fix("add it to context.allowed_skills, or use another skill"),
        );
    }
    let present = || registered.iter().filter_map(|(step, it)| Some((*step, it.as_ref()?)));
    for (step, registration) in present() {
        permissions(found, step, registration, catalog);
    }
    for (step, registration) in present() {
        ask(found, step, |found| parameters(found, step, registration.skill.as_ref()));
    }
    for (step, registration) in present() {
        if let Some(card) = card {
            let price = || price(step, registration.skill.as_ref(), card).map(|finding| finding.at(&step.step_id));
            ask(found, step, |found| found.extend(price()));
        }
    }
    for (step, registration) in present() {
        ask(found, step, |found| declarations(found, step, registration.skill.as_ref(), taxonomy));
    }
    for (step, registration) in present() {
        found.extend(build(plan, step, registration).map(|finding| finding.at(&step.step_id)));
    }
}

/// Asks a skill about a step. One that panics over it is not called with it.
fn ask(found: &mut Vec<Finding>, step: &Step, asked: impl FnOnce(&mut Vec<Finding>)) {
    if guarded(|| asked(found)).is_none() {
        let problem = format!("the skill {} panicked over the parameters", step.skill_key());
        found.push(
            Finding::error("AOS-79", "skill_panicked", problem)
                .code("ERR_INTERNAL")
                .at(&step.step_id)
                .fix("the skill's author must mend it; the server's log tells where it happened"),
        );
    }
}

/// The skill of a step, if the catalog has exactly this one.
pub(crate) fn registration(step: &Step, catalog: &dyn Catalog) -> Option<Registration> {
    let registration = catalog.skill(&step.skill_id, &step.skill_version)?;
    let metadata = registration.skill.metadata();
    (metadata.skill_id == step.skill_id && metadata.version == step.skill_version).then_some(registration)
}

fn available(step: &Step, registration: Option<&Registration>, catalog: &dyn Catalog) -> Option<Finding> {
    match registration {
        None => Some(not_registered(&step.skill_id, Some(&step.skill_version), catalog)),
        Some(registration) if !registration.enabled => Some(
            Finding::error("AOS-99", "skill_disabled", format!("the skill {} is switched off", step.skill_key()))
                .code("ERR_SKILL_DISABLED")
                .fix("ask the operator to enable it"),
        ),
        Some(_) => None,
    }
}

pub(crate) fn not_registered(skill_id: &str, version: Option<&str>, catalog: &dyn Catalog) -> Finding {
    let mut versions = catalog.versions(skill_id);
    versions.sort();
    let name = crate::plan::limits::shown(skill_id);
    let (problem, fix) = match (version, versions.is_empty()) {
        (_, true) => (format!("there is no skill `{name}` here"), "register it, or correct skill_id".to_owned()),
        (Some(version), false) => (
            format!("the skill `{name}` is not registered in version {}", crate::plan::limits::shown(version)),
            format!("register exactly this version, or freeze a new plan with one of {}", versions.join(", ")),
        ),
        (None, false) => (
            format!("the step does not say which version of `{name}` it wants"),
            format!("give skill_version one of {}", versions.join(", ")),
        ),
    };
    Finding::error("AOS-99", NOT_REGISTERED, problem).code("ERR_SKILL_NOT_FOUND").fix(fix).available(versions)
}

fn permissions(found: &mut Vec<Finding>, step: &Step, registration: &Registration, catalog: &dyn Catalog) {
    for permission in &registration.skill.metadata().permissions {
        if !catalog.grants(permission) {
            let problem = format!("the skill `{}` needs the permission `{permission}`", step.skill_id);
            found.push(
                Finding::error("AOS-68", "permission_missing", problem)
                    .code("ERR_PERMISSION_DENIED")
                    .at(&step.step_id)
                    .fix("have the operator grant it"),
            );
        }
    }
}

fn parameters(found: &mut Vec<Finding>, step: &Step, skill: &dyn PureSkill) {
    if let Err(why) = skill.check_template(&step.parameters) {
        found.push(
            Finding::error("AOS-68", "parameters_invalid", format!("the parameters do not fit the skill: {why}"))
                .at(&step.step_id)
                .fix(format!("see the input schema of {}", step.skill_key())),
        );
    }
}

/// Every call has a price before it is made; one that only a reference will name is priced when it is known.
fn price(step: &Step, skill: &dyn PureSkill, card: &RateCard) -> Option<Finding> {
    let key = &skill.metadata().cost_model.rate_card_key;
    let model = skill.model(&step.parameters);
    if model.is_some_and(|model| model.contains("{{")) {
        return None;
    }
    let Some(price) = card.price(key, model) else {
        let models = card.models(key).into_iter().map(str::to_owned).collect::<Vec<_>>();
        return Some(match model {
            Some(model) if !models.is_empty() => {
                let model = crate::plan::limits::shown(model);
                Finding::error(
                    "AOS-54",
                    "model_unknown",
                    format!("the rate card `{}` has no price for the model `{model}`", card.id()),
                )
                .fix("name a model exactly as the card does, or pin a card that prices it under pins.rate_card.id")
                .available(models)
            }
            _ => Finding::error(
                "AOS-54",
                "price_unknown",
                format!("the rate card `{}` has no price for {key}", card.id()),
            )
            .fix("pin a card that prices this version of the skill under pins.rate_card.id"),
        });
    };
    let known = reference::is_literal(&step.parameters) && skill.check_input(&step.parameters).is_ok();
    if known && price.cost(&skill.usage_bound(&step.parameters)).is_err() {
        let problem = format!("one attempt could cost more than {} microcents", crate::cost::MICROCENTS_MAX);
        return Some(Finding::error("AOS-60", "cost_too_large", problem).fix("limit what the step may use"));
    }
    None
}

/// What a skill says of itself must be consistent, or neither retries nor recovery can rely on it.
fn declarations(found: &mut Vec<Finding>, step: &Step, skill: &dyn PureSkill, taxonomy: Option<&Taxonomy>) {
    let metadata = skill.metadata();
    let declared = match metadata.idempotency {
        IdempotencyClass::Natural => Some(Idempotency::Natural),
        IdempotencyClass::Keyed => Some(Idempotency::Keyed),
        IdempotencyClass::None => Some(Idempotency::None),
        IdempotencyClass::PerCall => None,
    };
    let known = reference::is_literal(&step.parameters) && skill.check_input(&step.parameters).is_ok();
    if known && let Some(declared) = declared {
        let effects = skill.effects(&step.parameters);
        if effects.iter().any(|effect| effect.idempotency != declared) {
            let problem = format!("{} declares another idempotency class than its effects have", step.skill_key());
            found.push(
                Finding::error("AOS-68", "idempotency_undeclared", problem)
                    .at(&step.step_id)
                    .fix("the skill's author must declare the class, or `per_call`"),
            );
        }
    }
    let Some(taxonomy) = taxonomy else { return };
    let newest = crate::taxonomy::VERSIONS.last();
    let known = |mode: &str| taxonomy.code(mode).is_some() || newest.is_some_and(|newest| newest.code(mode).is_some());
    for mode in metadata.failure_modes.iter().filter(|mode| !known(mode)) {
        let problem = format!("{} declares the failure mode `{mode}`, which is no code", step.skill_key());
        found.push(
            Finding::error("AOS-21", "failure_mode_unknown", problem)
                .at(&step.step_id)
                .fix("the skill's author must name codes of the taxonomy"),
        );
    }
}

fn build(plan: &Plan, step: &Step, registration: &Registration) -> Option<Finding> {
    let pinned = plan.pins.skill_builds.as_ref()?.get(&step.skill_key())?;
    if registration.build.as_ref() == Some(pinned) {
        return None;
    }
    let problem = match &registration.build {
        Some(build) => format!("{} is here as build {build}, and the plan was frozen with {pinned}", step.skill_key()),
        None => format!("{} is here without a build digest, and the plan was frozen with {pinned}", step.skill_key()),
    };
    Some(
        Finding::warning("AOS-99", "skill_build_changed", problem)
            .fix("a change of behaviour without a new version is a defect of the skill; compare the builds"),
    )
}
