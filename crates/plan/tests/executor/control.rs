//! What a run can be told: to stop, to wait, that its time is up, that the executor stops.

use std::time::Duration;

use macp_plan::executor::{ControlError, Start};
use macp_plan::store::Status;
use macp_plan_core::journal::StopReason;
use macp_plan_core::testkit::{plan, step};
use serde_json::json;
use tokio::time::Instant;

use super::execution::call;
use super::world::{NOON_MS, World, begin, codes, contents, count, ended, frozen, step_of};

/// In which a run that does not rest would have gone on.
const LONG_ENOUGH: Duration = Duration::from_millis(250);

/// AOS-82: a call that is out may finish, and then the run ends.
#[tokio::test]
async fn cancel_takes_effect_at_the_next_boundary() {
    for world in World::both() {
        let executor = world.executor();
        let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "200"), call("s3", "200")])).await;
        world.stage.wait_for_calls(1).await;
        executor.cancel(&run_id, "olga", "no longer wanted").await.unwrap();
        let under_way = executor.result(&run_id).await.unwrap().unwrap();
        assert_eq!((under_way.status, under_way.cancelled.unwrap().by.as_str()), (Status::Running, "olga"));
        world.stage.gate.add_permits(1);
        let result = ended(&executor, &run_id).await;
        assert_eq!((result.status, result.stop.as_ref().unwrap().reason), (Status::Cancelled, StopReason::Cancelled));
        assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "ERR_CANCELLED")]);
        assert_eq!((result.not_reached.as_slice(), world.stage.calls()), ([String::from("s3")].as_slice(), 1));
        let cancelled = result.cancelled.unwrap();
        assert_eq!((cancelled.by.as_str(), cancelled.reason.as_str()), ("olga", "no longer wanted"));
        let again = executor.cancel(&run_id, "olga", "again").await;
        assert!(matches!(again, Err(ControlError::Finished(_))), "{again:?}");
        assert!(matches!(executor.cancel("r-none", "olga", "").await, Err(ControlError::NoRun(_))));
    }
}

/// AOS-82: also in the middle of a wait, at once, with the claim given up.
#[tokio::test]
async fn cancel_ends_a_wait() {
    for world in World::both() {
        let executor = world.executor();
        let mut waiting = step("s1", "post_call", json!({"script": "503, 200"}));
        waiting["retry_policy"]["backoff_base_ms"] = json!(600_000);
        waiting["retry_policy"]["max_delay_ms"] = json!(600_000);
        let run_id = begin(&executor, plan(10, vec![waiting.clone()])).await;
        let mut watch = executor.runs().watch(&run_id, 0).await.unwrap().unwrap();
        while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "retry_scheduled") {}
        let began = Instant::now();
        executor.cancel(&run_id, "olga", "").await.unwrap();
        let result = ended(&executor, &run_id).await;
        assert_eq!((codes(&result), world.stage.calls()), (vec![("s1", "ERR_CANCELLED")], 1));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let later = begin(&executor, plan(10, vec![waiting])).await;
        assert_eq!(codes(&ended(&executor, &later).await), [("s1", "OK")], "the claim was given up");
    }
}

/// Once it was said, a restart does not forget it.
#[tokio::test]
async fn cancel_outlives_a_restart() {
    for world in World::both() {
        let executor = world.executor();
        let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "200")])).await;
        world.stage.wait_for_calls(1).await;
        executor.cancel(&run_id, "olga", "first").await.unwrap();
        executor.cancel(&run_id, "otto", "second").await.unwrap();
        executor.shutdown().await;
        let executor = world.executor();
        world.stage.gate.add_permits(1);
        assert_eq!(executor.recover().await.unwrap(), 1);
        let result = ended(&executor, &run_id).await;
        assert_eq!(result.status, Status::Cancelled);
        assert_eq!(result.cancelled.unwrap().by, "olga", "the first word stands");
    }
}

#[tokio::test]
async fn pause_and_go_on() {
    let world = World::memory();
    let executor = world.executor();
    let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "503, 200")])).await;
    world.stage.wait_for_calls(1).await;
    executor.pause(&run_id, true).await.unwrap();
    world.stage.gate.add_permits(1);
    // What was decided is durable before it rests.
    let mut watch = executor.runs().watch(&run_id, 0).await.unwrap().unwrap();
    while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "step_finished") {}
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!((world.stage.calls(), executor.live()), (1, 1));
    executor.pause(&run_id, false).await.unwrap();
    world.stage.wait_for_calls(1).await;
    // In the middle of a wait of 100 ms: when it is over, the pause holds.
    executor.pause(&run_id, true).await.unwrap();
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(world.stage.calls(), 2);
    executor.pause(&run_id, false).await.unwrap();
    assert_eq!(ended(&executor, &run_id).await.status, Status::Succeeded);
    // A run that waits can be cancelled.
    let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "200")])).await;
    executor.pause(&run_id, true).await.unwrap();
    executor.cancel(&run_id, "olga", "").await.unwrap();
    world.stage.gate.add_permits(1);
    assert_eq!(ended(&executor, &run_id).await.status, Status::Cancelled);
}

