//! Translates what SQLite reports into failures an operator can act on.

use std::sync::Arc;

use rusqlite::{Error, ErrorCode};

use crate::failure::{Failure, FailureKind};

pub(super) fn failure(context: impl Into<Arc<str>>, source: Error) -> Failure {
    let failure = Failure::new(kind(&source), context);
    // In other words the same, and no more.
    let is_repetition = source.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_FULL);
    if is_repetition { failure } else { failure.with_source(source) }
}

fn kind(error: &Error) -> FailureKind {
    match error {
        Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DiskFull => FailureKind::DiskFull,
            // The memory that connections share is a file too, and this is how SQLite says that it has no room for it.
            _ if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => FailureKind::DiskFull,
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => FailureKind::ReadOnly,
            ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::FileLockingProtocolFailed => {
                FailureKind::Io
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => FailureKind::Locked,
            // A record that is already there although the session index does not count it.
            ErrorCode::DatabaseCorrupt | ErrorCode::ConstraintViolation => FailureKind::Corrupt,
            ErrorCode::NotADatabase => FailureKind::Foreign,
            ErrorCode::TooBig => FailureKind::Invalid,
            _ => FailureKind::Other,
        },
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => FailureKind::Corrupt,
        _ => FailureKind::Other,
    }
}
