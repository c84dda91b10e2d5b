//! The one place where runs meet sessions: a plan a session committed to runs exactly once, and its run is reported in
//! a session of its own.
//!
//! ```text
//!  decision session ──RESOLVED──▶ watcher ──▶ start: bind, admit once ──▶ executor
//!                                                                            │ journal
//!  execution session ◀── TaskUpdate, TaskComplete, Commitment ◀── report ◀───┘
//!         └── suspended, cancelled, expired ──▶ watcher ──▶ executor: pause, cancel
//! ```
//!
//! Sessions know nothing of runs: everything here goes through the engine like any client's messages, under an identity
//! that belongs to the runtime. And a run never depends on its report: what cannot be reported is tried again, then
//! logged, and the journal stands.

pub mod binding;
mod catch_up;
mod epochs;
mod executed;
mod execution;
mod extract;
mod notes;
mod proposed;
mod refusal;
mod rejected;
mod report;
mod reported;
mod settings;
mod start;
mod supersede;
mod watcher;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use macp_engine::{Engine, Lifecycle, Watch};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::executor::Executor;
use crate::store::{RunStore, StoreError, blocking};

pub use binding::Bound;
pub use execution::{MODE as EXECUTION_MODE, session_id as execution_session_id};
pub use extract::{EXTENSION, PREFIX};
pub use notes::{EpochNote, Superseding};
pub use proposed::PlanSearch;
pub use refusal::{Error, Reason, Refusal};
pub use reported::{NotAReport, ReportReading, Reported, reported};
pub use settings::{ExecutionSettings, Names, Scope, SessionSettings, StartPolicy, SupersededPolicy};
pub use start::StartFromSession;

use binding::Judged;
use notes::Notes;
pub(crate) use supersede::{SUPERSEDED, SUPERSEDED_BY};

/// Starts of one commitment wait for one another; those of different ones mostly do not.
const START_LOCKS: usize = 64;

/// A handle to the runs of sessions; clones are cheap and mean the same.
#[derive(Clone, Debug)]
pub struct SessionRuns {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    executor: Executor,
    settings: SessionSettings,
    notes: Notes,
    starts: [tokio::sync::Mutex<()>; START_LOCKS],
    /// Whoever has a run follow its execution session: the last to look at the session is the last to tell the run.
    following: tokio::sync::Mutex<()>,
    /// Runs that a task reports.
    reporting: Mutex<BTreeSet<String>>,
    /// One for every execution session that may be under way.
    permits: Semaphore,
    tasks: Mutex<JoinSet<()>>,
    /// What happened to sessions since [`SessionRuns::subscribe`], until the watcher takes it over.
    events: Mutex<Option<Watch<Lifecycle>>>,
    /// Set once, when everything stops.
    stopping: watch::Sender<bool>,
}

impl SessionRuns {
    /// Nothing happens by itself until [`SessionRuns::begin`].
    #[must_use]
    pub fn open(engine: Engine, executor: Executor, settings: SessionSettings) -> Self {
        let notes = Notes::new(Arc::clone(executor.runs().ledger()), Arc::clone(engine.store()));
        let permits = Semaphore::new(settings.execution.sessions_max.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            shared: Arc::new(Shared {
                engine,
                executor,
                settings,
                notes,
                starts: std::array::from_fn(|_| tokio::sync::Mutex::default()),
                following: tokio::sync::Mutex::default(),
                reporting: Mutex::default(),
                permits,
                tasks: Mutex::default(),
                events: Mutex::default(),
                stopping: watch::Sender::new(false),
            }),
        }
    }

    #[must_use]
    pub fn settings(&self) -> &SessionSettings {
        &self.shared.settings
    }

    /// Has [`SessionRuns::begin`] see what happens to sessions from now on. Call it before sessions can be decided.
    pub fn subscribe(&self) {
        *self.shared.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.shared.engine.watch_lifecycle());
    }

    /// Goes on with what an earlier process left: starts that were admitted and reports that are not complete. Then
    /// watches sessions until [`SessionRuns::shutdown`]. Call it once, after [`Executor::recover`].
    pub async fn begin(&self) -> Result<(), Error> {
        self.resume_reports().await?;
        let events = self.shared.events.lock().unwrap_or_else(PoisonError::into_inner).take();
        let events = events.unwrap_or_else(|| self.shared.engine.watch_lifecycle());
        let watcher = watcher::Watcher::new(self.clone(), events);
        self.shared.spawn(watcher.run());
        Ok(())
    }

    /// The plan a session committed to, or why it may not run. Whether it has run is another question.
    pub async fn bind(&self, session_id: &str) -> Result<Bound, Error> {
        self.judge(session_id).await?.allowed()
    }

    /// The plan a session committed to, whether it may run or not.
    async fn judge(&self, session_id: &str) -> Result<Judged, Error> {
        let (runs, settings) = (Arc::clone(self.runs().ledger()), self.shared.settings.clone());
        let session_id = session_id.to_owned();
        blocking(self.shared.engine.store(), move |sessions| binding::judge(sessions, &*runs, &session_id, &settings))
            .await
    }

    /// Why an epoch of a commitment was begun, if it was; the first needs no reason.
    pub async fn epoch_note(&self, bound: &Bound, epoch: u64) -> Result<Option<EpochNote>, StoreError> {
        self.shared.notes.epoch(&bound.link.session_id, &bound.link.commitment_hash, epoch).await
    }

    /// Stops watching and reporting; what is not complete goes on after the next [`SessionRuns::begin`]. Call it before
    /// the engine and the executor are shut down.
    pub async fn shutdown(&self) {
        self.shared.stopping.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.shared.tasks());
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task that reports runs did not end well");
            }
        }
    }

    fn runs(&self) -> &RunStore {
        self.shared.executor.runs()
    }
}

impl Shared {
    /// Runs a task until it ends or everything stops. Whatever it does must bear being dropped at any await.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let mut stopping = self.stopping.subscribe();
        let mut tasks = self.tasks();
        // Those that have ended are forgotten here, so that the set does not grow with the age of the process.
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a task that reports runs did not end well");
            }
        }
        tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        });
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reporting(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}
