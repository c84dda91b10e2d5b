//! What became of a claim whose run never said so: its process went down after the journal had the result. The
//! journal is what is believed, then the operator.

use macp_ledger::Store;
use macp_plan_core::journal::{Body, Output, Reused};
use macp_plan_core::plan::StepStatus;

use super::claims::{Document, Done};
use super::error::StoreError;
use super::read;
use super::settlements::{self, Outcome};

/// How the step stands that holds a claim.
pub(super) enum Holder {
    /// The effect took place.
    Done(Done),
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
            Some(Outcome::Success) => Holder::Done(Done::default()),
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
                let ended = Reused { status: step.status, code: step.code.clone() };
                return Ok(match step.status {
                    StepStatus::Success | StepStatus::Partial => Holder::Done(Done { ended: Some(ended), output }),
                    StepStatus::Failure | StepStatus::Skipped => Holder::NotDone,
                });
            }
            _ => {}
        }
    }
    Ok(if dispatched { Holder::Unknown } else { Holder::NotDone })
}

/// Whether nothing was sent under a claim, and nothing will be: the run that holds it has ended, or is the very one that
/// asks for it again, and its journal has no intent of the step. Without a journal nothing is known.
pub(super) fn never_sent(store: &dyn Store, asking: &str, found: &Document) -> Result<bool, StoreError> {
    let Some(run) = read::load(store, &found.run_id)? else {
        return Ok(false);
    };
    let intended = |body: &Body| matches!(body, Body::EffectIntent { step_id, .. } if *step_id == found.step_id);
    Ok((found.run_id == asking || run.is_finished()) && !run.bodies().any(intended))
}
