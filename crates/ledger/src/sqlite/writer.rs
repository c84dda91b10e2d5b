//! The writing side: one connection, one transaction and one sync per batch.
//!
//! ```text
//!  batch ──plan──▶ transaction ──commit──▶ stored
//!                     │ a write failed         │ the commit failed
//!                     ▼                        ▼
//!            each append on its own     reopen, read back: what is there is stored
//! ```
//!
//! What is answered as stored is synced; what is answered as failed is shown by no read.

mod documents;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::checkpoint;
use super::connection::Place;
use super::known::Known;
use super::plan::{Plan, SessionPlan, Stored};
use super::position::{Position, PositionFile};
use super::readers;
use super::room::Room;
use super::wal::LogPosition;
use crate::failure::Failure;
use crate::store::{Append, AppendError, IndexUpdate};

/// Appends that fail one after the other, for a reason that is not theirs, before the rest is given up.
const GLOBAL_FAILURES_MAX: usize = 2;
/// What a probe asks room for, in bytes: about one small batch.
const PROBE_BYTES: i64 = 65_536;

const LOOKUP: &str = "SELECT key, sequence, open, deadline_ms, hash FROM sessions WHERE id = ?1";
const CREATE: &str = "INSERT INTO sessions (id, sequence, hash, open, deadline_ms, state) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
// Leaves the columns alone that are in a secondary index, so that none of those is touched.
const ADVANCE: &str = "UPDATE sessions SET sequence = ?2, hash = ?3, state = ?4 WHERE key = ?1";
const CHANGE: &str =
    "UPDATE sessions SET sequence = ?2, hash = ?3, state = ?4, open = ?5, deadline_ms = ?6 WHERE key = ?1";
const SUMMARISE: &str = "INSERT OR REPLACE INTO summaries (session, summary) VALUES (?1, ?2)";
const INSERT: &str = "INSERT INTO entries (session, sequence, bytes, hash) VALUES (?1, ?2, ?3, ?4)";

/// The only connection that changes the database.
#[derive(Debug)]
pub(super) struct Writer {
    place: Place,
    /// `None` after a failure that may have left the connection in a state not worth guessing about.
    connection: Option<Connection>,
    known: Known,
    pages_max: Option<u32>,
    /// None with a file layer of its own, which knows nothing of files changed beside it.
    room: Option<Room>,
    /// Of everything that was committed.
    position: Position,
    position_file: PositionFile,
    /// Why the last commit is not in the position file. The file then holds an older position.
    unnoted: Option<io::Error>,
    /// The frame of the last commit in the log, set by SQLite; 0 once it was noted.
    frame: Arc<AtomicU32>,
}

/// Where an attempt to store a batch went wrong.
enum Attempt<'a> {
    /// Before the commit: certainly nothing is stored.
    Write(Failure),
    /// In the commit: only reading back tells.
    Commit(Failure, Plan<'a>),
}

impl Writer {
    /// Opens the database, which was compared with the position file; `log` is what that says of its log.
    pub(super) fn open(place: Place, log: Option<LogPosition>) -> Result<Self, Failure> {
        let frame = Arc::default();
        let connection = observed(place.create_writer()?, &frame, &place)?;
        let room = place.options.vfs.is_none().then(|| Room::new(&place.path));
        let position = Position::read(&connection).map_err(|source| place.failed_in_use("read database", source))?;
        let directory = place.path.parent().unwrap_or(Path::new("."));
        let position_file = PositionFile::open(directory, &place.path, position, log)?;
        Ok(Self {
            place,
            connection: Some(connection),
            known: Known::default(),
            pages_max: None,
            room,
            position,
            position_file,
            unnoted: None,
            frame,
        })
    }

    pub(super) fn append(&mut self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        match self.attempt(batch) {
            Ok(results) => results,
            Err(Attempt::Commit(failure, plan)) => self.settle(failure, plan),
            Err(Attempt::Write(failure)) if batch.len() == 1 => vec![Err(failure.into())],
            Err(Attempt::Write(_)) => self.append_singly(batch),
        }
    }

