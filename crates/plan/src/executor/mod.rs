//! The executor: asks the decision core what is due, does it, and writes down what came of it.
//!
//! ```text
//!  start ──▶ desk (one place per run) ──▶ supervise ──▶ drive: Machine ◀─▶ journal (durable before every call)
//!              ▲   │                                       │
//!   recover ───┘   └── cancel, pause ──────────────────────┼──▶ limiter, claims
//!                                                          └──▶ dispatch ──▶ skill
//! ```
//!
//! One task is the only writer of its run. Runs share nothing that could change how another behaves: budgets are the
//! plan's, limits are counted by agent, and a call that panics or hangs is one run's answer.

mod advice;
mod caught;
mod closing;
mod control;
mod desk;
mod dispatch;
mod drive;
mod error;
mod limiter;
mod recovery;
mod reject;
mod related;
mod replay;
mod reuse;
pub(crate) mod secrecy;
mod settings;
mod spending;
mod start;
mod supervise;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use macp_ledger::Store;
use macp_plan_core::compare::Report;
use macp_plan_core::journal::{DedupeVerdict, RunFinished, RunStart, StepFinished};
use macp_plan_core::skill::Catalog;
use tokio::sync::watch;
use tracing::Instrument;

use crate::memory::Budget;
use crate::registry::Registry;
use crate::result::{Cancelled, RunResult};
use crate::secrets::Secrets;
use crate::store::{Outcome, RunStore, Settlement, Status, StoreError};

pub use crate::memory::MemoryUse;
pub use error::{ControlError, ReplayError, StartError};
pub(crate) use recovery::DUE;
pub use settings::{AgentLimits, ExecutorSettings};
pub use start::{Start, StartMode, Started};

use desk::Desk;
use limiter::Limiter;
use spending::Spending;

/// Told of what happens, for metrics. Nothing is ever decided by it.
pub trait RunObserver: fmt::Debug + Send + Sync {
    fn run_finished(&self, start: &RunStart, finished: &RunFinished) {
        let _ = (start, finished);
    }

    fn step_finished(&self, start: &RunStart, finished: &StepFinished) {
        let _ = (start, finished);
    }

    fn replayed(&self, report: &Report) {
        let _ = report;
    }

    /// A batch of entries became durable.
    fn appended(&self, took: Duration) {
        let _ = took;
    }

    fn deduplicated(&self, verdict: DedupeVerdict) {
        let _ = verdict;
    }
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl RunObserver for Unobserved {}

/// A handle to the executor; clones are cheap and mean the same executor.
#[derive(Clone, Debug)]
pub struct Executor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    runs: RunStore,
    registry: Arc<Registry>,
    secrets: Arc<dyn Secrets>,
    settings: ExecutorSettings,
    observer: Arc<dyn RunObserver>,
    limiter: Limiter,
    spending: Spending,
    desk: Arc<Desk>,
    memory: Arc<Budget>,
    stopping: watch::Sender<Stopping>,
}

/// Whether the executor stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    /// Every run at its next boundary.
    AtBoundaries,
    /// Whatever is under way.
    AtOnce,
}

impl Executor {
    #[must_use]
    pub fn open(
        runs: RunStore,
        registry: Arc<Registry>,
        secrets: Arc<dyn Secrets>,
        settings: ExecutorSettings,
        observer: Arc<dyn RunObserver>,
    ) -> Self {
        let limiter = Limiter::new(settings.agent);
        let (spending, desk, stopping) = (Spending::default(), Arc::default(), watch::Sender::new(Stopping::No));
        let memory = Budget::new(settings.memory_bytes_max);
        let shared = Shared { runs, registry, secrets, settings, observer, limiter, spending, desk, memory, stopping };
        Self { shared: Arc::new(shared) }
    }

    #[must_use]
    pub fn runs(&self) -> &RunStore {
        &self.shared.runs
    }

    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// Runs that are being worked on.
    #[must_use]
    pub fn live(&self) -> usize {
        self.shared.desk.len()
    }

    /// What runs have reserved of their memory budget.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.shared.memory.now()
    }

    /// The result of a run as it stands; none if there is no such run. An output that is kept apart from the journal is
    /// named by its digest: a run may have hundreds of them, each larger than a result should be.
    pub async fn result(&self, run_id: &str) -> Result<Option<RunResult>, StoreError> {
        let id = run_id.to_owned();
        let read = move |store: &dyn Store| match recovery::load(store, &id)? {
            None => Ok(None),
            Some((run, plan)) => {
                let mut result = RunResult::of_journal(&run, &plan);
                if run.is_finished() {
                    advice::complete(store, &run, &plan, &mut result)?;
                }
                Ok(Some(result))
            }
        };
        let mut result = self.shared.runs.blocking::<_, StoreError>(read).await?;
        if let Some(result) = result.as_mut().filter(|result| result.status == Status::Running) {
            result.stuck = self.shared.why_stuck(run_id).await?;
            let cancel = self.shared.kept_cancel(run_id).await?;
            result.cancelled = cancel.map(|control::Cancel { by, reason }| Cancelled { by, reason });
            self.shared.desk.complete(run_id, result);
        }
        Ok(result)
    }

    /// Waits until a run has ended; says whether there is such a run.
    pub async fn wait(&self, run_id: &str) -> Result<bool, StoreError> {
        let Some(watch) = self.shared.runs.watch(run_id, 0).await? else {
            return Ok(false);
        };
        watch.ended().await?;
        // Its task counts what it cost after its last entry.
        self.shared.desk.left(run_id).await;
        Ok(true)
    }

    /// Waits until a run has ended, and gives its result; none if there is no such run.
    pub async fn finished(&self, run_id: &str) -> Result<Option<RunResult>, StoreError> {
        if self.wait(run_id).await? { self.result(run_id).await } else { Ok(None) }
    }

    /// Says what became of an effect in doubt. The first word stands: the earlier one is returned if there is one.
    pub async fn settle(
        &self,
        run_id: &str,
        step_id: &str,
        outcome: Outcome,
        note: &str,
        by: &str,
    ) -> Result<Option<Settlement>, StoreError> {
        let at_ms = self.shared.runs.now_ms();
        let (run_id, step_id) = (run_id.to_owned(), step_id.to_owned());
        let settlement = Settlement { run_id, step_id, outcome, note: note.to_owned(), by: by.to_owned(), at_ms };
        self.shared.runs.settlements().settle(settlement).await
    }

    /// Stops working on runs. Each ends its task at its next boundary; one whose call has not answered when the grace
    /// is over is dropped where it is. All of them are resumed by the next [`Executor::recover`].
    pub async fn shutdown(&self) {
        self.shared.stopping.send_replace(Stopping::AtBoundaries);
        let grace = self.shared.settings.shutdown_grace;
        if tokio::time::timeout(grace, self.shared.desk.empty()).await.is_err() {
            self.shared.stopping.send_replace(Stopping::AtOnce);
            self.shared.desk.empty().await;
        }
        self.shared.runs.shutdown().await;
    }
}

impl Shared {
    fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::clone(&self.registry) as Arc<dyn Catalog>
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow() != Stopping::No
    }
}

/// Does something to its end, also if whoever waits for it goes away.
pub(crate) async fn detached<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work.in_current_span()).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down ends such a task, and with it whoever waits.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}
