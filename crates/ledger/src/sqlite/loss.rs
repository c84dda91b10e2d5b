//! Detects that acknowledged data is missing, before anything is served.
//!
//! ```text
//!  position file ──▶ database there? ──▶ log whole? ──▶ SQLite opens ──▶ position reached? ──▶ served
//! ```
//!
//! The files come first: SQLite deletes the log of an empty database, and cuts a damaged log when it opens it.

use std::fmt::Write as _;
use std::path::Path;

use rusqlite::Connection;

use super::position::{DatabaseId, Noted, Position};
use super::wal::{self, Evidence, LogDamage};
use super::{error, schema};
use crate::failure::{Failure, FailureKind};

/// Checks the files of a database that no connection has opened yet.
pub(super) fn check_files(database: &Path, noted: Option<&Noted>) -> Result<(), Failure> {
    let log = wal::path_of(database);
    let size = size(database)?;
    if size.unwrap_or(0) == 0 {
        let name = database.display();
        let state = if size.is_some() { "empty" } else { "missing" };
        if let Some(Noted { position, .. }) = noted {
            let entries = position.entries;
            let context = format!("database {name} is {state}, but this directory was used: it held {entries} entries");
            return Err(loss(context));
        }
        if self::size(&log)?.unwrap_or(0) > 0 {
            return Err(loss(format!("database {name} is {state}, but its write-ahead log is there")));
        }
        return Ok(());
    }
    let damage = wal::inspect(&log, noted.and_then(|noted| noted.log))
        .map_err(|source| Failure::from_io(format!("read write-ahead log {}", log.display()), source))?;
    match damage {
        Some(damage) => Err(loss(describe(&log, &damage))),
        None => Ok(()),
    }
}

/// Compares the position of an opened database with the noted one. `version` is that of its schema, 0 if it is empty.
pub(super) fn check_position(
    connection: &Connection,
    version: i64,
    path: &Path,
    noted: Option<&Noted>,
) -> Result<(), Failure> {
    let Some(Noted { position: noted, .. }) = noted else {
        return Ok(());
    };
    let name = path.display();
    let was = hex(&noted.database);
    if version == 0 {
        let entries = noted.entries;
        return Err(loss(format!("database {name} is empty, but this directory was used: it held {entries} entries")));
    }
    if version < schema::POSITION_VERSION {
        let context = format!("database {name} is not the one this directory was used with, which has id {was}");
        return Err(loss(context));
    }
    let found = Position::read(connection).map_err(|source| error::failure(format!("open database {name}"), source))?;
    if found.database != noted.database {
        let is = hex(&found.database);
        let context = format!("database {name} has id {is}, but this directory was used with the one of id {was}");
        return Err(loss(context));
    }
    if found.entries < noted.entries || found.documents < noted.documents {
        let context = format!(
            "database {name} is older than it was: it ends at entry {} and document change {}, acknowledged were entry \
             {} and document change {}",
            found.entries, found.documents, noted.entries, noted.documents
        );
        return Err(loss(context));
    }
    Ok(())
}

pub(super) fn loss(context: String) -> Failure {
    Failure::new(FailureKind::Loss, context)
}

/// The size of a file; none if it does not exist.
pub(super) fn size(path: &Path) -> Result<Option<u64>, Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Failure::from_io(format!("open {}", path.display()), source)),
    }
}

fn describe(log: &Path, damage: &LogDamage) -> String {
    let mut text = format!("write-ahead log {} is damaged", log.display());
    let LogDamage { frame, offset, evidence } = damage;
    let place = match frame {
        0 => String::from("in its header"),
        frame => format!("at frame {frame} (byte {offset})"),
    };
    match evidence {
        Evidence::CommitsBehind => write!(text, " {place}; commits behind it cannot be read"),
        Evidence::EndsBefore { noted, last } => {
            write!(text, " {place}: its last readable commit is frame {last}, acknowledged was frame {noted}")
        }
    }
    .expect("writing to a string does not fail");
    text
}

fn hex(id: &DatabaseId) -> String {
    hex::encode(id)
}
