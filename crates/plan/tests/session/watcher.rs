//! Starting by itself: once for every committed plan, also for those that were committed to while nobody watched.

use std::sync::Arc;

use macp_engine::Options;
use macp_ledger::{MemoryStore, PutMode, Store};
use macp_plan::session::{SessionSettings, StartPolicy};
use serde_json::json;

use crate::decision::{Decision, committed};
use crate::world::{Gate, World, frozen, plan, step, token, until};
use crate::wrapped::Wrapped;

fn auto() -> SessionSettings {
    SessionSettings { start: StartPolicy::Auto, ..SessionSettings::default() }
}

fn checkpoint(world: &World) -> Option<Vec<u8>> {
    world.runs().ledger().document("aos.watched", "resolved").unwrap().map(|bytes| bytes.to_vec())
}

/// Begins to watch, and waits until the past is done with: then the checkpoint moves.
async fn watching(world: &World) {
    let before = checkpoint(world);
    world.session_runs.begin().await.unwrap();
    until("the watcher", || async { checkpoint(world) != before }).await;
}

async fn runs(world: &World, count: usize) {
    until("runs", || async { world.listed().await.len() >= count }).await;
    for run in world.listed().await {
        world.executor.finished(&run.run_id).await.unwrap();
        world.reported_to_the_end(&run.run_id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_plan_runs_by_itself() {
    let world = World::memory(auto()).await;
    watching(&world).await;
    let plan = plan("p1", vec![step("s1")]);
    // One that names no plan, one that is refused, and one that runs.
    Decision::standard(&world.engine, "no-plan").await.propose("p1", b"").await.commit_with(|_| {}).await;
    Decision::standard(&world.engine, "absent").await.propose("p1", b"").await.commit_to(&token(&plan)).await;
    let (session_id, _) = committed(&world.engine, "runs", &plan).await;
    runs(&world, 1).await;
    let listed = world.listed().await;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].session_id.as_deref(), &listed[0].plan_hash),
        (Some(session_id.as_str()), &frozen(&plan).hash)
    );
    // The execution session was resolved as well, and starts nothing.
    assert_eq!(world.skill.begun(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_an_operator_starts_it() {
    let (sessions, run_store): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let settings = SessionSettings::default();
    let world = World::over(Arc::clone(&sessions), Arc::clone(&run_store), Gate::open(), settings).await;
    watching(&world).await;
    committed(&world.engine, "manual", &plan("p1", vec![step("s1")])).await;
    world.stop().await;
    let world = World::over(sessions, run_store, Gate::open(), SessionSettings::default()).await;
    watching(&world).await;
    assert!(world.listed().await.is_empty());
    world.stop().await;
}

/// A crash between RESOLVED and the admission: the plan still runs, and once.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_to_meanwhile_runs_after_a_restart() {
    let (sessions, run_store): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let skill = Gate::open();
    let open = async || World::over(Arc::clone(&sessions), Arc::clone(&run_store), Arc::clone(&skill), auto()).await;
    let world = open().await;
    watching(&world).await;
    world.session_runs.shutdown().await;
    let (earlier, later) = (plan("p1", vec![step("s1")]), plan("p2", vec![step("s1")]));
    // In the order of the index the superseded one comes first, and must not run nevertheless.
    let (session_id, hash) = committed(&world.engine, "a-superseded", &earlier).await;
    let mut decision = Decision::standard(&world.engine, "b-superseding").await;
    decision.propose_plan(&later).await.commit_instead(&token(&later), &session_id, &hash).await;
    let superseding = decision.session_id.clone();
    assert!(world.listed().await.is_empty());
    world.stop().await;

    for _ in 0..2 {
        let world = open().await;
        watching(&world).await;
        runs(&world, 1).await;
        let listed = world.listed().await;
        assert_eq!((listed.len(), listed[0].session_id.as_ref()), (1, Some(&superseding)));
        world.stop().await;
    }
    assert_eq!(skill.begun(), 1);
}

/// Plans that were committed to before anyone watched are not started behind an operator's back.
#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_left_alone() {
    let world = World::memory(auto()).await;
    let plan = plan("p1", vec![step("s1")]);
    committed(&world.engine, "a-past", &plan).await;
    watching(&world).await;
    let (session_id, _) = committed(&world.engine, "b-present", &plan).await;
    runs(&world, 1).await;
    let listed = world.listed().await;
    assert_eq!((listed.len(), listed[0].session_id.as_ref()), (1, Some(&session_id)));
    world.stop().await;
}

/// There is one run of each of these sessions, and no other.
async fn check_ran(world: &World, mut sessions: Vec<String>) {
    let mut found: Vec<_> = world.listed().await.into_iter().filter_map(|run| run.session_id).collect();
    found.sort();
    sessions.sort();
    assert_eq!(found, sessions);
}

/// More events than a watcher may fall behind, while it is busy starting runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_falls_behind_finds_what_it_missed() {
    let options = Options { watcher_buffer: 2, ..Options::default() };
    let (sessions, run_store) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let world = World::with(sessions, run_store, Gate::open(), auto(), options).await;
    watching(&world).await;
    let plan = plan("p1", vec![step("s1")]);
    let mut sessions = Vec::new();
    for number in 0..40 {
        sessions.push(committed(&world.engine, &format!("many-{number}"), &plan).await.0);
    }
    runs(&world, sessions.len()).await;
    check_ran(&world, sessions).await;
    world.stop().await;
}

