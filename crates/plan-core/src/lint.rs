//! Lint: everything that can be said about a plan, authored or frozen, without running it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::budget;
use crate::check::{self, skills};
use crate::cost;
use crate::finding::{self, Finding};
use crate::freeze::{self, FreezeOptions};
use crate::plan::{FrozenPlan, OnError, Plan, Step, StepStatus};
use crate::rate_card::{self, RateCard};
use crate::reference;
use crate::skill::{Catalog, PureSkill, is_unrepeatable};

/// All findings about the text of a plan, errors first. An authored plan is frozen on trial; a frozen one is only read.
#[must_use]
pub fn lint(text: &[u8], catalog: &dyn Catalog, options: &FreezeOptions) -> Vec<Finding> {
    let value = match macp_wire::canonical::parse(text) {
        Ok(value) => value,
        Err(error) => {
            return vec![
                Finding::error("AOS-7", "not_json", format!("the plan is not valid JSON: {error}"))
                    .fix("a plan is one JSON object in UTF-8, nested at most 128 deep, in which no key is given twice"),
            ];
        }
    };
    let mut found = Vec::new();
    if check::looks_frozen(&value) {
        match FrozenPlan::parse(text) {
            Ok(frozen) => {
                found.extend(check::preflight(&frozen, catalog));
                found.extend(advice(&frozen.plan, catalog));
            }
            Err(error) => found.extend(error.into_findings()),
        }
    } else {
        let attempt = freeze::attempt(&value, catalog, options);
        found.extend(attempt.found);
        let plan = attempt.frozen.map(|frozen| frozen.plan).or(attempt.draft);
        found.extend(plan.iter().flat_map(|plan| advice(plan, catalog)));
    }
    finding::bound(&mut found);
    found
}

/// What is allowed and yet hardly meant.
fn advice(plan: &Plan, catalog: &dyn Catalog) -> Vec<Finding> {
    let mut found = Vec::new();
    let card = rate_card::pinned(&plan.pins.rate_card, catalog).ok();
    let mut required = 0_u64;
    for step in &plan.steps {
        let from = found.len();
        secrets(&mut found, &step.parameters);
        condition(&mut found, plan, step);
        if let Some(registration) = skills::registration(step, catalog) {
            let skill = registration.skill.as_ref();
            harmful_retries(&mut found, step, skill);
            let needs = card.as_ref().and_then(|card| needs(step, skill, card));
            required = required.saturating_add(needs.unwrap_or(0));
            ceiling(&mut found, plan, step, needs);
        }
        for finding in &mut found[from..] {
            finding.step_id = Some(step.step_id.clone());
        }
    }
    if plan.context.budget_policy.hard_limit && required > cost::microcents(plan.context.budget_cents) {
        let problem = format!(
            "the steps can cost {} cents without any retry, and the budget is {}",
            cost::cents(required),
            plan.context.budget_cents
        );
        found.push(
            Finding::warning("AOS-61", "budget_small", problem).fix("raise budget_cents, or expect a budget stop"),
        );
    }
    let used: BTreeSet<&str> = plan.steps.iter().map(|step| step.skill_id.as_str()).collect();
    for skill in plan.context.allowed_skills.iter().filter(|skill| !used.contains(skill.as_str())) {
        let problem = format!("allowed_skills lists `{skill}`, which no step uses");
        found.push(Finding::warning("AOS-69", "skill_unused", problem).fix("allow only what the plan needs"));
    }
    if let (Some(currency), Some(card)) = (&plan.context.currency, &card)
        && currency != card.currency()
    {
        let problem =
            format!("the budget is in {currency} and the rate card in {}; nothing is converted", card.currency());
        found.push(Finding::warning("AOS-17", "currency_differs", problem).fix("pin a card in the budget's currency"));
    }
    found
}

/// What one attempt would have to be paid for, where that is known before the run.
fn needs(step: &Step, skill: &dyn PureSkill, card: &RateCard) -> Option<u64> {
    let price = card.price(&skill.metadata().cost_model.rate_card_key, skill.model(&step.parameters))?;
    if price.is_free() || !reference::is_literal(&step.parameters) || skill.check_input(&step.parameters).is_err() {
        return None;
    }
    let bound = price.cost(&skill.usage_bound(&step.parameters)).ok()?;
    Some(bound.max(cost::microcents(skill.metadata().cost_estimate_cents)))
}

