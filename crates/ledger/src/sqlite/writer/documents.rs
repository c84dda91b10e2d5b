//! Documents go through the same connection as the histories, each with a transaction and a sync of its own: they
//! change rarely.

use bytes::Bytes;
use rusqlite::{Connection, params};

use super::Writer;
use crate::documents::{PutMode, PutOutcome};
use crate::failure::Failure;
use crate::sqlite::readers;

const PUT: &str = "INSERT OR REPLACE INTO documents (kind, key, bytes) VALUES (?1, ?2, ?3)";
const DELETE: &str = "DELETE FROM documents WHERE kind = ?1 AND key = ?2";
const COUNT: &str = "UPDATE identity SET document_changes = document_changes + 1 RETURNING document_changes";

/// What a transaction found out before its commit.
enum Written<T> {
    /// Nothing needs to be stored.
    Nothing(T),
    /// To be committed.
    Change(T),
}

impl Writer {
    pub(in crate::sqlite) fn put_document(
        &mut self,
        kind: &str,
        key: &str,
        bytes: &[u8],
        mode: PutMode,
    ) -> Result<PutOutcome, Failure> {
        let write = |connection: &Connection| {
            if mode == PutMode::IfAbsent
                && let Some(kept) = readers::document(connection, kind, key)?
            {
                return Ok(Written::Nothing(PutOutcome::Kept(kept)));
            }
            connection.prepare_cached(PUT)?.execute(params![kind, key, bytes])?;
            Ok(Written::Change(PutOutcome::Stored))
        };
        self.change_document(kind, key, write, |found| found.is_some_and(|found| found == bytes))
    }

    pub(in crate::sqlite) fn delete_document(&mut self, kind: &str, key: &str) -> Result<bool, Failure> {
        let write = |connection: &Connection| match connection.prepare_cached(DELETE)?.execute([kind, key])? {
            0 => Ok(Written::Nothing(false)),
            _ => Ok(Written::Change(true)),
        };
        self.change_document(kind, key, write, |found| found.is_none())
    }

    pub(in crate::sqlite) fn move_document(
        &mut self,
        kind: &str,
        key: &str,
        new_key: &str,
        bytes: &[u8],
    ) -> Result<bool, Failure> {
        let write = |connection: &Connection| {
            if connection.prepare_cached(DELETE)?.execute([kind, key])? == 0 {
                return Ok(Written::Nothing(false));
            }
            connection.prepare_cached(PUT)?.execute(params![kind, new_key, bytes])?;
            Ok(Written::Change(true))
        };
        // The transaction is there whole or not at all, so that one key tells of both.
        self.change_document(kind, new_key, write, |found| found.is_some_and(|found| found == bytes))
    }

    /// One transaction. If its commit fails, `is_done` judges by what is then found whether it took place after all.
    fn change_document<T>(
        &mut self,
        kind: &str,
        key: &str,
        write: impl FnOnce(&Connection) -> rusqlite::Result<Written<T>>,
        is_done: impl FnOnce(Option<Bytes>) -> bool,
    ) -> Result<T, Failure> {
        self.ensure_open()?;
        let connection = self.connection.as_ref().expect("opened above");
        let written = connection.execute_batch("BEGIN IMMEDIATE").and_then(|()| write(connection));
        let counted = written.and_then(|written| match written {
            Written::Change(_) => count(connection).map(|changes| (written, changes)),
            Written::Nothing(_) => Ok((written, 0)),
        });
        let (outcome, changes) = match counted {
            Ok((Written::Change(outcome), changes)) => (outcome, changes),
            Ok((Written::Nothing(outcome), _)) => {
                if connection.execute_batch("ROLLBACK").is_err() {
                    // Nothing was written, so nothing is lost with the connection.
                    self.reset();
                }
                return Ok(outcome);
            }
            Err(source) => {
                let failure = self.place.failed_in_use("write database", source);
                self.abandon(&failure);
                return Err(failure);
            }
        };
        let Err(source) = connection.execute_batch("COMMIT") else {
            self.position.documents = changes;
            self.note();
            return Ok(outcome);
        };
        let failure = self.place.failed_in_use("commit to database", source);
        self.settle_document(kind, key, is_done).then_some(outcome).ok_or(failure)
    }

    /// After a failed commit: opens the database anew and judges by what is there.
    fn settle_document(&mut self, kind: &str, key: &str, is_done: impl FnOnce(Option<Bytes>) -> bool) -> bool {
        self.reopen_after_commit();
        let Some(connection) = &self.connection else {
            return false;
        };
        // A document that cannot be read cannot be vouched for either.
        readers::document(connection, kind, key).is_ok_and(is_done)
    }
}

/// Counts a change, which is part of the database's position.
fn count(connection: &Connection) -> rusqlite::Result<u64> {
    connection.prepare_cached(COUNT)?.query_row([], |row| readers::unsigned(row, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::connection::Place;
    use crate::sqlite::options::Options;

    #[test]
    fn after_a_failed_commit_what_is_there_is_done_and_the_rest_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let place = Place { path, options: Options::default(), immutable: false };
        let mut writer = Writer::open(place, None).unwrap();
        writer.put_document("kind", "key", b"bytes", PutMode::Replace).unwrap();
        for (key, expected, is_there) in
            [("key", Some(&b"bytes"[..]), true), ("key", Some(b"other"), false), ("key", None, false), ("", None, true)]
        {
            let is_done = writer.settle_document("kind", key, |found| found.as_deref() == expected);
            assert_eq!(is_done, is_there, "{key:?} {expected:?}");
        }
        // Where nothing can be read, nothing is vouched for.
        std::fs::remove_file(directory.path().join("test.db")).unwrap();
        assert!(!writer.settle_document("kind", "key", |_| true));
    }
}
