//! Skills and stores that misbehave: one outcome for every one of them, no dispatch without a journal, no answer lost.

use std::sync::Arc;
use std::time::Duration;

use macp_ledger::{MemoryStore, Store};
use macp_plan::skill::Observation;
use macp_plan::store::Status;
use macp_plan::testkit::{Act, ScriptedSkill};
use macp_plan_core::cost::Usage;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::execution::call;
use super::stores::{Failing, Writes};
use super::world::{NOON_MS, World, begin, codes, count, ended, output_of, step_of};

/// Test 26, AOS-79: a panic is one step's outcome, and with retries the run goes on.
#[tokio::test(start_paused = true)]
async fn skill_panic_becomes_outcome() {
    for world in World::both() {
        let mut retried = call("s1", "panic, 200");
        retried["retry_policy"]["retryable_codes"] = json!(["ERR_INTERNAL"]);
        let mut left = call("s2", "panic");
        left["on_error"] = json!("continue");
        let result = world.run(plan(0, vec![retried, left, call("s3", "200")])).await;
        assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "ERR_INTERNAL"), ("s3", "OK_HTTP_CALL")]);
        assert_eq!(step_of(&result, "s1").retry_count, 1);
        assert!(!step_of(&result, "s2").outcome.message.contains("the script panics"), "its text may hold anything");
    }
}

/// Test 26, AOS-72: the guard is a second later than the skill's own timer, which reports first if it works.
#[tokio::test(start_paused = true)]
async fn skill_hangs_guard_fires() {
    for world in World::both() {
        let mut hangs = call("s1", "hang");
        (hangs["timeout_ms"], hangs["on_error"]) = (json!(700), json!("continue"));
        let mut keeps = call("s2", "timeout");
        (keeps["timeout_ms"], keeps["on_error"]) = (json!(700), json!("continue"));
        let result = world.run(plan(0, vec![hangs, keeps])).await;
        assert_eq!(codes(&result), [("s1", "ERR_TIMEOUT"), ("s2", "ERR_HTTP_TIMEOUT")]);
        let latency = |id: &str| step_of(&result, id).outcome.latency_ms;
        assert!((1_700..1_800).contains(&latency("s1")), "{}", latency("s1"));
        assert!((700..800).contains(&latency("s2")), "{}", latency("s2"));
    }
}

/// AOS-72: nor does a skill that keeps its thread busy keep the guard from firing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_that_blocks_is_left_behind() {
    let world = World::memory();
    let mut blocks = call("s1", "block 3000");
    blocks["timeout_ms"] = json!(50);
    let began = Instant::now();
    let result = world.run(plan(0, vec![blocks])).await;
    assert_eq!(codes(&result), [("s1", "ERR_TIMEOUT")]);
    assert!(began.elapsed() < Duration::from_millis(2_800), "{:?}", began.elapsed());
}

/// AOS-36: an output that is not what the skill promises, or that no journal can hold.
#[tokio::test(start_paused = true)]
async fn outputs_that_cannot_be_kept() {
    let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
    let outputs = [json!([1, 2]), json!({"n": u64::MAX}), json!({"deep": deep})];
    for output in outputs {
        let world = World::memory().with_registry(|registry, _| {
            let observation = Observation::success(output.clone(), "given")
                .with_usage(Usage { requests: u64::MAX, ..Usage::default() })
                .with_detail("huge", u64::MAX);
            let promise = |metadata: &mut macp_plan_core::skill::SkillMetadata| {
                metadata.output_schema = json!({"type": "object"});
            };
            let skill = ScriptedSkill::new("http_call", "1.2.0").declare(promise).act(Act::Answer(observation));
            registry.register(Arc::new(skill), None).unwrap();
        });
        let result = world.run(plan(0, vec![call("s1", "")])).await;
        assert_eq!(codes(&result), [("s1", "ERR_SCHEMA_MISMATCH")]);
    }
}

