//! The layout of the database file and the way it moves from version to version.
//!
//! `PRAGMA application_id` says the file is ours, `PRAGMA user_version` which layout it has. Both change in the same
//! transaction as the tables, so a file is never between two versions.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error;
use crate::failure::{Failure, FailureKind};

/// "MACP" in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x4D41_4350;

/// `MIGRATIONS[n]` turns version n into version n + 1; version 0 is the empty file. A migration that ever shipped is
/// never edited.
const MIGRATIONS: &[&str] = &[include_str!("v1.sql")];

/// The version this program reads and writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// What an opened file is.
#[derive(Debug, PartialEq, Eq)]
enum Layout {
    Empty,
    Ours { version: i64 },
}

/// Accepts an empty file and every version of ours this program can bring to [`VERSION`]; touches nothing.
pub(super) fn accept(connection: &Connection, path: &Path) -> Result<i64, Failure> {
    let version = match inspect(connection, path)? {
        Layout::Empty => 0,
        Layout::Ours { version } => version,
    };
    if (0..=VERSION).contains(&version) { Ok(version) } else { Err(version_failure(version, path)) }
}

/// Brings the database to [`VERSION`].
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Failure> {
    let failed = |source| error::failure(format!("prepare database {}", path.display()), source);
    let found = accept(connection, path)?;
    for (script, version) in MIGRATIONS.iter().zip(1_i64..).skip_while(|(_, version)| *version <= found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        transaction.execute_batch(script).map_err(failed)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        transaction.pragma_update(None, "user_version", version).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// Accepts exactly [`VERSION`]; for connections that may not write.
pub(super) fn verify(connection: &Connection, path: &Path) -> Result<(), Failure> {
    match inspect(connection, path)? {
        Layout::Empty => Err(Failure::new(FailureKind::NotFound, format!("database {} is empty", path.display()))),
        Layout::Ours { version: VERSION } => Ok(()),
        Layout::Ours { version } => Err(version_failure(version, path)),
    }
}

fn inspect(connection: &Connection, path: &Path) -> Result<Layout, Failure> {
    let failed = |source| error::failure(format!("open database {}", path.display()), source);
    let application_id: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let occupied: bool =
        connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0)).map_err(failed)?;
    match application_id {
        APPLICATION_ID => Ok(Layout::Ours { version }),
        0 if version == 0 && !occupied => Ok(Layout::Empty),
        _ => Err(Failure::new(
            FailureKind::Foreign,
            format!("open database {}: it has application id {application_id:#x}", path.display()),
        )),
    }
}

fn version_failure(found: i64, path: &Path) -> Failure {
    Failure::new(FailureKind::SchemaVersion { found, supported: VERSION }, format!("open database {}", path.display()))
}