/// AOS-115: a run that is to wait waits after a restart as well, until it is told to go on.
#[tokio::test]
async fn pause_outlives_a_restart() {
    for world in World::both() {
        let executor = world.executor();
        let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "200")])).await;
        world.stage.wait_for_calls(1).await;
        executor.pause(&run_id, true).await.unwrap();
        world.stage.gate.add_permits(1);
        let mut watch = executor.runs().watch(&run_id, 0).await.unwrap().unwrap();
        while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "step_finished") {}
        executor.shutdown().await;

        let executor = world.executor();
        assert_eq!(executor.recover().await.unwrap(), 1);
        tokio::time::sleep(LONG_ENOUGH).await;
        assert_eq!((world.stage.calls(), executor.live()), (1, 1));
        executor.pause(&run_id, false).await.unwrap();
        assert_eq!(ended(&executor, &run_id).await.status, Status::Succeeded);
        assert!(contents(&*world.store).iter().all(|(kind, ..)| kind != "aos.pause"));
    }
}

/// The last word stands, whatever becomes of those who say it; and a run that has ended is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_word_about_a_pause_stands() {
    let world = World::sqlite();
    let executor = world.executor();
    let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "200")])).await;
    world.stage.wait_for_calls(1).await;
    let words: Vec<_> = (0..20)
        .map(|number| {
            let (executor, run_id) = (executor.clone(), run_id.clone());
            tokio::spawn(async move { executor.pause(&run_id, number % 2 == 0).await })
        })
        .collect();
    for word in words {
        word.await.unwrap().unwrap();
    }
    let kept = || contents(&*world.store).iter().any(|(kind, ..)| kind == "aos.pause");
    executor.pause(&run_id, false).await.unwrap();
    assert!(!kept());
    executor.pause(&run_id, true).await.unwrap();
    assert!(kept());
    executor.cancel(&run_id, "olga", "").await.unwrap();
    world.stage.gate.add_permits(1);
    assert_eq!(ended(&executor, &run_id).await.status, Status::Cancelled);
    while executor.live() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(!kept());
}

/// AOS-73: heeded between attempts, and a wait ends with it.
#[tokio::test(start_paused = true)]
async fn deadline_ends_a_wait() {
    for world in World::both() {
        let executor = world.executor();
        let mut waiting = call("s1", "503");
        waiting["retry_policy"]["backoff_base_ms"] = json!(60_000);
        let value = plan(0, vec![waiting, call("s2", "200")]);
        let start = Start { deadline_ms: Some(10_000), ..Start::execute(frozen(value), "tester") };
        let began = Instant::now();
        let run_id = executor.start(start).await.unwrap().run_id;
        let result = ended(&executor, &run_id).await;
        assert!((10_000..11_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        assert_eq!((result.status, codes(&result)), (Status::Failed, vec![("s1", "ERR_TIMEOUT")]));
        assert_eq!((result.stop.unwrap().reason, world.stage.calls()), (StopReason::Deadline, 1));
    }
}

/// AOS-73: a call that is out when the time is up may finish.
#[tokio::test(start_paused = true)]
async fn deadline_lets_a_call_finish() {
    let world = World::memory();
    let executor = world.executor();
    let value = plan(0, vec![call("s1", "slow 4000"), call("s2", "200")]);
    let start = Start { deadline_ms: Some(1_000), ..Start::execute(frozen(value), "tester") };
    let run_id = executor.start(start).await.unwrap().run_id;
    let result = ended(&executor, &run_id).await;
    assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "ERR_TIMEOUT")]);
}

/// AOS-73: time in which nobody was at work counts too.
#[tokio::test]
async fn deadline_counts_over_a_restart() {
    let world = World::memory();
    let executor = world.executor();
    let value = plan(0, vec![call("s1", "gate"), call("s2", "200")]);
    let start = Start { deadline_ms: Some(60_000), ..Start::execute(frozen(value), "tester") };
    let run_id = executor.start(start).await.unwrap().run_id;
    world.stage.wait_for_calls(1).await;
    executor.shutdown().await;
    world.set_clock(NOON_MS + 60_001);
    world.stage.gate.add_permits(1);
    let executor = world.executor();
    executor.recover().await.unwrap();
    let result = ended(&executor, &run_id).await;
    assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "ERR_TIMEOUT")]);
    assert_eq!(result.stop.unwrap().reason, StopReason::Deadline);
}