/// Test 27, AOS-72: the clock on the wall decides nothing, whichever way it is moved.
#[tokio::test(start_paused = true)]
async fn wall_clock_jump_changes_nothing() {
    const DAY_MS: u64 = 86_400_000;
    let steps = || vec![call("s1", "503, 503, 200"), call("s2", "timeout, 200")];
    let policy = |mut value: Value| {
        value["steps"][1]["retry_policy"]["retryable_codes"] = json!(["ERR_HTTP_TIMEOUT"]);
        value
    };
    let mut digests = Vec::new();
    for jump in [NOON_MS, NOON_MS + DAY_MS, NOON_MS - DAY_MS] {
        for world in World::both() {
            let executor = world.executor();
            let start = macp_plan::executor::Start {
                deadline_ms: Some(600_000),
                ..macp_plan::executor::Start::execute(super::world::frozen(policy(plan(0, steps()))), "tester")
            };
            let clock = Arc::clone(&world.clock_ms);
            world.stage.during(1, move || clock.store(jump, std::sync::atomic::Ordering::SeqCst));
            let began = Instant::now();
            let run_id = executor.start(start).await.unwrap().run_id;
            let result = ended(&executor, &run_id).await;
            assert_eq!(result.status, Status::Succeeded);
            // 100 + 200 ms, a timeout of 5 s and 100 ms.
            let took = began.elapsed().as_millis();
            assert!((5_400..6_000).contains(&took), "{took}");
            digests.push(result.behavior_digest.unwrap());
        }
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]));
}

/// Test 29, AOS-78 and AOS-66: without its journal or its claims a run waits, and calls nobody.
#[tokio::test(start_paused = true)]
async fn store_down_no_dispatch() {
    for writes in [Writes::Fail, Writes::FailDocuments] {
        let failing = Failing::over(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let world = World::over(Arc::clone(&failing) as Arc<dyn Store>);
        let executor = world.executor();
        let breaking = Arc::clone(&failing);
        world.stage.during(0, move || breaking.set(writes));
        let run_id = begin(&executor, plan(10, vec![call("s1", "200"), step("s2", "post_call", json!({}))])).await;
        // Time passes while it waits: it has tried more than once, and called nobody.
        while failing.refused() < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(world.stage.calls(), 1);
        failing.set(Writes::Work);
        let result = ended(&executor, &run_id).await;
        assert_eq!((result.status, world.stage.calls()), (Status::Succeeded, 2));
    }
}

/// A write that failed is found again, or made again: no answer is lost, nothing is sent twice and nothing is in doubt,
/// whether or not the store has it.
#[tokio::test(start_paused = true)]
async fn an_answer_survives_a_failed_write() {
    for writes in [Writes::Fail, Writes::StoreAndFail] {
        for unrepeatable in ["mail_send", "post_call"] {
            let failing = Failing::over(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
            let world = World::over(Arc::clone(&failing) as Arc<dyn Store>);
            let executor = world.executor();
            let steps = vec![
                step("s1", unrepeatable, json!({"script": "200"})),
                step("s2", unrepeatable, json!({"script": "large 40000"})),
                step("s3", unrepeatable, json!({})),
            ];
            // What the first call says is in the write that fails, and so is the intent of the second.
            let breaking = Arc::clone(&failing);
            world.stage.during(0, move || breaking.fail_next_append(writes));
            let breaking = Arc::clone(&failing);
            world.stage.during(2, move || breaking.fail_next_append(writes));
            let run_id = begin(&executor, plan(10, steps)).await;
            let result = ended(&executor, &run_id).await;
            assert_eq!((result.status, world.stage.calls()), (Status::Succeeded, 3));
            assert_eq!(count(&executor, &run_id, "effect_intent").await, 3);
            assert_eq!(failing.refused(), 2);
        }
    }
}

/// An output that is kept apart waits for the store too.
#[tokio::test(start_paused = true)]
async fn a_large_answer_survives_a_failed_write() {
    let failing = Failing::over(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let world = World::over(Arc::clone(&failing) as Arc<dyn Store>);
    let executor = world.executor();
    let text = "z".repeat(40_000);
    let steps = vec![
        step("s1", "http_call", json!({"script": "200"})),
        step("s2", "mail_send", json!({"script": "give", "value": text})),
        step("s3", "http_call", json!({"script": "give", "value": "{{s2.value}}"})),
    ];
    // The claim and the write before the second call go through, its output does not.
    let breaking = Arc::clone(&failing);
    world.stage.during(0, move || breaking.left.store(2, std::sync::atomic::Ordering::SeqCst));
    let run_id = begin(&executor, plan(10, steps)).await;
    while failing.refused() < 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(executor.result(&run_id).await.unwrap().unwrap().held_up.is_some(), "who asks hears why it waits");
    failing.left.store(usize::MAX, std::sync::atomic::Ordering::SeqCst);
    let result = ended(&executor, &run_id).await;
    assert_eq!(result.held_up, None);
    assert_eq!((result.status, world.stage.calls()), (Status::Succeeded, 3));
    assert_eq!(output_of(&executor, step_of(&result, "s3")).await["value"], text);
}
