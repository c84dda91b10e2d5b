//! The store of runs: journals that are durable before anything is dispatched, and the documents beside them.
//!
//! ```text
//!  Journal (one per run) ──Append──▶ writer thread ──one sync for all──▶ ledger store
//!        ▲                                │ tells                             │
//!        └── durable ─────────────────────┤                                   │ pages
//!                                         ▼                                   ▼
//!                                       Watch, load, list, export ◀── blocking threads
//! ```
//!
//! One history per run in a ledger store of its own: the text of an entry is its canonical JSON, the chain is that of
//! AOS-30. No call to the store happens on an asynchronous thread.

mod admissions;
pub(crate) mod bodies;
mod claims;
pub(crate) mod costs;
pub(crate) mod documents;
mod error;
mod holder;
mod journal;
mod kept;
pub mod list;
pub(crate) mod plans;
pub mod read;
pub mod run_id;
pub(crate) mod sealed;
pub(crate) mod settlements;
pub(crate) mod summary;
mod watch;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use macp_ledger::{Append, AppendError, Failure, FailureKind, Filter, Store};
use macp_plan_core::journal::Body;
use tokio::sync::{mpsc, oneshot};

pub use self::admissions::{Admission, Admissions, Commitment, Registered, Requests, StartRequest};
pub(crate) use self::bodies::Prepared;
pub use self::bodies::{Bodies, Kept};
pub use self::claims::{Claim, ClaimRequest, Claims, Done, Scope};
pub use self::error::{Corruption, CorruptionKind, JournalError, StoreError};
pub use self::journal::Journal;
pub use self::list::{Page, Query};
pub use self::plans::Plans;
pub use self::read::Run;
pub(crate) use self::read::refused_binding;
pub use self::run_id::RunId;
pub use self::sealed::Sealed;
pub use self::settlements::{Outcome, Settlement, Settlements};
pub use self::summary::{Status, Summary};
pub use self::watch::{PAGE_BYTES_MAX as WATCH_PAGE_BYTES_MAX, Watch};

pub(crate) use self::kept::Weight;
use self::kept::{Entries, Kept as KeptBytes};
use self::watch::Watchers;
use self::writer::Job;

/// Longest id of a run, in characters (AOS-12).
const RUN_ID_CHARACTERS_MAX: usize = 128;

