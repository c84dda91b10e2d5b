//! A stage for runs: skills whose parameters say how their calls end, and everything that was sent.
//!
//! `{"script": "503, 503, 200"}` makes the first call of a step end with 503, the second too and every later one with
//! 200. Beside the words of the kit there are `large N` (an output of N bytes), `give` (the parameter `value` comes
//! back), `slow MS`, `gate` (waits until the test opens it) and `block MS` (keeps its thread busy). A closed gate is
//! for real time only: paused time jumps to the timeout of the call as soon as nothing else is to be done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use macp_ledger::{MemoryStore, SqliteStore, Store};
use macp_plan::executor::{Executor, ExecutorSettings, RunObserver, Start, Unobserved};
use macp_plan::registry::Registry;
use macp_plan::result::{RunResult, StepResult};
use macp_plan::secrets::Held;
use macp_plan::skill::{Call, Calling, Observation, Skill};
use macp_plan::store::RunStore;
use macp_plan::testkit::{Act, ScriptedSkill as Script};
use macp_plan_core::compare::Verdict;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::replay::WhatIf;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use macp_plan_core::testkit::{ScriptedSkill, freeze, rate_card};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Some time in 2026, in milliseconds.
pub(crate) const NOON_MS: u64 = 1_790_000_000_000;

pub(crate) const SECRET: &str = "the-value-nobody-may-see-4711";

/// A call as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) effect_key: String,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) at: Instant,
}

/// What all skills of a world share.
#[derive(Debug)]
pub(crate) struct Stage {
    sent: Mutex<Vec<Sent>>,
    /// Calls made so far, by effect key.
    made: Mutex<BTreeMap<String, usize>>,
    pub(crate) gate: Semaphore,
    /// Told of every call.
    arrived: Semaphore,
    /// What happens in the world during a call, by how many calls came before it.
    during: Mutex<BTreeMap<usize, During>>,
}

pub(crate) struct During(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for During {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("During")
    }
}

impl Stage {
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Effect keys in the order in which they were sent.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.sent().into_iter().map(|sent| sent.effect_key).collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    /// How often an effect was sent, by its key.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for key in self.keys() {
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    /// Waits for so many calls that nobody has waited for yet.
    pub(crate) async fn wait_for_calls(&self, calls: u32) {
        self.arrived.acquire_many(calls).await.unwrap().forget();
    }

    /// Lets something happen during a call, the first being 0.
    pub(crate) fn during(&self, call: usize, happens: impl FnOnce() + Send + 'static) {
        self.during.lock().unwrap().insert(call, During(Box::new(happens)));
    }

    /// Scripts go on from here: a world that lost an answer gives it again.
    pub(crate) fn rewind(&self, made: BTreeMap<String, usize>) {
        *self.made.lock().unwrap() = made;
    }
}

/// A skill whose parameters say how its calls end.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) pure: ScriptedSkill,
    stage: Arc<Stage>,
}

impl Actor {
    async fn act(&self, call: Call<'_>) -> Observation {
        let effect_key = call.effect_keys.first().cloned().unwrap_or_default();
        let script = call.parameters.get("script").and_then(Value::as_str).unwrap_or("200");
        let words: Vec<&str> = script.split(',').map(str::trim).collect();
        let turn = {
            let mut made = self.stage.made.lock().unwrap();
            let made = made.entry(effect_key.clone()).or_default();
            *made += 1;
            *made - 1
        };
        let word = words[turn.min(words.len() - 1)];
        let number = {
            let (parameters, at) = (call.parameters.clone(), Instant::now());
            let mut sent = self.stage.sent.lock().unwrap();
            sent.push(Sent { effect_key, parameters, at });
            sent.len() - 1
        };
        if let Some(During(happens)) = self.stage.during.lock().unwrap().remove(&number) {
            happens();
        }
        self.stage.arrived.add_permits(1);
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        if word.starts_with("gate ") {
            self.stage.gate.acquire().await.unwrap().forget();
        }
        if let Some(bytes) = word.strip_prefix("large ").or_else(|| word.strip_prefix("gate ")) {
            let text = "x".repeat(usize::try_from(number(bytes)).unwrap());
            return Observation::success(json!({"text": text}), "large");
        }
        if let Some(wait) = word.strip_prefix("block ") {
            std::thread::sleep(Duration::from_millis(number(wait)));
            return Observation::success(json!({}), "blocked");
        }
        let act = match word {
            "give" => Act::Answer(Observation::success(json!({"value": call.parameters["value"]}), "given")),
            "gate" => {
                self.stage.gate.acquire().await.unwrap().forget();
                Act::Answer(Observation::success(json!({}), "let through"))
            }
            word => match word.strip_prefix("slow ") {
                Some(wait) => {
                    let wait = Duration::from_millis(number(wait));
                    Act::After(wait, Observation::success(json!({}), "slow"))
                }
                None => return script_of(word).call(call).await,
            },
        };
        Script::new("act", "1.0.0").act(act).call(call).await
    }
}

