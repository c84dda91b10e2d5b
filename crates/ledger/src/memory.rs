//! A store that forgets everything when it is dropped, with the same contract as the durable ones.
//!
//! Ordered maps throughout: what a caller sees never depends on a hash seed, so simulations stay reproducible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::documents::{Document, Documents, PutMode, PutOutcome};
use crate::failure::Failure;
use crate::record::Record;
use crate::store::{Append, AppendError, Filter, Head, Store};

/// Keeps histories and documents in memory only.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: RwLock<Tables>,
}

#[derive(Default)]
struct Tables {
    sessions: BTreeMap<Arc<str>, Session>,
    /// Their ids in the order of creation.
    created: Vec<Arc<str>>,
    /// Deadline and id of every open session.
    open: BTreeSet<(i64, Arc<str>)>,
    documents: Documents,
}

#[derive(Debug)]
struct Session {
    head: Head,
    records: Vec<Record>,
    /// Where it is in the order of creation.
    position: usize,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({} sessions, {} open)", self.sessions.len(), self.open.len())
    }
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    // An append changes the tables only after everything that could panic is behind it, so what a poisoned lock
    // guards is still whole.
    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn append(&mut self, append: &Append) -> Result<(), AppendError> {
        let last = append.validate()?;
        let previous = self.sessions.get(&append.session_id);
        append.check_end(previous.map(|session| (session.head.sequence, session.head.hash)))?;
        let kept = previous.map(|session| session.head.summary.clone());
        let head = Head {
            session_id: Arc::clone(&append.session_id),
            sequence: last.sequence,
            hash: last.hash,
            open: append.index.open,
            deadline_ms: append.index.deadline_ms,
            state: append.index.state,
            summary: append.index.summary.clone().or(kept).unwrap_or_default(),
        };
        if let Some(session) = previous
            && session.head.open
        {
            self.open.remove(&(session.head.deadline_ms, Arc::clone(&append.session_id)));
        }
        if head.open {
            self.open.insert((head.deadline_ms, Arc::clone(&append.session_id)));
        }
        match self.sessions.get_mut(&append.session_id) {
            Some(session) => {
                session.head = head;
                session.records.extend_from_slice(&append.records);
            }
            None => {
                let session = Session { head, records: append.records.clone(), position: self.created.len() };
                self.created.push(Arc::clone(&append.session_id));
                self.sessions.insert(Arc::clone(&append.session_id), session);
            }
        }
        Ok(())
    }
}

impl Store for MemoryStore {
    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        let mut tables = self.tables_mut();
        batch.iter().map(|append| tables.append(append)).collect()
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        Ok(self.tables().sessions.get(session_id).map(|session| session.head.clone()))
    }

    fn read(
        &self,
        session_id: &str,
        after_sequence: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Failure> {
        let tables = self.tables();
        let Some(session) = tables.sessions.get(session_id) else {
            return Ok(Vec::new());
        };
        // Sequences count from 1 without gaps, so the record after sequence n has index n.
        let start = usize::try_from(after_sequence).unwrap_or(usize::MAX).min(session.records.len());
        let mut bytes = 0_usize;
        let mut page = Vec::new();
        for record in session.records[start..].iter().take(limit) {
            bytes = bytes.saturating_add(record.bytes.len());
            if bytes > bytes_max && !page.is_empty() {
                break;
            }
            page.push(record.clone());
        }
        Ok(page)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.tables();
        let heads = tables.sessions.range::<str, _>((after, Bound::Unbounded)).map(|(_, session)| &session.head);
        Ok(heads.filter(|head| filter == Filter::All || head.open).take(limit).cloned().collect())
    }

    fn created(&self, after: Option<&str>, limit: usize) -> Result<Vec<Head>, Failure> {
        let tables = self.tables();
        let start = after.and_then(|id| tables.sessions.get(id)).map_or(0, |session| session.position + 1);
        let sessions = tables.created[start..].iter().take(limit).filter_map(|id| tables.sessions.get(id));
        Ok(sessions.map(|session| session.head.clone()).collect())
    }

    fn ended_up_to(&self) -> Result<Option<Arc<str>>, Failure> {
        let tables = self.tables();
        let open = tables.open.iter().filter_map(|(_, id)| tables.sessions.get(id));
        let first_open = open.map(|session| session.position).min().unwrap_or(tables.created.len());
        Ok(tables.created[..first_open].last().cloned())
    }

    fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<Arc<str>>, Failure> {
        let tables = self.tables();
        let due = tables.open.iter().take_while(|(deadline_ms, _)| *deadline_ms < now_ms).take(limit);
        Ok(due.map(|(_, id)| Arc::clone(id)).collect())
    }

    fn next_deadline(&self) -> Result<Option<i64>, Failure> {
        Ok(self.tables().open.first().map(|(deadline_ms, _)| *deadline_ms))
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        Ok(self.tables().open.len() as u64)
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        self.tables_mut().documents.put(kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        Ok(self.tables_mut().documents.delete(kind, key))
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        self.tables_mut().documents.rename(kind, key, new_key, bytes)
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        Ok(self.tables().documents.get(kind, key))
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        Ok(self.tables().documents.list(kind, after_key, limit))
    }

    fn probe(&self) -> Result<(), Failure> {
        Ok(())
    }
}
