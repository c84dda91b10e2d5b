//! The memory of runs: a run waits for it before its call, and outputs are read back where they are needed.

use std::time::Duration;

use macp_plan::executor::{Executor, Start};
use macp_plan::result::Doing;
use macp_plan::store::Status;
use macp_plan_core::journal::StopReason;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::world::{World, begin, codes, ended, frozen};

/// Room for one call of an agent at a time.
const ONE_CALL: usize = 512 * 1024;

fn world(mut world: World) -> World {
    world.settings.memory_bytes_max = ONE_CALL;
    world
}

async fn waits(executor: &Executor, runs: usize) {
    while executor.memory().waiting != runs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn doing(executor: &Executor, run_id: &str) -> Option<Doing> {
    executor.result(run_id).await.unwrap().unwrap().at_work.map(|at_work| at_work.doing)
}

#[tokio::test]
async fn a_run_that_waits_for_memory_can_be_cancelled_and_paused_and_has_its_deadline() {
    for world in World::both().map(world) {
        let executor = world.executor();
        let first = begin(&executor, plan(0, vec![call("s1", "gate")])).await;
        world.stage.wait_for_calls(1).await;
        let one = || plan(0, vec![call("s1", "200")]);
        let (cancelled, paused) = (begin(&executor, one()).await, begin(&executor, one()).await);
        let last = begin(&executor, one()).await;
        waits(&executor, 3).await;
        assert_eq!(doing(&executor, &cancelled).await, Some(Doing::AwaitingMemory));
        executor.cancel(&cancelled, "olga", "").await.unwrap();
        assert_eq!(codes(&ended(&executor, &cancelled).await), [("s1", "ERR_CANCELLED")]);
        executor.pause(&paused, true).await.unwrap();
        let late = Start { deadline_ms: Some(100), ..Start::execute(frozen(one()), "tester") };
        let late = executor.start(late).await.unwrap().run_id;
        let late = ended(&executor, &late).await;
        assert_eq!(late.stop.unwrap().reason, StopReason::Deadline);
        // The paused run waits for no memory.
        waits(&executor, 1).await;
        assert_eq!(doing(&executor, &paused).await, Some(Doing::Paused));
        assert_eq!((doing(&executor, &last).await, world.stage.calls()), (Some(Doing::AwaitingMemory), 1));
        world.stage.gate.add_permits(1);
        for run in [&first, &last] {
            assert_eq!(ended(&executor, run).await.status, Status::Succeeded);
        }
        executor.pause(&paused, false).await.unwrap();
        assert_eq!(ended(&executor, &paused).await.status, Status::Succeeded);
        let now = executor.memory();
        assert_eq!((now.reserved, now.waiting), (0, 0));
        assert!(now.waits >= 4, "{now:?}");
    }
}

/// Another agent's runs do not wait for those of an agent that has used up its share.
#[tokio::test]
async fn an_agent_has_its_share() {
    let mut world = world(World::memory());
    world.settings.memory_bytes_max = 2 * ONE_CALL;
    let executor = world.executor();
    let gated = || plan(0, vec![call("s1", "gate")]);
    for _ in 0..3 {
        begin(&executor, gated()).await;
    }
    world.stage.wait_for_calls(2).await;
    waits(&executor, 1).await;
    let mut other = plan(0, vec![call("s1", "200")]);
    other["agent_id"] = json!("another");
    let other = begin(&executor, other).await;
    assert_eq!(ended(&executor, &other).await.status, Status::Succeeded);
    assert_eq!((executor.memory().waiting, world.stage.calls()), (1, 3));
    world.stage.gate.add_permits(3);
    executor.shutdown().await;
}

/// Large outputs and many small ones, read whole and in part, before and after a restart.
#[tokio::test]
async fn outputs_are_read_back_for_the_steps_that_refer_to_them() {
    for world in World::both().map(world) {
        let executor = world.executor();
        let mut steps: Vec<Value> = (0..12).map(|at| call(&format!("small{at}"), "large 9000")).collect();
        steps.push(call("large", "large 700000"));
        let all: Vec<String> = (0..12).map(|at| format!("{{{{small{at}.text}}}}")).collect();
        let give = |id: &str, value: Value| step(id, "http_call", json!({"script": "503, give", "value": value}));
        steps.push(give("first", json!({"all": all, "one": "{{large}}"})));
        steps.push(call("stop", "gate"));
        steps.push(give("second", json!({"all": all, "one": "{{large.text}}", "given": "{{first.value}}"})));
        let run_id = begin(&executor, plan(0, steps)).await;
        // Twelve small calls, a large one, two of the first reader, and the one that waits.
        world.stage.wait_for_calls(16).await;
        executor.shutdown().await;
        let executor = world.executor();
        world.stage.gate.add_permits(1);
        assert_eq!(executor.recover().await.unwrap(), 1);
        let result = ended(&executor, &run_id).await;
        assert_eq!(result.status, Status::Succeeded, "{:?}", codes(&result));
        let sent = world.stage.sent();
        let second = &sent.last().unwrap().parameters["value"];
        assert_eq!(second["all"], json!(vec!["x".repeat(9_000); 12]));
        assert_eq!(second["one"], json!("x".repeat(700_000)));
        assert_eq!(second["given"]["one"], json!({"text": "x".repeat(700_000)}));
        assert_eq!(second["given"]["all"], second["all"]);
        assert_eq!(executor.memory().reserved, 0);
    }
}

/// AOS-80: what must not be called again needs no request, and so waits for no memory.
#[tokio::test]
async fn a_call_in_doubt_is_not_prepared_again() {
    for world in World::both().map(world) {
        let executor = world.executor();
        let send = step("send", "mail_send", json!({"script": "gate", "value": "{{large.text}}"}));
        let run_id = begin(&executor, plan(100, vec![call("large", "large 700000"), send])).await;
        world.stage.wait_for_calls(2).await;
        executor.shutdown().await;
        let executor = world.executor();
        assert_eq!(executor.recover().await.unwrap(), 1);
        assert_eq!(ended(&executor, &run_id).await.status, Status::InDoubt);
        assert_eq!((world.stage.calls(), executor.memory().waits), (2, 0));
    }
}
