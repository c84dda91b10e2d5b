//! The two databases of a data directory, sessions and runs, and what acknowledged data they lack.
//!
//! Each database is checked by its own files. A directory of runs that was deleted as a whole leaves none, so the
//! database of sessions states that there was one.

use std::path::Path;

use macp_ledger::sqlite::AcceptedLoss;
use macp_ledger::{Failure, FailureKind, PutMode, SqliteStore, Store};

use crate::commands::RUNS_DIRECTORY;

/// The document in the database of sessions that there is a database of runs.
const KIND: &str = "database";
const RUNS: &str = "runs";

/// Opens the database of runs for writing; refused if it was deleted.
pub(crate) fn open_runs(directory: &Path) -> Result<SqliteStore, Failure> {
    if let Some(failure) = deleted_runs(directory)? {
        return Err(failure);
    }
    SqliteStore::open(directory.join(RUNS_DIRECTORY))
}

/// States in the database of sessions that there is one of runs.
pub(crate) fn bind_runs(sessions: &dyn Store) -> Result<(), Failure> {
    sessions.put_document(KIND, RUNS, b"", PutMode::IfAbsent).map(drop)
}

/// What acknowledged data is missing from the databases of a data directory.
pub(crate) fn missing(directory: &Path) -> Result<Vec<String>, Failure> {
    let sessions = missing_from(SqliteStore::open_read_only(directory))?;
    Ok(sessions.into_iter().chain(missing_runs(directory)?).collect())
}

/// What acknowledged data is missing from the runs of a data directory, if it has any.
pub(crate) fn missing_runs(directory: &Path) -> Result<Option<String>, Failure> {
    match missing_from(SqliteStore::open_read_only(directory.join(RUNS_DIRECTORY))) {
        Err(failure) if failure.kind() == FailureKind::NotFound => {
            Ok(deleted_runs(directory)?.map(|failure| failure.to_string()))
        }
        missing => missing,
    }
}

/// Accepts what is missing; the losses, by what the database holds.
pub(crate) fn accept_loss(directory: &Path, now_ms: i64) -> Result<Vec<(&'static str, AcceptedLoss)>, Failure> {
    // First, because the sessions must be readable to show whether there were runs.
    let sessions = SqliteStore::accept_loss(directory, None, now_ms)?;
    let runs = directory.join(RUNS_DIRECTORY);
    let runs = match deleted_runs(directory)? {
        Some(failure) => SqliteStore::accept_loss(runs, Some(failure.context()), now_ms)?,
        None if runs.is_dir() => SqliteStore::accept_loss(runs, None, now_ms)?,
        None => None,
    };
    let named = |name, loss: Option<AcceptedLoss>| loss.map(|loss| (name, loss));
    Ok(named("sessions", sessions).into_iter().chain(named("runs", runs)).collect())
}

/// Whether the runs that the sessions were used with have no database any more.
fn deleted_runs(directory: &Path) -> Result<Option<Failure>, Failure> {
    let runs = directory.join(RUNS_DIRECTORY);
    let is_there = |name: &str| runs.join(name).exists();
    if is_there(macp_ledger::sqlite::DATABASE_FILE) || is_there(macp_ledger::sqlite::POSITION_FILE) {
        return Ok(None);
    }
    let was_there = match SqliteStore::open_read_only(directory) {
        Ok(sessions) => sessions.document(KIND, RUNS)?.is_some(),
        Err(failure) if matches!(failure.kind(), FailureKind::NotFound | FailureKind::Loss) => false,
        Err(failure) => return Err(failure),
    };
    let name = runs.join(macp_ledger::sqlite::DATABASE_FILE);
    let context = format!("database {} is missing, but this data directory was used with it", name.display());
    Ok(was_there.then(|| Failure::new(FailureKind::Loss, context)))
}

fn missing_from(opened: Result<SqliteStore, Failure>) -> Result<Option<String>, Failure> {
    match opened {
        Ok(store) => Ok(store.loss().map(ToString::to_string)),
        Err(failure) if failure.kind() == FailureKind::Loss => Ok(Some(failure.to_string())),
        Err(failure) => Err(failure),
    }
}

/// Opens a database for reading, without changing it. A warning names acknowledged data that is missing.
pub(crate) fn open(directory: &Path) -> Result<SqliteStore, Failure> {
    let store = SqliteStore::open_read_only(directory)?;
    if let Some(loss) = store.loss() {
        eprintln!("warning: {loss}");
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn used() -> (tempfile::TempDir, PathBuf) {
        let data = tempfile::tempdir().unwrap();
        let sessions = SqliteStore::open(data.path()).unwrap();
        drop(open_runs(data.path()).unwrap());
        bind_runs(&sessions).unwrap();
        let runs = data.path().join(RUNS_DIRECTORY);
        (data, runs)
    }

    #[test]
    fn deleted_runs_are_refused_until_their_loss_is_accepted() {
        for keep_directory in [false, true] {
            let (data, runs) = used();
            assert_eq!(missing(data.path()).unwrap(), [""; 0]);
            std::fs::remove_dir_all(&runs).unwrap();
            if keep_directory {
                std::fs::create_dir(&runs).unwrap();
            }
            let failure = open_runs(data.path()).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Loss);
            assert_eq!(missing(data.path()).unwrap(), [failure.to_string()]);
            assert_eq!(missing_runs(data.path()).unwrap(), Some(failure.to_string()));
            assert_eq!(runs.exists(), keep_directory, "nothing is created");

            let accepted = accept_loss(data.path(), 7).unwrap();
            assert_eq!(accepted.len(), 1);
            assert_eq!((accepted[0].0, &*accepted[0].1.description), ("runs", failure.context()));
            assert_eq!(accept_loss(data.path(), 8).unwrap(), []);
            assert_eq!(missing(data.path()).unwrap(), [""; 0]);
            open_runs(data.path()).unwrap();
        }
    }

    #[test]
    fn sessions_that_were_never_used_with_runs_lack_none() {
        let data = tempfile::tempdir().unwrap();
        drop(SqliteStore::open(data.path()).unwrap());
        assert_eq!(missing(data.path()).unwrap(), [""; 0]);
        assert_eq!(accept_loss(data.path(), 7).unwrap(), []);
        assert!(!data.path().join(RUNS_DIRECTORY).exists());
        open_runs(data.path()).unwrap();
    }
}
