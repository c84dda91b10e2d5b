//! The reading side: a few read-only connections, handed out one per call.
//!
//! Each call is one short read, so no reader holds the write-ahead log for long. Reading needs nothing from the writer
//! and goes on while writes fail.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::connection::Place;
use crate::chain::Hash;
use crate::documents::Document;
use crate::failure::Failure;
use crate::record::Record;
use crate::store::{Filter, Head};

/// Idle connections kept. More calls at once are served by connections opened for them.
const IDLE_MAX: usize = 4;

/// The columns of a head.
macro_rules! select_heads {
    ($rest:literal) => {
        concat!(
            "SELECT id, sequence, hash, open, deadline_ms, state, ",
            "coalesce((SELECT summary FROM summaries WHERE session = key), x'') FROM sessions ",
            $rest
        )
    };
}

const HEAD: &str = select_heads!("WHERE id = ?1");
const LIST: &str = select_heads!("WHERE id > ?1 ORDER BY id LIMIT ?2");
const LIST_FIRST: &str = select_heads!("ORDER BY id LIMIT ?1");
const LIST_OPEN: &str = select_heads!("INDEXED BY sessions_open WHERE open = 1 AND id > ?1 ORDER BY id LIMIT ?2");
const LIST_OPEN_FIRST: &str = select_heads!("INDEXED BY sessions_open WHERE open = 1 ORDER BY id LIMIT ?1");
// Keys are given in ascending order, and no session is ever removed.
const CREATED: &str =
    select_heads!("WHERE key > coalesce((SELECT key FROM sessions WHERE id = ?1), 0) ORDER BY key LIMIT ?2");
const ENDED_UP_TO: &str = "SELECT id FROM sessions WHERE key < coalesce(\
     (SELECT min(key) FROM sessions INDEXED BY sessions_deadline WHERE open = 1), 9223372036854775807) \
     ORDER BY key DESC LIMIT 1";
const DUE: &str = "SELECT id FROM sessions INDEXED BY sessions_deadline \
     WHERE open = 1 AND deadline_ms < ?1 ORDER BY deadline_ms, id LIMIT ?2";
const NEXT_DEADLINE: &str = "SELECT deadline_ms FROM sessions INDEXED BY sessions_deadline \
     WHERE open = 1 ORDER BY deadline_ms LIMIT 1";
const OPEN_SESSIONS: &str = "SELECT count(*) FROM sessions INDEXED BY sessions_deadline WHERE open = 1";
const READ: &str = "SELECT sequence, bytes, hash FROM entries \
     WHERE session = (SELECT key FROM sessions WHERE id = ?1) AND sequence > ?2 ORDER BY sequence LIMIT ?3";
const DOCUMENT: &str = "SELECT bytes FROM documents WHERE kind = ?1 AND key = ?2";
const DOCUMENTS: &str = "SELECT key, bytes FROM documents WHERE kind = ?1 AND key > ?2 ORDER BY key LIMIT ?3";
const DOCUMENTS_FIRST: &str = "SELECT key, bytes FROM documents WHERE kind = ?1 ORDER BY key LIMIT ?2";

#[derive(Debug)]
pub(super) struct Readers {
    place: Place,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(place: Place) -> Self {
        Self { place, idle: Mutex::new(Vec::new()) }
    }

    pub(super) fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        self.with(|connection| head(connection, session_id))
    }

    pub(super) fn read(
        &self,
        session_id: &str,
        after_sequence: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Failure> {
        // Sequences beyond the range of SQLite's integers are never stored.
        let Ok(after_sequence) = i64::try_from(after_sequence) else {
            return Ok(Vec::new());
        };
        self.with(|connection| {
            let mut statement = connection.prepare_cached(READ)?;
            let mut rows = statement.query(params![session_id, after_sequence, row_limit(limit)])?;
            let mut page: Vec<Record> = Vec::new();
            let mut bytes = 0_usize;
            while let Some(row) = rows.next()? {
                let record = record(row)?;
                bytes = bytes.saturating_add(record.bytes.len());
                if bytes > bytes_max && !page.is_empty() {
                    break;
                }
                page.push(record);
            }
            Ok(page)
        })
    }

    pub(super) fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        let limit = row_limit(limit);
        self.with(|connection| match (filter, after) {
            (Filter::All, None) => heads(connection, LIST_FIRST, params![limit]),
            (Filter::All, Some(after)) => heads(connection, LIST, params![after, limit]),
            (Filter::Open, None) => heads(connection, LIST_OPEN_FIRST, params![limit]),
            (Filter::Open, Some(after)) => heads(connection, LIST_OPEN, params![after, limit]),
        })
    }

    pub(super) fn created(&self, after: Option<&str>, limit: usize) -> Result<Vec<Head>, Failure> {
        self.with(|connection| heads(connection, CREATED, params![after, row_limit(limit)]))
    }

    pub(super) fn ended_up_to(&self) -> Result<Option<Arc<str>>, Failure> {
        let id = |row: &Row<'_>| Ok(Arc::from(row.get_ref(0)?.as_str()?));
        self.with(|connection| connection.prepare_cached(ENDED_UP_TO)?.query_row([], id).optional())
    }

    pub(super) fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<Arc<str>>, Failure> {
        let id = |row: &Row<'_>| Ok(Arc::from(row.get_ref(0)?.as_str()?));
        self.with(|connection| {
            connection.prepare_cached(DUE)?.query_map(params![now_ms, row_limit(limit)], id)?.collect()
        })
    }

    pub(super) fn next_deadline(&self) -> Result<Option<i64>, Failure> {
        self.with(|connection| connection.prepare_cached(NEXT_DEADLINE)?.query_row([], |row| row.get(0)).optional())
    }

    pub(super) fn open_sessions(&self) -> Result<u64, Failure> {
        self.with(|connection| connection.prepare_cached(OPEN_SESSIONS)?.query_row([], |row| unsigned(row, 0)))
    }

    pub(super) fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        self.with(|connection| document(connection, kind, key))
    }

    pub(super) fn documents(
        &self,
        kind: &str,
        after_key: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Document>, Failure> {
        let limit = row_limit(limit);
        self.with(|connection| match after_key {
            None => documents(connection, DOCUMENTS_FIRST, params![kind, limit]),
            Some(after_key) => documents(connection, DOCUMENTS, params![kind, after_key, limit]),
        })
    }

    /// Runs one short read; a connection that failed is not used again.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.place.open_reader()?,
        };
        let value = read(&connection).map_err(|source| self.place.failed_in_use("read database", source))?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(value)
    }
}

