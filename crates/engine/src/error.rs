//! Failures of the engine: ours, never the client's. Refusals are ordinary answers and not here.

use macp_ledger::{Failure, ReadError};

/// Why a request got no verdict.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Too much is under way. Nothing was decided; the same request may be sent again.
    #[error("the server is overloaded, retry later")]
    Overloaded,
    /// The server is going down. Nothing was decided.
    #[error("the server is shutting down, retry with another or later")]
    ShuttingDown,
    /// Writing failed, so that the outcome is unknown; sending the same message again is safe.
    #[error("the entry could not be stored, its outcome is unknown; retrying with the same message_id is safe: {0}")]
    Write(String),
    /// The session's history could not be read.
    #[error("the session's history could not be read: {0}")]
    Read(#[from] ReadError),
    /// The history is whole but does not replay to the decisions it records.
    #[error("the session's history does not replay: {0}")]
    Replay(#[from] macp_kernel::replay::Stop),
    /// The chain covers what a history says, not under which name it is kept.
    #[error("the history kept for session {expected:?} is that of session {found:?}")]
    Foreign { expected: String, found: String },
    /// The engine met a mistake of its own. The session is read again from its history, others are not concerned.
    #[error("the server met an internal error, the outcome is unknown; retrying with the same message_id is safe")]
    Internal,
}

impl Error {
    /// The code that operators look for in logs, of what went wrong in the store.
    pub(crate) fn store_code(&self) -> Option<&'static str> {
        match self {
            Error::Read(error) => Some(error.code()),
            _ => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::Read(failure.into())
    }
}

/// A subscriber or watcher fell too far behind and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fell too far behind; resume after the last sequence received")]
pub struct Lagged;