/// More bytes than a watcher may fall behind, in far fewer events than it may: the engine lets go of it then, and it has
/// to watch anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_is_let_go_for_its_bytes_watches_anew() {
    let run_store = Wrapped::new();
    let store = Arc::clone(&run_store) as Arc<dyn Store>;
    let world = World::over(Arc::new(MemoryStore::new()), store, Gate::open(), auto()).await;
    watching(&world).await;
    run_store.hold();
    let plan = plan("p1", vec![step("s1")]);
    let mut sessions = vec![committed(&world.engine, "holds-it-up", &plan).await.0];
    let waiting = Arc::clone(&run_store);
    tokio::task::spawn_blocking(move || waiting.wait_for_commits(1)).await.unwrap();
    for number in 0..12 {
        let mut decision = Decision::classic(&world.engine, &format!("large-{number}"), Vec::new()).await;
        decision.propose("p1", b"").await.vote().await;
        let padding = "x".repeat(900_000);
        decision.commit_json(&json!({"commitment_id": "c", "reason": "agreed", "padding": padding})).await;
    }
    sessions.push(committed(&world.engine, "unheard", &plan).await.0);
    run_store.release();
    runs(&world, sessions.len()).await;
    sessions.push(committed(&world.engine, "heard-again", &plan).await.0);
    runs(&world, sessions.len()).await;
    check_ran(&world, sessions).await;
    world.stop().await;
}

/// A start does not go through sessions again that ended long ago: it begins behind the mark.
#[tokio::test(flavor = "multi_thread")]
async fn what_ended_before_the_mark_is_not_gone_through_again() {
    let (sessions, run_store): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let world = World::over(Arc::clone(&sessions), Arc::clone(&run_store), Gate::open(), auto()).await;
    watching(&world).await;
    world.session_runs.shutdown().await;
    let plan = plan("p1", vec![step("s1")]);
    let (before, _) = committed(&world.engine, "z-before", &plan).await;
    // More than a page, and in another order than that of their ids.
    let mut behind = Vec::new();
    for number in (0..40).rev() {
        behind.push(committed(&world.engine, &format!("behind-{number:02}"), &plan).await.0);
    }
    world.stop().await;

    let mark = json!({"session_id": before}).to_string();
    run_store.put_document("aos.watched", "ended", mark.as_bytes(), PutMode::Replace).unwrap();
    let world = World::over(sessions, run_store, Gate::open(), auto()).await;
    watching(&world).await;
    runs(&world, behind.len()).await;
    let mut found: Vec<_> = world.listed().await.into_iter().filter_map(|run| run.session_id).collect();
    found.sort();
    behind.sort();
    assert_eq!(found, behind);
    world.stop().await;
}