/// The index row of a session, over any connection.
pub(super) fn head(connection: &Connection, session_id: &str) -> rusqlite::Result<Option<Head>> {
    connection.prepare_cached(HEAD)?.query_row([session_id], head_row).optional()
}

/// The bytes of a document, over any connection.
pub(super) fn document(connection: &Connection, kind: &str, key: &str) -> rusqlite::Result<Option<Bytes>> {
    connection.prepare_cached(DOCUMENT)?.query_row([kind, key], |row| blob(row, 0)).optional()
}

fn documents(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<Vec<Document>> {
    let row = |row: &Row<'_>| Ok(Document { key: Arc::from(row.get_ref(0)?.as_str()?), bytes: blob(row, 1)? });
    connection.prepare_cached(sql)?.query_map(params, row)?.collect()
}

fn heads(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<Vec<Head>> {
    connection.prepare_cached(sql)?.query_map(params, head_row)?.collect()
}

fn head_row(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        session_id: Arc::from(row.get_ref(0)?.as_str()?),
        // One row that was damaged must not keep all others from being listed: what it says is compared with the history
        // when the session is read, and no history has nothing, or these values.
        sequence: row.get::<_, i64>(1)?.try_into().unwrap_or(0),
        hash: hash(row, 2).unwrap_or(Hash::NONE),
        open: row.get(3)?,
        deadline_ms: row.get(4)?,
        state: row.get::<_, i64>(5)?.try_into().unwrap_or(0),
        summary: blob(row, 6)?,
    })
}

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    // Whoever checks the chain says where it breaks.
    Ok(Record { sequence: unsigned(row, 0)?, bytes: blob(row, 1)?, hash: hash(row, 2).unwrap_or(Hash::NONE) })
}

fn blob(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

pub(super) fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<Hash> {
    Hash::try_from(row.get_ref(column)?.as_blob()?)
        .map_err(|source| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(source)))
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::options::Options;
    use crate::sqlite::strays;

    const STATEMENTS: [&str; 17] = [
        HEAD,
        LIST,
        LIST_FIRST,
        LIST_OPEN,
        LIST_OPEN_FIRST,
        CREATED,
        ENDED_UP_TO,
        DUE,
        NEXT_DEADLINE,
        OPEN_SESSIONS,
        READ,
        DOCUMENT,
        DOCUMENTS,
        DOCUMENTS_FIRST,
        strays::KEY_AFTER,
        strays::FIRST,
        strays::ENTRIES,
    ];

    /// No read may grow with the number of ended sessions: each walks an index and stops, and none sorts.
    #[test]
    fn every_read_is_served_by_an_index() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let place = Place { path, options: Options::default(), immutable: false };
        let connection = place.create_writer().unwrap();
        for sql in STATEMENTS {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let count = statement.parameter_count();
            let nulls = vec![rusqlite::types::Null; count];
            let steps = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3)).unwrap();
            for step in steps.map(Result::unwrap) {
                let walks = ["USING INDEX", "USING COVERING INDEX", "USING INTEGER PRIMARY KEY", "USING PRIMARY KEY"];
                let is_walk = walks.iter().any(|walk| step.contains(walk));
                assert!(is_walk || step.contains("SCALAR SUBQUERY"), "{sql}: {step}");
                assert!(!step.contains("TEMP B-TREE"), "{sql}: {step}");
            }
        }
    }

    /// SQLite can plan a statement anew for every value bound to it, which costs more than running it.
    #[test]
    fn no_read_is_planned_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let place = Place { path, options: Options::default(), immutable: false };
        drop(place.create_writer().unwrap());
        let connection = place.open_reader().unwrap();
        for sql in STATEMENTS {
            for value in 1..4 {
                let mut statement = connection.prepare_cached(sql).unwrap();
                let values = vec![value; statement.parameter_count()];
                let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
                while rows.next().unwrap().is_some() {}
                drop(rows);
                assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0, "{sql}");
            }
        }
    }
}
