//! AOS-113, AOS-114: a store of runs that is older than the sessions beside it. What the session of a run reports as
//! done is taken from there, and never done again.

use std::path::Path;
use std::sync::Arc;

use macp_kernel::Input;
use macp_ledger::SqliteStore;
use macp_plan::executor::{Start, StartError, StartMode};
use macp_plan::session::{Reason, SessionSettings, StartFromSession, execution_session_id};
use macp_plan::store::{Commitment, Status, StoreError};
use macp_plan_core::compare::Verdict;
use macp_plan_core::replay::WhatIf;
use serde_json::Value;
use tempfile::TempDir;

use crate::decision::{committed, control, usurp};
use crate::world::{Gate, World, frozen, plan, step, until};
use crate::wrapped::Wrapped;

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

fn three_steps() -> Value {
    plan("p1", vec![step("s1"), step("s2"), step("s3")])
}

/// Begins a run of three steps and stops while the first call is out.
async fn begun(sessions: &TempDir, runs: &TempDir) -> String {
    let skill = Gate::closed();
    let world = over(sessions, runs, &skill).await;
    let (session_id, _) = committed(&world.engine, "older", &three_steps()).await;
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
    // That its session ends, which nobody may have asked for, is no reason to end it.
    let session = execution_session_id(&run_id);
    control(&world.engine, &session, "macp-executor", Input::Cancel { reason: "it took too long".to_owned() }).await;
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.executor.result(&run_id).await.unwrap().unwrap().status, Status::Running);

    world.executor.cancel(&run_id, "op", "the store was put back from a copy").await.unwrap();
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!((result.status, skill.begun()), (Status::InDoubt, 0), "a call of it was out");
    // Its journal does not have all that was done, so that nobody can tell what is left to do.
    assert_eq!(result.no_retry.as_deref(), Some(why.as_str()));
    let mode = StartMode::Retry { parent_run_id: run_id, from_step: None };
    let retry = Start { mode, ..Start::execute(frozen(&three_steps()), "op") };
    let refused = world.executor.start(retry).await;
    assert!(matches!(refused, Err(StartError::Held { .. })), "{refused:?}");
    world.stop().await;
}

/// A copy that was made after the run was admitted and before it was there.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_session_reports_is_not_created_again() {
    let (sessions, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run_id = begun(&sessions, &runs).await;
    let world = over(&sessions, &runs, &Gate::closed()).await;
    let link = world.runs().load(&run_id).await.unwrap().unwrap().start().session.clone().unwrap();
    world.stop().await;

    let older = tempfile::tempdir().unwrap();
    let (session_id, commitment_hash) = (link.session_id.clone(), link.commitment_hash);
    let world = over(&sessions, &older, &Gate::open()).await;
    let commitment = Commitment { session_id, commitment_hash, epoch: 1 };
    world.runs().admissions().admit(commitment, &run_id).await.unwrap();
    let first = StartFromSession::first(&link.session_id, "op");
    let refused = world.session_runs.start_from_session(first.clone()).await.unwrap_err();
    assert_eq!(refused.refusals()[0].reason, Reason::RunLost, "{refused}");
    assert_eq!((world.skill.begun(), world.listed().await.len()), (0, 0));
    let anew = StartFromSession { epoch: 2, epoch_reason: Some("lost".to_owned()), may_repeat: true, ..first };
    world.session_runs.start_from_session(anew).await.unwrap();
    world.stop().await;
}

/// A run of two steps that is held up in its first one, over these stores.
async fn waiting(sessions: &Arc<Wrapped>, runs: &Arc<Wrapped>, skill: Arc<Gate>) -> (World, String) {
    let world = World::over(sessions.clone(), runs.clone(), skill, SessionSettings::default()).await;
    let (session_id, _) = committed(&world.engine, "waiting", &plan("p1", vec![step("s1"), step("s2")])).await;
    let started = world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap();
    world.skill.reached(1).await;
    (world, started.run_id)
}

/// A session that cannot be read may report anything, also that it is all done.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_session_cannot_be_read_is_held() {
    let (sessions, runs) = (Wrapped::new(), Wrapped::new());
    let (world, run_id) = waiting(&sessions, &runs, Gate::closed()).await;
    world.reported_so_far(&run_id).await;
    world.stop().await;

    sessions.tamper(|records| records.iter_mut().for_each(|record| record.bytes = record.bytes.slice(1..)));
    let world = World::over(sessions, runs, Gate::open(), SessionSettings::default()).await;
    let result = world.executor.result(&run_id).await.unwrap().unwrap();
    let why = result.stuck.expect("nobody goes on with it");
    assert!(why.contains("cannot be told"), "{why}");
    assert_eq!(world.skill.begun(), 0);
    world.stop().await;
}

/// Whoever takes the place of a run's session says nothing about the run, whatever the name.
async fn not_held_by_a_session_of(sender: &str) {
    let (sessions, runs) = (Wrapped::new(), Wrapped::new());
    let world = World::over(sessions.clone(), runs.clone(), Gate::closed(), SessionSettings::default()).await;
    let (session_id, commitment_hash) = committed(&world.engine, "usurped", &plan("p1", vec![step("s1")])).await;
    let commitment = Commitment { session_id: session_id.clone(), commitment_hash, epoch: 1 };
    world.runs().admissions().admit(commitment, "run-known").await.unwrap();
    usurp(&world.engine, "run-known", sender, "of another run").await;
    world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap();
    world.skill.reached(1).await;
    world.stop().await;

    let world = World::over(sessions, runs, Gate::open(), SessionSettings::default()).await;
    assert_eq!(world.executor.result("run-known").await.unwrap().unwrap().stuck, None);
    let result = world.executor.finished("run-known").await.unwrap().unwrap();
    assert_eq!(result.status, Status::Succeeded);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_not_held_by_a_session_of_someone_else() {
    not_held_by_a_session_of("mallory").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_not_held_by_a_session_that_is_no_report() {
    not_held_by_a_session_of("macp-executor").await;
}

/// A store that does not answer says nothing about what was done: whoever catches up is told, and asks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_asked_again() {
    let (sessions, runs) = (Wrapped::new(), Wrapped::new());
    let (world, run_id) = waiting(&sessions, &runs, Gate::closed()).await;
    world.reported_so_far(&run_id).await;
    for store in [&sessions, &runs] {
        store.set_reads_fail(true);
        let failed = world.session_runs.catch_up().await;
        assert!(matches!(failed, Err(StoreError::Failure(_))), "{failed:?}");
        store.set_reads_fail(false);
    }
    world.session_runs.catch_up().await.unwrap();
    world.skill.let_through(10);
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!(result.status, Status::Succeeded);
    world.stop().await;
}