fn script_of(word: &str) -> Script {
    Script::new("act", "1.0.0").script(word).unwrap()
}

impl PureSkill for Actor {
    fn metadata(&self) -> &SkillMetadata {
        &self.pure.metadata
    }

    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        self.pure.effects(parameters)
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        self.pure.usage_bound(parameters)
    }

    fn model<'a>(&self, parameters: &'a Map<String, Value>) -> Option<&'a str> {
        self.pure.model(parameters)
    }

    fn success_code(&self) -> &'static str {
        self.pure.success_code
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        self.pure.check_input(parameters)
    }
}

impl Skill for Actor {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(self.act(call))
    }
}

/// The skills of the kit, which say nothing about how they end.
pub(crate) fn kit() -> Vec<ScriptedSkill> {
    use Idempotency::{Keyed, Natural, None as Unrepeatable};
    let skill = ScriptedSkill::new;
    vec![
        skill("http_call", "1.2.0", Some(("http_request", Natural)), "OK_HTTP_CALL"),
        skill("post_call", "1.0.0", Some(("http_request", Keyed)), "OK"),
        skill("llm_invoke", "2.0.0", Some(("llm_request", Natural)), "OK_LLM_INVOKE"),
        skill("mail_send", "1.0.0", Some(("email_queued", Unrepeatable)), "OK"),
        skill("json_transform", "2.0.0", None, "OK_JSON_TRANSFORM"),
    ]
}

pub(crate) fn actor(pure: ScriptedSkill, stage: &Arc<Stage>) -> Arc<Actor> {
    Arc::new(Actor { pure, stage: Arc::clone(stage) })
}

/// A data directory and everything around it. Executors come and go.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stage: Arc<Stage>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) settings: ExecutorSettings,
    pub(crate) observer: Arc<dyn RunObserver>,
    /// The clock on the wall, which moves only when it is set.
    pub(crate) clock_ms: Arc<AtomicU64>,
    _directory: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        let (sent, made, during) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (gate, arrived) = (Semaphore::new(0), Semaphore::new(0));
        let stage = Arc::new(Stage { sent, made, gate, arrived, during });
        let mut registry = Registry::new();
        for pure in kit() {
            registry.register(actor(pure, &stage), None).unwrap();
        }
        registry.add_rate_card(rate_card()).unwrap();
        Self {
            store,
            stage,
            registry: Arc::new(registry),
            settings: ExecutorSettings { shutdown_grace: Duration::from_millis(20), ..ExecutorSettings::default() },
            observer: Arc::new(Unobserved),
            clock_ms: Arc::new(AtomicU64::new(NOON_MS)),
            _directory: None,
        }
    }

    pub(crate) fn memory() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path()).unwrap();
        Self { _directory: Some(directory), ..Self::over(Arc::new(store)) }
    }

    /// The same skills over another store.
    pub(crate) fn moved_to(&self, store: Arc<dyn Store>) -> Self {
        Self { stage: Arc::clone(&self.stage), registry: Arc::clone(&self.registry), ..Self::over(store) }
    }

    /// One world per kind of store.
    pub(crate) fn both() -> [Self; 2] {
        [Self::memory(), Self::sqlite()]
    }

    /// Other skills and rate cards than the kit's.
    pub(crate) fn with_registry(mut self, change: impl FnOnce(&mut Registry, &Arc<Stage>)) -> Self {
        let mut registry = Registry::new();
        registry.add_rate_card(rate_card()).unwrap();
        change(&mut registry, &self.stage);
        self.registry = Arc::new(registry);
        self
    }

    pub(crate) fn runs(&self) -> RunStore {
        let clock = Arc::clone(&self.clock_ms);
        RunStore::open_with(Arc::clone(&self.store), Arc::new(move || clock.load(Ordering::SeqCst))).unwrap()
    }

    pub(crate) fn executor(&self) -> Executor {
        let secrets = Arc::new(Held::default().with("token", SECRET));
        let (settings, observer) = (self.settings.clone(), Arc::clone(&self.observer));
        Executor::open(self.runs(), Arc::clone(&self.registry), secrets, settings, observer)
    }

    /// Executes a plan to its end.
    pub(crate) async fn run(&self, plan: Value) -> RunResult {
        let executor = self.executor();
        let run_id = begin(&executor, plan).await;
        ended(&executor, &run_id).await
    }

    /// The same without a replay, for plans that cannot be replayed.
    pub(crate) async fn run_unreplayed(&self, plan: Value) -> RunResult {
        let executor = self.executor();
        let run_id = begin(&executor, plan).await;
        executor.finished(&run_id).await.unwrap().unwrap()
    }

    pub(crate) fn set_clock(&self, ms: u64) {
        self.clock_ms.store(ms, Ordering::SeqCst);
    }
}

