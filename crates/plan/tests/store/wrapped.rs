//! A store around another that counts commits, holds them back, fails them, or gives back what was not written.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};

use macp_ledger::contract::Around;
use macp_ledger::{Append, AppendError, Failure, FailureKind, Head, MemoryStore, PutMode, PutOutcome, Record, Store};

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Work,
    Fail,
    /// Stored, but reported as failed: a sync that went wrong.
    StoreAndFail,
    Panic,
}

type Tamper = Box<dyn Fn(&mut Vec<Record>) + Send>;

pub(crate) struct Wrapped {
    inner: MemoryStore,
    state: Mutex<State>,
    changed: Condvar,
    tamper: Mutex<Option<Tamper>>,
    tamper_head: Mutex<Option<fn(&mut Head)>>,
}

struct State {
    writes: Writes,
    reads_fail: bool,
    /// Documents of this kind cannot be written.
    unwritable: Option<&'static str>,
    /// How many were not written for that.
    unwritten: usize,
    held: bool,
    /// Commits begun, and their appends.
    commits: usize,
    appends: usize,
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrapped")
    }
}

impl Wrapped {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            writes: Writes::Work,
            reads_fail: false,
            unwritable: None,
            unwritten: 0,
            held: false,
            commits: 0,
            appends: 0,
        };
        Arc::new(Self {
            inner: MemoryStore::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            tamper: Mutex::new(None),
            tamper_head: Mutex::new(None),
        })
    }

    pub(crate) fn set(&self, writes: Writes) {
        self.state.lock().unwrap().writes = writes;
    }

    /// Whether records can be read; heads always can.
    #[allow(dead_code, reason = "the tests of runs of sessions have a use for it")]
    pub(crate) fn set_reads_fail(&self, fail: bool) {
        self.state.lock().unwrap().reads_fail = fail;
    }

    /// Documents of one kind cannot be written, or all of them again.
    #[allow(dead_code, reason = "the tests of runs of sessions have a use for it")]
    pub(crate) fn set_unwritable(&self, kind: Option<&'static str>) {
        self.state.lock().unwrap().unwritable = kind;
    }

    /// Documents that could not be written.
    #[allow(dead_code, reason = "the tests of runs of sessions have a use for it")]
    pub(crate) fn unwritten(&self) -> usize {
        self.state.lock().unwrap().unwritten
    }

    /// Commits begin and do not end until released.
    pub(crate) fn hold(&self) {
        self.state.lock().unwrap().held = true;
    }

    pub(crate) fn release(&self) {
        self.state.lock().unwrap().held = false;
        self.changed.notify_all();
    }

    /// Waits until a number of commits have begun.
    pub(crate) fn wait_for_commits(&self, commits: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.commits < commits).unwrap());
    }

    /// Commits begun, and their appends.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.commits, state.appends)
    }

    /// Changes what readers get.
    pub(crate) fn tamper(&self, tamper: impl Fn(&mut Vec<Record>) + Send + 'static) {
        *self.tamper.lock().unwrap() = Some(Box::new(tamper));
    }

    pub(crate) fn tamper_head(&self, tamper: fn(&mut Head)) {
        *self.tamper_head.lock().unwrap() = Some(tamper);
    }

    fn failure() -> Failure {
        Failure::new(FailureKind::DiskFull, "write")
    }
}

impl Around for Wrapped {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        let mut state = self.state.lock().unwrap();
        state.commits += 1;
        state.appends += batch.len();
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |state| state.held).unwrap();
        let writes = state.writes;
        drop(state);
        match writes {
            Writes::Work => self.inner.append(batch),
            Writes::Fail => vec![Err(Self::failure().into()); batch.len()],
            Writes::StoreAndFail => {
                self.inner.append(batch);
                vec![Err(Self::failure().into()); batch.len()]
            }
            Writes::Panic => panic!("asked to"),
        }
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        let mut head = self.inner.head(session_id)?;
        if let (Some(tamper), Some(head)) = (&*self.tamper_head.lock().unwrap(), &mut head) {
            tamper(head);
        }
        Ok(head)
    }

    fn read(&self, id: &str, after: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        if self.state.lock().unwrap().reads_fail {
            return Err(Failure::new(FailureKind::Other, "read"));
        }
        let mut records = self.inner.read(id, after, limit, bytes_max)?;
        if let Some(tamper) = &*self.tamper.lock().unwrap() {
            tamper(&mut records);
        }
        Ok(records)
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        let mut state = self.state.lock().unwrap();
        match state.writes {
            _ if state.unwritable == Some(kind) => {
                state.unwritten += 1;
                Err(Self::failure())
            }
            Writes::Work => self.inner.put_document(kind, key, bytes, mode),
            _ => Err(Self::failure()),
        }
    }
}
