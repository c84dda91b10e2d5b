//! AOS-113, AOS-114: a store of runs that is older than the sessions beside it. What the session of a run reports as
//! done is taken from there, and never done again.

use std::path::Path;
use std::sync::Arc;

use macp_ledger::SqliteStore;
use macp_plan::session::{SessionSettings, StartFromSession};
use macp_plan::store::Status;
use macp_plan_core::compare::Verdict;
use macp_plan_core::replay::WhatIf;
use tempfile::TempDir;

use crate::decision::committed;
use crate::world::{Gate, World, plan, step, until};

async fn over(sessions: &TempDir, runs: &TempDir, skill: &Arc<Gate>) -> World {
    let free = |directory: &TempDir| SqliteStore::open(directory.path()).is_ok();
    until("the directories", || async { free(sessions) && free(runs) }).await;
    let open = |directory: &TempDir| Arc::new(SqliteStore::open(directory.path()).unwrap());
    let world = World::over(open(sessions), open(runs), Arc::clone(skill), SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    world
}

fn copy(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(directory).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// Begins a run of three steps and stops while the first call is out.
async fn begun(sessions: &TempDir, runs: &TempDir) -> String {
    let skill = Gate::closed();
    let world = over(sessions, runs, &skill).await;
    let plan = plan("p1", vec![step("s1"), step("s2"), step("s3")]);
    let (session_id, _) = committed(&world.engine, "older", &plan).await;
    let started = world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap();
    skill.reached(1).await;
    world.reported_so_far(&started.run_id).await;
    world.stop().await;
    skill.let_through(10);
    started.run_id
}

/// Goes on until so many steps are done and reported, and the next call is out.
async fn go_on(sessions: &TempDir, runs: &TempDir, run_id: &str, steps: usize) {
    let skill = Gate::closed();
    let world = over(sessions, runs, &skill).await;
    skill.let_through(steps);
    skill.reached(steps + 1).await;
    world.reported_so_far(run_id).await;
    world.stop().await;
    skill.let_through(10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_session_reports_is_taken_over_and_not_done_again() {
    let (sessions, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run_id = begun(&sessions, &runs).await;
    let older = copy(runs.path());
    go_on(&sessions, &runs, &run_id, 2).await;

    let skill = Gate::open();
    let world = over(&sessions, &older, &skill).await;
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!((result.status, skill.begun()), (Status::Succeeded, 1), "only the last step was left to do");
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.execution_state(&run_id), Some(macp_wire::v1::SessionState::Resolved));
    let replayed = world.executor.mock_replay(&run_id, WhatIf::default()).await.unwrap();
    assert_eq!(replayed.verdict, Verdict::Match, "{:#?}", replayed.mismatches);
    world.stop().await;
}

/// Where the two do not fit together nobody can tell what is left to do, so nothing is done until it is told to stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_its_session_contradicts_is_held() {
    let (sessions, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run_id = begun(&sessions, &runs).await;
    // The same run, gone on with in another place: every call is told with its time, so that no two journals are alike.
    let (other_sessions, other_runs) = (copy(sessions.path()), copy(runs.path()));
    go_on(&other_sessions, &other_runs, &run_id, 1).await;
    go_on(&sessions, &runs, &run_id, 2).await;

    let skill = Gate::open();
    let world = over(&sessions, &other_runs, &skill).await;
    let result = world.executor.result(&run_id).await.unwrap().unwrap();
    let why = result.stuck.expect("nobody goes on with it");
    assert!(why.contains("older than what was done"), "{why}");
    world.executor.recover().await.unwrap();
    world.executor.cancel(&run_id, "op", "the store was put back from a copy").await.unwrap();
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!((result.status, skill.begun()), (Status::InDoubt, 0), "a call of it was out");
    world.stop().await;
}
