//! What became of a claim whose run never said so: its process went down after the journal had the result. The
//! journal is what is believed, then the operator.

use macp_ledger::Store;
use macp_plan_core::journal::{Body, Output};
use macp_plan_core::plan::StepStatus;

use super::error::StoreError;
use super::read;
use super::settlements::{self, Outcome};

/// How the step stands that holds a claim.
pub(super) enum Holder {
    /// The effect took place, with this output.
    Done(Output),
    /// It did not, as the journal or an operator says: another run may try.
    NotDone,
    /// The run is under way, or nobody knows.
    Unknown,
}

/// Looks into the journal of the run that holds a claim.
pub(super) fn look(store: &dyn Store, run_id: &str, step_id: &str) -> Result<Holder, StoreError> {
    let Some(run) = read::load(store, run_id)? else {
        return Ok(Holder::Unknown);
    };
    if !run.is_finished() {
        return Ok(Holder::Unknown);
    }
    if run.in_doubt().any(|in_doubt| in_doubt == step_id) {
        return Ok(match settlements::find(store, run_id, step_id)?.map(|settlement| settlement.outcome) {
            Some(Outcome::Success) => Holder::Done(Output::default()),
            Some(Outcome::Failure) => Holder::NotDone,
            None => Holder::Unknown,
        });
    }
    let mut output = Output::default();
    let mut dispatched = false;
    for body in run.bodies() {
        match body {
            Body::EffectIntent { step_id: of, .. } if of == step_id => dispatched = true,
            Body::AttemptObserved { step_id: of, output: observed, .. } if of == step_id => {
                output = observed.clone();
            }
            Body::StepFinished(step) if step.step_id == step_id => {
                return Ok(match step.status {
                    StepStatus::Success | StepStatus::Partial => Holder::Done(output),
                    StepStatus::Failure | StepStatus::Skipped => Holder::NotDone,
                });
            }
            _ => {}
        }
    }
    Ok(if dispatched { Holder::Unknown } else { Holder::NotDone })
}
