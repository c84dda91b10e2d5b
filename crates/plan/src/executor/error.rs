//! What can go wrong around a run. That a plan failed is no error: it is the run's result.

use macp_ledger::Failure;
use macp_plan_core::machine::OutOfPlace;
use macp_plan_core::replay::Refused;

use crate::store::{JournalError, StoreError};

/// Why no run was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{limit} runs are at work, which is as many as there may be; try again")]
    Overloaded { limit: usize },
    #[error(
        "ERR_STORAGE_QUOTA_EXCEEDED: {kept} bytes are kept of the runs of the agent `{agent_id}`, which may keep \
         {kept_max}, so that nothing was started; have the limit raised, or keep its runs in another store"
    )]
    NoRoom { agent_id: String, kept: u64, kept_max: u64 },
    #[error("the executor is shutting down; try again after the restart")]
    Stopping,
    #[error("request {request_id:?} was used for another start, which became run {run_id:?}; choose another id")]
    RequestReused { request_id: String, run_id: String },
    #[error("there is no run {0:?}")]
    NoRun(String),
    #[error("run {run_id:?} executes the plan {recorded}, not {given}")]
    OtherPlan { run_id: String, recorded: String, given: String },
    #[error("run {0:?} has not ended; cancel it, or wait for it")]
    NotFinished(String),
    #[error("run {run_id:?} succeeded, so nothing is left to try again; a new epoch repeats its effects")]
    Succeeded { run_id: String },
    #[error(
        "the effect of step {step_id:?} of run {run_id:?} is in doubt; say what became of it first, with \
         `macp run resolve {run_id} --step {step_id} --as success|failure --note TEXT`"
    )]
    InDoubt { run_id: String, step_id: String },
    #[error(
        "run {run_id:?} was rejected and never admitted, so there is nothing to do again; start what the session \
         committed to once it may run, with `macp run start --session {session_id}`"
    )]
    NeverAdmitted { run_id: String, session_id: String },
    #[error(
        "nothing of run {run_id:?} can be done again, since nobody knows what it has done: {why}; what a session committed \
         to can be done in a further epoch, once that is found out"
    )]
    Held { run_id: String, why: String },
    #[error("the plan has no step {0:?}")]
    NoStep(String),
    #[error(
        "ERR_POLICY_VIOLATION: a replay would repeat effects that nothing recognises as repetitions, at {}; to allow it, \
         name these steps with `--allow-step` or in allow_step_ids",
        .steps.join(", ")
    )]
    Unrepeatable { steps: Vec<String> },
    #[error("run {run_id:?} is itself a replay; replay the original, {original_run_id:?}")]
    ReplayOfReplay { run_id: String, original_run_id: String },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the decision core refused an entry of its own: {0}")]
    Core(#[from] OutOfPlace),
}

/// Why a run could not be told something.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("there is no run {0:?}")]
    NoRun(String),
    #[error("run {0:?} has ended, and what has ended does not change")]
    Finished(String),
    /// It is not at work, cannot be put to work, and cannot even be ended. What it was told is kept until it can.
    #[error(
        "the request is kept, and run {run_id:?} stops once it can go on; it can neither go on nor be ended here: {reason}"
    )]
    Stuck { run_id: String, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why there is no report about a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("there is no run {0:?}")]
    NoRun(String),
    #[error("run {0:?} has not ended; there is nothing to replay yet")]
    NotFinished(String),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Failure> for ReplayError {
    fn from(failure: Failure) -> Self {
        Self::Store(failure.into())
    }
}
