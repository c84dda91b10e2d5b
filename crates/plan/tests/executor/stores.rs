//! A store that fails on purpose: all writes, documents only, or everything from some write on, as if the process had
//! been killed there.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use macp_ledger::contract::Around;
use macp_ledger::{
    Append, AppendError, Document, Failure, FailureKind, Filter, Head, PutMode, PutOutcome, Record, Store,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Work,
    /// Nothing is stored.
    Fail,
    /// Entries are stored and reported as failed: a sync that went wrong.
    StoreAndFail,
    /// Entries are stored, documents are not.
    FailDocuments,
    /// Documents are stored, entries are not.
    FailEntries,
}

/// Around another store.
pub(crate) struct Failing {
    inner: Arc<dyn Store>,
    writes: Mutex<Writes>,
    /// Writes, entries and documents alike, after which none works any more.
    pub(crate) left: AtomicUsize,
    refused: AtomicUsize,
    /// How often the index was listed.
    pub(crate) listed: AtomicUsize,
    death: Mutex<Death>,
    next_append: Mutex<Option<Writes>>,
}

/// What is left to a process after its last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// It does not die: reads go on, and writes may come back.
    None,
    /// It hears of its last write, and of nothing after that.
    AfterWrite,
    /// Not even of its last write, although it is stored.
    AtWrite,
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failing")
    }
}

impl Failing {
    pub(crate) fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        let (left, refused) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        let death = Mutex::new(Death::None);
        let (writes, next_append) = (Mutex::new(Writes::Work), Mutex::new(None));
        Arc::new(Self { inner, writes, left, refused, listed: AtomicUsize::new(0), death, next_append })
    }

    /// A store that lasts for so many writes.
    pub(crate) fn mortal(inner: Arc<dyn Store>, writes: usize, death: Death) -> Arc<Self> {
        let failing = Self::over(inner);
        failing.left.store(writes, Ordering::SeqCst);
        *failing.death.lock().unwrap() = death;
        failing
    }

    /// Whether the process would be gone.
    pub(crate) fn is_dead(&self) -> bool {
        let death = *self.death.lock().unwrap();
        death != Death::None && self.left.load(Ordering::SeqCst) == 0 && (death == Death::AtWrite || self.refused() > 0)
    }

    fn alive(&self) -> Result<(), Failure> {
        if self.is_dead() { Err(Self::failure()) } else { Ok(()) }
    }

    /// Whether the write that was just let through is the last one, and nobody hears of it.
    fn unheard(&self) -> bool {
        *self.death.lock().unwrap() == Death::AtWrite && self.left.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn set(&self, writes: Writes) {
        *self.writes.lock().unwrap() = writes;
    }

    /// Lets the next write to a journal fail, and documents be written.
    pub(crate) fn fail_next_append(&self, how: Writes) {
        *self.next_append.lock().unwrap() = Some(how);
    }

    /// Writes that were refused so far.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Whether a write is still let through; counts it.
    fn take(&self) -> bool {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if taken.is_err() {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        taken.is_ok()
    }

    fn writes(&self) -> Writes {
        *self.writes.lock().unwrap()
    }

    fn failure() -> Failure {
        Failure::new(FailureKind::DiskFull, "write")
    }
}

impl Around for Failing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        if !self.take() {
            return vec![Err(Self::failure().into()); batch.len()];
        }
        match self.next_append.lock().unwrap().take().unwrap_or(self.writes()) {
            Writes::Work | Writes::FailDocuments => {
                let results = self.inner.append(batch);
                if self.unheard() {
                    return vec![Err(Self::failure().into()); batch.len()];
                }
                results
            }
            Writes::Fail | Writes::FailEntries => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                vec![Err(Self::failure().into()); batch.len()]
            }
            Writes::StoreAndFail => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                self.inner.append(batch);
                vec![Err(Self::failure().into()); batch.len()]
            }
        }
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        self.alive()?;
        if mode == PutMode::IfAbsent
            && let Some(kept) = self.inner.document(kind, key)?
        {
            return Ok(PutOutcome::Kept(kept));
        }
        if !self.take() {
            return Err(Self::failure());
        }
        match self.writes() {
            Writes::Work | Writes::FailEntries => {
                let outcome = self.inner.put_document(kind, key, bytes, mode);
                if self.unheard() { Err(Self::failure()) } else { outcome }
            }
            _ => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                Err(Self::failure())
            }
        }
    }

    fn head(&self, id: &str) -> Result<Option<Head>, Failure> {
        self.alive()?;
        self.inner.head(id)
    }

    fn read(&self, id: &str, after: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        self.alive()?;
        self.inner.read(id, after, limit, bytes_max)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        self.alive()?;
        self.listed.fetch_add(1, Ordering::SeqCst);
        self.inner.list(after, limit, filter)
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        self.alive()?;
        self.inner.document(kind, key)
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        self.alive()?;
        self.inner.documents(kind, after_key, limit)
    }
}