    /// Gives every append a transaction of its own, so that a bad one fails alone.
    fn append_singly(&mut self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        let mut results = Vec::with_capacity(batch.len());
        let mut failures = 0;
        for (position, append) in batch.iter().enumerate() {
            let result = match self.attempt(std::slice::from_ref(append)) {
                Ok(mut results) => results.pop().expect("one append has one result"),
                Err(Attempt::Commit(failure, plan)) => {
                    self.settle(failure, plan).pop().expect("one append has one result")
                }
                Err(Attempt::Write(failure)) => Err(failure.into()),
            };
            failures = match &result {
                Ok(()) => 0,
                Err(AppendError::Failed(failure)) if failure.kind().concerns_all() => failures + 1,
                Err(_) => failures,
            };
            results.push(result);
            if failures == GLOBAL_FAILURES_MAX {
                let cause = results[position].clone();
                results.resize(batch.len(), cause);
                break;
            }
        }
        results
    }

    /// One transaction for the whole batch.
    fn attempt<'a>(&mut self, batch: &'a [Append]) -> Result<Vec<Result<(), AppendError>>, Attempt<'a>> {
        self.ensure_open().map_err(Attempt::Write)?;
        let connection = self.connection.as_ref().expect("opened above");
        let written = write(connection, &mut self.room, &self.known, batch);
        let (plan, keys) = match written {
            Ok(written) => written,
            Err(source) => {
                let failure = self.place.failed_in_use("write database", source);
                self.abandon(&failure);
                return Err(Attempt::Write(failure));
            }
        };
        if let Err(source) = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
            return Err(Attempt::Commit(self.place.failed_in_use("commit to database", source), plan));
        }
        if !plan.sessions.is_empty() {
            // Entries are written last, and each is the last row of its table.
            self.position.entries = connection.last_insert_rowid().cast_unsigned();
            self.note();
        }
        for (session, key) in plan.sessions.iter().zip(keys) {
            let (append, record) = session.last();
            if !append.index.open {
                self.known.forget(&append.session_id);
                continue;
            }
            let stored = Stored {
                key,
                sequence: record.sequence,
                hash: record.hash,
                open: append.index.open,
                deadline_ms: append.index.deadline_ms,
            };
            self.known.insert(&append.session_id, stored);
        }
        Ok(plan.stored())
    }

    /// After a failed commit: opens the database anew and answers what is there.
    fn settle(&mut self, failure: Failure, plan: Plan<'_>) -> Vec<Result<(), AppendError>> {
        self.reopen_after_commit();
        let is_stored = |session: &SessionPlan<'_>| {
            let (append, record) = session.last();
            let connection = self.connection.as_ref()?;
            // A head that cannot be read cannot be vouched for either.
            let head = readers::head(connection, &append.session_id).ok().flatten()?;
            (head.sequence == record.sequence && head.hash == record.hash).then(|| Arc::clone(&append.session_id))
        };
        let stored: Vec<Arc<str>> = plan.sessions.iter().filter_map(is_stored).collect();
        let answer = |verdict: Result<Arc<str>, AppendError>| match verdict {
            Ok(id) if stored.contains(&id) => Ok(()),
            Ok(_) => Err(AppendError::Failed(failure.clone())),
            Err(error) => Err(error),
        };
        plan.verdicts.into_iter().map(answer).collect()
    }

    /// After a failed commit: a new connection, from which can be read what is really there.
    fn reopen_after_commit(&mut self) {
        self.reset();
        if self.ensure_open().is_ok() {
            // A commit that works overwrites what the failed one may have left in the log, so that no recovery can
            // bring it back. If it does not work, the next successful append does the same; the failure that is
            // reported is the first one, which caused all this.
            let _ = self.touch();
        }
    }

    /// Writes durably without changing what anyone can see.
    pub(super) fn probe(&mut self) -> Result<(), Failure> {
        self.ensure_open()?;
        self.touch()?;
        if self.unnoted.is_some() {
            self.note();
        }
        match self.unnoted.take() {
            Some(source) => Err(Failure::from_io("write the position file", source)),
            None => Ok(()),
        }
    }

    /// Writes down how far the database has come, after a commit. If that fails the commit stands, and a later one
    /// writes its own position.
    fn note(&mut self) {
        let frame = self.frame.swap(0, Ordering::Relaxed);
        self.unnoted = self.position_file.write(self.position, (frame > 0).then_some(frame)).err();
    }

    /// Copies what can be copied from the log into the database.
    pub(super) fn checkpoint(&mut self) -> Result<(), Failure> {
        self.ensure_open()?;
        checkpoint::pass(self.connection.as_ref().expect("opened above"), &self.place)
    }

    /// Bounds the size of the database file; `None` lifts the bound.
    pub(super) fn set_pages_max(&mut self, pages_max: Option<u32>) -> Result<(), Failure> {
        self.pages_max = pages_max;
        self.ensure_open()?;
        self.limit_pages(self.connection.as_ref().expect("opened above"))
    }

    /// Pages in the write-ahead log that are of use to somebody.
    pub(super) fn log_pages(&self) -> rusqlite::Result<u64> {
        let Some(connection) = &self.connection else {
            return Ok(0);
        };
        let mut statement = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
        // Negative while there is no log.
        let pages: i64 = statement.query_row([], |row| row.get(1))?;
        Ok(u64::try_from(pages).unwrap_or(0))
    }

    /// Has room made in a log of so many pages, with the next batch.
    pub(super) fn want_room(&mut self, pages: u64) {
        if let Some(room) = &mut self.room {
            room.want(pages);
        }
    }

    /// Forgets everything that is not in the database.
    pub(super) fn reset(&mut self) {
        self.connection = None;
        self.known.clear();
        self.position_file.forget_log();
    }

    fn ensure_open(&mut self) -> Result<(), Failure> {
        if self.connection.is_none() {
            let connection = observed(self.place.reopen_writer()?, &self.frame, &self.place)?;
            self.limit_pages(&connection)?;
            self.connection = Some(connection);
        }
        Ok(())
    }

    fn limit_pages(&self, connection: &Connection) -> Result<(), Failure> {
        // The largest number of pages SQLite can count.
        let pages = self.pages_max.unwrap_or(u32::MAX - 1);
        connection
            .pragma_update_and_check(None, "max_page_count", i64::from(pages), |_| Ok(()))
            .map_err(|source| self.place.failed_in_use("configure database", source))
    }

    fn touch(&mut self) -> Result<(), Failure> {
        let connection = self.connection.as_ref().expect("opened by the caller");
        let ballast = format!("UPDATE probe SET ballast = zeroblob({PROBE_BYTES})");
        let written = connection
            .execute_batch("BEGIN IMMEDIATE; SAVEPOINT room")
            .and_then(|()| connection.execute_batch(&ballast))
            .and_then(|()| connection.execute_batch("ROLLBACK TO room; UPDATE probe SET count = count + 1; COMMIT"));
        written.map_err(|source| {
            let failure = self.place.failed_in_use("probe database", source);
            self.abandon(&failure);
            failure
        })
    }

    /// Ends a transaction that will not be committed. A connection that cannot do even that is given up, and so is one
    /// that met a failing disk: what it holds in memory is not worth trusting.
    fn abandon(&mut self, failure: &Failure) {
        self.known.clear();
        let Some(connection) = &self.connection else {
            return;
        };
        let is_clean = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        if !is_clean || failure.kind().concerns_all() {
            self.connection = None;
        }
    }
}

