//! Histories that no row of the session index leads to.
//!
//! Sessions are found by their rows, so that whoever removes a row hides the history without touching it. Only a walk
//! over the entries themselves can find it.

use rusqlite::{Connection, OptionalExtension};

use super::readers::{Readers, record, unsigned};
use crate::failure::Failure;
use crate::record::Record;

/// From session to session by the key order of the entries: what a session holds is not looked at.
pub(super) const KEY_AFTER: &str = "SELECT session, EXISTS (SELECT 1 FROM sessions WHERE key = session) FROM entries \
     WHERE session > ?1 ORDER BY session LIMIT 1";
pub(super) const FIRST: &str = "SELECT sequence, bytes, hash FROM entries WHERE session = ?1 ORDER BY sequence LIMIT 1";
pub(super) const ENTRIES: &str = "SELECT count(*) FROM entries WHERE session = ?1";

/// Entries that belong to no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// What the database knows the session by.
    pub key: i64,
    pub entries: u64,
    /// The first of them, which may tell whose they are.
    pub first: Record,
}

impl Readers {
    /// The first stray history whose key is greater than `after`.
    pub(super) fn next_stray(&self, after: Option<i64>) -> Result<Option<Stray>, Failure> {
        self.with(|connection| {
            let mut after = after.unwrap_or(i64::MIN);
            // Each step is a read of its own, so that a long walk holds nothing up.
            while let Some((key, is_indexed)) = key_after(connection, after)? {
                if !is_indexed {
                    let first = connection.prepare_cached(FIRST)?.query_row([key], record)?;
                    let entries = connection.prepare_cached(ENTRIES)?.query_row([key], |row| unsigned(row, 0))?;
                    return Ok(Some(Stray { key, entries, first }));
                }
                after = key;
            }
            Ok(None)
        })
    }
}

fn key_after(connection: &Connection, after: i64) -> rusqlite::Result<Option<(i64, bool)>> {
    connection.prepare_cached(KEY_AFTER)?.query_row([after], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}
