//! The behaviour of a run: its decisions, gathered by step from the journal, without anything that may vary.

use std::collections::BTreeMap;

use macp_wire::canonical::INTEGER_MAX;
use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::Breach;
use crate::cost::{CostBasis, Usage};
use crate::digest::{self, BEHAVIOR_LABEL, Digest};
use crate::journal::{Body, BudgetAlert, Entry, RunFinished, StepFinished, Stop};

/// What a run did, as far as a replay must do it too.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Behavior {
    /// Steps in the order in which they started.
    pub steps: Vec<StepBehavior>,
    pub finished: Option<RunFinished>,
    /// Place of the run's end in the journal.
    pub finished_seq: Option<u64>,
    /// What was told about the budget, each with its place in the journal.
    #[serde(skip)]
    pub(crate) alerts: Vec<(u64, BudgetAlert)>,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct StepBehavior {
    pub step_id: String,
    pub index: u32,
    pub seq: u64,
    pub request_digest: Option<Digest>,
    pub budget_checks: Vec<BudgetCheck>,
    pub effects: Vec<EffectMade>,
    pub attempts: Vec<Attempt>,
    pub finished: Option<StepFinished>,
    pub finished_seq: Option<u64>,
    /// An effect key was asked about.
    #[serde(skip)]
    pub(crate) claimed: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct BudgetCheck {
    pub seq: u64,
    pub attempt: u32,
    pub bound: Usage,
    pub required: u64,
    pub remaining: i64,
    pub allowed: bool,
    pub breach: Option<Breach>,
}

#[derive(Clone, Debug, Serialize)]
pub struct EffectMade {
    pub seq: u64,
    pub attempt: u32,
    pub effect_type: String,
    pub target: String,
    pub effect_key: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    pub seq: u64,
    pub attempt: u32,
    pub code: String,
    pub retryable: bool,
    pub cost_microcents: u64,
    pub cost_basis: CostBasis,
    /// Whether another attempt was due. Its budget may still have refused it.
    pub retry: bool,
    /// The wait before the next attempt, by formula, if one was scheduled.
    pub backoff_ms: Option<u64>,
    /// The entry that says so.
    #[serde(skip)]
    pub(crate) scheduled_seq: Option<u64>,
}

impl Behavior {
    /// Gathers the decisions of a journal or of a part of one.
    #[must_use]
    pub fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Self {
        let mut behavior = Self::default();
        for entry in entries {
            behavior.add(entry.seq, &entry.body);
        }
        behavior
    }

    pub(crate) fn add(&mut self, seq: u64, body: &Body) {
        match body {
            Body::StepStarted { step_id, index, request_digest } => {
                self.places.insert(step_id.clone(), self.steps.len());
                self.steps.push(StepBehavior {
                    step_id: step_id.clone(),
                    index: *index,
                    seq,
                    request_digest: request_digest.clone(),
                    ..StepBehavior::default()
                });
            }
            Body::RunFinished(finished) => {
                self.finished = Some(finished.clone());
                self.finished_seq = Some(seq);
            }
            Body::BudgetAlert(alert) => self.alerts.push((seq, alert.clone())),
            _ => {
                let Some(step_id) = body.step_id() else { return };
                // Mostly it is the step that started last.
                let is_last = self.steps.last().is_some_and(|last| last.step_id == step_id);
                let place = if is_last { self.steps.len().checked_sub(1) } else { self.places.get(step_id).copied() };
                if let Some(step) = place.and_then(|place| self.steps.get_mut(place)) {
                    step.add(seq, body);
                }
            }
        }
    }

    #[must_use]
    pub fn step(&self, step_id: &str) -> Option<&StepBehavior> {
        self.steps.get(*self.places.get(step_id)?)
    }
}

impl StepBehavior {
    fn add(&mut self, seq: u64, body: &Body) {
        match body {
            Body::BudgetChecked { attempt, bound, required, remaining, allowed, breach, .. } => {
                self.budget_checks.push(BudgetCheck {
                    seq,
                    attempt: *attempt,
                    bound: *bound,
                    required: *required,
                    remaining: *remaining,
                    allowed: *allowed,
                    breach: *breach,
                });
            }
            Body::EffectIntent { attempt, effect_type, target, effect_key, .. } => self.effects.push(EffectMade {
                seq,
                attempt: *attempt,
                effect_type: effect_type.clone(),
                target: target.clone(),
                effect_key: effect_key.clone(),
            }),
            Body::AttemptJudged { attempt, code, retryable, cost_microcents, cost_basis, retry, .. } => {
                self.attempts.push(Attempt {
                    seq,
                    attempt: *attempt,
                    code: code.clone(),
                    retryable: *retryable,
                    cost_microcents: *cost_microcents,
                    cost_basis: *cost_basis,
                    retry: *retry,
                    backoff_ms: None,
                    scheduled_seq: None,
                });
            }
            Body::RetryScheduled { backoff_ms, .. } => {
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.backoff_ms = Some(*backoff_ms);
                    attempt.scheduled_seq = Some(seq);
                }
            }
            Body::DedupeVerdict { .. } => self.claimed = true,
            Body::StepFinished(finished) => {
                self.finished = Some(finished.clone());
                self.finished_seq = Some(seq);
            }
            _ => {}
        }
    }
}

/// The digest of a run's behaviour: equal digests mean that two runs behaved alike.
#[must_use]
pub fn digest(plan_hash: &Digest, steps: &[StepFinished], stop: Option<&Stop>, total_cost_microcents: u64) -> Digest {
    let steps: Vec<Value> = steps.iter().map(step_value).collect();
    let behavior = json!({
        "plan_hash": plan_hash,
        "steps": steps,
        "stop": stop,
        "total_cost_microcents": total_cost_microcents.min(INTEGER_MAX),
    });
    digest::of_value(BEHAVIOR_LABEL, &behavior).expect("costs are within what canonical JSON writes")
}

fn step_value(step: &StepFinished) -> Value {
    json!({
        "step_id": step.step_id,
        "skill_id": step.skill_id,
        "skill_version": step.skill_version,
        "status": step.status,
        "code": step.code,
        "retryable": step.retryable,
        "cost_microcents": step.cost_microcents.min(INTEGER_MAX),
        "backend_retries": step.backend_retries,
        "attempt_codes": step.attempt_codes,
        "side_effects": step.side_effects,
    })
}
