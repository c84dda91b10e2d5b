//! Steps of which nobody knows whether they took effect.

use macp_plan::result::{IN_DOUBT_BY, RunResult, StepResult};
use macp_plan_core::journal::{EFFECT, EFFECT_UNKNOWN};
use serde_json::Value;

/// The code of a step whose effect is another's.
pub(super) const CONFLICT: &str = "ERR_IDEMPOTENCY_CONFLICT";

pub(super) fn step<'a>(result: &'a RunResult, step_id: &str) -> Option<&'a StepResult> {
    result.steps.iter().find(|step| step.step_id == step_id)
}

pub(super) fn is_settled(result: &RunResult, step_id: &str) -> bool {
    result.settled.iter().any(|settled| settled.step_id == step_id)
}

/// Steps whose effect may have taken place although they failed.
pub(super) fn unknown(result: &RunResult) -> impl Iterator<Item = &StepResult> {
    result.steps.iter().filter(|step| is_unknown(step))
}

pub(super) fn is_unknown(step: &StepResult) -> bool {
    step.outcome.details.get(EFFECT).and_then(Value::as_str) == Some(EFFECT_UNKNOWN)
}

/// Whether a step was not called because another run may have brought its effect about. What is to be done is said with
/// it, and is not what to do about an effect that was claimed for another request.
pub(super) fn is_in_doubt_elsewhere(step: &StepResult) -> bool {
    step.final_code == CONFLICT && step.outcome.details.contains_key(IN_DOUBT_BY)
}