/// A connection whose commits set the frame they end with.
fn observed(mut connection: Connection, frame: &Arc<AtomicU32>, place: &Place) -> Result<Connection, Failure> {
    let frame = Arc::clone(frame);
    let hook = move |_: &mut rusqlite::hooks::Wal, pages: i32| {
        frame.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    };
    connection.wal_hook(Some(hook)).map_err(|source| place.failed_in_use("configure database", source))?;
    Ok(connection)
}

/// Writes everything but the commit; returns the plan and the key of each planned session.
fn write<'a>(
    connection: &Connection,
    room: &mut Option<Room>,
    known: &Known,
    batch: &'a [Append],
) -> rusqlite::Result<(Plan<'a>, Vec<i64>)> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    room.as_mut().map(Room::make);
    let mut lookup = connection.prepare_cached(LOOKUP)?;
    let plan = Plan::new(batch, |id| match known.get(id) {
        Some(stored) => Ok(Some(stored)),
        None => look_up(&mut lookup, id),
    })?;
    let mut statements = Statements::prepare(connection)?;
    let mut keys = Vec::with_capacity(plan.sessions.len());
    for session in &plan.sessions {
        let key = statements.write_head(connection, session)?;
        if let Some(summary) = session.summary {
            statements.summarise.execute(params![key, &summary[..]])?;
        }
        for record in session.appends.iter().flat_map(|append| &append.records) {
            let hash = &record.hash.as_bytes()[..];
            statements.insert.execute(params![key, signed(record.sequence), &record.bytes[..], hash])?;
        }
        keys.push(key);
    }
    Ok((plan, keys))
}

