//! What can go wrong in the store of runs: what it says, and what was found to be damaged.

use std::sync::Arc;

use macp_ledger::{AppendError, Failure, Hash};
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::Fault;

/// Why something could not be read or kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Corruption(#[from] Corruption),
    #[error("the stored {what} {key:?} is damaged: {reason}; restore the data directory from a backup")]
    Damaged { what: &'static str, key: String, reason: String },
    /// Nothing is wrong with what is stored.
    #[error("run {run_id:?} cannot go on here: {reason}")]
    Unfit { run_id: String, reason: String },
    #[error("{what} has no canonical form, so it cannot be kept: {reason}")]
    NotCanonical { what: &'static str, reason: String },
    #[error("{what} has {bytes} bytes, at most {bytes_max} are kept")]
    TooLarge { what: &'static str, bytes: usize, bytes_max: usize },
    #[error("the store of runs is shut down")]
    Closed,
    #[error("there is no run {0:?}")]
    NoRun(String),
    #[error("run {run_id:?} has no effect in doubt at step {step_id:?}, there is nothing to settle")]
    NotInDoubt { run_id: String, step_id: String },
    #[error("the claim on effect {effect_key} is not held by run {run_id:?}")]
    NotHeld { effect_key: String, run_id: String },
}

/// Why entries were not appended. Nothing may be dispatched on the strength of them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// Whether the entries are stored is unknown until the run is loaded again.
    #[error(
        "the journal of run {run_id:?} could not be written; \
         nothing more is done for the run until it is loaded again: {failure}"
    )]
    Failed {
        run_id: String,
        #[source]
        failure: Failure,
    },
    #[error(
        "run {run_id:?} is written by someone else: its journal has {found} entries, this writer knows of {expected}"
    )]
    NotOwner { run_id: String, expected: u64, found: u64 },
    #[error("there is a run {0:?} already")]
    Exists(String),
    #[error("an earlier write to the journal of run {0:?} did not succeed; load the run again to go on")]
    Lost(String),
    #[error("run {0:?} is finished, and a finished run never changes")]
    Finished(String),
    #[error("the store of runs is shut down")]
    Closed,
    #[error("the entries cannot be appended: {0}")]
    Invalid(String),
    #[error("plan {0} is not kept; keep the plan before its run is created")]
    NoPlan(Digest),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl JournalError {
    pub(crate) fn of_append(run_id: &str, error: AppendError) -> Self {
        match error {
            AppendError::Conflict { expected, found } => Self::NotOwner { run_id: run_id.to_owned(), expected, found },
            AppendError::Failed(failure) => Self::Failed { run_id: run_id.to_owned(), failure },
        }
    }
}

/// What is wrong with a journal, and where first.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal of run {run_id:?} is corrupt at seq {seq}: {kind}")]
pub struct Corruption {
    pub run_id: String,
    pub seq: u64,
    pub kind: CorruptionKind,
}

/// The ways in which a journal can be wrong.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CorruptionKind {
    #[error("the entry is missing, the next one found is {found}")]
    Missing { found: u64 },
    #[error("the entry is missing, although the index counts {indexed} entries")]
    Truncated { indexed: u64 },
    #[error("the index says the last hash is {expected}, the journal ends with {found}")]
    Head { expected: Hash, found: Hash },
    #[error("an entry is stored that the index does not count")]
    Unindexed,
    #[error("{0}")]
    Entry(#[source] Arc<Fault>),
    #[error("it begins the journal of run {found:?}")]
    OtherRun { found: String },
    #[error("the index says that the run is {}, its journal says otherwise", if *.open { "open" } else { "finished" })]
    Index { open: bool },
}
