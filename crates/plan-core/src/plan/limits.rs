//! The limits a plan keeps by itself, field by field.

use serde_json::{Map, Value};

use super::{Context, JITTER, Plan, RetryPolicy, RunIf, SPEC, Step, TOKEN_ESTIMATOR};
use crate::finding::Finding;
use crate::limits;

/// Everything in a plan that is beyond a limit, in the order of the document.
pub(crate) fn check(plan: &Plan) -> Vec<Finding> {
    let mut found = Vec::new();
    id(&mut found, "plan_id", &plan.plan_id);
    if !is_date_time(&plan.created_at) {
        found.push(
            limit(
                "AOS-10",
                format!("created_at is `{}`, which is no date and time of RFC 3339", shown(&plan.created_at)),
            )
            .fix("write it as 2026-03-01T09:00:00Z"),
        );
    }
    id(&mut found, "agent_id", &plan.agent_id);
    if !(1..=limits::STEPS_MAX).contains(&plan.steps.len()) {
        found.push(limit(
            "AOS-10",
            format!("a plan has 1 to {} steps, this has {}", limits::STEPS_MAX, plan.steps.len()),
        ));
    }
    for given in &plan.steps {
        let from = found.len();
        step(&mut found, given);
        for finding in &mut found[from..] {
            finding.step_id = Some(shown(&given.step_id));
        }
    }
    context(&mut found, &plan.context);
    pins(&mut found, plan);
    if let Some(metadata) = &plan.metadata {
        nesting(&mut found, "metadata", metadata);
    }
    found
}

fn step(found: &mut Vec<Finding>, step: &Step) {
    name(found, "step_id", &step.step_id);
    if let Some(key) = &step.output_key {
        name(found, "output_key", key);
    }
    if !is_skill_id(&step.skill_id) {
        found.push(
            limit("AOS-13", format!("`{}` is no skill id", shown(&step.skill_id)))
                .fix("a skill id has 1 to 128 characters of a-z, 0-9, `_`, `.` and `-`"),
        );
    }
    if !is_semver(&step.skill_version) {
        found.push(
            limit("AOS-13", format!("`{}` is no exact version", shown(&step.skill_version)))
                .fix("pin one version as MAJOR.MINOR.PATCH, for example 1.2.0; ranges are not accepted"),
        );
    }
    nesting(found, "parameters", &step.parameters);
    retry_policy(found, &step.retry_policy);
    if let Some(timeout) = step.timeout_ms {
        range(found, "AOS-13", "timeout_ms", timeout, 1, limits::TIMEOUT_MS_MAX);
    }
    if let Some(cents) = step.max_cost_cents {
        range(found, "AOS-13", "max_cost_cents", cents, 0, limits::BUDGET_CENTS_MAX);
    }
    if let Some(condition) = &step.run_if {
        run_if(found, condition);
    }
}

fn run_if(found: &mut Vec<Finding>, condition: &RunIf) {
    let tests = condition.status_in.as_ref().map_or(0, Vec::len) + condition.code_in.as_ref().map_or(0, Vec::len);
    if tests == 0 {
        found.push(
            limit("AOS-16", "run_if tests nothing").fix("give status_in or code_in with at least one value".to_owned()),
        );
    }
    if tests > limits::CODES_MAX {
        found.push(limit("AOS-16", format!("run_if lists more than {} values", limits::CODES_MAX)));
    }
}

pub(crate) fn retry_policy(found: &mut Vec<Finding>, policy: &RetryPolicy) {
    range(found, "AOS-20", "max_retries", policy.max_retries.into(), 0, limits::RETRIES_MAX.into());
    range(found, "AOS-20", "backoff_base_ms", policy.backoff_base_ms, 0, limits::BACKOFF_BASE_MS_MAX);
    range(found, "AOS-20", "jitter_max_ms", policy.jitter_max_ms, 0, limits::JITTER_MS_MAX);
    range(found, "AOS-20", "max_delay_ms", policy.max_delay_ms, 0, limits::DELAY_MS_MAX);
    if !policy.retryable_codes.is_sorted_by(|before, after| before < after) {
        found.push(
            limit("AOS-20", "retryable_codes are not sorted, or one is there twice")
                .fix("sort the codes and list each once"),
        );
    }
    if policy.retryable_codes.len() > limits::CODES_MAX {
        found.push(limit("AOS-20", format!("retryable_codes lists more than {} codes", limits::CODES_MAX)));
    }
}

fn context(found: &mut Vec<Finding>, context: &Context) {
    range(found, "AOS-17", "budget_cents", context.budget_cents, 0, limits::BUDGET_CENTS_MAX);
    let policy = &context.budget_policy;
    if let Some(cents) = policy.per_step_max_cents {
        range(found, "AOS-18", "per_step_max_cents", cents, 0, limits::BUDGET_CENTS_MAX);
    }
    if let Some(admission) = &policy.admission {
        for (field, cents) in [
            ("admission.per_run_max_cents", admission.per_run_max_cents),
            ("admission.per_day_max_cents", admission.per_day_max_cents),
            ("admission.per_month_max_cents", admission.per_month_max_cents),
        ] {
            cents.into_iter().for_each(|cents| range(found, "AOS-18", field, cents, 0, limits::BUDGET_CENTS_MAX));
        }
    }
    range(found, "AOS-18", "alert_threshold_percent", policy.alert_threshold_percent.into(), 0, 100);
    id(found, "policy_version", &policy.policy_version);
    // One more than is listed shows that there are more.
    for skill in context.allowed_skills.iter().filter(|skill| !is_skill_id(skill)).take(limits::FINDINGS_MAX + 1) {
        found.push(limit("AOS-17", format!("allowed_skills lists `{}`, which is no skill id", shown(skill))));
    }
    if let Some(currency) = &context.currency {
        id(found, "currency", currency);
    }
}

