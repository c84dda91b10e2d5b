//! Stores that fail: reports are tried again and lose nothing, and a start that failed can be made again.

use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::Input;
use macp_ledger::{MemoryStore, PutMode, Store};
use macp_plan::executor::{Start, StartMode, Started};
use macp_plan::session::{Error, SessionSettings, StartFromSession, execution_session_id, reported};
use macp_plan::store::Status;
use macp_plan_core::journal::SessionLink;
use macp_wire::v1::SessionState;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::decision::{Decision, committed, control};
use crate::world::{Gate, World, frozen, plan, step, token, until};
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

/// Kind of the documents that keep what a run was told.
const CANCELS: &str = "aos.cancel";

/// A server whose store of runs can fail, at work on a run of two steps of which the first is out.
async fn at_work(name: &str) -> (World, Arc<Wrapped>, SessionLink, String) {
    let runs = Wrapped::new();
    let store = Arc::clone(&runs) as Arc<dyn Store>;
    let world = World::over(Arc::new(MemoryStore::new()), store, Gate::closed(), SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    let (session_id, _) = committed(&world.engine, name, &two_steps()).await;
    let request = StartFromSession::first(&session_id, "op");
    let run_id = world.session_runs.start_from_session(request).await.unwrap().run_id;
    world.skill.reached(1).await;
    let link = world.session_runs.bind(&session_id).await.unwrap().link;
    (world, runs, link, run_id)
}

fn two_steps() -> serde_json::Value {
    plan("p1", vec![step("s1"), step("s2")])
}

async fn is_told_to_stop(world: &World, run_id: &str) {
    until("the run to be told", || async { world.runs().ledger().document(CANCELS, run_id).unwrap().is_some() }).await;
    // Kept is not heard yet; when a second word is answered the run has heard the first.
    world.executor.cancel(run_id, "op", "again").await.unwrap();
    world.skill.let_through(10);
    let result = world.executor.finished(run_id).await.unwrap().unwrap();
    assert_eq!((result.status, world.skill.begun()), (Status::Cancelled, 1));
    assert_ne!(result.cancelled.unwrap().by, "op");
}

/// What takes the place of a commitment is noted, and the run cannot be told for now: it is told later.
#[tokio::test(flavor = "multi_thread")]
async fn a_superseded_run_is_stopped_once_that_can_be_kept() {
    let (world, runs, link, run_id) = at_work("superseded").await;
    runs.set_unwritable(Some(CANCELS));
    let later = plan("p2", vec![step("s1")]);
    let mut decision = Decision::standard(&world.engine, "later").await;
    let (session_id, hash) = (&link.session_id, &link.commitment_hash);
    decision.propose_plan(&later).await.commit_instead(&token(&later), session_id, hash).await;
    until("the note", || async { world.session_runs.check_superseded(&link).await.is_err() }).await;
    until("a word that is not kept", || async { runs.unwritten() > 0 }).await;
    runs.set_unwritable(None);
    is_told_to_stop(&world, &run_id).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_session_ended_is_stopped_once_that_can_be_kept() {
    let (world, runs, _, run_id) = at_work("ended").await;
    world.reported_so_far(&run_id).await;
    runs.set_unwritable(Some(CANCELS));
    let cancel = Input::Cancel { reason: "enough".to_owned() };
    control(&world.engine, &execution_session_id(&run_id), "macp-executor", cancel).await;
    until("a word that is not kept", || async { runs.unwritten() > 0 }).await;
    runs.set_unwritable(None);
    is_told_to_stop(&world, &run_id).await;
    world.stop().await;
}

/// Ends the run that is at work and gives the retry of it.
async fn retry_of(world: &World, run_id: &str) -> Start {
    world.executor.cancel(run_id, "op", "later").await.unwrap();
    world.skill.let_through(1);
    world.executor.finished(run_id).await.unwrap();
    let mode = StartMode::Retry { parent_run_id: run_id.to_owned(), from_step: None };
    Start { mode, ..Start::execute(frozen(&two_steps()), "op") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_nobody_waits_for_is_reported() {
    let (world, runs, link, parent) = at_work("retry").await;
    let start = retry_of(&world, &parent).await;
    world.reported_to_the_end(&parent).await;
    let (commits, _) = runs.counts();
    runs.hold();
    let session_runs = world.session_runs.clone();
    let asked = tokio::spawn(async move { session_runs.start_beside(Some(link), start).await });
    let waiting = Arc::clone(&runs);
    tokio::task::spawn_blocking(move || waiting.wait_for_commits(commits + 1)).await.unwrap();
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    runs.release();
    until("the run", || async { world.listed().await.len() == 2 }).await;
    world.skill.let_through(10);
    let run_id = world.listed().await.remove(0).run_id;
    assert_eq!(world.executor.finished(&run_id).await.unwrap().unwrap().status, Status::Succeeded);
    until("its report", || async { world.execution_state(&run_id) == Some(SessionState::Resolved) }).await;
    world.stop().await;
}

/// The process goes down as soon as the retry is there, and the retry has ended before anybody looks for its report.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_reported_after_the_next_start_however_short_it_is() {
    let (world, runs, link, parent) = at_work("unreported").await;
    let start = retry_of(&world, &parent).await;
    world.reported_to_the_end(&parent).await;
    let run_id = world.session_runs.start_beside(Some(link), start).await.unwrap().run_id;
    world.skill.reached(2).await;
    let note = runs.document("aos.report", &run_id).unwrap().expect("it is to be reported");
    let sessions = Arc::clone(world.engine.store());
    world.stop().await;
    assert_eq!(runs.document("aos.report", &run_id).unwrap().as_ref(), Some(&note));

    let world =
        World::over(sessions, Arc::clone(&runs) as Arc<dyn Store>, Gate::open(), SessionSettings::default()).await;
    assert_eq!(world.executor.finished(&run_id).await.unwrap().unwrap().status, Status::Succeeded);
    world.session_runs.begin().await.unwrap();
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.execution_state(&run_id), Some(SessionState::Resolved));

    // Reporting again what is reported changes nothing; and a retry that never came to be is nobody's to begin.
    let absent = String::from_utf8(note.to_vec()).unwrap().replace(&run_id, "r-never-created");
    let before = world.engine.session(&execution_session_id(&run_id)).await.unwrap().unwrap().sequence;
    let sessions = Arc::clone(world.engine.store());
    world.stop().await;
    runs.put_document("aos.report", &run_id, &note, PutMode::Replace).unwrap();
    runs.put_document("aos.report", "r-never-created", absent.as_bytes(), PutMode::Replace).unwrap();
    let world = World::over(sessions, runs, Gate::open(), SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    world.reported_to_the_end(&run_id).await;
    world.reported_to_the_end("r-never-created").await;
    assert_eq!(world.engine.session(&execution_session_id(&run_id)).await.unwrap().unwrap().sequence, before);
    assert!(world.runs().summary("r-never-created").await.unwrap().is_none());
    world.stop().await;
}

/// What keeps one report from being taken up is no reason to leave the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_note_that_cannot_be_read_holds_up_nobody() {
    let (world, runs, link, run_id) = at_work("noted").await;
    let sessions = Arc::clone(world.engine.store());
    world.stop().await;
    let key = macp_plan_core::digest::hex_of(
        "aos-key/1",
        json!([link.session_id, link.commitment_hash]).to_string().as_bytes(),
    );
    sessions.put_document("aos.superseded", &key, b"no note", PutMode::Replace).unwrap();
    let world = World::over(sessions, runs, Gate::open(), SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    assert!(world.session_runs.check_superseded(&link).await.is_err());
    assert_eq!(world.executor.finished(&run_id).await.unwrap().unwrap().status, Status::Succeeded);
    world.reported_to_the_end(&run_id).await;
    world.stop().await;
}

/// The index row of one run cannot be read: it is held, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_row_holds_up_its_own_run_alone() {
    let (world, runs, _, _) = at_work("whole").await;
    let damaged = plan("damaged-plan", vec![step("s1")]);
    let (session_id, _) = committed(&world.engine, "damaged", &damaged).await;
    let request = StartFromSession::first(&session_id, "op");
    let damaged = world.session_runs.start_from_session(request).await.unwrap().run_id;
    world.skill.reached(2).await;
    let whole = world.listed().await.into_iter().find(|run| run.run_id != damaged).unwrap().run_id;
    let sessions = Arc::clone(world.engine.store());
    world.stop().await;

    runs.tamper_head(|head| {
        if head.summary.windows(12).any(|window| window == b"damaged-plan") {
            head.summary = Bytes::from_static(b"no summary");
        }
    });
    let world = World::over(sessions, runs, Gate::open(), SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    assert_eq!(world.executor.finished(&whole).await.unwrap().unwrap().status, Status::Succeeded);
    world.reported_to_the_end(&whole).await;
    assert!(world.runs().summary(&damaged).await.is_err());
    world.stop().await;
}
