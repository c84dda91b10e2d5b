//! The executor behind the service: opened with the server, brought to where the last process left off, and stopped
//! before the engine is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use macp_engine::Engine;
use macp_plan::executor::{Executor, RunObserver};
use macp_plan::registry;
use macp_plan::secrets::Configured;
use macp_plan::session::{self, SessionRuns, SessionSettings};
use macp_plan::store::RunStore;
use macp_plan_core::freeze::Profile;
use tokio::task::JoinHandle;

use crate::PlanSettings;
use crate::plan_metrics::PlanMetrics;
use crate::readers::Readers;
use crate::startup::StartError;

/// Runs being imported at once, one for a caller. Each is held in memory until it is checked.
const IMPORTS: usize = 2;

/// Waits between attempts to read what an earlier process left, while the store does not answer: first and longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Everything a server has to execute plans.
#[derive(Debug)]
pub(crate) struct Plans {
    pub(crate) executor: Executor,
    pub(crate) sessions: SessionRuns,
    pub(crate) metrics: Arc<PlanMetrics>,
    pub(crate) imports: Readers,
    pub(crate) import_bytes_max: usize,
    /// What agents' profiles contribute when their plans are frozen, by agent.
    pub(crate) profiles: Arc<BTreeMap<String, Profile>>,
    recovering: Mutex<Option<JoinHandle<()>>>,
}

/// What plans depend on of the server that executes them.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts {
    /// Whether callers are authenticated.
    pub(crate) authenticated: bool,
    /// Imports of one caller that may wait.
    pub(crate) waiting_reads_max: usize,
    /// The addresses the server is bound to.
    pub(crate) listening: Vec<SocketAddr>,
}

impl Plans {
    /// Opens the store of runs. Nothing goes on by itself until [`Plans::begin`].
    pub(crate) fn open(settings: &PlanSettings, engine: &Engine, server: &ServerFacts) -> Result<Self, StartError> {
        let mut skills = settings.skills.clone();
        skills.egress.listening = server.listening.clone();
        let skills = Arc::new(registry::standard(&skills)?);
        let runs = RunStore::open(Arc::clone(&settings.store)).map_err(StartError::Runs)?;
        let metrics = PlanMetrics::new(&skills);
        let secrets = Arc::new(Configured::new(settings.skills.secrets.clone()));
        let observer = Arc::clone(&metrics) as Arc<dyn RunObserver>;
        let executor = Executor::open(runs, skills, secrets, settings.executor.clone(), observer);
        let session_settings = SessionSettings { authenticated: server.authenticated, ..settings.sessions.clone() };
        let sessions = SessionRuns::open(engine.clone(), executor.clone(), session_settings);
        Ok(Plans {
            executor,
            sessions,
            metrics,
            imports: Readers::new(IMPORTS, server.waiting_reads_max),
            import_bytes_max: settings.import_bytes_max,
            profiles: Arc::new(settings.profiles.clone()),
            recovering: Mutex::new(None),
        })
    }

    pub(crate) fn runs(&self) -> &RunStore {
        self.executor.runs()
    }

    /// Goes on with what an earlier process left, without keeping anyone waiting for it.
    pub(crate) fn begin(&self) {
        self.sessions.subscribe();
        let recovering = tokio::spawn(recover(self.executor.clone(), self.sessions.clone()));
        *self.recovering.lock().unwrap_or_else(PoisonError::into_inner) = Some(recovering);
    }

    /// Stops at the next boundary of every run; the next process goes on from there.
    pub(crate) async fn shut_down(&self) {
        let recovering = self.recovering.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(recovering) = recovering {
            recovering.abort();
        }
        self.sessions.shutdown().await;
        self.executor.shutdown().await;
    }
}

/// Brings back what an earlier process left, and tries again while the store does not answer.
async fn recover(executor: Executor, sessions: SessionRuns) {
    let mut pause = PAUSE_MIN;
    while let Err(error) = recover_once(&executor, &sessions).await {
        tracing::error!(%error, again_in = ?pause, "runs could not be recovered");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn recover_once(executor: &Executor, sessions: &SessionRuns) -> Result<(), session::Error> {
    // What its session knows to be done a run must not do again.
    sessions.catch_up().await?;
    let resumed = executor.recover().await?;
    if resumed > 0 {
        tracing::info!(resumed, "runs go on");
    }
    sessions.begin().await
}