/// AOS-50: after a restart only what is left of a wait is waited, and the clock never makes it longer.
#[tokio::test]
async fn the_rest_of_a_wait() {
    // Time on the wall that passed meanwhile, and the wait that is left.
    for (passed_ms, left_ms) in [(0_i64, 1_500), (1_400, 100), (9_000, 0), (-86_400_000, 1_500)] {
        let world = World::memory();
        let executor = world.executor();
        let mut waiting = call("s1", "503, 200");
        waiting["retry_policy"]["backoff_base_ms"] = json!(1_500);
        let run_id = begin(&executor, plan(0, vec![waiting])).await;
        let mut watch = executor.runs().watch(&run_id, 0).await.unwrap().unwrap();
        while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "retry_scheduled") {}
        executor.shutdown().await;
        world.set_clock(NOON_MS.checked_add_signed(passed_ms).unwrap());
        let executor = world.executor();
        let began = Instant::now();
        executor.recover().await.unwrap();
        let result = ended(&executor, &run_id).await;
        assert_eq!((result.status, step_of(&result, "s1").retry_count), (Status::Succeeded, 1));
        assert_eq!(count(&executor, &run_id, "retry_scheduled").await, 1);
        let took = (world.stage.sent()[1].at - began).as_millis();
        assert!(took >= left_ms && (left_ms == 1_500 || took < 1_500), "{passed_ms}: {took}");
    }
}

/// A stopping executor lets a call answer within its grace, and what it says is durable.
#[tokio::test]
async fn shutdown_waits_for_calls() {
    let mut world = World::memory();
    world.settings.shutdown_grace = Duration::from_secs(30);
    let executor = world.executor();
    let run_id = begin(&executor, plan(0, vec![call("s1", "slow 50"), call("s2", "200")])).await;
    world.stage.wait_for_calls(1).await;
    executor.shutdown().await;
    assert_eq!((executor.live(), world.stage.calls()), (0, 1));
    let refused = executor.start(Start::execute(frozen(plan(0, vec![call("s1", "200")])), "tester")).await;
    assert!(refused.is_err());
    let executor = world.executor();
    assert_eq!(executor.recover().await.unwrap(), 1);
    assert_eq!(ended(&executor, &run_id).await.status, Status::Succeeded);
    assert_eq!(world.stage.calls(), 2, "the first step was not called again");
}

/// AOS-80: a call that is still out when the grace is over is dropped. What can be repeated is called again, as the
/// same attempt; what cannot is in doubt.
#[tokio::test]
async fn shutdown_drops_calls_after_its_grace() {
    for (skill, status, calls) in
        [("http_call", Status::Succeeded, 2), ("post_call", Status::Succeeded, 2), ("mail_send", Status::InDoubt, 1)]
    {
        let world = World::sqlite();
        let executor = world.executor();
        let run_id = begin(&executor, plan(10, vec![step("s1", skill, json!({"script": "gate, 200"}))])).await;
        world.stage.wait_for_calls(1).await;
        executor.shutdown().await;
        assert_eq!(executor.live(), 0);
        world.stage.gate.add_permits(1);
        let executor = world.executor();
        executor.recover().await.unwrap();
        let result = ended(&executor, &run_id).await;
        assert_eq!((result.status, world.stage.calls()), (status, calls), "{skill}");
        assert_eq!(step_of(&result, "s1").retry_count, 0, "it is not a retry");
        assert_eq!(count(&executor, &run_id, "effect_intent").await, 1);
        while executor.live() > 0 {
            tokio::task::yield_now().await;
        }
        // The claim heard of it, although another process had made it; what is in doubt stays claimed.
        let claims = contents(&*world.store).into_iter().filter(|(kind, ..)| kind == "aos.claim");
        let claims: Vec<_> = claims.map(|(_, _, bytes)| String::from_utf8(bytes).unwrap()).collect();
        let said = |state: &str| claims.len() == 1 && claims[0].contains(&format!(r#""state":"{state}""#));
        match skill {
            "post_call" => assert!(said("finished"), "{claims:?}"),
            "mail_send" => assert!(said("claimed"), "{claims:?}"),
            _ => assert!(claims.is_empty(), "{claims:?}"),
        }
    }
}
