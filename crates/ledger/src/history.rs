//! Reads one session page by page, checked.
//!
//! Pages are short reads that pin nothing in the store. The session index is part of what is checked: it says how
//! many records there are and which hash the last one has, so a cut tail is found although the rest is whole.

use std::fmt;

use macp_wire::history::v1::Entry;

use crate::checker::{Checker, Corruption, CorruptionKind};
use crate::failure::Failure;
use crate::record::Record;
use crate::store::{Head, Store};

/// Records per page: long enough that the cost of a read does not count.
const PAGE_RECORDS_MAX: usize = 1_024;
/// Bytes per page: what a reader holds in memory at once, a single larger record excepted.
const PAGE_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// Why a history could not be read on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Corruption(#[from] Corruption),
}

/// A session being read, up to where it ended when it was opened.
pub struct History<'a> {
    store: &'a dyn Store,
    head: Head,
    checker: Checker,
    finished: bool,
}

impl fmt::Debug for History<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("head", &self.head).field("checker", &self.checker).finish_non_exhaustive()
    }
}

impl<'a> History<'a> {
    /// `None` if there is no such session.
    pub fn open(store: &'a dyn Store, session_id: &str) -> Result<Option<Self>, Failure> {
        let head = store.head(session_id)?;
        Ok(head.map(|head| Self { store, head, checker: Checker::new(), finished: false }))
    }

    /// The head the history is read up to.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next checked records, empty at the end; the end is reached only if the session index agrees.
    pub fn next_page(&mut self) -> Result<Vec<(Record, Entry)>, ReadError> {
        let remaining = self.head.sequence.saturating_sub(self.checker.sequence());
        if remaining == 0 {
            if !self.finished {
                self.check_end()?;
                self.finished = true;
            }
            return Ok(Vec::new());
        }
        let limit = usize::try_from(remaining).unwrap_or(usize::MAX).min(PAGE_RECORDS_MAX);
        let records = self.store.read(&self.head.session_id, self.checker.sequence(), limit, PAGE_BYTES_MAX)?;
        if records.is_empty() {
            return Err(self.corruption(CorruptionKind::Truncated { indexed: self.head.sequence }));
        }
        let mut page = Vec::with_capacity(records.len());
        for record in records {
            // A record after the head stands in for one before it that is gone.
            if record.sequence > self.head.sequence && self.checker.sequence() + 1 == self.head.sequence {
                return Err(self.corruption(CorruptionKind::Truncated { indexed: self.head.sequence }));
            }
            let entry = self.checker.check(&record)?;
            page.push((record, entry));
        }
        Ok(page)
    }

    fn check_end(&self) -> Result<(), ReadError> {
        if let Some(found) = self.checker.head()
            && found != self.head.hash
        {
            let kind = CorruptionKind::Head { expected: self.head.hash, found };
            return Err(Corruption { sequence: self.head.sequence, kind }.into());
        }
        // Records beyond the head are fine if the index has moved on as well: then they were appended meanwhile.
        let beyond = self.store.read(&self.head.session_id, self.head.sequence, 1, 0)?;
        if beyond.is_empty() {
            return Ok(());
        }
        let indexed = self.store.head(&self.head.session_id)?.map_or(0, |head| head.sequence);
        if indexed > self.head.sequence {
            return Ok(());
        }
        Err(self.corruption(CorruptionKind::Unindexed))
    }

    fn corruption(&self, kind: CorruptionKind) -> ReadError {
        Corruption { sequence: self.checker.sequence() + 1, kind }.into()
    }
}
