//! Stores that fail: reports are tried again and lose nothing, and a start that failed can be made again.

use std::sync::Arc;

use macp_ledger::{MemoryStore, Store};
use macp_plan::executor::Started;
use macp_plan::session::{Error, SessionSettings, StartFromSession, execution_session_id, reported};
use macp_wire::v1::SessionState;
use tokio::task::JoinHandle;

use crate::decision::committed;
use crate::world::{Gate, World, plan, step, until};
use crate::wrapped::{Wrapped, Writes};

/// The run goes on and ends while its report cannot be written; then the report is completed.
async fn report_through(writes: Writes) {
    let sessions = Wrapped::new();
    let runs = Arc::new(MemoryStore::new());
    let store = Arc::clone(&sessions) as Arc<dyn Store>;
    let world = World::over(store, runs, Gate::closed(), SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1"), step("s2"), step("s3")]);
    let (session_id, _) = committed(&world.engine, "faults", &plan).await;
    let request = StartFromSession::first(&session_id, "op");
    let run_id = world.session_runs.start_from_session(request).await.unwrap().run_id;
    world.skill.reached(1).await;
    world.reported_so_far(&run_id).await;

    sessions.set(writes);
    let (commits, _) = sessions.counts();
    world.skill.let_through(10);
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "succeeded", "a report never fails its run");
    until("an attempt to report", || async { sessions.counts().0 > commits }).await;
    sessions.set(Writes::Work);
    world.reported_to_the_end(&run_id).await;
    let found = reported(&*sessions, &execution_session_id(&run_id)).unwrap().unwrap();
    let run = world.runs().load(&run_id).await.unwrap().unwrap();
    assert_eq!(found.state, SessionState::Resolved);
    assert_eq!((found.next_seq, found.head), (run.entries.len() as u64, Some(run.head().to_string())));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_tried_again() {
    report_through(Writes::Fail).await;
}

/// What was stored although it was said not to be is sent again, and recognised.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_was_stored_is_not_repeated() {
    report_through(Writes::StoreAndFail).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_failed_can_be_made_again() {
    let runs = Wrapped::new();
    let sessions = Arc::new(MemoryStore::new());
    let store = Arc::clone(&runs) as Arc<dyn Store>;
    let world = World::over(sessions, store, Gate::open(), SessionSettings::default()).await;
    let (session_id, _) = committed(&world.engine, "again", &plan("p1", vec![step("s1")])).await;
    let request = StartFromSession::first(&session_id, "op");
    for writes in [Writes::Fail, Writes::StoreAndFail] {
        runs.set(writes);
        let failed = world.session_runs.start_from_session(request.clone()).await;
        assert!(matches!(failed, Err(Error::Store(_) | Error::Executor(_))), "{failed:?}");
    }
    runs.set(Writes::Work);
    let started = world.session_runs.start_from_session(request).await.unwrap();
    world.executor.recover().await.unwrap();
    world.executor.finished(&started.run_id).await.unwrap();
    world.reported_to_the_end(&started.run_id).await;
    assert_eq!((world.listed().await.len(), world.skill.begun()), (1, 1));
    world.stop().await;
}

/// A start whose first write is under way, and held.
async fn held_start(name: &str) -> (World, Arc<Wrapped>, JoinHandle<Result<Started, Error>>) {
    let runs = Wrapped::new();
    let sessions = Arc::new(MemoryStore::new());
    let store = Arc::clone(&runs) as Arc<dyn Store>;
    let world = World::over(sessions, store, Gate::open(), SessionSettings::default()).await;
    let (session_id, _) = committed(&world.engine, name, &plan("p1", vec![step("s1")])).await;
    runs.hold();
    let session_runs = world.session_runs.clone();
    let request = StartFromSession::first(&session_id, "op");
    let start = tokio::spawn(async move { session_runs.start_from_session(request).await });
    let waiting = Arc::clone(&runs);
    tokio::task::spawn_blocking(move || waiting.wait_for_commits(1)).await.unwrap();
    (world, runs, start)
}

/// The journal's first entry was stored although it was said not to be: the run goes on, and whoever asked hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stored_goes_on() {
    let (world, runs, start) = held_start("stored").await;
    runs.set(Writes::StoreAndFail);
    runs.release();
    until("the entry", || async { !world.listed().await.is_empty() }).await;
    runs.set(Writes::Work);
    let started = start.await.unwrap().unwrap();
    let result = world.executor.finished(&started.run_id).await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "succeeded");
    world.reported_to_the_end(&started.run_id).await;
    assert_eq!((world.listed().await.len(), world.skill.begun()), (1, 1));
    world.stop().await;
}

/// Whoever asked went away before the run was written: it is reported like any other, without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_nobody_waits_for_is_reported() {
    let (world, runs, start) = held_start("gone").await;
    start.abort();
    assert!(start.await.unwrap_err().is_cancelled());
    runs.release();
    until("the run", || async { !world.listed().await.is_empty() }).await;
    let run_id = world.listed().await.remove(0).run_id;
    world.executor.finished(&run_id).await.unwrap();
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.execution_state(&run_id), Some(SessionState::Resolved));
    world.stop().await;
}
