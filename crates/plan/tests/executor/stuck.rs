//! Runs that nobody can go on with, because a skill or a rate card is gone: they say why, and a cancel ends them.

use std::sync::Arc;

use macp_plan::executor::{ControlError, Executor};
use macp_plan::registry::Registry;
use macp_plan::store::Status;
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::StopReason;
use macp_plan_core::replay::WhatIf;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::world::{Stage, World, actor, begin, codes, count, ended, frozen, kit, step_of};

/// A run that is cut off while its second step waits for a call or for another attempt, and a world without something.
async fn cut_off(second: Value, without: impl FnOnce(&mut Registry, &Arc<Stage>)) -> (World, Arc<Registry>, String) {
    let world = World::sqlite();
    let executor = world.executor();
    let run_id = begin(&executor, plan(100, vec![call("s1", "200"), second, call("s3", "200")])).await;
    world.stage.wait_for_calls(2).await;
    let waits = |kind: &'static str| count(&executor, &run_id, kind);
    // A call that is out has its intent written; one that is waited for has its retry scheduled.
    while waits("effect_intent").await < 2 {
        tokio::task::yield_now().await;
    }
    executor.shutdown().await;
    let whole = Arc::clone(&world.registry);
    (world.with_registry(without), whole, run_id)
}

fn waiting() -> Value {
    let mut waiting = step("s2", "mail_send", json!({"script": "503, 200"}));
    waiting["retry_policy"]["backoff_base_ms"] = json!(600_000);
    waiting["retry_policy"]["max_delay_ms"] = json!(600_000);
    waiting
}

/// Everything but some skills.
fn kit_without(gone: &'static [&'static str]) -> impl FnOnce(&mut Registry, &Arc<Stage>) {
    move |registry, stage| {
        for pure in kit().into_iter().filter(|pure| !gone.contains(&pure.metadata.skill_id.as_str())) {
            registry.register(actor(pure, stage), None).unwrap();
        }
    }
}

/// Tries to go on with everything, and comes back once that has come to nothing.
async fn recovered(world: &World) -> Executor {
    let executor = world.executor();
    executor.recover().await.unwrap();
    while executor.live() > 0 {
        tokio::task::yield_now().await;
    }
    executor
}

/// With everything back, the journal that was ended without it replays to a match.
async fn replays(mut world: World, whole: Arc<Registry>, run_id: &str) {
    let executor = world.executor();
    let report = executor.mock_replay(run_id, WhatIf::default()).await.unwrap();
    assert_ne!(report.verdict, Verdict::Diverged, "{report:#?}");
    executor.shutdown().await;
    world.registry = whole;
    ended(&world.executor(), run_id).await;
}

/// A run that waits between two attempts is cancelled, whether its own skill is gone or that of a step before it.
#[tokio::test]
async fn a_run_without_its_skill_is_cancelled() {
    for gone in [&["mail_send"] as &[_], &["http_call"], &["http_call", "mail_send"]] {
        let world = World::sqlite();
        let executor = world.executor();
        let run_id = begin(&executor, plan(100, vec![call("s1", "200"), waiting()])).await;
        let mut watch = executor.runs().watch(&run_id, 0).await.unwrap().unwrap();
        while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "retry_scheduled") {}
        executor.shutdown().await;
        let whole = Arc::clone(&world.registry);
        let world = world.with_registry(kit_without(gone));
        let executor = recovered(&world).await;
        let told = executor.result(&run_id).await.unwrap().unwrap();
        assert_eq!(told.status, Status::Running);
        let why = told.stuck.expect("it says why it does not go on");
        assert!(why.contains("its plan cannot run here"), "{why}");

        executor.cancel(&run_id, "olga", "enough").await.unwrap();
        let result = executor.finished(&run_id).await.unwrap().unwrap();
        assert_eq!((result.status, result.stop.as_ref().unwrap().reason), (Status::Cancelled, StopReason::Cancelled));
        assert_eq!((codes(&result)[1], result.stuck.as_deref()), (("s2", "ERR_CANCELLED"), None));
        assert_eq!(result.cancelled.as_ref().unwrap().reason, "enough");
        // A call was made that may have taken effect.
        assert_eq!(step_of(&result, "s2").outcome.details["effect"], "unknown");
        let again = executor.cancel(&run_id, "olga", "again").await;
        assert!(matches!(again, Err(ControlError::Finished(_))), "{again:?}");
        executor.shutdown().await;
        replays(world, whole, &run_id).await;
    }
}

/// AOS-5, AOS-87: a run that was admitted does not fail for what is registered today. One whose later step lost its
/// skill waits for it, and can be cancelled meanwhile.
#[tokio::test]
async fn a_run_waits_for_the_skill_of_a_later_step() {
    for cancels in [true, false] {
        let world = World::sqlite();
        let executor = world.executor();
        // Long enough to be cut off in, and no longer than anyone will wait for it to be over.
        let mut waiting = waiting();
        waiting["retry_policy"]["backoff_base_ms"] = json!(if cancels { 600_000 } else { 1_500 });
        let steps = vec![call("s1", "200"), waiting, step("s3", "post_call", json!({}))];
        let run_id = begin(&executor, plan(100, steps)).await;
        let mut watch = executor.runs().watch(&run_id, 0).await.unwrap().unwrap();
        while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "retry_scheduled") {}
        executor.shutdown().await;
        let whole = Arc::clone(&world.registry);
        let mut world = world.with_registry(kit_without(&["post_call"]));
        let executor = recovered(&world).await;
        let told = executor.result(&run_id).await.unwrap().unwrap();
        let why = told.stuck.expect("it says why it does not go on");
        assert!(why.contains("post_call") && why.contains("s3"), "{why}");
        if cancels {
            executor.cancel(&run_id, "olga", "enough").await.unwrap();
            let result = executor.finished(&run_id).await.unwrap().unwrap();
            assert_eq!((result.status, codes(&result)[1]), (Status::Cancelled, ("s2", "ERR_CANCELLED")));
            executor.shutdown().await;
            replays(world, whole, &run_id).await;
            continue;
        }
        executor.shutdown().await;
        world.registry = whole;
        let executor = world.executor();
        assert_eq!(executor.recover().await.unwrap(), 1);
        let result = executor.finished(&run_id).await.unwrap().unwrap();
        assert_eq!((result.status, codes(&result)[2]), (Status::Succeeded, ("s3", "OK")), "it goes on");
        executor.shutdown().await;
    }
}

