//! AOS-36: what a run keeps of answers is bounded, and an answer beyond it fails its step.

use macp_plan::executor::ExecutorSettings;
use macp_plan::store::Status;
use macp_plan_core::testkit::{plan, step};
use serde_json::json;

use super::world::{World, begin, codes, ended, output_of, step_of};

const ROOM: u64 = 100_000;

fn world() -> World {
    let mut world = World::sqlite();
    world.settings = ExecutorSettings { run_output_bytes_max: ROOM, ..world.settings };
    world
}

#[tokio::test(start_paused = true)]
async fn an_output_beyond_the_room_fails_its_step_and_is_not_kept() {
    let world = world();
    let read = |id: &str, script: &str| {
        let mut step = step(id, "http_call", json!({"script": script}));
        step["on_error"] = json!("continue");
        step
    };
    let steps = vec![
        read("small", "large 10000"),
        read("one", "large 40000"),
        read("two", "large 40000"),
        read("three", "large 40000"),
        read("again", "large 10000"),
    ];
    let result = world.run(plan(1_000, steps)).await;
    assert_eq!(result.status, Status::Succeeded);
    let told: Vec<_> = codes(&result).into_iter().map(|(_, code)| code).collect();
    let ok = "OK_HTTP_CALL";
    assert_eq!(told, [ok, ok, ok, "ERR_STORAGE_QUOTA_EXCEEDED", ok], "what is small stands in the journal");
    let three = step_of(&result, "three");
    assert!(three.outcome.message.contains("room for 100000"), "{}", three.outcome.message);
    assert_eq!(
        (three.attempts.len(), three.attempts[0].output_ref.is_none(), three.outcome.retryable),
        (1, true, false)
    );
    assert!(output_of(&world.executor(), step_of(&result, "two")).await.to_string().len() > 40_000);
}

/// The call was made: where nothing recognises a repetition, only an operator can say what became of it.
#[tokio::test(start_paused = true)]
async fn an_effect_beyond_the_room_is_in_doubt() {
    let world = world();
    let steps = vec![step("s1", "mail_send", json!({"script": "large 120000"}))];
    let executor = world.executor();
    let run_id = begin(&executor, plan(1_000, steps)).await;
    let result = ended(&executor, &run_id).await;
    assert_eq!(codes(&result), [("s1", "ERR_STORAGE_QUOTA_EXCEEDED")]);
    assert_eq!(result.steps[0].outcome.details["effect"], "unknown", "it was made, and its answer is gone");
}

/// What an earlier process kept counts, the same output twice if it came twice: a restart gives a run no new room.
#[tokio::test]
async fn room_is_counted_over_restarts() {
    for kept in [vec!["large 60000"], vec!["large 40000", "large 40000"]] {
        let world = world();
        let mut steps: Vec<_> = kept
            .iter()
            .enumerate()
            .map(|(at, script)| step(&format!("kept-{at}"), "http_call", json!({"script": script})))
            .collect();
        steps.push(step("wait", "http_call", json!({"script": "gate"})));
        steps.push(step("last", "http_call", json!({"script": "large 50000"})));
        let executor = world.executor();
        let run_id = begin(&executor, plan(1_000, steps)).await;
        world.stage.wait_for_calls(u32::try_from(kept.len()).unwrap() + 1).await;
        executor.shutdown().await;
        world.stage.gate.add_permits(1);
        let executor = world.executor();
        executor.recover().await.unwrap();
        let result = ended(&executor, &run_id).await;
        assert_eq!(codes(&result).last(), Some(&("last", "ERR_STORAGE_QUOTA_EXCEEDED")));
    }
}

/// To be counted an output need not be readable: a run that does not need it goes on.
#[tokio::test]
async fn a_damaged_output_does_not_keep_a_run_waiting() {
    let world = world();
    let steps = vec![
        step("one", "http_call", json!({"script": "large 40000"})),
        step("wait", "http_call", json!({"script": "gate"})),
    ];
    let executor = world.executor();
    let run_id = begin(&executor, plan(1_000, steps)).await;
    world.stage.wait_for_calls(2).await;
    executor.shutdown().await;
    let documents = world.store.documents("aos.body", None, 10).unwrap();
    let [body] = documents.as_slice() else { panic!("one output is kept apart: {documents:?}") };
    world.store.put_document("aos.body", &body.key, b"damaged", macp_ledger::PutMode::Replace).unwrap();
    world.stage.gate.add_permits(1);
    let executor = world.executor();
    executor.recover().await.unwrap();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), executor.finished(&run_id));
    let result = ended.await.expect("it does not wait").unwrap().unwrap();
    assert_eq!(result.status, Status::Succeeded);
}