/// Only what is wrong whoever executes the plan; whether a pin is available is asked later.
fn pins(found: &mut Vec<Finding>, plan: &Plan) {
    let pins = &plan.pins;
    for (field, pinned) in [
        ("pins.spec", &pins.spec),
        ("pins.taxonomy_version", &pins.taxonomy_version),
        ("pins.jitter", &pins.jitter),
        ("pins.token_estimator", &pins.token_estimator),
        ("pins.rate_card.id", &pins.rate_card.id),
    ] {
        id(found, field, pinned);
    }
    if let Some(card) = &pins.rate_card.card {
        let size = macp_wire::canonical::to_string(card).map_or(usize::MAX, |text| text.len());
        if size > limits::EMBEDDED_CARD_BYTES_MAX {
            let problem = format!("the embedded rate card has more than {} bytes", limits::EMBEDDED_CARD_BYTES_MAX);
            found.push(limit("AOS-14", problem).fix("pin the card by id and digest alone"));
        }
    }
}

/// The spec, jitter and estimator pins that this runtime implements.
pub(crate) const KNOWN_PINS: [(&str, &str); 3] =
    [("spec", SPEC), ("jitter", JITTER), ("token_estimator", TOKEN_ESTIMATOR)];

fn nesting(found: &mut Vec<Finding>, field: &str, members: &Map<String, Value>) {
    if members.values().any(|member| deeper_than(member, limits::NESTING_MAX - 1)) {
        found.push(limit("AOS-12", format!("{field} nest deeper than {} levels", limits::NESTING_MAX)));
    }
}

fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(elements) => levels == 0 || elements.iter().any(|element| deeper_than(element, levels - 1)),
        Value::Object(members) => levels == 0 || members.values().any(|member| deeper_than(member, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn range(found: &mut Vec<Finding>, rule: &'static str, field: &str, given: u64, least: u64, most: u64) {
    if !(least..=most).contains(&given) {
        found.push(limit(rule, format!("{field} is {given}, which is not from {least} to {most}")));
    }
}

fn id(found: &mut Vec<Finding>, field: &str, given: &str) {
    if !(1..=limits::ID_MAX).contains(&given.chars().count()) {
        found.push(limit("AOS-12", format!("{field} must have 1 to {} characters", limits::ID_MAX)));
    }
}

fn name(found: &mut Vec<Finding>, field: &str, given: &str) {
    if !is_step_id(given) {
        found.push(
            limit("AOS-12", format!("{field} is `{}`", shown(given)))
                .fix("use 1 to 64 characters of letters, digits, `.`, `_` and `-`"),
        );
    }
}

fn limit(rule: &'static str, problem: impl Into<String>) -> Finding {
    Finding::error(rule, "limit", problem)
}

/// What was given, cut to a length that is fit to be shown.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(limits::STEP_ID_MAX).collect()
}

pub(crate) fn is_step_id(text: &str) -> bool {
    (1..=limits::STEP_ID_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[must_use]
pub fn is_skill_id(text: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-');
    (1..=limits::ID_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// `MAJOR.MINOR.PATCH`, with an optional pre-release part, as semantic versioning has them. Numbers have at most nine
/// digits.
#[must_use]
pub fn is_semver(text: &str) -> bool {
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| (1..=9).contains(&part.len()) && digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| {
        let plain = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !part.is_empty() && plain && (!digits(part) || number(part))
    };
    text.len() <= limits::ID_MAX
        && core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(word))
}

/// The form of a date and time of RFC 3339, with every part inside its range.
pub(crate) fn is_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let number = |from: usize, digits: usize| {
        let part = bytes.get(from..from + digits)?;
        part.iter().try_fold(0_u32, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0')))
    };
    let within = |from: usize, digits: usize, least: u32, most: u32| {
        number(from, digits).is_some_and(|value| (least..=most).contains(&value))
    };
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let fixed = marks.iter().all(|(place, mark)| bytes.get(*place) == Some(mark))
        && matches!(bytes.get(10), Some(b'T' | b't'))
        && number(0, 4).is_some()
        && within(5, 2, 1, 12)
        && within(8, 2, 1, 31)
        && within(11, 2, 0, 23)
        && within(14, 2, 0, 59)
        && within(17, 2, 0, 60);
    let mut end = 19;
    if bytes.get(end) == Some(&b'.') {
        let digits = bytes.iter().skip(end + 1).take_while(|digit| digit.is_ascii_digit()).count();
        if digits == 0 {
            return false;
        }
        end += 1 + digits;
    }
    let zone = match bytes.get(end) {
        Some(b'Z' | b'z') => bytes.len() == end + 1,
        Some(b'+' | b'-') => {
            bytes.len() == end + 6
                && bytes.get(end + 3) == Some(&b':')
                && within(end + 1, 2, 0, 23)
                && within(end + 4, 2, 0, 59)
        }
        _ => false,
    };
    fixed && zone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        for good in ["0.0.0", "1.2.0", "10.20.30", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-x-y.0"] {
            assert!(is_semver(good), "{good}");
        }
        for bad in
            ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+build"]
        {
            assert!(!is_semver(bad), "{bad}");
        }
        assert!(!is_semver("1234567890.0.0"), "a number nobody counts to");
    }
}