/// AOS-80: a call that was out is in doubt, whatever can be repeated: the skill that would know is gone.
#[tokio::test]
async fn a_call_that_was_out_is_in_doubt() {
    const GONE: &[&str] = &["mail_send", "post_call", "llm_invoke"];
    for skill in GONE {
        let parameters = match *skill {
            "llm_invoke" => json!({"script": "gate", "model": "large", "prompt": "say", "max_tokens": 10}),
            _ => json!({"script": "gate"}),
        };
        let (world, whole, run_id) = cut_off(step("s2", skill, parameters), kit_without(GONE)).await;
        let executor = recovered(&world).await;
        executor.cancel(&run_id, "olga", "enough").await.unwrap();
        let result = executor.finished(&run_id).await.unwrap().unwrap();
        assert_eq!((result.status, codes(&result)[1]), (Status::InDoubt, ("s2", "ERR_EFFECT_IN_DOUBT")), "{skill}");
        assert_eq!((result.not_reached.as_slice(), world.stage.calls()), (&["s3".to_owned()][..], 2));
        executor.shutdown().await;
        replays(world, whole, &run_id).await;
    }
}

/// What it was told before a restart is heeded after it.
#[tokio::test]
async fn a_kept_cancel_ends_it_at_recovery() {
    let (world, whole, run_id) = cut_off(step("s2", "mail_send", json!({"script": "gate"})), |_, _| {}).await;
    let executor = recovered(&world).await;
    // As if the process had gone down right after it kept the request.
    let cancel = json!({"by": "olga", "reason": "first"}).to_string();
    world.store.put_document("aos.cancel", &run_id, cancel.as_bytes(), macp_ledger::PutMode::IfAbsent).unwrap();
    executor.shutdown().await;
    let executor = recovered(&world).await;
    assert_eq!(executor.result(&run_id).await.unwrap().unwrap().status, Status::InDoubt);
    executor.shutdown().await;
    replays(world, whole, &run_id).await;
}

/// Without its rate card a run can be cancelled between attempts. What a call costs that was out cannot be told, so
/// such a run stays as it is until the card is back.
#[tokio::test]
async fn a_run_without_its_rate_card() {
    for (second, cancels) in [(waiting(), true), (step("s2", "mail_send", json!({"script": "gate"})), false)] {
        let world = World::sqlite();
        let executor = world.executor();
        let run_id = begin(&executor, plan(100, vec![call("s1", "200"), second])).await;
        world.stage.wait_for_calls(2).await;
        let kind = if cancels { "retry_scheduled" } else { "effect_intent" };
        while count(&executor, &run_id, kind).await < 1 + usize::from(!cancels) {
            tokio::task::yield_now().await;
        }
        executor.shutdown().await;
        let mut registry = Registry::new();
        for pure in kit() {
            registry.register(actor(pure, &world.stage), None).unwrap();
        }
        let whole = Arc::clone(&world.registry);
        let mut world = world;
        world.registry = Arc::new(registry);
        let executor = recovered(&world).await;
        let told = executor.result(&run_id).await.unwrap().unwrap();
        assert!(told.stuck.expect("it cannot go on").contains("rate card"));
        let cancelled = executor.cancel(&run_id, "olga", "enough").await;
        executor.shutdown().await;
        if cancels {
            cancelled.unwrap();
        } else {
            let error = cancelled.unwrap_err();
            assert!(matches!(&error, ControlError::Stuck { reason, .. } if reason.contains("costs")), "{error:?}");
        }
        world.registry = whole;
        world.stage.gate.add_permits(1);
        let executor = world.executor();
        executor.recover().await.unwrap();
        let status = ended(&executor, &run_id).await.status;
        assert_eq!(status, if cancels { Status::Cancelled } else { Status::InDoubt });
    }
}

/// A journal that fits no plan is not ended by guessing.
#[tokio::test]
async fn what_is_damaged_is_not_ended() {
    let world = World::memory();
    let executor = world.executor();
    let value = plan(0, vec![call("s1", "gate")]);
    let hash = frozen(value.clone()).hash.to_string();
    let run_id = begin(&executor, value).await;
    world.stage.wait_for_calls(1).await;
    executor.shutdown().await;
    assert!(world.store.delete_document("aos.plan", &hash).unwrap(), "{hash}");
    let executor = recovered(&world).await;
    let error = executor.cancel(&run_id, "olga", "enough").await.unwrap_err();
    assert!(matches!(error, ControlError::Stuck { .. }), "{error:?}");
}
