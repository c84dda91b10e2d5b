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
const MIGRATIONS: &[&str] = &[include_str!("v1.sql"), include_str!("v2.sql")];

/// The version this program reads and writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The first version in which a database has a position.
pub(super) const POSITION_VERSION: i64 = 2;

/// What an opened file is.
#[derive(Debug, PartialEq, Eq)]
enum Layout {
    Empty,
    Ours { version: i64 },
}

/// Accepts an empty file, as version 0, and every version of ours this program can bring to [`VERSION`]; changes neither.
/// Readers need no more than the tables of version 1.
pub(super) fn accept(connection: &Connection, path: &Path) -> Result<i64, Failure> {
    let version = match inspect(connection, path)? {
        Layout::Empty => return Ok(0),
        Layout::Ours { version } => version,
    };
    // A file that is ours has been through the first migration, whatever it says of itself.
    if !(1..=VERSION).contains(&version) {
        return Err(version_failure(version, path));
    }
    check_tables(connection, version, path)?;
    Ok(version)
}

/// Brings the database to [`VERSION`].
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Failure> {
    let found = accept(connection, path)?;
    migrate_from(found, connection, path, MIGRATIONS)
}

fn migrate_from(found: i64, connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), Failure> {
    let failed = |source| error::failure(format!("prepare database {}", path.display()), source);
    for (script, version) in migrations.iter().zip(1_i64..).skip_while(|(_, version)| *version <= found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        transaction.execute_batch(script).map_err(failed)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        transaction.pragma_update(None, "user_version", version).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

/// Refuses an empty file, where only reading is wanted.
pub(super) fn empty(path: &Path) -> Failure {
    Failure::new(FailureKind::NotFound, format!("database {} is empty", path.display()))
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

/// Before the first release the layout grew without a new number, and a database of that time says it is what it is not.
fn check_tables(connection: &Connection, version: i64, path: &Path) -> Result<(), Failure> {
    let failed = |source| error::failure(format!("open database {}", path.display()), source);
    let scripts = MIGRATIONS.iter().zip(1_i64..).take_while(|(_, to)| *to <= version);
    for table in scripts.flat_map(|(script, _)| tables(script)) {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
        let is_there: bool = connection.query_row(sql, [table], |row| row.get(0)).map_err(failed)?;
        if !is_there {
            let context = format!("open database {}: it has no table {table:?}", path.display());
            return Err(Failure::new(FailureKind::SchemaVersion { found: version, supported: version }, context));
        }
    }
    Ok(())
}

/// Names of the tables a script creates.
fn tables(script: &str) -> impl Iterator<Item = &str> {
    script.lines().filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split_whitespace().next())
}

fn version_failure(found: i64, path: &Path) -> Failure {
    Failure::new(FailureKind::SchemaVersion { found, supported: VERSION }, format!("open database {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::record;
    use crate::sqlite::{DATABASE_FILE, SqliteStore};
    use crate::store::{Append, IndexUpdate, Store};

    const ADD_NOTE: &str = "ALTER TABLE sessions ADD COLUMN note TEXT NOT NULL DEFAULT 'none'";
    const DROP_AND_FAIL: &str = "DROP TABLE entries; INSERT INTO nowhere VALUES (1)";

    /// A directory that began with version 1, with one session in it.
    fn version_1() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let connection = Connection::open(directory.path().join(DATABASE_FILE)).unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        drop(connection);
        let store = SqliteStore::open(directory.path()).unwrap();
        let entry = macp_wire::history::v1::Entry { sequence: 1, ..Default::default() };
        let index = IndexUpdate { open: true, deadline_ms: 1, state: 1, summary: None };
        let records = vec![record::seal(None, &entry)];
        let append =
            Append { session_id: Arc::from("kept"), expected_sequence: 0, expected_hash: None, records, index };
        assert!(store.append(&[append]).remove(0).is_ok());
        directory
    }

    fn version(connection: &Connection) -> i64 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    fn count(connection: &Connection, table: &str) -> i64 {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_migration_runs_once_and_keeps_what_is_stored() {
        let directory = version_1();
        let path = directory.path().join(DATABASE_FILE);
        let mut connection = Connection::open(&path).unwrap();
        let migrations = [MIGRATIONS, &[ADD_NOTE]].concat();
        let found = accept(&connection, &path).unwrap();
        assert_eq!(found, VERSION);
        migrate_from(found, &mut connection, &path, &migrations).unwrap();
        assert_eq!(version(&connection), VERSION + 1);
        let (id, note): (String, String) =
            connection.query_row("SELECT id, note FROM sessions", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!((id.as_str(), note.as_str()), ("kept", "none"));
        assert_eq!(count(&connection, "entries"), 1);
        // Adding the column again would fail.
        migrate_from(VERSION + 1, &mut connection, &path, &migrations).unwrap();

        let failure = accept(&connection, &path).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::SchemaVersion { found: VERSION + 1, supported: VERSION });
        drop(connection);
        assert_eq!(SqliteStore::open(directory.path()).unwrap_err().kind(), failure.kind());
    }

    #[test]
    fn an_empty_file_goes_through_every_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DATABASE_FILE);
        let mut connection = Connection::open(&path).unwrap();
        let found = accept(&connection, &path).unwrap();
        assert_eq!(found, 0);
        migrate_from(found, &mut connection, &path, &[MIGRATIONS, &[ADD_NOTE]].concat()).unwrap();
        assert_eq!(version(&connection), VERSION + 1);
    }

    #[test]
    fn a_migration_that_fails_leaves_the_version_before_it_whole() {
        let directory = version_1();
        let path = directory.path().join(DATABASE_FILE);
        let mut connection = Connection::open(&path).unwrap();
        let migrations = [MIGRATIONS, &[DROP_AND_FAIL]].concat();
        let failure = migrate_from(VERSION, &mut connection, &path, &migrations).unwrap_err();
        assert!(failure.to_string().contains("prepare database"), "{failure}");
        assert_eq!(version(&connection), VERSION);
        assert_eq!(count(&connection, "entries"), 1);
        drop(connection);
        let store = SqliteStore::open(directory.path()).unwrap();
        assert_eq!(store.head("kept").unwrap().unwrap().sequence, 1);
    }
}
