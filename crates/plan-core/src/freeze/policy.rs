//! Retry policies as authors write them, and the policy that is frozen from them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::check::structure::{retryable, unknown_code};
use crate::finding::Finding;
use crate::limits;
use crate::plan::{RetryPolicy, Thousandths};
use crate::skill::{self, PureSkill};
use crate::taxonomy::{self, Taxonomy};

/// What one place says about retries; what it leaves open comes from the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Partial {
    max_retries: Option<u32>,
    backoff_base_ms: Option<u64>,
    backoff_multiplier: Option<Thousandths>,
    codes: Option<Codes>,
    jitter_enabled: Option<bool>,
    jitter_max_ms: Option<u64>,
    max_delay_ms: Option<u64>,
}

/// Codes of the taxonomy, and the spellings some of them were given in.
#[derive(Clone, Debug, Default)]
pub(super) struct Codes {
    pub(super) codes: BTreeSet<String>,
    pub(super) aliases: BTreeMap<String, String>,
}

/// Codes that prove that the effect of an attempt did not happen.
const PROVE_NO_EFFECT: [&str; 4] =
    ["ERR_DNS_FAILURE", "ERR_HTTP_429", "ERR_RATE_LIMIT_CONCURRENT", "ERR_RATE_LIMIT_INTERNAL"];

/// Whether retrying this code can at worst repeat a refusal.
pub(crate) fn proves_no_effect(code: &str) -> bool {
    PROVE_NO_EFFECT.contains(&code)
}

pub(super) fn read(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    place: &str,
    step_id: Option<&str>,
    taxonomy: &Taxonomy,
) -> Partial {
    let mut fields = Fields::new(members, place, step_id, found);
    let rule = "AOS-20";
    fields.refused(
        "jitter_range",
        rule,
        "jitter is a number of milliseconds here, not a share of the delay",
        "use jitter_enabled and jitter_max_ms",
    );
    for name in ["strategy", "backoff_strategy"] {
        match fields.value(&[name]).map(Value::as_str) {
            None | Some(Some("exponential")) => {}
            Some(_) => fields.refused(
                name,
                rule,
                "waits are exponential",
                "for constant waits set backoff_multiplier to 1; linear and fibonacci waits cannot be expressed",
            ),
        }
    }
    let attempts = fields.small(&["max_attempts"]);
    let mut max_retries = fields.small(&["max_retries"]);
    match (max_retries, attempts) {
        (Some(_), Some(_)) => fields.push(
            Finding::error("AOS-11", "field_twice", format!("{place} has both `max_retries` and `max_attempts`"))
                .fix("keep `max_retries`; it counts retries, which are one fewer than attempts"),
        ),
        (None, Some(0)) => fields.push(
            Finding::error(rule, "limit", format!("{place}: max_attempts is 0, and then nothing would ever be tried"))
                .fix("use max_retries 0 for a single attempt"),
        ),
        (None, Some(attempts)) => max_retries = Some(attempts - 1),
        (_, None) => {}
    }
    let codes = fields.texts(&["retryable_codes", "retry_on", "retryable_errors"]);
    let kept = fields.value(&["aliases"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let partial = Partial {
        max_retries,
        backoff_base_ms: base(&mut fields, place),
        backoff_multiplier: fields.typed(&["backoff_multiplier"], "a number from 1 to 10 with at most three decimals"),
        codes: codes.map(|listed| resolve(&mut fields, &listed, &kept, taxonomy)),
        jitter_enabled: fields.flag(&["jitter_enabled"]),
        jitter_max_ms: fields.integer(&["jitter_max_ms"]),
        max_delay_ms: fields.integer(&["max_delay_ms"]),
    };
    fields.finish(rule);
    partial
}

/// The first wait, in milliseconds or seconds.
fn base(fields: &mut Fields<'_, '_>, place: &str) -> Option<u64> {
    let milliseconds = fields.integer(&["backoff_base_ms", "backoff_ms", "initial_delay_ms"]);
    let Some(seconds) = fields.value(&["initial_delay_seconds"]) else { return milliseconds };
    if milliseconds.is_some() {
        let problem = format!("{place} gives the first wait in milliseconds and in seconds");
        fields.push(Finding::error("AOS-11", "field_twice", problem).fix("keep backoff_base_ms"));
        return milliseconds;
    }
    let read = seconds.as_number().and_then(crate::plan::thousandths);
    if read.is_none() {
        let problem = format!("{place}: `initial_delay_seconds` must be a number with at most three decimals");
        fields.push(Finding::error("AOS-20", "field_kind", problem).fix("use backoff_base_ms"));
    }
    read
}

/// Other spellings become the codes they stand for. Spellings that an earlier freezing kept stay.
fn resolve(fields: &mut Fields<'_, '_>, listed: &[String], kept: &Map<String, Value>, taxonomy: &Taxonomy) -> Codes {
    let mut codes = Codes::default();
    for code in listed {
        match spelled(taxonomy, code) {
            Some(known) => {
                if let Some(finding) = retryable(taxonomy, known) {
                    fields.push(finding);
                }
                codes.add(code, known);
            }
            None => fields.push(unknown_code(taxonomy, code, "retryable_codes")),
        }
    }
    codes.keep(kept);
    codes
}

/// The code of the taxonomy that a spelling stands for.
pub(super) fn spelled<'a>(taxonomy: &Taxonomy, code: &'a str) -> Option<&'a str> {
    if taxonomy.code(code).is_some() {
        return Some(code);
    }
    taxonomy::alias(code).filter(|known| taxonomy.code(known).is_some())
}

