//! AOS-110: one run for a commitment and an epoch, whoever asks and whatever crashes come in between.

use std::sync::Arc;

use macp_ledger::{MemoryStore, PutMode, SqliteStore, Store};
use macp_plan::executor::{Start, StartMode};
use macp_plan::export::{ExportedRun, Imported};
use macp_plan::session::{Error, Reason, SessionSettings, StartFromSession, execution_session_id, reported};
use macp_plan::store::{Admission, Commitment};
use serde_json::{Value, json};

use crate::decision::committed;
use crate::world::{Gate, World, frozen, plan, step, until};

fn first(session_id: &str) -> StartFromSession {
    StartFromSession::first(session_id, "op")
}

fn further(session_id: &str, epoch: u64) -> StartFromSession {
    let epoch_reason = Some("the supplier lost the order".to_owned());
    StartFromSession { epoch, epoch_reason, may_repeat: true, ..first(session_id) }
}

fn reason(error: &Error) -> Reason {
    error.refusals()[0].reason
}

async fn concurrent_starts(sessions: Arc<dyn Store>, runs: Arc<dyn Store>) {
    let world = World::over(sessions, runs, Gate::open(), SessionSettings::default()).await;
    let (session_id, _) = committed(&world.engine, "once", &plan("p1", vec![step("s1"), step("s2")])).await;
    let starts: Vec<_> = (0..20)
        .map(|caller| {
            let session_runs = world.session_runs.clone();
            let mut request = StartFromSession::first(&session_id, &format!("op-{}", caller % 3));
            request.request_id = (caller % 2 == 0).then(|| format!("request-{caller}"));
            tokio::spawn(async move { session_runs.start_from_session(request).await.unwrap() })
        })
        .collect();
    let mut ids = Vec::new();
    let mut new = 0;
    for start in starts {
        let started = start.await.unwrap();
        new += usize::from(!started.existing);
        ids.push(started.run_id);
    }
    assert_eq!(new, 1);
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    world.executor.finished(&ids[0]).await.unwrap();
    world.reported_to_the_end(&ids[0]).await;
    assert_eq!((world.listed().await.len(), world.skill.begun()), (1, 2));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_at_once_in_memory() {
    concurrent_starts(Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_at_once_on_disk() {
    let (sessions, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |directory: &tempfile::TempDir| Arc::new(SqliteStore::open(directory.path()).unwrap());
    concurrent_starts(open(&sessions), open(&runs)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn again_after_a_restart() {
    let (sessions, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |directory: &tempfile::TempDir| Arc::new(SqliteStore::open(directory.path()).unwrap());
    let skill = Gate::closed();
    let world = World::over(open(&sessions), open(&runs), Arc::clone(&skill), SessionSettings::default()).await;
    let (session_id, _) = committed(&world.engine, "restart", &plan("p1", vec![step("s1"), step("s2")])).await;
    let started = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    assert!(!started.existing);
    skill.reached(1).await;
    world.stop().await;

    // The call that was out ends in a process that no longer writes; only then does that let go of its directories.
    skill.let_through(10);
    let free = |directory: &tempfile::TempDir| SqliteStore::open(directory.path()).is_ok();
    until("the directories", || async { free(&sessions) && free(&runs) }).await;
    let world = World::over(open(&sessions), open(&runs), skill, SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    let again = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    assert_eq!((again.run_id.as_str(), again.existing), (started.run_id.as_str(), true));
    let result = world.executor.finished(&started.run_id).await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "succeeded");
    world.reported_to_the_end(&started.run_id).await;
    assert_eq!(world.execution_state(&started.run_id), Some(macp_wire::v1::SessionState::Resolved));
    assert_eq!(world.listed().await.len(), 1);
    world.stop().await;
}

/// The process ended between the admission and the run: the run is created under the name it was admitted by.
#[tokio::test(flavor = "multi_thread")]
async fn an_admission_without_a_run() {
    let world = World::memory(SessionSettings::default()).await;
    let (session_id, commitment_hash) = committed(&world.engine, "admitted", &plan("p1", vec![step("s1")])).await;
    let commitment = Commitment { session_id: session_id.clone(), commitment_hash, epoch: 1 };
    let admitted = world.runs().admissions().admit(commitment, "run-admitted").await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    let started = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    assert_eq!((started.run_id.as_str(), started.existing), ("run-admitted", false));
    world.reported_to_the_end("run-admitted").await;
    world.stop().await;
}

/// The process ended between the note and the run: the next one creates the run without anybody asking again.
#[tokio::test(flavor = "multi_thread")]
async fn a_note_without_a_run() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1")]);
    let (session_id, commitment_hash) = committed(&world.engine, "noted", &plan).await;
    let note = |run_id: &str, session_id: &str| -> Value {
        json!({
            "run_id": run_id, "session_id": session_id, "commitment_hash": commitment_hash, "epoch": 1, "plan_id": "p1",
            "plan_hash": crate::world::frozen(&plan).hash, "coordinator": "alice", "authority_scope": "ops", "by": "op",
            "ttl_ms": 60_000,
        })
    };
    let keep = |run_id: &str, session_id: &str| {
        let bytes = note(run_id, session_id).to_string();
        world.runs().ledger().put_document("aos.report", run_id, bytes.as_bytes(), PutMode::IfAbsent).unwrap();
    };
    keep("run-noted", &session_id);
    keep("run-of-no-session", "there-is-none");
    world.session_runs.begin().await.unwrap();
    let result = world.executor.finished("run-noted").await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "succeeded");
    world.reported_to_the_end("run-noted").await;
    world.reported_to_the_end("run-of-no-session").await;
    assert_eq!(world.listed().await.len(), 1, "what may not run is dropped");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_epoch_is_asked_for_with_a_right_and_a_reason() {
    let world = World::over(
        Arc::new(MemoryStore::new()),
        Arc::new(MemoryStore::new()),
        Gate::closed(),
        SessionSettings::default(),
    )
    .await;
    let (session_id, _) = committed(&world.engine, "epochs", &plan("p1", vec![step("s1")])).await;
    let start = async |request| world.session_runs.start_from_session(request).await;
    assert_eq!(reason(&start(further(&session_id, 0)).await.unwrap_err()), Reason::EpochInvalid);
    let no_right = StartFromSession { may_repeat: false, ..further(&session_id, 2) };
    assert_eq!(reason(&start(no_right).await.unwrap_err()), Reason::EpochNotPermitted);
    let no_reason = StartFromSession { epoch_reason: Some(" ".to_owned()), ..further(&session_id, 2) };
    assert_eq!(reason(&start(no_reason).await.unwrap_err()), Reason::EpochReasonMissing);
    assert_eq!(reason(&start(further(&session_id, 2)).await.unwrap_err()), Reason::EarlierEpochMissing);

    let one = start(first(&session_id)).await.unwrap();
    world.skill.reached(1).await;
    assert_eq!(reason(&start(further(&session_id, 2)).await.unwrap_err()), Reason::EarlierEpochUnfinished);
    world.skill.let_through(2);
    world.executor.finished(&one.run_id).await.unwrap();
    let bound = world.session_runs.bind(&session_id).await.unwrap();
    assert_eq!(world.session_runs.next_epoch(&bound).await.unwrap(), 2);
    let two = start(further(&session_id, 2)).await.unwrap();
    assert_ne!(one.run_id, two.run_id);
    assert!(start(further(&session_id, 2)).await.unwrap().existing);
    let result = world.executor.finished(&two.run_id).await.unwrap().unwrap();
    assert_eq!((result.epoch, world.skill.begun()), (2, 2), "the effect was repeated, as was asked for");
    let note = world.session_runs.epoch_note(&bound, 2).await.unwrap().unwrap();
    assert_eq!((note.by.as_str(), note.reason.as_str()), ("op", "the supplier lost the order"));
    assert_eq!(world.session_runs.epoch_note(&bound, 1).await.unwrap(), None);
    world.reported_to_the_end(&two.run_id).await;
    world.stop().await;
}

/// The effects of two epochs have different keys, so that nobody recognises what both bring about: one ends before the
/// next begins, retries included, and is over with once the next has begun.
#[tokio::test(flavor = "multi_thread")]
async fn epochs_do_not_overlap_through_retries() {
    let stores = || Arc::new(MemoryStore::new());
    let world = World::over(stores(), stores(), Gate::closed(), SessionSettings::default()).await;
    let value = plan("p1", vec![step("s1"), step("s2")]);
    let (session_id, _) = committed(&world.engine, "overlap", &value).await;
    let one = world.session_runs.start_from_session(first(&session_id)).await.unwrap().run_id;
    world.skill.reached(1).await;
    let link = world.runs().load(&one).await.unwrap().unwrap().start().session.clone().unwrap();
    let retry = async |parent: &str| {
        let mode = StartMode::Retry { parent_run_id: parent.to_owned(), from_step: None };
        let request_id = Some(format!("again, after {parent}"));
        let start = Start { mode, request_id, ..Start::execute(frozen(&value), "op") };
        world.session_runs.start_beside(Some(link.clone()), start).await
    };
    world.executor.cancel(&one, "op", "later").await.unwrap();
    world.skill.let_through(1);
    world.executor.finished(&one).await.unwrap();

    let again = retry(&one).await.unwrap().run_id;
    world.skill.reached(2).await;
    let error = world.session_runs.start_from_session(further(&session_id, 2)).await.unwrap_err();
    assert_eq!(reason(&error), Reason::EarlierEpochUnfinished);
    assert!(error.to_string().contains(&again), "{error}");
    world.executor.cancel(&again, "op", "later").await.unwrap();
    world.skill.let_through(1);
    world.executor.finished(&again).await.unwrap();

    let two = world.session_runs.start_from_session(further(&session_id, 2)).await.unwrap().run_id;
    let asked_before = retry(&one).await.unwrap();
    assert_eq!((&asked_before.run_id, asked_before.existing), (&again, true));
    let error = retry(&again).await.unwrap_err();
    assert_eq!(reason(&error), Reason::LaterEpochBegun);
    assert!(error.to_string().contains(&two), "{error}");
    world.skill.let_through(10);
    world.executor.finished(&two).await.unwrap();
    world.stop().await;
}

/// AOS-113, AOS-114: a store of runs that was lost is no reason to do everything again. The session knows which run it
/// was, and tells it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_of_runs_starts_nothing_again() {
    let (sessions, settings) = (Arc::new(MemoryStore::new()), SessionSettings::default());
    let world = World::over(sessions.clone(), Arc::new(MemoryStore::new()), Gate::open(), settings.clone()).await;
    let plan = plan("p1", vec![step("s1"), step("s2")]);
    let (session_id, _) = committed(&world.engine, "lost", &plan).await;
    let started = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    world.executor.finished(&started.run_id).await.unwrap();
    world.reported_to_the_end(&started.run_id).await;
    world.stop().await;

    let world = World::over(sessions.clone(), Arc::new(MemoryStore::new()), Gate::open(), settings).await;
    let error = world.session_runs.start_from_session(first(&session_id)).await.unwrap_err();
    assert_eq!(reason(&error), Reason::RunLost);
    assert!(error.to_string().contains(&started.run_id), "{error}");

    let told = reported(&*sessions, &execution_session_id(&started.run_id)).unwrap().unwrap();
    let exported = ExportedRun::of_report(told, plan).unwrap();
    world.runs().import(exported.clone()).await.unwrap();
    let again = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    assert_eq!((again.run_id.as_str(), again.existing), (started.run_id.as_str(), true));
    assert!(matches!(world.runs().import(exported).await.unwrap(), Imported::AlreadyThere { .. }));
    assert_eq!(world.skill.begun(), 0);
    world.stop().await;
}

/// AOS-110: a run that is lost for good, because it had not ended or its outputs are nowhere, does not keep the
/// commitment from being carried out deliberately.
#[tokio::test(flavor = "multi_thread")]
async fn a_further_epoch_follows_a_run_that_is_lost() {
    let (sessions, settings) = (Arc::new(MemoryStore::new()), SessionSettings::default());
    let world = World::over(sessions.clone(), Arc::new(MemoryStore::new()), Gate::open(), settings.clone()).await;
    let (session_id, _) = committed(&world.engine, "gone", &plan("p1", vec![step("s1")])).await;
    let started = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    world.executor.finished(&started.run_id).await.unwrap();
    world.stop().await;

    let world = World::over(sessions, Arc::new(MemoryStore::new()), Gate::open(), settings).await;
    let error = world.session_runs.start_from_session(first(&session_id)).await.unwrap_err();
    assert!(error.to_string().contains("epoch 2"), "{error}");
    let skipped = world.session_runs.start_from_session(further(&session_id, 3)).await.unwrap_err();
    assert_eq!(reason(&skipped), Reason::EarlierEpochMissing);
    let again = world.session_runs.start_from_session(further(&session_id, 2)).await.unwrap();
    let result = world.executor.finished(&again.run_id).await.unwrap().unwrap();
    assert_eq!((result.epoch, world.skill.begun()), (2, 1));
    world.stop().await;
}

/// A plan that cannot run here is a run that says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_fails_preflight_becomes_a_rejected_run() {
    let world = World::memory(SessionSettings::default()).await;
    let mut unknown = plan("p1", vec![step("s1")]);
    unknown["steps"][0]["skill_version"] = json!("9.9.9");
    let (session_id, _) = committed(&world.engine, "preflight", &unknown).await;
    let started = world.session_runs.start_from_session(first(&session_id)).await.unwrap();
    let result = world.executor.finished(&started.run_id).await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "rejected");
    world.reported_to_the_end(&started.run_id).await;
    assert_eq!(world.execution_state(&started.run_id), Some(macp_wire::v1::SessionState::Resolved));
    world.stop().await;
}