fn look_up(lookup: &mut CachedStatement<'_>, id: &str) -> rusqlite::Result<Option<Stored>> {
    let row = lookup.query_row([id], |row| {
        let sequence: i64 = row.get(1)?;
        Ok(Stored {
            key: row.get(0)?,
            sequence: u64::try_from(sequence).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(1, sequence))?,
            open: row.get(2)?,
            deadline_ms: row.get(3)?,
            hash: readers::hash(row, 4)?,
        })
    });
    row.optional()
}

/// Looked up once per batch, not once per session.
struct Statements<'c> {
    create: CachedStatement<'c>,
    advance: CachedStatement<'c>,
    change: CachedStatement<'c>,
    summarise: CachedStatement<'c>,
    insert: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            create: connection.prepare_cached(CREATE)?,
            advance: connection.prepare_cached(ADVANCE)?,
            change: connection.prepare_cached(CHANGE)?,
            summarise: connection.prepare_cached(SUMMARISE)?,
            insert: connection.prepare_cached(INSERT)?,
        })
    }

    /// Brings the index row of a session to what the batch makes of it; returns the key of the session.
    fn write_head(&mut self, connection: &Connection, session: &SessionPlan<'_>) -> rusqlite::Result<i64> {
        let (append, record) = session.last();
        let index = &append.index;
        let sequence = signed(record.sequence);
        let hash = &record.hash.as_bytes()[..];
        let Some(stored) = session.stored else {
            let id = &*append.session_id;
            self.create.execute(params![id, sequence, hash, index.open, index.deadline_ms, index.state])?;
            return Ok(connection.last_insert_rowid());
        };
        if stored.open == index.open && stored.deadline_ms == index.deadline_ms {
            self.advance.execute(params![stored.key, sequence, hash, index.state])?;
        } else {
            let IndexUpdate { open, deadline_ms, state, .. } = index;
            self.change.execute(params![stored.key, sequence, hash, state, open, deadline_ms])?;
        }
        Ok(stored.key)
    }
}

fn signed(sequence: u64) -> i64 {
    i64::try_from(sequence).expect("the plan admits no sequence beyond the range of SQLite's integers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;
    use crate::record::{self, Record};
    use crate::sqlite::options::Options;

    fn append(id: &str, record: Record) -> Append {
        let index = IndexUpdate { open: true, deadline_ms: 1, state: 1, summary: None };
        let expected_sequence = record.sequence - 1;
        let expected_hash = None;
        Append { session_id: Arc::from(id), expected_sequence, expected_hash, records: vec![record], index }
    }

    fn entry(sequence: u64, identity: &str) -> macp_wire::history::v1::Entry {
        macp_wire::history::v1::Entry { sequence, identity: String::from(identity), ..Default::default() }
    }

    #[test]
    fn after_a_failed_commit_what_is_there_is_stored_and_the_rest_failed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let place = Place { path, options: Options::default(), immutable: false };
        let mut writer = Writer::open(place, None).unwrap();
        let first = record::seal(None, &entry(1, "first"));
        let second = record::seal(Some(&first.hash), &entry(2, "second"));
        let other = record::seal(None, &entry(1, "another first"));
        let stored = [append("whole", first.clone()), append("whole", second), append("other", first.clone())];
        assert!(writer.append(&stored).iter().all(Result::is_ok));

        // As if the commit of this batch had reported a failure: of "other" another record is stored, of "none" none.
        let batch = [stored[0].clone(), stored[1].clone(), append("other", other), append("none", first)];
        let plan = Plan::new(&batch, |_| Ok::<_, rusqlite::Error>(None)).unwrap();
        let results = writer.settle(Failure::new(FailureKind::Io, "commit"), plan);
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, false]);
        assert!(matches!(&results[2], Err(AppendError::Failed(failure)) if failure.kind() == FailureKind::Io));
    }
}
