//! Test 30, AOS-80: a process that is killed at any write leaves a run that goes on as if nothing had been.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use macp_ledger::{MemoryStore, SqliteStore, Store};
use macp_plan::executor::{Executor, Start, StartMode};
use macp_plan::result::RunResult;
use macp_plan::store::{Outcome, Status};
use macp_plan_core::effect::effect_key;
use macp_plan_core::journal::Body;
use macp_plan_core::testkit::{llm_step, plan, step};
use serde_json::{Value, json};

use super::stores::{Death, Failing};
use super::world::{World, ended, frozen};

/// Everything that can happen to a run that can be repeated.
fn repeatable() -> Value {
    let mut skipped = step("skipped", "http_call", json!({}));
    skipped["run_if"] = json!({"step_id": "read", "status_in": ["failure"]});
    let mut failed = step("failed", "post_call", json!({"script": "404"}));
    failed["on_error"] = json!("continue");
    let mut asked = llm_step("asked", "12345678", 100);
    asked["parameters"]["script"] = json!("usage 100/90");
    let text = "k".repeat(20_000);
    plan(
        1_000,
        vec![
            step("read", "http_call", json!({"script": "503, 200"})),
            step("wrote", "post_call", json!({"script": "503, 503, give", "value": {"text": text}, "effects": 2})),
            skipped,
            failed,
            step("used", "json_transform", json!({"script": "give", "value": "{{wrote.value}}"})),
            asked,
            step("last", "post_call", json!({"script": "200"})),
        ],
    )
}

/// Effects of which nobody could tell whether they took place.
fn unrepeatable() -> Value {
    plan(100, ["one", "two", "three"].map(|id| step(id, "mail_send", json!({"script": "200"}))).to_vec())
}

/// The run has the same name in every world, and so the same jitter.
const RUN_ID: &str = "r-fe5f3baf93ff-0000000000000001";

/// The one of the kit's agent.
const NAMESPACE: &str = "default/agent-kit";

async fn start(executor: &Executor, value: &Value, run_id: &str) -> bool {
    let start = Start { request_id: Some("q".to_owned()), ..Start::execute(frozen(value.clone()), "tester") };
    executor.start_as(run_id.to_owned(), start).await.is_ok()
}

/// A process that lives until its store dies or its runs have ended.
async fn live(world: &World, store: &Arc<Failing>, work: impl AsyncFn(&Executor)) {
    let executor = world.moved_to(Arc::clone(store) as Arc<dyn Store>).executor();
    work(&executor).await;
    while executor.live() > 0 && !store.is_dead() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    executor.shutdown().await;
}

/// The world gives an answer again that nobody wrote down.
async fn rewind(world: &World, value: &Value) {
    let Some(run) = world.runs().load(RUN_ID).await.unwrap() else {
        return world.stage.rewind(BTreeMap::new());
    };
    let mut made = BTreeMap::new();
    for step in value["steps"].as_array().unwrap() {
        let step_id = step["step_id"].as_str().unwrap();
        let answered =
            run.bodies().filter(|body| matches!(body, Body::AttemptObserved { step_id: of, .. } if of == step_id));
        made.insert(effect_key(NAMESPACE, "", "p-kit", step_id, 1, 0), answered.count());
    }
    world.stage.rewind(made);
}

async fn uninterrupted(value: &Value) -> (RunResult, usize) {
    let store = Failing::mortal(Arc::new(MemoryStore::new()), usize::MAX, Death::None);
    let world = World::over(Arc::clone(&store) as Arc<dyn Store>);
    let executor = world.executor();
    assert!(start(&executor, value, RUN_ID).await);
    let result = ended(&executor, RUN_ID).await;
    executor.shutdown().await;
    (result, usize::MAX - store.left.load(std::sync::atomic::Ordering::SeqCst))
}

