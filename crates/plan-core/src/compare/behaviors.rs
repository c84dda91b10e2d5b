//! Two behaviours, side by side.
//!
//! Every aspect is compared on what both runs did; that one of them did more is reported under the aspect that is about
//! that: more attempts under the retry count, more steps under the order, more effects under the effects.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{Aspect, Evaluated, Mismatch, Origin, Skipped};
use crate::behavior::{Behavior, StepBehavior};
use crate::journal::{RunFinished, StepFinished, StopReason};
use crate::plan::{Plan, Step};

/// What two behaviours have in common and where they part.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    pub mismatches: Vec<Mismatch>,
    /// Aspects of which something was compared.
    pub looked_at: BTreeSet<Aspect>,
    pub skipped: Vec<Skipped>,
    pub evaluated: Evaluated,
}

/// Where in a run something is compared.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    pub(super) step_id: Option<&'a str>,
    pub(super) attempt: Option<u32>,
    pub(super) seq: Option<u64>,
}

/// Compares two behaviours under one plan. Every difference is put down to the runtime; whoever knows better says so
/// afterwards.
#[must_use]
pub fn behaviors(plan: &Plan, original: &Behavior, replay: &Behavior) -> Comparison {
    let mut comparison = Comparison::default();
    if original.finished.is_some() && replay.finished.is_some() {
        comparison.looked_at.extend(Aspect::ALL);
    }
    comparison.order(original, replay);
    for one in &original.steps {
        let Some(other) = replay.step(&one.step_id) else { continue };
        comparison.evaluated.steps += 1;
        let step = usize::try_from(one.index).ok().and_then(|index| plan.steps.get(index));
        comparison.step(step.filter(|step| step.step_id == one.step_id), one, other);
    }
    if let (Some(one), Some(other)) = (&original.finished, &replay.finished) {
        comparison.run(one, other, original, replay);
    }
    comparison
}

impl Comparison {
    pub(super) fn equal<T: PartialEq + Serialize>(
        &mut self,
        (aspect, field): (Aspect, &str),
        place: Place<'_>,
        original: &T,
        replay: &T,
        why: impl FnOnce() -> String,
    ) {
        self.looked_at.insert(aspect);
        if original != replay {
            self.mismatches.push(Mismatch {
                aspect,
                step_id: place.step_id.map(str::to_owned),
                attempt: place.attempt,
                seq: place.seq,
                field: field.to_owned(),
                original: value(original),
                replay: value(replay),
                cause: Origin::Runtime,
                why: why(),
            });
        }
    }

    fn order(&mut self, original: &Behavior, replay: &Behavior) {
        let both_ended = original.finished.is_some() && replay.finished.is_some();
        let shorter = original.steps.len().min(replay.steps.len());
        let ids = |behavior: &Behavior| -> Vec<String> {
            let length = if both_ended { behavior.steps.len() } else { shorter };
            behavior.steps.iter().take(length).map(|step| step.step_id.clone()).collect()
        };
        let (one, other) = (ids(original), ids(replay));
        if shorter == 0 && !both_ended {
            return;
        }
        let parted = one.iter().zip(&other).position(|(one, other)| one != other).unwrap_or(shorter);
        let step = original.steps.get(parted);
        let place = Place {
            step_id: step.map(|step| step.step_id.as_str()),
            attempt: None,
            seq: step.map(|step| step.seq).or(original.finished_seq),
        };
        self.equal((Aspect::StepOrder, "steps"), place, &one, &other, || {
            "steps run in the order of the plan, and a run that stops reaches none of the later ones (AOS-67, AOS-70)"
                .to_owned()
        });
        if let (Some(one), Some(other)) = (&original.finished, &replay.finished) {
            let place = Place { seq: original.finished_seq, ..Place::default() };
            self.equal((Aspect::StepOrder, "not_reached"), place, &one.not_reached, &other.not_reached, || {
                "steps after the stop are not reached (AOS-28)".to_owned()
            });
        }
    }

    fn step(&mut self, step: Option<&Step>, one: &StepBehavior, other: &StepBehavior) {
        self.attempts(one, other);
        self.budget(one, other);
        self.effects(one, other);
        if let (Some(first), Some(second)) = (&one.finished, &other.finished) {
            let place = Place { step_id: Some(&one.step_id), attempt: None, seq: one.finished_seq };
            self.retries(step, one, other, first, second);
            self.outcome(place, first, second);
            self.summary(place, (one, first), (other, second));
        }
    }