impl Codes {
    pub(super) fn add(&mut self, spelling: &str, code: &str) {
        self.codes.insert(code.to_owned());
        if spelling != code {
            self.aliases.insert(spelling.to_owned(), code.to_owned());
        }
    }

    pub(super) fn keep(&mut self, kept: &Map<String, Value>) {
        for (spelling, code) in kept {
            if let Some(code) = code.as_str().filter(|code| taxonomy::alias(spelling) == Some(code))
                && self.codes.contains(code)
            {
                self.aliases.insert(spelling.clone(), code.to_owned());
            }
        }
    }
}

/// The policy that is written into a step: what the step says, else the plan, else the skill, else the general default.
pub(super) fn effective(
    step: Option<&Partial>,
    plan: Option<&Partial>,
    skill: Option<&dyn PureSkill>,
    parameters: &Map<String, Value>,
    taxonomy: &Taxonomy,
) -> RetryPolicy {
    let places = [step, plan];
    let authored = || places.iter().copied().flatten();
    let declared = skill.and_then(|skill| skill.metadata().retry.as_ref());
    let default = || skill.map(|skill| default_codes(skill, parameters, taxonomy)).unwrap_or_default();
    let codes = authored().find_map(|place| place.codes.clone()).unwrap_or_else(default);
    RetryPolicy {
        max_retries: authored()
            .find_map(|place| place.max_retries)
            .or(declared.map(|policy| policy.max_retries))
            .unwrap_or(3),
        backoff_base_ms: authored()
            .find_map(|place| place.backoff_base_ms)
            .or(declared.map(|policy| policy.backoff_base_ms))
            .unwrap_or(100),
        backoff_multiplier: authored()
            .find_map(|place| place.backoff_multiplier)
            .or(declared.map(|policy| policy.backoff_multiplier))
            .unwrap_or(Thousandths(2000)),
        retryable_codes: codes.codes.into_iter().collect(),
        jitter_enabled: authored()
            .find_map(|place| place.jitter_enabled)
            .or(declared.map(|policy| policy.jitter_enabled))
            .unwrap_or(false),
        jitter_max_ms: authored()
            .find_map(|place| place.jitter_max_ms)
            .or(declared.map(|policy| policy.jitter_max_ms))
            .unwrap_or(0),
        max_delay_ms: authored()
            .find_map(|place| place.max_delay_ms)
            .or(declared.map(|policy| policy.max_delay_ms))
            .unwrap_or(limits::DELAY_MS_MAX),
        aliases: codes.aliases,
    }
}

/// What the skill can fail with and the taxonomy calls retryable; where repeating does harm, only what proves that
/// nothing happened.
fn default_codes(skill: &dyn PureSkill, parameters: &Map<String, Value>, taxonomy: &Taxonomy) -> Codes {
    let metadata = skill.metadata();
    let listed = metadata.retry.as_ref().map_or(&metadata.failure_modes, |policy| &policy.retryable_codes);
    let harmful = skill::is_unrepeatable(skill, parameters);
    let codes = listed
        .iter()
        .filter(|code| taxonomy.retryable(code) && (!harmful || proves_no_effect(code)))
        .cloned()
        .collect();
    Codes { codes, aliases: BTreeMap::new() }
}