/// Gives the time in milliseconds since 1970, for summaries only.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A handle to the store of runs; clones are cheap and mean the same store.
#[derive(Clone)]
pub struct RunStore {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    watchers: Arc<Watchers>,
    writable: Arc<AtomicBool>,
    kept: KeptBytes,
    clock: Clock,
    /// Both are `None` once the store is shut down.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RunStore {
    /// Opens the runs in a store that nobody else writes journals to, and starts the thread that writes.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, Failure> {
        Self::open_with(store, Arc::new(system_time_ms))
    }

    /// As [`RunStore::open`], with another clock.
    pub fn open_with(store: Arc<dyn Store>, clock: Clock) -> Result<Self, Failure> {
        let watchers = Arc::new(Watchers::new());
        let writable = Arc::new(AtomicBool::new(true));
        let (jobs, thread) = writer::spawn(Arc::clone(&store), Arc::clone(&watchers), Arc::clone(&writable))?;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        Ok(Self {
            shared: Arc::new(Shared { store, watchers, writable, kept: KeptBytes::default(), clock, jobs, thread }),
        })
    }

    /// Creates a run with its first entries, the first of which is `run_started`; durable when it returns.
    ///
    /// The plan must be kept already, since without it the run could never be resumed.
    pub async fn create(&self, bodies: Vec<Body>) -> Result<(Journal, Vec<Sealed>), JournalError> {
        let Some(Body::RunStarted(start)) = bodies.first() else {
            return Err(JournalError::Invalid("run_started is the first entry of a journal".to_owned()));
        };
        check_run_id(&start.run_id)?;
        let hash = start.plan_hash.clone();
        let facts = self.blocking(move |store| plans::facts(store, &hash)).await?;
        let facts = facts.ok_or_else(|| JournalError::NoPlan(start.plan_hash.clone()))?;
        let started_at_ms = run_id::started_at_ms(&start.run_id).unwrap_or_else(|| self.now_ms());
        let summary = Summary::begin(start, &facts, started_at_ms);
        let mut journal = Journal::new(self.clone(), start.run_id.as_str().into(), None, summary);
        let entries = journal.append(bodies).await?;
        Ok((journal, entries))
    }

    /// A whole run, checked; `None` if there is no such run.
    pub async fn load(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        let run_id = run_id.to_owned();
        self.blocking(move |store| read::load(store, &run_id)).await
    }

    /// The journal of a loaded run, to go on with it.
    ///
    /// Nothing is reserved by this: if someone else goes on with the run, the first to append is its writer, and the
    /// other is told so.
    pub fn resume(&self, run: &Run) -> Result<Journal, JournalError> {
        if run.is_finished() {
            return Err(JournalError::Finished(run.run_id.to_string()));
        }
        let end = run.entries.last().map(|last| (last.seq(), last.hash));
        // Not every entry has the index written anew.
        let summary = Summary { journal_bytes: sealed::bytes(&run.entries), ..run.summary.clone() };
        Ok(Journal::new(self.clone(), Arc::clone(&run.run_id), end, summary))
    }

    /// What a list shows of a run, without reading its journal.
    pub async fn summary(&self, run_id: &str) -> Result<Option<Summary>, StoreError> {
        let run_id = run_id.to_owned();
        self.blocking(move |store| store.head(&run_id)?.map(|head| Summary::of_head(&head)).transpose()).await
    }

    /// At most `limit` entries from `from_seq` on; none if there are none yet.
    pub async fn entries_from(&self, run_id: &str, from_seq: u64, limit: usize) -> Result<Vec<Sealed>, StoreError> {
        let run_id = run_id.to_owned();
        self.blocking(move |store| read::entries_from(store, &run_id, from_seq, limit, read::PAGE_BYTES_MAX)).await
    }

    /// Follows a run from an entry on, those already written first; `None` if there is no such run.
    pub async fn watch(&self, run_id: &str, from_seq: u64) -> Result<Option<Watch>, StoreError> {
        let run_id: Arc<str> = run_id.into();
        let id = Arc::clone(&run_id);
        if self.blocking::<_, StoreError>(move |store| Ok(store.head(&id)?)).await?.is_none() {
            return Ok(None);
        }
        let watchers = Arc::clone(&self.shared.watchers);
        Ok(Some(Watch::new(Arc::clone(self.ledger()), watchers, run_id, from_seq)))
    }

    /// Runs, newest first; `after` is what an earlier page calls `next`.
    pub async fn list(&self, query: Query, after: Option<String>, limit: usize) -> Result<Page, StoreError> {
        self.blocking(move |store| list::list(store, &query, after.as_deref(), limit)).await
    }

    /// Ids of unfinished runs after an id, at most `limit` of them: what recovery goes through when a server starts.
    pub async fn open_runs(&self, after: Option<String>, limit: usize) -> Result<Vec<Arc<str>>, StoreError> {
        self.blocking(move |store| {
            let heads = store.list(after.as_deref(), limit, Filter::Open)?;
            Ok(heads.into_iter().map(|head| head.session_id).collect())
        })
        .await
    }

    #[must_use]
    pub fn plans(&self) -> Plans {
        Plans { store: Arc::clone(self.ledger()) }
    }

    #[must_use]
    pub fn bodies(&self) -> Bodies {
        Bodies { store: Arc::clone(self.ledger()) }
    }

    #[must_use]
    pub fn claims(&self) -> Claims {
        Claims { store: Arc::clone(self.ledger()) }
    }

    #[must_use]
    pub fn admissions(&self) -> Admissions {
        Admissions { store: Arc::clone(self.ledger()) }
    }

    #[must_use]
    pub fn requests(&self) -> Requests {
        Requests { store: Arc::clone(self.ledger()) }
    }

    #[must_use]
    pub fn settlements(&self) -> Settlements {
        Settlements { store: Arc::clone(self.ledger()) }
    }

    /// The store beneath, for blocking readers such as an export.
    #[must_use]
    pub fn ledger(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Whether journals can be written, as far as the last commit showed; for readiness.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.shared.writable.load(Ordering::Acquire)
    }

    /// Writes what was handed over, ends the thread and every watch. Later appends are refused.
    pub async fn shutdown(&self) {
        let jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(jobs) = jobs {
            // It fails only if the thread is gone, which is what is wanted.
            let _ = jobs.send(Job::Stop).await;
        }
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(())))
        {
            tracing::error!("the thread that writes journals did not end well");
        }
        self.shared.watchers.close();
    }

    /// Hands an append to the writer and waits until it is durable, or is not.
    pub(crate) async fn write(
        &self,
        append: Append,
        weight: Weight<'_>,
    ) -> Result<Result<(), AppendError>, JournalError> {
        let writing = self.shared.kept.writing().await;
        let entries = Entries { run_id: Arc::clone(&append.session_id), after: append.expected_sequence };
        let jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, answered) = oneshot::channel();
        let jobs = jobs.ok_or(JournalError::Closed)?;
        jobs.send(Job::Append(append, answer)).await.map_err(|_| JournalError::Closed)?;
        writing.add(&entries, weight);
        let written = answered.await.map_err(|_| JournalError::Closed);
        match &written {
            Ok(Ok(())) => {}
            Ok(Err(AppendError::Conflict { .. })) => writing.take_back(weight),
            Ok(Err(AppendError::Failed(_))) | Err(_) => writing.doubt(entries, weight),
        }
        written
    }

    /// Runs a call to the store where blocking is allowed.
    pub(crate) async fn blocking<T, E>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Failure> + Send + 'static,
    {
        blocking(self.ledger(), work).await
    }

    pub(crate) fn now_ms(&self) -> u64 {
        (self.shared.clock)()
    }
}

impl fmt::Debug for RunStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStore").field("store", &self.shared.store).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    /// Without senders the thread ends after the commit it is in; the store is free once this returns.
    fn drop(&mut self) {
        drop(self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Runs calls to a store where blocking is allowed.
pub(crate) async fn blocking<T, E>(
    store: &Arc<dyn Store>,
    work: impl FnOnce(&dyn Store) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Failure> + Send + 'static,
{
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || work(&*store)).await.unwrap_or_else(|error| {
        Err(Failure::new(FailureKind::Other, "a call to a store broke off").with_source(error).into())
    })
}

pub(crate) fn check_run_id(run_id: &str) -> Result<(), JournalError> {
    if run_id.is_empty() || run_id.chars().count() > RUN_ID_CHARACTERS_MAX {
        let reason = format!("the id of a run has 1 to {RUN_ID_CHARACTERS_MAX} characters");
        return Err(JournalError::Invalid(reason));
    }
    Ok(())
}

fn system_time_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
