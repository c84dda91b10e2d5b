//! Well-formed appends.

use std::sync::Arc;

use bytes::Bytes;
use macp_wire::history::v1::{Entry, Terminal};

use crate::chain::Hash;
use crate::record::{self, Record};
use crate::store::{Append, IndexUpdate};

/// A session that grows by real, chained records.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: Arc<str>,
    pub sequence: u64,
    pub hash: Option<Hash>,
    pub deadline_ms: i64,
}

impl Session {
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self { id: Arc::from(id), sequence: 0, hash: None, deadline_ms: 1_000 }
    }

    /// The next `count` records; the session moves on as if they were stored.
    pub fn append(&mut self, count: usize) -> Append {
        self.append_sized(count, 20)
    }

    /// The next `count` records, each a little larger than `size` bytes. No two sessions have the same.
    pub fn append_sized(&mut self, count: usize, size: usize) -> Append {
        let (expected_sequence, expected_hash) = (self.sequence, self.hash);
        let records = (0..count).map(|_| self.next_record(size, None)).collect();
        let session_id = Arc::clone(&self.id);
        Append { session_id, expected_sequence, expected_hash, records, index: self.index(true) }
    }

    /// The record that ends the session.
    pub fn end(&mut self) -> Append {
        let (expected_sequence, expected_hash) = (self.sequence, self.hash);
        let history_hash = self.hash.map(|hash| Bytes::copy_from_slice(hash.as_bytes())).unwrap_or_default();
        let terminal = Terminal { history_hash, ..Terminal::default() };
        let records = vec![self.next_record(0, Some(terminal))];
        let session_id = Arc::clone(&self.id);
        Append { session_id, expected_sequence, expected_hash, records, index: self.index(false) }
    }

    fn next_record(&mut self, size: usize, terminal: Option<Terminal>) -> Record {
        self.sequence += 1;
        let identity = format!("{}{}", self.id, "x".repeat(size));
        let entry = Entry { sequence: self.sequence, identity, terminal, ..Entry::default() };
        let record = record::seal(self.hash.as_ref(), &entry);
        self.hash = Some(record.hash);
        record
    }

    fn index(&self, open: bool) -> IndexUpdate {
        let summary = Some(Bytes::from(format!("{} at {}", self.id, self.sequence)));
        IndexUpdate { open, deadline_ms: self.deadline_ms, state: 1, summary }
    }
}
