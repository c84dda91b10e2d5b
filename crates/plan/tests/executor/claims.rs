//! Claims: of all runs that want an effect one brings it about, and the others use what it gave.

use std::sync::{Arc, Mutex};

use macp_plan::executor::{AgentLimits, Executor, RunObserver, Start, StartMode};
use macp_plan::store::Status;
use macp_plan_core::journal::DedupeVerdict;
use macp_plan_core::plan::StepStatus;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::world::{World, begin, codes, ended, frozen, step_of};

fn post(step_id: &str, script: &str) -> Value {
    step(step_id, "post_call", json!({"script": script}))
}

/// Test 29, AOS-78.
#[tokio::test(start_paused = true)]
async fn idempotency_new_duplicate_conflict() {
    for world in World::both() {
        let executor = world.executor();
        let steps = |script: &str| vec![step("s1", "post_call", json!({"script": script, "value": [1, 2]}))];
        let first = begin(&executor, plan(10, steps("give"))).await;
        let new = ended(&executor, &first).await;
        assert_eq!(codes(&new), [("s1", "OK")]);

        // The same plan again: the recorded result is used, with its output, and costs nothing.
        let second = begin(&executor, plan(10, steps("give"))).await;
        let duplicate = ended(&executor, &second).await;
        let reused = step_of(&duplicate, "s1");
        assert_eq!((duplicate.status, reused.final_code.as_str()), (Status::Succeeded, "OK_SKIP_DUPLICATE"));
        assert_eq!(reused.outcome.status, StepStatus::Skipped);
        assert_eq!(reused.outcome.details["reused_run_id"], first);
        assert_eq!(reused.outcome.details["output"], json!({"value": [1, 2]}));
        assert_eq!((reused.outcome.cost_microcents, reused.outcome.side_effects.len()), (0, 0));

        // The same key for another request.
        let third = begin(&executor, plan(10, steps("200"))).await;
        let conflict = ended(&executor, &third).await;
        assert_eq!(codes(&conflict), [("s1", "ERR_IDEMPOTENCY_CONFLICT")]);
        assert!(step_of(&conflict, "s1").outcome.message.contains(&first), "{conflict:?}");

        // Another epoch is another effect.
        let epoch_reason = Some("it was lost".to_owned());
        let start = Start { epoch: 2, epoch_reason, ..Start::execute(frozen(plan(10, steps("give"))), "tester") };
        let fourth = executor.start(start).await.unwrap().run_id;
        let result = ended(&executor, &fourth).await;
        assert_eq!((codes(&result), result.epoch_reason.as_deref()), (vec![("s1", "OK")], Some("it was lost")));
        assert_eq!(world.stage.calls(), 2);
        assert_ne!(world.stage.keys()[0], world.stage.keys()[1]);
    }
}

/// Test 29: of twenty that claim at the same time one calls; the others wait for it and use what it gave.
#[tokio::test]
async fn twenty_claims_have_one_winner() {
    for world in World::both() {
        let executor = world.executor();
        let mut starts = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let executor = executor.clone();
            starts.spawn(async move { begin(&executor, plan(10, vec![post("s1", "503, gate")])).await });
        }
        let run_ids = starts.join_all().await;
        world.stage.wait_for_calls(2).await;
        world.stage.gate.add_permits(20);
        let mut codes = Vec::new();
        for run_id in run_ids {
            codes.push(ended(&executor, &run_id).await.steps[0].final_code.clone());
        }
        assert_eq!(codes.iter().filter(|code| *code == "OK").count(), 1, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| *code == "OK_SKIP_DUPLICATE").count(), 19, "{codes:?}");
        assert_eq!(world.stage.calls(), 2, "one try that failed, and one that did not");
    }
}

