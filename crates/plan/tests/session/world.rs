//! A server in a test: a real engine, a real executor, and a skill whose calls end when the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use macp_engine::{Engine, Options, Silent};
use macp_ledger::{MemoryStore, Store};
use macp_plan::executor::{Executor, ExecutorSettings, Unobserved};
use macp_plan::registry::Registry;
use macp_plan::secrets::Held;
use macp_plan::session::{SessionRuns, SessionSettings, execution_session_id, reported};
use macp_plan::skill::{Call, Calling, Observation, Skill};
use macp_plan::store::{Query, RunStore, Summary};
use macp_plan::testkit::ScriptedSkill;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::rate_card::RateCard;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use macp_wire::v1::SessionState;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) executor: Executor,
    pub(crate) session_runs: SessionRuns,
    pub(crate) skill: Arc<Gate>,
}

impl World {
    pub(crate) async fn memory(settings: SessionSettings) -> World {
        let (sessions, runs) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
        World::over(sessions, runs, Gate::open(), settings).await
    }

    /// A server that has recovered what its stores hold and does nothing by itself yet.
    pub(crate) async fn over(
        sessions: Arc<dyn Store>,
        runs: Arc<dyn Store>,
        skill: Arc<Gate>,
        settings: SessionSettings,
    ) -> World {
        World::with(sessions, runs, skill, settings, Options::default()).await
    }

    pub(crate) async fn with(
        sessions: Arc<dyn Store>,
        runs: Arc<dyn Store>,
        skill: Arc<Gate>,
        settings: SessionSettings,
        options: Options,
    ) -> World {
        let engine = Engine::start(sessions, options, Arc::new(Silent)).expect("threads can be started");
        let mut registry = Registry::new();
        registry.register(Arc::clone(&skill) as Arc<dyn Skill>, None).unwrap();
        registry.add_rate_card(rate_card()).unwrap();
        let runs = RunStore::open(runs).unwrap();
        let executor_settings =
            ExecutorSettings { shutdown_grace: Duration::from_millis(50), ..ExecutorSettings::default() };
        let secrets = Arc::new(Held::default());
        let executor = Executor::open(runs, Arc::new(registry), secrets, executor_settings, Arc::new(Unobserved));
        let session_runs = SessionRuns::open(engine.clone(), executor.clone(), settings);
        session_runs.catch_up().await.unwrap();
        executor.recover().await.unwrap();
        World { engine, executor, session_runs, skill }
    }

    pub(crate) fn runs(&self) -> &RunStore {
        self.executor.runs()
    }

    /// Every run there is.
    pub(crate) async fn listed(&self) -> Vec<Summary> {
        self.runs().list(Query::default(), None, 100).await.unwrap().runs
    }

    /// Waits until a run has been reported to its end, or its report has been given up.
    pub(crate) async fn reported_to_the_end(&self, run_id: &str) {
        until("the report to be ticked off", || async {
            self.runs().ledger().document("aos.report", run_id).unwrap().is_none()
        })
        .await;
    }

    pub(crate) fn execution_state(&self, run_id: &str) -> Option<SessionState> {
        reported(&**self.engine.store(), &execution_session_id(run_id)).unwrap().map(|reported| reported.state)
    }

    /// Waits until a run's execution session says as much as its journal.
    pub(crate) async fn reported_so_far(&self, run_id: &str) {
        until("the report to catch up", || async {
            let journal = self.runs().load(run_id).await.unwrap().unwrap().entries.len() as u64;
            let found = reported(&**self.engine.store(), &execution_session_id(run_id)).unwrap();
            found.is_some_and(|found| found.next_seq == journal)
        })
        .await;
    }

    /// Everything stops as it does when a server is told to stop.
    pub(crate) async fn stop(self) {
        self.session_runs.shutdown().await;
        self.executor.shutdown().await;
        let engine = self.engine.clone();
        drop(self);
        tokio::task::spawn_blocking(move || engine.shut_down()).await.unwrap();
    }
}

/// Waits until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain for {what}");
}

/// A skill with one keyed effect, whose calls wait until they are let through.
#[derive(Debug)]
pub(crate) struct Gate {
    pure: ScriptedSkill,
    passes: Semaphore,
    begun: AtomicUsize,
}

impl Gate {
    /// Everything is let through.
    pub(crate) fn open() -> Arc<Gate> {
        Gate::with_passes(10_000)
    }

    pub(crate) fn closed() -> Arc<Gate> {
        Gate::with_passes(0)
    }

    fn with_passes(passes: usize) -> Arc<Gate> {
        let pure = ScriptedSkill::new("sample", "1.0.0")
            .effect("http_request", "example.com", Idempotency::Keyed)
            .declare(|metadata| metadata.timeout_ms = 60_000);
        Arc::new(Gate { pure, passes: Semaphore::new(passes), begun: AtomicUsize::new(0) })
    }

    pub(crate) fn let_through(&self, calls: usize) {
        self.passes.add_permits(calls);
    }

    /// Calls that have been made.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub(crate) async fn reached(&self, calls: usize) {
        until("a call", || async { self.begun() >= calls }).await;
    }
}

impl PureSkill for Gate {
    fn metadata(&self) -> &SkillMetadata {
        self.pure.metadata()
    }

    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        self.pure.effects(parameters)
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        PureSkill::usage_bound(&self.pure, parameters)
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        self.pure.check_input(parameters)
    }
}

impl Skill for Gate {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.passes.acquire().await.expect("it is never closed").forget();
            match call.parameters.get("output") {
                Some(output) => Observation::success(output.clone(), "let through"),
                None => Observation::new(macp_plan_core::cause::Cause::http(403), "let through"),
            }
        })
    }
}

fn rate_card() -> Value {
    json!({"id": "rc", "currency": "USD", "skills": {"sample@1.0.0": {"base": 5}}})
}

/// A step that succeeds.
pub(crate) fn step(step_id: &str) -> Value {
    step_with(step_id, json!({"output": {"done": step_id}}))
}

pub(crate) fn step_with(step_id: &str, parameters: Value) -> Value {
    json!({
        "step_id": step_id, "skill_id": "sample", "skill_version": "1.0.0", "parameters": parameters,
        "retry_policy": {
            "max_retries": 0, "backoff_base_ms": 100, "backoff_multiplier": 2, "retryable_codes": [],
            "jitter_enabled": false, "jitter_max_ms": 0, "max_delay_ms": 1_000,
        },
        "on_error": "abort",
    })
}

/// The text of a frozen plan as agents would send it.
pub(crate) fn plan(plan_id: &str, steps: Vec<Value>) -> Value {
    let card = RateCard::from_value(rate_card()).unwrap();
    json!({
        "plan_id": plan_id, "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent-1", "goal": "be committed to",
        "context": {
            "budget_cents": 100, "allowed_skills": ["sample"],
            "budget_policy": {
                "hard_limit": true, "per_step_max_cents": null, "alert_threshold_percent": 80,
                "admission": null, "policy_version": "1.0.0",
            },
        },
        "pins": {
            "spec": "aos/1", "taxonomy_version": "1.1.0", "jitter": "sha256-be64-mod100/1",
            "token_estimator": "bytes4-ceil/1", "rate_card": {"id": "rc", "hash": card.digest()},
        },
        "steps": steps,
    })
}

pub(crate) fn frozen(plan: &Value) -> FrozenPlan {
    FrozenPlan::from_value(plan.clone()).unwrap_or_else(|error| panic!("{error}"))
}

/// What a Commitment calls a plan.
pub(crate) fn token(plan: &Value) -> String {
    format!("aos-plan:{}", frozen(plan).hash)
}
