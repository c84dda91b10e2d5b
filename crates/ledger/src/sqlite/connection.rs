//! Opens connections with every setting the guarantees rest on written out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::options::{Options, Synchronous};
use super::{error, schema};
use crate::failure::{Failure, FailureKind};

/// How long to wait for an outsider, such as a `sqlite3` shell or a backup, that holds the database. Our own
/// connections never wait for each other: there is one writer, and in WAL mode readers and the writer do not meet.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Page cache of the writer in KiB: the hot end of every tree. No larger, because SQLite walks over the whole cache at the
/// end of nearly every commit (balancing a tree lends a page a number beyond the end of the file, and numbers beyond the
/// end are looked for); what is not in it comes from the operating system's cache.
const WRITER_CACHE_KIB: i64 = 4 * 1_024;
/// Page cache of each reader in KiB: readers run through pages once.
const READER_CACHE_KIB: i64 = 2 * 1_024;
/// A write-ahead log that outgrew this, because a reader pinned it, is cut back when it is next started over.
const WAL_KEPT_BYTES_MAX: i64 = 64 * 1_024 * 1_024;
/// Statements kept prepared per connection: more than this module has.
const STATEMENTS_MAX: usize = 32;

/// Where a database is and how it is to be opened.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) options: Options,
    /// The file can not change: set for a read-only medium, where SQLite could not keep its shared memory file.
    pub(super) immutable: bool,
}

impl Place {
    /// The connection that writes; creates and migrates the database if need be.
    pub(super) fn create_writer(&self) -> Result<Connection, Failure> {
        self.writer(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// The connection that writes, anew. A database that is gone is not replaced by an empty one.
    pub(super) fn reopen_writer(&self) -> Result<Connection, Failure> {
        self.writer(OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn writer(&self, flags: OpenFlags) -> Result<Connection, Failure> {
        let failed = |source| self.failed("open database", source);
        let mut connection = self.open(flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        // Before anything is written or a pragma changes the file, a database that is not ours is turned away.
        schema::accept(&connection, &self.path)?;
        self.configure_writer(&connection)?;
        schema::migrate(&mut connection, &self.path)?;
        Ok(connection)
    }

    /// The connection that copies the write-ahead log into the database.
    pub(super) fn open_checkpointer(&self) -> Result<Connection, Failure> {
        let failed = |source| self.failed("open database", source);
        let connection = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        self.configure_writer(&connection)?;
        Ok(connection)
    }

    /// A connection that cannot write.
    pub(super) fn open_reader(&self) -> Result<Connection, Failure> {
        let failed = |source| self.failed("open database", source);
        let connection = self.open(OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB).map_err(failed)?;
        connection.pragma_update(None, "query_only", true).map_err(failed)?;
        Ok(connection)
    }

    /// Whoever opens a database has to know which one it is.
    fn failed(&self, action: &str, source: rusqlite::Error) -> Failure {
        error::failure(format!("{action} {}", self.path.display()), source)
    }

    /// A failure of a database in use. Clients hear of it, and where the files lie is none of their business: the last
    /// names of the path tell the databases of a server apart.
    pub(super) fn failed_in_use(&self, action: &str, source: rusqlite::Error) -> Failure {
        let mut names: Vec<_> = self.path.iter().rev().take(2).collect();
        names.reverse();
        error::failure(format!("{action} {}", PathBuf::from_iter(names).display()), source)
    }

    fn open(&self, mode: OpenFlags) -> rusqlite::Result<Connection> {
        // Each connection is used by one thread at a time, behind our own locks.
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match &self.options.vfs {
            _ if self.immutable => {
                Connection::open_with_flags(immutable_uri(&self.path), flags | OpenFlags::SQLITE_OPEN_URI)
            }
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str()),
            None => Connection::open_with_flags(&self.path, flags),
        }?;
        // Plans never depend on bound values; otherwise every new LIMIT has its statement parsed and planned again.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(connection)
    }

    fn configure_writer(&self, connection: &Connection) -> Result<(), Failure> {
        let failed = |source| self.failed("configure database", source);
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // FULL syncs the log once per commit; this one setting is what "durable" means here.
        let synchronous = match self.options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Off => "OFF",
        };
        connection.pragma_update(None, "synchronous", synchronous).map_err(failed)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
        if mode != "wal" {
            let context = format!(
                "database {} cannot use a write-ahead log on this file system (journal mode {mode})",
                self.path.display(),
            );
            return Err(Failure::new(FailureKind::Other, context));
        }
        for (name, value) in [
            // Checkpoints have a thread of their own.
            ("wal_autocheckpoint", 0),
            ("journal_size_limit", WAL_KEPT_BYTES_MAX),
            ("cache_size", -WRITER_CACHE_KIB),
            // There are no foreign keys, and checking for them costs time on every statement.
            ("foreign_keys", 0),
        ] {
            connection.pragma_update(None, name, value).map_err(failed)?;
        }
        if let Some(bytes) = self.options.record_bytes_max {
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, bytes).map_err(failed)?;
        }
        Ok(())
    }
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(byte)),
            _ => write!(uri, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    uri + "?immutable=1"
}