pub(crate) fn frozen(plan: Value) -> FrozenPlan {
    FrozenPlan::clone(&freeze(plan))
}

pub(crate) async fn begin(executor: &Executor, plan: Value) -> String {
    executor.start(Start::execute(frozen(plan), "tester")).await.unwrap().run_id
}

/// Waits for a run to end, and replays it: whatever happened, every decision follows from what was recorded (test 31,
/// AOS-87).
pub(crate) async fn ended(executor: &Executor, run_id: &str) -> RunResult {
    let result = executor.finished(run_id).await.unwrap().expect("the run exists");
    let report = executor.mock_replay(run_id, WhatIf::default()).await.unwrap();
    assert_eq!(report.verdict, Verdict::Match, "{report:#?}\n{}", lines(executor, run_id).await);
    assert_eq!(report.behavior_digest.original, report.behavior_digest.replay);
    assert_eq!(report.behavior_digest.original, result.behavior_digest);
    assert_eq!(result.retry_count, result.steps.iter().map(|step| step.retry_count).sum::<u32>());
    result
}

/// The journal of a run as text, one entry per line.
pub(crate) async fn lines(executor: &Executor, run_id: &str) -> String {
    let run = executor.runs().load(run_id).await.unwrap().unwrap();
    let texts: Vec<_> = run.entries.iter().map(|entry| String::from_utf8(entry.text.to_vec()).unwrap()).collect();
    texts.join("\n")
}

/// How often a kind of entry is in a run's journal.
pub(crate) async fn count(executor: &Executor, run_id: &str, kind: &str) -> usize {
    let run = executor.runs().load(run_id).await.unwrap().unwrap();
    run.bodies().filter(|body| body.kind() == kind).count()
}

/// Steps that have an outcome, with their codes.
pub(crate) fn codes(result: &RunResult) -> Vec<(&str, &str)> {
    result.steps.iter().map(|step| (step.step_id.as_str(), step.final_code.as_str())).collect()
}

pub(crate) fn step_of<'r>(result: &'r RunResult, step_id: &str) -> &'r StepResult {
    result.steps.iter().find(|step| step.step_id == step_id).expect("the step has an outcome")
}

/// What a step returned, wherever it is kept.
pub(crate) async fn output_of(executor: &Executor, step: &StepResult) -> Value {
    match step.outcome.details.get("output") {
        Some(output) => output.clone(),
        None => {
            let digest = step.attempts.last().unwrap().output_ref.clone().expect("the step returned something");
            executor.runs().bodies().get(digest).await.unwrap().expect("it is kept")
        }
    }
}

/// Everything a store holds, in order: histories and documents.
pub(crate) fn contents(store: &dyn Store) -> Vec<(String, String, Vec<u8>)> {
    let mut found = Vec::new();
    for head in store.list(None, 10_000, macp_ledger::Filter::All).unwrap() {
        found.push((head.session_id.to_string(), "head".to_owned(), format!("{head:?}").into_bytes()));
        for record in store.read(&head.session_id, 0, 100_000, usize::MAX).unwrap() {
            let place = format!("{:06} {}", record.sequence, record.hash);
            found.push((head.session_id.to_string(), place, record.bytes.to_vec()));
        }
    }
    let kinds = ["plan", "body", "claim", "admission", "request", "settlement", "cancel", "pause"];
    for kind in kinds.map(|kind| format!("aos.{kind}")) {
        for document in store.documents(&kind, None, 10_000).unwrap() {
            found.push((kind.clone(), document.key.to_string(), document.bytes.to_vec()));
        }
    }
    found
}
