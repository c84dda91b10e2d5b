//! A store of two layers: what was applied, and what is synced. Reads see the synced layer only, and a crash forgets
//! the rest.
//!
//! ```text
//!  apply ──▶ applied ──sync──▶ synced ◀── reads
//!               │ sync fails
//!               ▼
//!             limbo ── a crash may bring it back, the next successful sync overwrites it
//! ```
//!
//! Limbo is the case the store contract warns of: the disk failed in the act of syncing, the append was reported as
//! failed, and the machine went down before anything else was stored. As a [`Store`] it keeps the whole contract.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use macp_ledger::documents::Documents;
use macp_ledger::{
    Append, AppendError, Document, Failure, FailureKind, Filter, Hash, Head, PutMode, PutOutcome, Record, Store, record,
};
use macp_wire::history::v1::Entry;

use crate::Bug;

/// The simulated disk.
#[derive(Debug, Default)]
pub struct Disk {
    layers: Mutex<Layers>,
    bug: Option<Bug>,
}

#[derive(Debug, Default)]
struct Layers {
    synced: BTreeMap<Arc<str>, Session>,
    applied: Vec<Append>,
    /// Where sessions end once the applied layer is synced.
    ends: BTreeMap<Arc<str>, (u64, Hash)>,
    limbo: Vec<Append>,
    /// Synced as they are put: the engine, whose steps are scheduled here, does not write any.
    documents: Documents,
    reads_fail: bool,
    /// The session of the last append and what was there before; kept for the planted bug that forgets it.
    before_last: Option<(Arc<str>, Option<Session>)>,
}

#[derive(Clone, Debug)]
struct Session {
    head: Head,
    records: Vec<Record>,
}

impl Disk {
    pub fn new(bug: Option<Bug>) -> Self {
        Disk { layers: Mutex::default(), bug }
    }

    fn layers(&self) -> MutexGuard<'_, Layers> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an append into the applied layer, where a crash forgets it.
    pub(crate) fn apply(&self, append: &Append) -> Result<(), AppendError> {
        let mut layers = self.layers();
        let last = append.validate()?;
        let synced = layers.synced.get(&append.session_id).map(|session| (session.head.sequence, session.head.hash));
        let end = layers.ends.get(&append.session_id).copied().or(synced);
        if self.bug != Some(Bug::IgnoredConflict) {
            append.check_end(end)?;
        }
        layers.ends.insert(Arc::clone(&append.session_id), (last.sequence, last.hash));
        layers.applied.push(append.clone());
        Ok(())
    }

    /// Makes the applied layer durable; returns the sessions that grew.
    pub(crate) fn sync(&self) -> Vec<Arc<str>> {
        let mut layers = self.layers();
        let applied = std::mem::take(&mut layers.applied);
        layers.ends.clear();
        if !applied.is_empty() {
            layers.limbo.clear();
        }
        applied.iter().map(|append| layers.store(append, self.bug)).collect()
    }

    /// The sync fails: nothing of the applied layer can be read, and it may yet come back after a crash.
    pub(crate) fn lose_sync(&self) {
        let mut layers = self.layers();
        layers.ends.clear();
        layers.limbo = std::mem::take(&mut layers.applied);
    }

    /// Forgets whatever is not synced, except limbo if it happens to have reached the disk.
    pub(crate) fn crash(&self, limbo_survives: bool) -> Vec<Arc<str>> {
        let mut layers = self.layers();
        layers.applied.clear();
        layers.ends.clear();
        layers.reads_fail = false;
        let limbo = std::mem::take(&mut layers.limbo);
        if self.bug == Some(Bug::ForgetfulRestart)
            && let Some((session_id, before)) = layers.before_last.take()
        {
            match before {
                Some(before) => layers.synced.insert(session_id, before),
                None => layers.synced.remove(&session_id),
            };
            return Vec::new();
        }
        if self.bug == Some(Bug::RepeatedAccept) {
            layers.repeat_accepts();
        }
        if !limbo_survives {
            return Vec::new();
        }
        limbo.iter().map(|append| layers.store(append, self.bug)).collect()
    }

    pub(crate) fn fail_reads(&self, fail: bool) {
        self.layers().reads_fail = fail;
    }

