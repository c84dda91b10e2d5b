//! What is known of a run that has ended beside its journal: what operators said of effects in doubt, and whether
//! trying again can help.

use macp_ledger::Store;
use macp_plan_core::plan::{FrozenPlan, OnError, Step, StepStatus};
use macp_plan_core::reference;

use super::control;
use crate::result::{RunResult, Settled};
use crate::store::{Outcome, Run, Settlement, StoreError, settlements};

/// Completes the result of a run that has ended.
pub(super) fn complete(
    store: &dyn Store,
    run: &Run,
    plan: &FrozenPlan,
    result: &mut RunResult,
) -> Result<(), StoreError> {
    result.no_retry = result.no_retry.take().or(control::held(store, &run.run_id)?);
    if run.in_doubt().next().is_none() {
        return Ok(());
    }
    let settlements = settlements::of(store, &run.run_id)?;
    let unheard = settlements.iter().filter(|settlement| settlement.outcome == Outcome::Success);
    let why = unheard.filter_map(|settlement| unheard_of(plan, result, &settlement.step_id)).next();
    result.no_retry = result.no_retry.take().or(why);
    result.settled = settlements
        .into_iter()
        .map(|Settlement { step_id, outcome, note, by, .. }| Settled { step_id, outcome, note, by })
        .collect();
    Ok(())
}

/// Why a retry that takes a step as done cannot come to its end: a step behind it needs the answer that nobody heard.
fn unheard_of(plan: &FrozenPlan, result: &RunResult, step_id: &str) -> Option<String> {
    let mut steps = plan.plan.steps.iter().skip_while(|step| step.step_id != step_id);
    let unheard = steps.next()?;
    let needs = steps.find(|step| {
        let is_done = result.steps.iter().any(|ended| ended.step_id == step.step_id && is_done(ended.outcome.status));
        !is_done && step.on_error == OnError::Abort && refers_to(step, unheard.name())
    })?;
    Some(format!(
        "step {} refers to what step {step_id} returned, which nobody heard; freeze a plan that does without it",
        needs.step_id
    ))
}

fn is_done(status: StepStatus) -> bool {
    matches!(status, StepStatus::Success | StepStatus::Partial | StepStatus::Skipped)
}

fn refers_to(step: &Step, name: &str) -> bool {
    let references = reference::references(&step.parameters).unwrap_or_default();
    references.iter().any(|reference| reference.names().any(|named| named == name))
}