    fn attempts(&mut self, one: &StepBehavior, other: &StepBehavior) {
        for (first, second) in one.attempts.iter().zip(&other.attempts) {
            self.evaluated.attempts += 1;
            let place = Place { step_id: Some(&one.step_id), attempt: Some(first.attempt), seq: Some(first.seq) };
            self.equal((Aspect::ErrorCodes, "attempts.code"), place, &first.code, &second.code, || {
                "the code of an attempt follows from its recorded cause and the pinned taxonomy (AOS-36)".to_owned()
            });
            let costs = (&first.cost_microcents, &second.cost_microcents);
            self.equal((Aspect::CostCents, "attempts.cost_microcents"), place, costs.0, costs.1, || {
                "the cost of an attempt follows from its usage and the pinned prices (AOS-54)".to_owned()
            });
            let place = Place { seq: first.scheduled_seq, ..place };
            if first.code == second.code
                && let (Some(first), Some(second)) = (first.backoff_ms, second.backoff_ms)
            {
                self.equal((Aspect::BackoffMs, "attempts.backoff_ms"), place, &first, &second, || {
                    "the wait follows from policy, attempt and jitter seed (AOS-44, AOS-46)".to_owned()
                });
            }
        }
    }

    fn retries(
        &mut self,
        step: Option<&Step>,
        one: &StepBehavior,
        other: &StepBehavior,
        first: &StepFinished,
        second: &StepFinished,
    ) {
        let last = one.attempts.len().min(other.attempts.len()).checked_sub(1).and_then(|last| one.attempts.get(last));
        // With as many attempts in both, they part where the attempts are counted.
        let parted = last.filter(|_| one.attempts.len() != other.attempts.len());
        let place = Place {
            step_id: Some(&one.step_id),
            attempt: last.map(|last| last.attempt),
            seq: parted.map(|last| last.seq).or(one.finished_seq),
        };
        let (aspect, field) = (Aspect::RetryCount, "observability.backend_retries");
        self.equal((aspect, field), place, &first.backend_retries, &second.backend_retries, || {
            let Some((step, last)) = step.zip(last) else { return "retries follow from policy and code (AOS-40)".to_owned() };
            let policy = &step.retry_policy;
            let listed = if policy.retryable_codes.contains(&last.code) { "lists" } else { "does not list" };
            format!(
                "attempt {} ended {}; the policy allows {} retries and {listed} that code; {} were made, then {} (AOS-40)",
                last.attempt, last.code, policy.max_retries, first.backend_retries, second.backend_retries
            )
        });
    }

    fn budget(&mut self, one: &StepBehavior, other: &StepBehavior) {
        for first in &one.budget_checks {
            let Some(second) = other.budget_checks.iter().find(|check| check.attempt == first.attempt) else {
                continue;
            };
            let place = Place { step_id: Some(&one.step_id), attempt: Some(first.attempt), seq: Some(first.seq) };
            let verdict = |check: &crate::behavior::BudgetCheck| (check.allowed, check.breach);
            let field = (Aspect::BudgetEnforcement, "budget_checked.allowed");
            let (verdict_one, verdict_other) = (verdict(first), verdict(second));
            self.equal(field, place, &verdict_one, &verdict_other, || {
                format!(
                    "{} was required with {} remaining, then {} with {}; allowed if it fits the budget and the step's ceiling (AOS-61)",
                    first.required, first.remaining, second.required, second.remaining
                )
            });
        }
    }

    fn effects(&mut self, one: &StepBehavior, other: &StepBehavior) {
        let both_ended = one.finished.is_some() && other.finished.is_some();
        let (first, second) = (&one.effects, &other.effects);
        if both_ended {
            // They part at the first effect that one of them lacks; what the original lacks it has no entry of.
            let (lacking, surplus) = (first.get(second.len()), second.get(first.len()));
            let place = Place {
                step_id: Some(&one.step_id),
                attempt: lacking.or(surplus).map(|effect| effect.attempt),
                seq: lacking.map(|effect| effect.seq).or(one.finished_seq),
            };
            self.equal((Aspect::SideEffects, "count"), place, &first.len(), &second.len(), || {
                "every dispatch lists its effects, and nothing else does (AOS-74)".to_owned()
            });
        }
        for (first, second) in first.iter().zip(second) {
            let place = Place { step_id: Some(&one.step_id), attempt: Some(first.attempt), seq: Some(first.seq) };
            let rule = || "effects follow from the skill and the resolved parameters (AOS-22, AOS-27)".to_owned();
            self.equal((Aspect::SideEffects, "type"), place, &first.effect_type, &second.effect_type, rule);
            self.equal((Aspect::SideEffects, "target"), place, &first.target, &second.target, rule);
        }
    }

