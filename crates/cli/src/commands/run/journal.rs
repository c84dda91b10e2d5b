//! Entries of a journal as people read them.

use macp_plan_core::budget::Breach;
use macp_plan_core::journal::{Body, BudgetAlert, Class, DedupeVerdict, Entry, LimiterVerdict};
use macp_plan_core::plan::Aliases;
use serde_json::Value;

use crate::money::{cents, span};
use crate::output::Paint;
use crate::table::{self, Cell, Column, right};
use crate::text::{clean, count, cut, spelt};

pub(super) const COLUMNS: &[Column] = &[
    right("SEQ", 5),
    table::left("CLASS", 8),
    table::left("ENTRY", 16),
    table::left("STEP", 10),
    right("TRY", 3),
    table::left("WHAT", 4),
];

/// Characters of an entry's content shown in a table.
const DETAIL_CHARACTERS_MAX: usize = 96;

/// An entry as a row; codes also as the author of the plan wrote them.
pub(super) fn row(entry: &Entry, aliases: &Aliases) -> Vec<Cell> {
    let class = match entry.body.class() {
        Class::Input => Cell::painted(Paint::Name, "input"),
        Class::Decision => Cell::painted(Paint::Faint, "decision"),
    };
    vec![
        entry.seq.to_string().into(),
        class,
        Cell::painted(Paint::Bold, entry.body.kind()),
        clean(entry.body.step_id().unwrap_or_default()).into(),
        entry.body.attempt().map(|attempt| attempt.to_string()).unwrap_or_default().into(),
        cut(&clean(&detail(&entry.body, aliases)), DETAIL_CHARACTERS_MAX).into(),
    ]
}

/// What an entry says, in a few words.
fn detail(body: &Body, aliases: &Aliases) -> String {
    let of_step = |code: &str, step_id: Option<&str>| spelt(code, step_id, aliases);
    let spelt = |code: &str| of_step(code, body.step_id());
    match body {
        Body::RunStarted(start) => format!("plan {} {} epoch {}", start.plan_id, start.plan_hash, start.epoch),
        Body::Admission(admission) => match &admission.code {
            _ if admission.admitted => "admitted".to_owned(),
            Some(code) => format!("refused: {code}"),
            None => "refused".to_owned(),
        },
        Body::StepStarted { request_digest, .. } => match request_digest {
            Some(digest) => format!("request {digest}"),
            None => "a reference does not resolve".to_owned(),
        },
        Body::BudgetChecked { required, remaining, allowed, .. } => {
            let verdict = if *allowed { "allowed" } else { "refused" };
            format!("{verdict}: needs {}, has {}", cents(*required), left(*remaining))
        }
        Body::LimiterVerdict { verdict, .. } => match verdict {
            LimiterVerdict::Allowed => "allowed".to_owned(),
            LimiterVerdict::RateLimited => "refused: too many calls in a minute".to_owned(),
            LimiterVerdict::ConcurrencyLimited => "refused: too many calls at once".to_owned(),
            LimiterVerdict::StorageLimited => "refused: no room left for the agent's runs".to_owned(),
        },
        Body::DedupeVerdict { verdict, reused_run_id, effect_key, .. } => match (verdict, reused_run_id) {
            (DedupeVerdict::New, _) => format!("new {effect_key}"),
            (DedupeVerdict::Duplicate, Some(run)) => format!("done before, by run {run}"),
            (DedupeVerdict::Duplicate, None) => "done before".to_owned(),
            (DedupeVerdict::Conflict, _) => format!("another request has {effect_key}"),
        },
        Body::EffectIntent { effect_type, target, effect_key, .. } => format!("{effect_type} to {target} {effect_key}"),
        Body::AttemptObserved { cause, usage, retry_after_ms, .. } => {
            let cause = compact(&serde_json::to_value(cause).unwrap_or_default());
            let usage = usage.as_ref().map(|usage| compact(&serde_json::to_value(usage).unwrap_or_default()));
            let asked = retry_after_ms.map(|ms| format!("asks for {}", span(ms)));
            [Some(cause), usage, asked].into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
        Body::AttemptJudged { code, cost_microcents, retry, .. } => {
            format!("{}, {}{}", spelt(code), cents(*cost_microcents), if *retry { ", again" } else { "" })
        }
        Body::RetryScheduled { backoff_ms, .. } => format!("after {}", span(*backoff_ms)),
        Body::StepFinished(step) => {
            let status = compact(&serde_json::to_value(step.status).unwrap_or_default());
            let attempts = count(step.total_attempts.into(), "attempt", "attempts");
            format!("{status} {} after {attempts}, {}", spelt(&step.code), cents(step.cost_microcents))
        }
        Body::Observed { facts, .. } => compact(&serde_json::to_value(facts).unwrap_or_default()),
        Body::CancelRequested { by, reason } if by.is_empty() => reason.clone(),
        Body::CancelRequested { by, reason } => format!("by {by}: {reason}"),
        Body::DeadlineReached { limit_ms } => format!("after {}", span(*limit_ms)),
        Body::BudgetAlert(BudgetAlert { threshold_percent, spent, refused: None }) => {
            format!("{} spent, {threshold_percent} % of the budget or more", cents(*spent))
        }
        Body::BudgetAlert(BudgetAlert { refused: Some(refused), .. }) => {
            let limit = match refused.breach {
                Some(Breach::PerStep) => "the ceiling of a step",
                Some(Breach::Budget) | None => "the budget",
            };
            format!("went on past {limit}: needs {}, has {}", cents(refused.required), left(refused.remaining))
        }
        Body::RunFinished(run) => {
            let status = compact(&serde_json::to_value(run.status).unwrap_or_default());
            let step_id = run.stop.as_ref().and_then(|stop| stop.step_id.as_deref());
            let (code, cost) = (of_step(&run.final_code, step_id), cents(run.total_cost_microcents));
            format!("{status} {code}, {cost}, {}", run.behavior_digest)
        }
    }
}

/// What is left of a budget; nothing, if it is overrun.
fn left(remaining: i64) -> String {
    u64::try_from(remaining).map_or_else(|_| "nothing".to_owned(), cents)
}

/// A small value as `name=value` pairs.
fn compact(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let pairs = members.iter().filter(|(_, value)| !matches!(value, Value::Null | Value::Bool(false)));
            pairs.map(|(name, value)| format!("{name}={}", compact(value))).collect::<Vec<_>>().join(" ")
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
