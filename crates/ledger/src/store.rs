//! What every store promises.
//!
//! A store keeps one append-only list of records per session and a small index of heads beside it, both changed in
//! one atomic step. It compares sequences and hashes and nothing else: entries, states and summaries are opaque to it.
//! Beside the histories it keeps [documents](crate::documents), which are opaque to it as well.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::chain::Hash;
use crate::documents::{Document, PutMode, PutOutcome};
use crate::failure::{Failure, FailureKind};
use crate::record::Record;

/// Records to be added to one session if it still ends where the caller thinks it does.
#[derive(Clone, Debug)]
pub struct Append {
    pub session_id: Arc<str>,
    /// Last stored sequence; 0 creates the session.
    pub expected_sequence: u64,
    /// Hash of the last stored record, compared where it is given: an owner that was fenced off may know the right number
    /// of records of another history.
    pub expected_hash: Option<Hash>,
    /// Not empty, contiguous, starting at `expected_sequence + 1`.
    pub records: Vec<Record>,
    pub index: IndexUpdate,
}

/// What the session index says once the records are stored.
#[derive(Clone, Debug)]
pub struct IndexUpdate {
    /// Open sessions are listed by [`Filter::Open`] and have a deadline.
    pub open: bool,
    pub deadline_ms: i64,
    /// Opaque to the store.
    pub state: i32,
    /// Opaque to the store; `Some` replaces the summary, `None` keeps it.
    pub summary: Option<Bytes>,
}

/// The index row of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub session_id: Arc<str>,
    /// Sequence of the last record.
    pub sequence: u64,
    /// Hash of the last record.
    pub hash: Hash,
    pub open: bool,
    pub deadline_ms: i64,
    pub state: i32,
    pub summary: Bytes,
}

/// Which sessions to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    All,
    Open,
}

/// Why an append was not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The session does not end where the caller thought; nothing was stored. Also the fate of an append that builds
    /// on one which failed earlier in the same batch.
    #[error("{}", conflict(*expected, *found))]
    Conflict { expected: u64, found: u64 },
    /// Not stored: no read shows it, and no later append can land beside it.
    ///
    /// When the disk failed in the very act of syncing and the machine goes down before the next successful append,
    /// the records may still be found on restart. So the honest answer to a client is that the outcome is unknown.
    #[error(transparent)]
    Failed(#[from] Failure),
}

fn conflict(expected: u64, found: u64) -> String {
    if expected == found {
        return format!("the session ends at sequence {found} with another record than the append expected");
    }
    format!("the session ends at sequence {found}, the append expected {expected}")
}

/// Append-only histories with an index of heads, and documents.
///
/// All methods block. `append` is called by one caller at a time, from any thread, one of an async runtime among them;
/// all others may be called from any number of threads meanwhile. The reading ones see only what is durable, and go on working while writes fail.
pub trait Store: Send + Sync + Debug + 'static {
    /// Stores the appends, durable when it returns: one result per append, in order.
    ///
    /// One bad append never fails the others. Several appends of one session are applied in order.
    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>>;

    /// The index row of a session, `None` if there is no such session.
    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure>;

    /// Records after `after_sequence`, ascending: at most `limit` of them, together at most `bytes_max` bytes.
    ///
    /// A first record larger than `bytes_max` is returned alone, so that a reader always gets on.
    fn read(
        &self,
        session_id: &str,
        after_sequence: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Failure>;

    /// Heads of sessions whose id is greater than `after`, ascending by the bytes of the id.
    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure>;

    /// Heads of sessions in the order in which they were created: those after a session, or from the first one on if
    /// there is no such session.
    ///
    /// A store that does not keep this order answers in that of the ids, and knows of nothing in
    /// [`Store::ended_up_to`]: whoever goes through the sessions then begins with the first, and misses none.
    fn created(&self, after: Option<&str>, limit: usize) -> Result<Vec<Head>, Failure> {
        let known = after.map(|id| self.head(id)).transpose()?.flatten();
        self.list(after.filter(|_| known.is_some()), limit, Filter::All)
    }

    /// The last session in the order of creation such that it and all before it have ended. Looks at every open session,
    /// so it is not for hot paths.
    fn ended_up_to(&self) -> Result<Option<Arc<str>>, Failure> {
        Ok(None)
    }

    /// Ids of open sessions whose deadline is strictly before `now_ms`, earliest first, then by id.
    ///
    /// Ids alone: very many sessions may be due at once, and nothing bounds what their summaries hold together.
    fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<Arc<str>>, Failure>;

    /// The earliest deadline of an open session.
    fn next_deadline(&self) -> Result<Option<i64>, Failure>;

    /// How many sessions are open. Counts, so it is not for hot paths.
    fn open_sessions(&self) -> Result<u64, Failure>;

    /// Stores a document, durable when it returns.
    ///
    /// A kind longer than [`KIND_BYTES_MAX`](crate::documents::KIND_BYTES_MAX) or a key longer than
    /// [`KEY_BYTES_MAX`](crate::documents::KEY_BYTES_MAX) is refused as invalid. After any other failure no read shows
    /// the bytes, with the reservation [`AppendError::Failed`] makes for a machine that goes down.
    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure>;

    /// Removes a document, durably when it returns; says whether there was one.
    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure>;

    /// Puts a document under another key, with these bytes, in one step: afterwards it is there under one of the two keys
    /// and never under both. Says whether there was one to move; if not, nothing changes. What was under the new key is
    /// replaced.
    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure>;

    /// The bytes of a document, `None` if there is no such document.
    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure>;

    /// Documents of a kind whose key is greater than `after_key`, ascending by the bytes of the key.
    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure>;

    /// Writes something durably and leaves no trace of it, to learn whether appends would work.
    fn probe(&self) -> Result<(), Failure>;
}

impl Append {
    /// Whether a session that ends so, or does not exist, ends where the caller thinks it does.
    pub fn check_end(&self, end: Option<(u64, Hash)>) -> Result<(), AppendError> {
        let found = end.map_or(0, |(sequence, _)| sequence);
        let is_same = self.expected_hash.is_none_or(|expected| end.is_some_and(|(_, hash)| hash == expected));
        if found == self.expected_sequence && is_same {
            return Ok(());
        }
        Err(AppendError::Conflict { expected: self.expected_sequence, found })
    }

    /// The last record, if the append has the shape it promises.
    ///
    /// Stores call this before anything else: an append of the wrong shape is a mistake of the caller, and fails alone.
    pub fn validate(&self) -> Result<&Record, Failure> {
        let contiguous = self
            .records
            .iter()
            .zip(1_u64..)
            .all(|(record, offset)| self.expected_sequence.checked_add(offset) == Some(record.sequence));
        match self.records.last() {
            Some(last) if contiguous => Ok(last),
            _ => Err(Failure::new(
                FailureKind::Invalid,
                format!(
                    "append to session {:?}: its records must be contiguous from sequence {}",
                    self.session_id,
                    self.expected_sequence.saturating_add(1),
                ),
            )),
        }
    }
}