/// Lives once with so many writes, and then for good.
async fn interrupted(world: &World, value: &Value, writes: usize, death: Death) -> RunResult {
    let store = Failing::mortal(Arc::clone(&world.store), writes, death);
    live(world, &store, async |executor| {
        start(executor, value, RUN_ID).await;
    })
    .await;
    rewind(world, value).await;
    let executor = world.executor();
    executor.recover().await.unwrap();
    // Whoever did not hear that the run was started asks again.
    assert!(start(&executor, value, RUN_ID).await);
    let result = ended(&executor, RUN_ID).await;
    executor.shutdown().await;
    result
}

fn worlds(sqlite: bool) -> World {
    if sqlite { World::sqlite() } else { World::memory() }
}

#[tokio::test(start_paused = true)]
async fn crash_at_every_journal_position() {
    let value = repeatable();
    let (expected, writes) = uninterrupted(&value).await;
    assert_eq!(expected.status, Status::Succeeded, "{:?}", expected.stop);
    assert!(writes > 20, "{writes}");
    for (death, sqlite) in [(Death::AfterWrite, false), (Death::AtWrite, false), (Death::AfterWrite, true)] {
        for writes in 1..=writes {
            let world = worlds(sqlite);
            let result = interrupted(&world, &value, writes, death).await;
            assert_eq!(result.behavior_digest, expected.behavior_digest, "{death:?} {writes}");
            // What was called again is at most the one call whose answer nobody wrote down.
            let attempts: usize = expected.steps.iter().map(|step| step.attempts.len()).sum();
            let calls = world.stage.calls();
            assert!(
                (attempts..=attempts + 1).contains(&calls),
                "{death:?} {writes}: {calls} calls, {attempts} attempts"
            );
        }
    }
}

/// Killed again and again, every time after a write or two.
#[tokio::test(start_paused = true)]
async fn many_crashes() {
    let value = repeatable();
    let (expected, _) = uninterrupted(&value).await;
    for (each, death) in [(1, Death::AfterWrite), (2, Death::AfterWrite), (3, Death::AtWrite), (2, Death::AtWrite)] {
        let world = World::memory();
        let mut lives = 0;
        loop {
            rewind(&world, &value).await;
            let store = Failing::mortal(Arc::clone(&world.store), each, death);
            live(&world, &store, async |executor| {
                let _ = executor.recover().await;
                start(executor, &value, RUN_ID).await;
            })
            .await;
            lives += 1;
            assert!(lives < 500, "it does not get on");
            let summary = world.runs().summary(RUN_ID).await.unwrap();
            if summary.is_some_and(|summary| summary.status != Status::Running) {
                break;
            }
        }
        let executor = world.executor();
        let result = ended(&executor, RUN_ID).await;
        assert_eq!(result.behavior_digest, expected.behavior_digest, "{each} {death:?}");
        assert!(lives > 5, "{lives}");
    }
}

/// A step is asked again whose answer nobody wrote down, and the world has changed meanwhile. What follows from the new
/// answer is another request, which must not meet the claim of the one that was never sent.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_another_after_a_crash() {
    let value = plan(
        10,
        vec![
            step("read", "http_call", json!({"script": "large 1, large 2"})),
            step("wrote", "post_call", json!({"script": "200", "about": "{{read.text}}"})),
            step("told", "mail_send", json!({"script": "200", "about": "{{read.text}}"})),
        ],
    );
    let (expected, writes) = uninterrupted(&value).await;
    assert_eq!(expected.status, Status::Succeeded);
    let mut asked_again = 0;
    for death in [Death::AfterWrite, Death::AtWrite] {
        for writes in 1..=writes {
            let world = World::memory();
            let store = Failing::mortal(Arc::clone(&world.store), writes, death);
            live(&world, &store, async |executor| {
                start(executor, &value, RUN_ID).await;
            })
            .await;
            let executor = world.executor();
            executor.recover().await.unwrap();
            assert!(start(&executor, &value, RUN_ID).await);
            let result = ended(&executor, RUN_ID).await;
            let in_doubt = result.status == Status::InDoubt && result.stop.unwrap().step_id.as_deref() == Some("told");
            assert!(in_doubt || result.status == Status::Succeeded, "{death:?} {writes}: {:?}", result.final_code);
            executor.shutdown().await;
            let key = effect_key(NAMESPACE, "", "p-kit", "read", 1, 0);
            asked_again += usize::from(world.stage.counts().get(&key) == Some(&2));
            // Under one key there was only ever one request.
            let mut requests = BTreeMap::new();
            for sent in world.stage.sent() {
                let about = sent.parameters.get("about").cloned();
                assert_eq!(*requests.entry(sent.effect_key).or_insert(about.clone()), about, "{death:?} {writes}");
            }
        }
    }
    assert!(asked_again > 1, "{asked_again}");
}

