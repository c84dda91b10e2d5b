//! Which facts from outside differ between two runs: the only thing that can excuse a difference in behaviour.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::journal::{Body, Class, DedupeVerdict, Entry};

/// A fact that is not the same in two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputChanged {
    pub step_id: Option<String>,
    pub attempt: Option<u32>,
    pub field: String,
    pub original: Value,
    pub replay: Value,
    /// Place in the original's journal.
    pub seq: Option<u64>,
}

type Key = (String, u32, &'static str);

/// Compares the inputs of the attempts both runs made, and what interrupted them.
#[must_use]
pub fn inputs_changed(original: &[Entry], replay: &[Entry]) -> Vec<InputChanged> {
    let (one, other) = (facts(original), facts(replay));
    let mut changed = Vec::new();
    for ((step_id, attempt, field), (seq, first)) in &one {
        let second = match other.get(&(step_id.clone(), *attempt, *field)) {
            Some((_, second)) => second.clone(),
            None if stands_alone(field, first) => Value::Null,
            None => continue,
        };
        if *first != second {
            changed.push(change(step_id, *attempt, field, (first.clone(), second), Some(*seq)));
        }
    }
    for ((step_id, attempt, field), (_, second)) in &other {
        if stands_alone(field, second) && !one.contains_key(&(step_id.clone(), *attempt, *field)) {
            changed.push(change(step_id, *attempt, field, (Value::Null, second.clone()), None));
        }
    }
    changed.sort_by_key(|changed| changed.seq.unwrap_or(u64::MAX));
    changed
}

/// Whether a fact says something where the other run has none in its place: what interrupts a run, and that a step need
/// not or must not be carried out. Of what is asked for at every attempt, the missing ones follow from the others.
fn stands_alone(field: &str, value: &Value) -> bool {
    match field {
        "cancel_requested" | "deadline_reached" => true,
        "dedupe_verdict" => *value != json!(DedupeVerdict::New),
        _ => false,
    }
}

fn change(step_id: &str, attempt: u32, field: &str, values: (Value, Value), seq: Option<u64>) -> InputChanged {
    let in_step = !step_id.is_empty();
    InputChanged {
        step_id: in_step.then(|| step_id.to_owned()),
        attempt: in_step.then_some(attempt),
        field: field.to_owned(),
        original: values.0,
        replay: values.1,
        seq,
    }
}

/// Every fact by where it was asked for. An interruption belongs to the step and attempt it interrupts.
fn facts(entries: &[Entry]) -> BTreeMap<Key, (u64, Value)> {
    let mut facts = BTreeMap::new();
    let (mut step, mut attempt) = (String::new(), 0);
    for Entry { seq, body } in entries {
        if let Body::StepStarted { step_id, .. } = body {
            (step, attempt) = (step_id.clone(), 0);
        }
        attempt = body.attempt().unwrap_or(attempt);
        if body.class() != Class::Input {
            continue;
        }
        let mut fact = |field, value| {
            facts.entry((step.clone(), attempt, field)).or_insert((*seq, value));
        };
        match body {
            Body::Admission(admission) => {
                fact("admission", json!({"admitted": admission.admitted, "code": admission.code}))
            }
            Body::LimiterVerdict { verdict, .. } => fact("limiter_verdict", json!(verdict)),
            Body::DedupeVerdict { verdict, reused, .. } => {
                fact("dedupe_verdict", json!(verdict));
                fact("reused", json!(reused));
            }
            Body::AttemptObserved { cause, usage, retry_after_ms, output, .. } => {
                fact("cause", json!(cause));
                fact("usage", json!(usage));
                fact("retry_after_ms", json!(retry_after_ms));
                fact("output_ref", json!(output.output_ref));
            }
            Body::CancelRequested { .. } => fact("cancel_requested", json!(true)),
            Body::DeadlineReached { limit_ms } => fact("deadline_reached", json!(limit_ms)),
            _ => {}
        }
    }
    facts
}
