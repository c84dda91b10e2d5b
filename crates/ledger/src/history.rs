//! Reads one session page by page, checked.
//!
//! Pages are short reads that pin nothing in the store. The session index is part of what is checked: it says how
//! many records there are and which hash the last one has, so a cut tail is found although the rest is whole.

use std::fmt;

use macp_wire::history::v1::Entry;

use crate::checker::{Checker, Corruption, CorruptionKind};
use crate::failure::{Failure, FailureKind};
use crate::record::Record;
use crate::store::{Head, Store};

/// Records per page: long enough that the cost of a read does not count.
const PAGE_RECORDS_MAX: usize = 1_024;
/// Bytes per page: what a reader holds in memory at once, a single larger record excepted.
const PAGE_BYTES_MAX: usize = 1_024 * 1_024;

/// Why a history could not be read on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Corruption(#[from] Corruption),
}

impl ReadError {
    /// A stable name for logs and documents.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Failure(failure) => failure.code(),
            Self::Corruption(_) => FailureKind::Corrupt.code(),
        }
    }
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
        check_beyond(self.store, &self.head)
    }

    fn corruption(&self, kind: CorruptionKind) -> ReadError {
        Corruption { sequence: self.checker.sequence() + 1, kind }.into()
    }
}

/// Checks the end of a history without reading the rest: the index names its last record, that record continues the
/// one before it, it does not end the session, and nothing uncounted follows. Gives the entry in that record.
pub fn check_end(store: &dyn Store, head: &Head) -> Result<Entry, ReadError> {
    let (last, before) = (head.sequence.saturating_sub(1), head.sequence.saturating_sub(2));
    let truncated =
        || Corruption { sequence: head.sequence, kind: CorruptionKind::Truncated { indexed: head.sequence } };
    let mut records = store.read(&head.session_id, before, 2, usize::MAX)?.into_iter();
    let mut checker = Checker::new();
    if last > 0 {
        let record = records.next().filter(|record| record.sequence == last).ok_or_else(truncated)?;
        checker = Checker::resume(record.sequence, record.hash);
    }
    let record = records.next().ok_or_else(truncated)?;
    let entry = checker.check(&record)?;
    if record.hash != head.hash {
        let kind = CorruptionKind::Head { expected: head.hash, found: record.hash };
        return Err(Corruption { sequence: head.sequence, kind }.into());
    }
    if checker.is_terminal() {
        return Err(Corruption { sequence: head.sequence + 1, kind: CorruptionKind::AfterTerminal }.into());
    }
    check_beyond(store, head)?;
    Ok(entry)
}

/// Records beyond the head are fine if the index has moved on as well: then they were appended meanwhile.
fn check_beyond(store: &dyn Store, head: &Head) -> Result<(), ReadError> {
    if store.read(&head.session_id, head.sequence, 1, 0)?.is_empty() {
        return Ok(());
    }
    let indexed = store.head(&head.session_id)?.map_or(0, |head| head.sequence);
    if indexed > head.sequence {
        return Ok(());
    }
    Err(Corruption { sequence: head.sequence + 1, kind: CorruptionKind::Unindexed }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Hash;
    use crate::memory::MemoryStore;
    use crate::record;
    use crate::store::{Append, IndexUpdate};

    fn chain(length: u64) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        for sequence in 1..=length {
            let previous = records.last().map(|record| record.hash);
            records.push(record::seal(previous.as_ref(), &Entry { sequence, ..Entry::default() }));
        }
        records
    }

    /// Stores `records` and checks their end against a head that may have been changed.
    fn check(records: Vec<Record>, change: impl FnOnce(&mut Head)) -> Result<(), CorruptionKind> {
        let store = MemoryStore::new();
        let index = IndexUpdate { open: true, deadline_ms: 1, state: 1, summary: None };
        let append = Append { session_id: "s".into(), expected_sequence: 0, expected_hash: None, records, index };
        assert!(store.append(&[append]).remove(0).is_ok());
        let mut head = store.head("s").unwrap().unwrap();
        change(&mut head);
        match check_end(&store, &head) {
            Ok(entry) => {
                assert_eq!(entry.sequence, head.sequence);
                Ok(())
            }
            Err(ReadError::Corruption(corruption)) => Err(corruption.kind),
            Err(ReadError::Failure(failure)) => panic!("{failure:?}"),
        }
    }

    #[test]
    fn the_end_of_a_whole_history_is_whole() {
        for length in 1..=4 {
            assert_eq!(check(chain(length), |_| {}), Ok(()), "{length} records");
        }
    }

    #[test]
    fn a_changed_end_is_found() {
        for length in 1..=4 {
            let mut records = chain(length);
            let last = records.last_mut().unwrap();
            last.bytes = [&last.bytes[..], &[0]].concat().into();
            assert!(matches!(check(records, |_| {}), Err(CorruptionKind::Hash { .. })), "{length} records");
            let other_hash = |head: &mut Head| head.hash = Hash::from_bytes([0; 32]);
            assert!(matches!(check(chain(length), other_hash), Err(CorruptionKind::Head { .. })));
            let cut = check(chain(length), |head| head.sequence += 1);
            assert_eq!(cut, Err(CorruptionKind::Truncated { indexed: length + 1 }));
        }
    }

    #[test]
    fn a_head_that_has_moved_on_is_no_damage() {
        let records = chain(3);
        let hash = records[1].hash;
        let earlier = |head: &mut Head| (head.sequence, head.hash) = (2, hash);
        assert_eq!(check(records, earlier), Ok(()));
    }
}