    fn outcome(&mut self, place: Place<'_>, one: &StepFinished, other: &StepFinished) {
        self.equal((Aspect::ErrorCodes, "code"), place, &one.code, &other.code, || {
            "the code of a step is that of what ended it (AOS-36)".to_owned()
        });
        let rule =
            || "the cost of a step is the sum over its attempts at the pinned prices (AOS-54, AOS-58)".to_owned();
        self.equal((Aspect::CostCents, "cost_microcents"), place, &one.cost_microcents, &other.cost_microcents, rule);
        self.equal((Aspect::CostCents, "cost_cents"), place, &one.cost_cents, &other.cost_cents, rule);
        self.equal((Aspect::Status, "status"), place, &one.status, &other.status, || {
            "the status follows from the code and from what ended the step (AOS-25)".to_owned()
        });
        self.equal((Aspect::Retryable, "retryable"), place, &one.retryable, &other.retryable, || {
            "whether a code is retryable is looked up in the pinned taxonomy (AOS-26)".to_owned()
        });
        let pins = (&one.skill_id, &one.skill_version);
        let rule = || "the plan pins the skill and its version (AOS-6)".to_owned();
        self.equal((Aspect::SkillPins, "metadata.skill_id"), place, pins.0, &other.skill_id, rule);
        self.equal((Aspect::SkillPins, "metadata.skill_version"), place, pins.1, &other.skill_version, rule);
    }

    /// What the end of a step repeats of its attempts: compared where the attempts themselves do not differ already.
    fn summary(
        &mut self,
        place: Place<'_>,
        (one, first): (&StepBehavior, &StepFinished),
        (other, second): (&StepBehavior, &StepFinished),
    ) {
        let rule = || "the end of a step sums up its attempts (AOS-24)".to_owned();
        let effects = |step: &StepBehavior| -> Vec<(String, String)> {
            step.effects.iter().map(|effect| (effect.effect_type.clone(), effect.target.clone())).collect()
        };
        if effects(one) == effects(other) {
            let field = (Aspect::SideEffects, "side_effects");
            self.equal(field, place, &first.side_effects, &second.side_effects, rule);
        }
        let codes = |step: &StepBehavior| -> Vec<String> { step.attempts.iter().map(|it| it.code.clone()).collect() };
        if codes(one) == codes(other) {
            let field = (Aspect::ErrorCodes, "attempt_codes");
            self.equal(field, place, &first.attempt_codes, &second.attempt_codes, rule);
        }
    }

    fn run(&mut self, one: &RunFinished, other: &RunFinished, original: &Behavior, replay: &Behavior) {
        let place = Place { seq: original.finished_seq, ..Place::default() };
        self.equal((Aspect::RetryCount, "retry_count"), place, &one.retry_count, &other.retry_count, || {
            "retries of the run are the sum over its steps (AOS-28)".to_owned()
        });
        self.equal((Aspect::ErrorCodes, "final_code"), place, &one.final_code, &other.final_code, || {
            "the run ends with the code of its last outcome (AOS-28)".to_owned()
        });
        let total = (&one.total_cost_microcents, &other.total_cost_microcents);
        let rule = || "the cost of a run is the sum over its attempts (AOS-58)".to_owned();
        self.equal((Aspect::CostCents, "total_cost_microcents"), place, total.0, total.1, rule);
        let total = (&one.total_cost_cents, &other.total_cost_cents);
        self.equal((Aspect::CostCents, "total_cost_cents"), place, total.0, total.1, rule);
        self.equal((Aspect::Status, "run.status"), place, &one.status, &other.status, || {
            "the status of a run follows from what stopped it, if anything did (AOS-70)".to_owned()
        });
        let stops = (budget_stop(one, original), budget_stop(other, replay));
        self.equal((Aspect::BudgetEnforcement, "stop"), place, &stops.0, &stops.1, || {
            "a run that stops for budget stops at the same step and attempt again (AOS-65)".to_owned()
        });
    }
}

/// Where a run stopped for budget: the step, and the attempt that was refused.
fn budget_stop(finished: &RunFinished, behavior: &Behavior) -> Option<(String, Option<u32>)> {
    let stop = finished.stop.as_ref().filter(|stop| stop.reason == StopReason::Budget)?;
    let step_id = stop.step_id.clone()?;
    let attempt = behavior.step(&step_id).and_then(|step| step.budget_checks.last()).map(|check| check.attempt);
    Some((step_id, attempt))
}

fn value<T: Serialize>(of: &T) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Null)
}
