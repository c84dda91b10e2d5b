//! Continues with a database that lacks acknowledged data, when an operator accepts that.
//!
//! The loss is recorded in the database, and the database gets another id: if the one it continues from is put back
//! later, the ids differ. A log is copied before SQLite cuts it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior, params};

use super::connection::Place;
use super::lock::DirectoryLock;
use super::options::Options;
use super::position::{self, Position, PositionFile};
use super::{DATABASE_FILE, SqliteStore, error, loss, schema, wal};
use crate::failure::{Failure, FailureKind};

/// A loss that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// What is missing, and how that is known.
    pub description: String,
    /// A copy of the log as it was found, if there was one.
    pub log_copy: Option<PathBuf>,
}

impl SqliteStore {
    /// Accepts that acknowledged data is missing from a data directory, so that it can be opened again; none if no data
    /// is missing. A loss that the caller knows of is recorded even if the directory does not show it, and the directory
    /// is created if it is missing. The time is recorded with the loss.
    ///
    /// A database that is damaged itself is refused: it has no state to continue from.
    pub fn accept_loss(
        directory: impl AsRef<Path>,
        known: Option<&str>,
        accepted_at_ms: i64,
    ) -> Result<Option<AcceptedLoss>, Failure> {
        let directory = directory.as_ref();
        if known.is_some() {
            super::create(directory)?;
        }
        let _lock = DirectoryLock::acquire(directory)?;
        let path = directory.join(DATABASE_FILE);
        let place = Place { path: path.clone(), options: Options::default(), immutable: false };
        let Some(description) = find(directory, &place)?.or(known.map(str::to_owned)) else {
            return Ok(None);
        };
        let log_copy = copy_log(&path, accepted_at_ms)?;
        if loss::size(&path)?.unwrap_or(0) > 0 {
            choose_state(&place)?;
        }
        let mut connection = place.create_writer()?;
        record(&mut connection, &description, accepted_at_ms)
            .and_then(|position| {
                // Closing copies what is left of the log into the database.
                connection.close().map_err(|(_, source)| source)?;
                Ok(position)
            })
            .map_err(|source| error::failure(format!("accept the loss in database {}", path.display()), source))
            .and_then(|position| PositionFile::open(directory, &path, position, None))?;
        Ok(Some(AcceptedLoss { description, log_copy }))
    }
}

/// What is missing.
fn find(directory: &Path, place: &Place) -> Result<Option<String>, Failure> {
    let found = position::read(directory).and_then(|noted| {
        loss::check_files(&place.path, noted.as_ref())?;
        super::check_position(place, noted.as_ref())
    });
    match found {
        Ok(()) => Ok(None),
        Err(failure) if failure.kind() == FailureKind::Loss => Ok(Some(failure.context().to_owned())),
        Err(failure) => Err(failure),
    }
}

fn copy_log(database: &Path, now_ms: i64) -> Result<Option<PathBuf>, Failure> {
    let log = wal::path_of(database);
    if loss::size(&log)?.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let mut copy = log.clone().into_os_string();
    copy.push(format!(".lost-{now_ms}"));
    let copy = PathBuf::from(copy);
    std::fs::copy(&log, &copy).map_err(|source| Failure::from_io(format!("write {}", copy.display()), source))?;
    Ok(Some(copy))
}

/// Leaves the database in the later of the two states that can be continued from: with what can be read of its log, and
/// without its log. After a checkpoint that was interrupted, either may be torn.
fn choose_state(place: &Place) -> Result<(), Failure> {
    let log = wal::path_of(&place.path);
    let with_log = examine(place);
    if loss::size(&log)?.is_none() {
        return with_log.map(drop);
    }
    let without_log = examine(&Place { immutable: true, ..place.clone() });
    let is_better_without = match (&with_log, &without_log) {
        (Ok(with_log), Ok(without_log)) => without_log > with_log,
        (Err(_), Ok(_)) => true,
        (Ok(_), Err(_)) => false,
        (Err(_), Err(_)) => return with_log.map(drop),
    };
    if is_better_without {
        std::fs::remove_file(&log).map_err(|source| Failure::from_io(format!("remove {}", log.display()), source))?;
    }
    Ok(())
}

/// How far a state of the database reaches, in entries and document changes, if it is whole.
fn examine(place: &Place) -> Result<(u64, u64), Failure> {
    let connection = place.open_reader()?;
    let version = schema::accept(&connection, &place.path)?;
    let failed = |source| error::failure(format!("check database {}", place.path.display()), source);
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if verdict != "ok" {
        let context = format!("database {} is damaged: {verdict}", place.path.display());
        return Err(Failure::new(FailureKind::Corrupt, context));
    }
    if version < schema::POSITION_VERSION {
        return Ok((0, 0));
    }
    let position = Position::read(&connection).map_err(failed)?;
    Ok((position.entries, position.documents))
}

fn record(connection: &mut Connection, description: &str, accepted_at_ms: i64) -> rusqlite::Result<Position> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT INTO losses (accepted_at_ms, description) VALUES (?1, ?2)",
        params![accepted_at_ms, description],
    )?;
    transaction.execute("UPDATE identity SET database = randomblob(16)", [])?;
    let position = Position::read(&transaction)?;
    transaction.commit()?;
    Ok(position)
}
