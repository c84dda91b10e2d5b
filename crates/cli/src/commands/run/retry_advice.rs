//! Whether to try a run again, and what that would come to.

use macp_plan::result::{RunResult, SECRET_WITHHELD, StepResult};
use macp_plan::skills::json_transform;
use macp_plan::store::Status;
use macp_plan_core::journal::RunMode;
use macp_plan_core::plan::StepStatus;
use serde_json::Value;

use super::doubt::{CONFLICT, is_in_doubt_elsewhere, is_settled, step, unknown};

/// The code of a step that was not paid for.
const OVER_BUDGET: &str = "ERR_BUDGET_EXCEEDED";

/// The code of a step whose parameters make no sense.
const INVALID: &str = "ERR_VALIDATION_FAILED";

/// Whether a step that stopped a run would do so again, whatever happens meanwhile: its effect belongs to another
/// request, an output that is there lacks what it asks for or holds what must not be sent on, no budget is large enough
/// for it, or it makes the same of the same.
fn is_hopeless(result: &RunResult, stopped: &StepResult) -> bool {
    // What failed is called again, and may answer otherwise; all else is taken over as it is.
    let is_taken_over =
        |step: &StepResult| step.step_id == stopped.step_id || step.outcome.status != StepStatus::Failure;
    let is_withheld = stopped.outcome.details.contains_key(SECRET_WITHHELD);
    if is_withheld && result.steps.iter().all(is_taken_over) || is_beyond_limit(stopped) {
        return true;
    }
    if stopped.final_code == INVALID && stopped.outcome.metadata.skill_id == json_transform::ID {
        return true;
    }
    // A skill that was called may have a reference of its own in its details.
    let reference = stopped.outcome.details.get("reference").filter(|_| stopped.attempts.is_empty());
    let path = reference.and_then(Value::as_str).map(|reference| reference.trim_matches(['{', '}', ' ']));
    let is_asked = |step: &&StepResult| {
        let rest = path.and_then(|path| path.strip_prefix(step.step_id.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    // Names may have dots in them, and then the longest one is meant.
    let asked = result.steps.iter().filter(is_asked).max_by_key(|step| step.step_id.len());
    stopped.final_code == CONFLICT || asked.is_some_and(|step| step.outcome.status == StepStatus::Success)
}

/// Whether a step may cost more than the limit that stopped it, be nothing spent before it.
fn is_beyond_limit(stopped: &StepResult) -> bool {
    let amount = |name: &str| stopped.outcome.details.get(name).and_then(Value::as_u64);
    let is_beyond = |(required, limit)| required > limit;
    stopped.final_code == OVER_BUDGET && amount("required").zip(amount("limit")).is_some_and(is_beyond)
}

/// How to go on, if there is a way that works.
pub(super) fn retry(result: &RunResult) -> Option<String> {
    let left_undone = [Status::Failed, Status::Cancelled, Status::InDoubt, Status::BudgetExceeded];
    if !left_undone.contains(&result.status) || result.mode == RunMode::FullReplay {
        return None;
    }
    if let Some(why) = &result.no_retry {
        return Some(format!("It cannot be tried again: {why}."));
    }
    // Nothing of the run can be tried again before they are settled, and how is told with them.
    let in_doubt = result.stop.as_ref().filter(|_| result.status == Status::InDoubt);
    let in_doubt = in_doubt.and_then(|stop| stop.step_id.as_deref());
    let mut open = unknown(result).map(|step| step.step_id.as_str()).chain(in_doubt);
    if open.any(|step_id| !is_settled(result, step_id)) {
        return None;
    }
    match result.stop.as_ref().and_then(|stop| step(result, stop.step_id.as_deref()?)) {
        Some(step) if is_in_doubt_elsewhere(step) => {
            return Some(format!("Once that is said, `macp run retry {}` goes on from there.", result.run_id));
        }
        Some(step) if is_hopeless(result, step) => {
            return Some("To try it again would end the same way.".to_owned());
        }
        _ => {}
    }
    let anew = match result.status {
        Status::BudgetExceeded => ", with the plan's whole budget once more",
        _ => "",
    };
    Some(format!("`macp run retry {}` tries the rest again and calls no finished step twice{anew}.", result.run_id))
}
