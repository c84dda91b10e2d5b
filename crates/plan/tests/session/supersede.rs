//! AOS-109: commitments that take the place of others.

use std::sync::Arc;

use macp_ledger::MemoryStore;
use macp_plan::executor::{Start, StartMode};
use macp_plan::session::{Reason, SessionSettings, StartFromSession, SupersededPolicy};
use macp_plan_core::journal::Body;
use serde_json::Value;

use crate::decision::{Decision, committed, dealt_with_everything};
use crate::world::{Gate, World, frozen, plan, step, token};

async fn world(superseded: SupersededPolicy) -> World {
    let settings = SessionSettings { superseded, ..SessionSettings::default() };
    let world = World::over(Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()), Gate::closed(), settings).await;
    world.session_runs.begin().await.unwrap();
    world
}

fn plans() -> (Value, Value) {
    (plan("p1", vec![step("s1"), step("s2")]), plan("p2", vec![step("s1")]))
}

async fn start_reason(world: &World, session_id: &str) -> Option<Reason> {
    let started = world.session_runs.start_from_session(StartFromSession::first(session_id, "op")).await;
    started.err().and_then(|error| error.refusals().first().map(|refusal| refusal.reason))
}

/// The session that the journal says took the place of the run's.
fn superseded_by(body: &Body) -> Option<&str> {
    match body {
        Body::Observed { facts, .. } => facts.shown().get("superseded_by")?.get("session_id")?.as_str(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_started_must_not_start() {
    let world = world(SupersededPolicy::Cancel).await;
    let (earlier, later) = plans();
    let (session_id, hash) = committed(&world.engine, "earlier", &earlier).await;
    let mut decision = Decision::standard(&world.engine, "later").await;
    decision.propose_plan(&later).await.commit_instead(&token(&later), &session_id, &hash).await;
    dealt_with_everything(&world).await;
    let request = StartFromSession::first(&session_id, "op");
    let error = world.session_runs.start_from_session(request).await.unwrap_err();
    assert_eq!(error.refusals()[0].reason, Reason::Superseded);
    assert!(error.to_string().contains(&decision.session_id), "{error}");
    // What took its place may start.
    world.skill.let_through(10);
    let request = StartFromSession::first(&decision.session_id, "op");
    let started = world.session_runs.start_from_session(request).await.unwrap();
    world.reported_to_the_end(&started.run_id).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_cancelled_or_finishes() {
    for (policy, status) in [(SupersededPolicy::Cancel, "cancelled"), (SupersededPolicy::Finish, "succeeded")] {
        let world = world(policy).await;
        let (earlier, later) = plans();
        let (session_id, hash) = committed(&world.engine, "earlier", &earlier).await;
        let request = StartFromSession::first(&session_id, "op");
        let run_id = world.session_runs.start_from_session(request).await.unwrap().run_id;
        world.skill.reached(1).await;
        let mut decision = Decision::standard(&world.engine, "later").await;
        decision.propose_plan(&later).await.commit_instead(&token(&later), &session_id, &hash).await;
        dealt_with_everything(&world).await;
        world.skill.let_through(10);
        let result = world.executor.finished(&run_id).await.unwrap().unwrap();
        assert_eq!(result.status.as_str(), status, "{policy:?}");
        assert!(result.no_retry.is_some(), "what was superseded is not tried again: {result:?}");
        // Either way the journal tells.
        let run = world.runs().load(&run_id).await.unwrap().unwrap();
        let told: Vec<_> = run.bodies().filter_map(superseded_by).collect();
        if policy == SupersededPolicy::Finish {
            assert_eq!(told, [decision.session_id.as_str()]);
        } else {
            assert!(told.is_empty());
            let cancelled = result.cancelled.unwrap();
            assert_eq!(cancelled.by, "alice");
            assert!(cancelled.reason.contains(&decision.session_id), "{}", cancelled.reason);
        }
        world.reported_to_the_end(&run_id).await;
        world.stop().await;
    }
}

/// What tries again is stopped as what it tries again would be, and nothing more of it may start.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_cancelled_as_well() {
    let world = world(SupersededPolicy::Cancel).await;
    let (_, later) = plans();
    let earlier = plan("p1", vec![step("s1"), step("s2"), step("s3")]);
    let (session_id, hash) = committed(&world.engine, "earlier", &earlier).await;
    let request = StartFromSession::first(&session_id, "op");
    let parent_run_id = world.session_runs.start_from_session(request).await.unwrap().run_id;
    world.skill.reached(1).await;
    world.executor.cancel(&parent_run_id, "op", "later").await.unwrap();
    world.skill.let_through(1);
    world.executor.finished(&parent_run_id).await.unwrap();
    let link = world.session_runs.bind(&session_id).await.unwrap().link;
    let claim = world.session_runs.claim_start(&link).await.unwrap();
    let mode = StartMode::Retry { parent_run_id, from_step: None };
    let retry = Start { mode, ..Start::execute(frozen(&earlier), "op") };
    // What takes its place meanwhile waits until the run is there to be found.
    let mut decision = Decision::standard(&world.engine, "later").await;
    decision.propose_plan(&later).await.commit_instead(&token(&later), &session_id, &hash).await;
    let run_id = world.executor.start(retry).await.unwrap().run_id;
    world.skill.reached(2).await;
    world.session_runs.check_superseded(&link).await.unwrap();
    drop(claim);
    dealt_with_everything(&world).await;
    assert!(world.runs().ledger().document("aos.cancel", &run_id).unwrap().is_some());
    world.skill.let_through(10);
    let cancelled = world.executor.finished(&run_id).await.unwrap().unwrap().cancelled.unwrap();
    assert_eq!(cancelled.by, "alice");
    let error = world.session_runs.claim_start(&link).await.unwrap_err();
    assert_eq!(error.refusals()[0].reason, Reason::Superseded);
    world.stop().await;
}

/// Naming a commitment is not enough to stop what others committed to.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_supersede_nothing() {
    let world = world(SupersededPolicy::Cancel).await;
    let (earlier, later) = plans();
    let (session_id, hash) = committed(&world.engine, "earlier", &earlier).await;
    let mut decision = Decision::standard_by(&world.engine, "later", "mallory", |_| {}).await;
    decision.propose_plan(&later).await.commit_instead(&token(&later), &session_id, &hash).await;
    dealt_with_everything(&world).await;
    assert_eq!(start_reason(&world, &session_id).await, None);
    world.stop().await;
}