/// A claim whose run failed is free for the next.
#[tokio::test(start_paused = true)]
async fn a_failed_claim_is_taken_over() {
    for world in World::both() {
        let executor = world.executor();
        let value = plan(10, vec![post("s1", "404, 200")]);
        let first = begin(&executor, value.clone()).await;
        assert_eq!(codes(&ended(&executor, &first).await), [("s1", "ERR_HTTP_404")]);
        let second = begin(&executor, value).await;
        assert_eq!(codes(&ended(&executor, &second).await), [("s1", "OK")]);
        assert_eq!(world.stage.calls(), 2);
    }
}

/// Effects of two tenants never meet.
#[tokio::test(start_paused = true)]
async fn tenants_have_keys_of_their_own() {
    let mut world = World::memory();
    for tenant in ["one", "two"] {
        world.settings.namespace = tenant.to_owned();
        assert_eq!(codes(&world.run(plan(10, vec![post("s1", "200")])).await), [("s1", "OK")]);
    }
    assert_eq!(world.stage.counts().len(), 2);
}

/// Whoever waits for another run's claim makes no call, and takes no place of its agent.
#[tokio::test]
async fn who_waits_for_a_claim_takes_no_place() {
    let mut world = World::memory();
    world.settings.agent = AgentLimits { calls_max: Some(1), ..AgentLimits::default() };
    let executor = world.executor();
    let mut slow = post("s1", "503, 200");
    slow["retry_policy"]["backoff_base_ms"] = json!(600_000);
    slow["retry_policy"]["max_delay_ms"] = json!(600_000);
    let holder = begin(&executor, plan(10, vec![slow.clone()])).await;
    reaches(&executor, &holder, "retry_scheduled").await;
    let waiting = begin(&executor, plan(10, vec![slow])).await;
    reaches(&executor, &waiting, "limiter_verdict").await;

    let mut other = plan(10, vec![post("s1", "200")]);
    other["plan_id"] = json!("another");
    let other = begin(&executor, other).await;
    assert_eq!(codes(&ended(&executor, &other).await), [("s1", "OK")]);
    for run_id in [waiting, holder] {
        executor.cancel(&run_id, "olga", "").await.unwrap();
        assert_eq!(ended(&executor, &run_id).await.status, Status::Cancelled);
    }
}

/// Counts what is told of claims.
#[derive(Debug, Default)]
struct Counting(Mutex<Vec<DedupeVerdict>>);

impl RunObserver for Counting {
    fn deduplicated(&self, verdict: DedupeVerdict) {
        self.0.lock().unwrap().push(verdict);
    }
}

/// AOS-90: who claims nothing is not counted, nor is a replay, whose claims are its own.
#[tokio::test(start_paused = true)]
async fn only_claims_among_runs_are_counted() {
    let mut world = World::memory();
    let counting = Arc::new(Counting::default());
    world.observer = Arc::clone(&counting) as Arc<dyn RunObserver>;
    let executor = world.executor();
    let value = plan(10, vec![post("s1", "200"), super::execution::call("s2", "404, 200")]);
    let first = begin(&executor, value.clone()).await;
    ended(&executor, &first).await;
    let retry = StartMode::Retry { parent_run_id: first.clone(), from_step: None };
    let replay = StartMode::FullReplay { original_run_id: first, allow_steps: Vec::new() };
    for mode in [retry, replay] {
        let start = Start { mode, ..Start::execute(frozen(value.clone()), "tester") };
        let run_id = executor.start(start).await.unwrap().run_id;
        executor.finished(&run_id).await.unwrap();
    }
    assert_eq!(*counting.0.lock().unwrap(), [DedupeVerdict::New]);
    let again = begin(&executor, value).await;
    ended(&executor, &again).await;
    assert_eq!(*counting.0.lock().unwrap(), [DedupeVerdict::New, DedupeVerdict::Duplicate]);
}

async fn reaches(executor: &Executor, run_id: &str, kind: &str) {
    let mut watch = executor.runs().watch(run_id, 0).await.unwrap().unwrap();
    while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == kind) {}
}