/// What cannot be repeated is not repeated: the run stops in doubt, an operator says what became of it, and a run that
/// tries again does the rest. In the end everything was sent exactly once.
#[tokio::test(start_paused = true)]
async fn unrepeatable_effects_are_in_doubt() {
    let value = unrepeatable();
    let (expected, writes) = uninterrupted(&value).await;
    let mut in_doubt = 0;
    for (death, sqlite) in [(Death::AfterWrite, false), (Death::AtWrite, false), (Death::AfterWrite, true)] {
        for writes in 1..=writes {
            let world = worlds(sqlite);
            let result = interrupted(&world, &value, writes, death).await;
            let counts = world.stage.counts();
            assert!(counts.values().all(|count| *count == 1), "{death:?} {writes}: {counts:?}");
            if result.status == Status::Succeeded {
                assert_eq!((result.behavior_digest, counts.len()), (expected.behavior_digest.clone(), 3));
                continue;
            }
            assert_eq!(result.status, Status::InDoubt, "{death:?} {writes}");
            in_doubt += 1;
            let step_id = result.stop.unwrap().step_id.unwrap();
            assert_eq!(result.final_code.as_deref(), Some("ERR_EFFECT_IN_DOUBT"));
            let key = effect_key(NAMESPACE, "", "p-kit", &step_id, 1, 0);
            let outcome = if counts.contains_key(&key) { Outcome::Success } else { Outcome::Failure };
            let executor = world.executor();
            executor.settle(RUN_ID, &step_id, outcome, "looked it up", "olga").await.unwrap();
            let mode = StartMode::Retry { parent_run_id: RUN_ID.to_owned(), from_step: None };
            let retry = Start { mode, ..Start::execute(frozen(value.clone()), "olga") };
            let retry = executor.start(retry).await.unwrap().run_id;
            let result = ended(&executor, &retry).await;
            assert_eq!(result.status, Status::Succeeded, "{death:?} {writes}");
            let counts = world.stage.counts();
            assert!(counts.len() == 3 && counts.values().all(|count| *count == 1), "{death:?} {writes}: {counts:?}");
            executor.shutdown().await;
        }
    }
    assert!(in_doubt > 6, "{in_doubt}");
}

/// The real store, reopened: nothing but the files is left.
#[tokio::test]
async fn a_store_that_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(directory.path()).unwrap()) };
    let value = plan(
        10,
        vec![
            step("s1", "http_call", json!({"script": "200"})),
            step("s2", "post_call", json!({"script": "gate, 200"})),
        ],
    );
    let world = World::over(open());
    let stage = Arc::clone(&world.stage);
    let executor = world.executor();
    assert!(start(&executor, &value, RUN_ID).await);
    stage.wait_for_calls(2).await;
    executor.shutdown().await;
    drop(executor);
    // The directory is locked as long as the first store is open.
    let skills = world.moved_to(Arc::new(MemoryStore::new()));
    drop(world);
    let world = skills.moved_to(open());
    let executor = world.executor();
    assert_eq!(executor.recover().await.unwrap(), 1);
    let result = ended(&executor, RUN_ID).await;
    assert_eq!(result.status, Status::Succeeded);
    let counts: Vec<_> = stage.counts().into_values().collect();
    assert_eq!(counts.iter().sum::<usize>(), 3, "one call again, with the same key: {counts:?}");
    assert_eq!(counts.len(), 2);
}
