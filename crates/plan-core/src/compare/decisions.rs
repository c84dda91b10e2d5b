//! What a recording says beside the behaviour it adds up to.
//!
//! A mock replay has the inputs of the original, so that every decision must come out as it was recorded, down to the
//! figures that no aspect compares for itself: they may differ between two runs in two worlds, not here.

use super::Aspect;
use super::behaviors::{Comparison, Place};
use crate::behavior::{Behavior, StepBehavior};

impl Comparison {
    /// Compares what [`behaviors`](super::behaviors) leaves out. For when that found nothing: what follows from a
    /// difference is not told beside it.
    pub(crate) fn decisions(&mut self, original: &Behavior, replay: &Behavior) {
        for one in &original.steps {
            if let Some(other) = replay.step(&one.step_id) {
                self.step_decisions(one, other);
            }
        }
        for ((seq, one), (_, other)) in original.alerts.iter().zip(&replay.alerts) {
            let refused = one.refused.as_ref();
            let (step_id, attempt) = (refused.map(|it| it.step_id.as_str()), refused.map(|it| it.attempt));
            let place = Place { step_id, attempt, seq: Some(*seq) };
            self.equal((Aspect::BudgetEnforcement, "budget_alert"), place, one, other, || {
                "what is told about a budget follows from what was spent and which checks were refused (AOS-18, AOS-64)"
                    .to_owned()
            });
        }
        if let (Some(one), Some(other)) = (&original.finished, &replay.finished) {
            let place = Place { seq: original.finished_seq, ..Place::default() };
            self.equal((Aspect::BudgetEnforcement, "run.budget"), place, &one.budget, &other.budget, || {
                "what remains of a budget follows from what was spent (AOS-58, AOS-61)".to_owned()
            });
        }
    }

    fn step_decisions(&mut self, one: &StepBehavior, other: &StepBehavior) {
        let place = |attempt, seq| Place { step_id: Some(&one.step_id), attempt, seq: Some(seq) };
        self.equal((Aspect::StepOrder, "index"), place(None, one.seq), &one.index, &other.index, || {
            "a step has its place in the plan (AOS-67)".to_owned()
        });
        for (first, second) in one.attempts.iter().zip(&other.attempts) {
            let place = place(Some(first.attempt), first.seq);
            self.equal((Aspect::RetryCount, "attempts.retry"), place, &first.retry, &second.retry, || {
                "whether there is another attempt follows from policy and code (AOS-40)".to_owned()
            });
            let (basis, field) = ((first.cost_basis, second.cost_basis), "attempts.cost_basis");
            self.equal((Aspect::CostCents, field), place, &basis.0, &basis.1, || {
                "whether a charge is metered, flat, reserved or none follows from cause and usage (AOS-57)".to_owned()
            });
            self.equal((Aspect::Retryable, "attempts.retryable"), place, &first.retryable, &second.retryable, || {
                "whether a code is retryable is looked up in the pinned taxonomy (AOS-26)".to_owned()
            });
        }
        // Not what the skill said an attempt uses at most: only what that costs decides anything.
        for (first, second) in one.budget_checks.iter().zip(&other.budget_checks) {
            let place = place(Some(first.attempt), first.seq);
            let rule =
                || "what is required and what remains follows from prices and bounds (AOS-61, AOS-62)".to_owned();
            let aspect = Aspect::BudgetEnforcement;
            self.equal((aspect, "budget_checked.required"), place, &first.required, &second.required, rule);
            self.equal((aspect, "budget_checked.remaining"), place, &first.remaining, &second.remaining, rule);
        }
        for (first, second) in one.effects.iter().zip(&other.effects) {
            let place = place(Some(first.attempt), first.seq);
            self.equal((Aspect::SideEffects, "effect_key"), place, &first.effect_key, &second.effect_key, || {
                "the key of an effect follows from the run, the plan and the step (AOS-75)".to_owned()
            });
        }
        if let (Some(first), Some(second)) = (&one.finished, &other.finished) {
            let place = place(None, one.finished_seq.unwrap_or(one.seq));
            let counts = (&first.total_attempts, &second.total_attempts);
            self.equal((Aspect::RetryCount, "total_attempts"), place, counts.0, counts.1, || {
                "the end of a step sums up its attempts (AOS-24)".to_owned()
            });
        }
    }
}