    fn readable(&self) -> Result<MutexGuard<'_, Layers>, Failure> {
        let layers = self.layers();
        if layers.reads_fail {
            return Err(Failure::new(FailureKind::Io, "simulated read error"));
        }
        Ok(layers)
    }
}

impl Layers {
    fn store(&mut self, append: &Append, bug: Option<Bug>) -> Arc<str> {
        let last = append.records.last().expect("validated when it was applied");
        let previous = self.synced.remove(&append.session_id);
        if bug == Some(Bug::ForgetfulRestart) {
            self.before_last = Some((Arc::clone(&append.session_id), previous.clone()));
        }
        let (previous_head, mut records) = match previous {
            Some(session) => (Some(session.head), session.records),
            None => (None, Vec::new()),
        };
        records.extend_from_slice(&append.records);
        let stale = previous_head.as_ref().filter(|_| bug == Some(Bug::StaleIndex) && !append.index.open);
        let head = Head {
            session_id: Arc::clone(&append.session_id),
            sequence: last.sequence,
            hash: last.hash,
            open: stale.map_or(append.index.open, |head| head.open),
            deadline_ms: append.index.deadline_ms,
            state: stale.map_or(append.index.state, |head| head.state),
            summary: append
                .index
                .summary
                .clone()
                .filter(|_| previous_head.is_none() || bug != Some(Bug::UnmovedDeadline))
                .or_else(|| previous_head.as_ref().map(|head| head.summary.clone()))
                .unwrap_or_default(),
        };
        self.synced.insert(Arc::clone(&append.session_id), Session { head, records });
        Arc::clone(&append.session_id)
    }

    /// The planted bug of a restart that does what it had done before.
    fn repeat_accepts(&mut self) {
        for Session { head, records } in self.synced.values_mut() {
            let Some(Ok(last)) = records.last().map(|last| record::open(&last.bytes)) else {
                continue;
            };
            if last.synthetic {
                let again = Entry { sequence: last.sequence + 1, ordinal: last.ordinal + 1, ..last };
                let record = record::seal(Some(&head.hash), &again);
                (head.sequence, head.hash) = (record.sequence, record.hash);
                records.push(record);
            }
        }
    }

    fn open(&self) -> impl Iterator<Item = &Head> {
        self.synced.values().map(|session| &session.head).filter(|head| head.open)
    }
}

impl Store for Disk {
    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        let results = batch.iter().map(|append| self.apply(append)).collect();
        self.sync();
        results
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        Ok(self.readable()?.synced.get(session_id).map(|session| session.head.clone()))
    }

    fn read(
        &self,
        session_id: &str,
        after_sequence: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Failure> {
        let layers = self.readable()?;
        let records = layers.synced.get(session_id).map_or(&[][..], |session| &session.records);
        let mut bytes = 0_usize;
        let mut page = Vec::new();
        for record in records.iter().filter(|record| record.sequence > after_sequence).take(limit) {
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
        let layers = self.readable()?;
        let heads = layers.synced.range::<str, _>((after, Bound::Unbounded)).map(|(_, session)| &session.head);
        Ok(heads.filter(|head| filter == Filter::All || head.open).take(limit).cloned().collect())
    }

    fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<Arc<str>>, Failure> {
        let layers = self.readable()?;
        let due = layers.open().filter(|head| head.deadline_ms < now_ms);
        let mut due: Vec<_> = due.map(|head| (head.deadline_ms, Arc::clone(&head.session_id))).collect();
        due.sort();
        Ok(due.into_iter().map(|(_, session_id)| session_id).take(limit).collect())
    }

    fn next_deadline(&self) -> Result<Option<i64>, Failure> {
        Ok(self.readable()?.open().map(|head| head.deadline_ms).min())
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        Ok(self.readable()?.open().count() as u64)
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        self.layers().documents.put(kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        Ok(self.layers().documents.delete(kind, key))
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        self.layers().documents.rename(kind, key, new_key, bytes)
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        Ok(self.readable()?.documents.get(kind, key))
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        Ok(self.readable()?.documents.list(kind, after_key, limit))
    }

    fn probe(&self) -> Result<(), Failure> {
        Ok(())
    }
}