fn ceiling(found: &mut Vec<Finding>, plan: &Plan, step: &Step, needs: Option<u64>) {
    let Some((needs, ceiling)) = needs.zip(budget::ceiling(step, &plan.context.budget_policy)) else { return };
    if needs > ceiling {
        let problem =
            format!("one attempt can cost {} cents, and a step may cost {}", cost::cents(needs), cost::cents(ceiling));
        found.push(
            Finding::warning("AOS-61", "ceiling_small", problem)
                .fix("raise max_cost_cents, or limit what the step may use"),
        );
    }
}

fn harmful_retries(found: &mut Vec<Finding>, step: &Step, skill: &dyn PureSkill) {
    let policy = &step.retry_policy;
    if policy.max_retries == 0 || !is_unrepeatable(skill, &step.parameters) {
        return;
    }
    let codes: Vec<&str> =
        policy.retryable_codes.iter().map(String::as_str).filter(|code| !freeze::proves_no_effect(code)).collect();
    if !codes.is_empty() {
        let problem = format!("the effect can happen twice: {} may come after it happened", codes.join(", "));
        found.push(
            Finding::warning("AOS-42", "retry_repeats_effect", problem)
                .fix("remove these codes, or call a target that recognises the effect key"),
        );
    }
}

/// A condition on a failure that would have stopped the run before, or on a step having been made earlier.
fn condition(found: &mut Vec<Finding>, plan: &Plan, step: &Step) {
    let Some(condition) = &step.run_if else { return };
    let stops = plan.steps.iter().find(|other| other.step_id == condition.step_id);
    let stops = stops.is_some_and(|other| other.on_error == OnError::Abort);
    let only_failures = |statuses: &Vec<StepStatus>| statuses.iter().all(|status| *status == StepStatus::Failure);
    let by_status = condition.status_in.as_ref().is_some_and(only_failures);
    let by_code = condition.code_in.as_ref().is_some_and(|codes| codes.iter().all(|code| code.starts_with("ERR_")));
    if stops && (by_status || by_code) {
        let problem = format!("run_if waits for a failure of `{}`, which would stop the run", condition.step_id);
        found.push(
            Finding::warning("AOS-16", "condition_never_holds", problem)
                .fix(format!("set on_error of `{}` to continue", condition.step_id)),
        );
    }
    if condition.code_in.as_ref().is_some_and(|codes| codes.iter().all(|code| code == TAKEN_OVER)) {
        let problem = format!(
            "run_if waits for {TAKEN_OVER} of `{}`, and a step that was made earlier counts as it ended then",
            condition.step_id
        );
        let fix = "name the codes it may have ended with";
        found.push(Finding::warning("AOS-16", "condition_never_holds", problem).fix(fix));
    }
}

/// The code of a step whose effect was made before.
const TAKEN_OVER: &str = "OK_SKIP_DUPLICATE";

/// Names under which a secret is usually passed.
const SECRET_NAMES: [&str; 10] = [
    "password",
    "passwd",
    "api_key",
    "api-key",
    "apikey",
    "authorization",
    "private_key",
    "access_token",
    "client_secret",
    "cookie",
];

/// Plans are shown, hashed and kept, so secrets stand in them by name only.
fn secrets(found: &mut Vec<Finding>, members: &Map<String, Value>) {
    for (name, value) in members {
        let lower = name.to_ascii_lowercase();
        match value {
            Value::String(text) => {
                let suspect = SECRET_NAMES.iter().any(|word| lower.contains(word));
                if suspect && !text.is_empty() && !text.contains("secret://") && !text.contains("{{") {
                    let name = crate::plan::limits::shown(name);
                    found.push(
                        Finding::warning(
                            "AOS-83",
                            "secret_in_plan",
                            format!("`{name}` looks like a secret in clear text"),
                        )
                        .fix("name it as secret://NAME where the skill resolves secrets, which for http_call is in headers"),
                    );
                }
            }
            Value::Object(members) => secrets(found, members),
            Value::Array(elements) => elements.iter().filter_map(Value::as_object).for_each(|it| secrets(found, it)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
