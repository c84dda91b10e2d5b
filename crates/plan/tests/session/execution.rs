//! AOS-112, AOS-113: what an execution session says, that it says it once, and that it stands by itself.

use std::sync::Arc;

use macp_archive::{Replay, Source, replay};
use macp_kernel::replay::Options;
use macp_ledger::{History, MemoryStore, Store};
use macp_plan::export::{ExportedRun, ReportError};
use macp_plan::session::{
    EXECUTION_MODE, ExecutionSettings, NotAReport, SessionSettings, StartFromSession, execution_session_id, reported,
};
use macp_plan_core::journal::Journal;
use macp_plan_core::replay::{Options as MockOptions, mock_replay};
use macp_plan_core::skill::Catalog;
use macp_wire::history::v1::entry;
use macp_wire::modes::task::v1::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRequestPayload, TaskUpdatePayload,
};
use macp_wire::v1::{CommitmentPayload, Envelope, SessionStartPayload, SessionState};
use prost::Message;
use serde_json::{Value, json};

use crate::decision::{Decision, committed};
use crate::world::{Gate, World, frozen, plan, step, step_with};

/// The accepted envelopes of a session.
fn envelopes(store: &dyn Store, session_id: &str) -> Vec<Envelope> {
    let mut history = History::open(store, session_id).unwrap().expect("there is such a session");
    let mut envelopes = Vec::new();
    loop {
        let page = history.next_page().unwrap();
        if page.is_empty() {
            return envelopes;
        }
        for (_, entry) in page {
            if let Some(entry::Input::Envelope(envelope)) = entry.input {
                envelopes.push(envelope);
            }
        }
    }
}

fn settings(execution: ExecutionSettings) -> SessionSettings {
    SessionSettings { execution, ..SessionSettings::default() }
}

/// Runs a plan to its end and its report: the run and what its execution session holds.
async fn run(world: &World, name: &str, plan: &Value) -> (String, Vec<Envelope>) {
    let (session_id, _) = committed(&world.engine, name, plan).await;
    let started = world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap();
    world.executor.finished(&started.run_id).await.unwrap();
    world.reported_to_the_end(&started.run_id).await;
    let envelopes = envelopes(&**world.engine.store(), &execution_session_id(&started.run_id));
    (started.run_id, envelopes)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_run_that_succeeds() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1"), step("s2")]);
    let (run_id, envelopes) = run(&world, "succeeds", &plan).await;
    let types: Vec<&str> = envelopes.iter().map(|envelope| envelope.message_type.as_str()).collect();
    let updates = types.len() - 5;
    assert!(updates >= 1);
    assert_eq!(types[..3], ["SessionStart", "TaskRequest", "TaskAccept"]);
    assert!(types[3..3 + updates].iter().all(|kind| *kind == "TaskUpdate"), "{types:?}");
    assert_eq!(types[3 + updates..], ["TaskComplete", "Commitment"]);
    assert!(envelopes.iter().all(|envelope| envelope.mode == EXECUTION_MODE && envelope.sender == "macp-executor"));

    let start = SessionStartPayload::decode(envelopes[0].payload.clone()).unwrap();
    assert_eq!(start.participants, ["macp-executor", "alice", "bob"], "everybody who decided can follow it");
    assert_eq!(start.context_id, run_id);
    // AOS-115: two steps of 60 s with a guard of 1 s each, and the margin.
    assert_eq!(start.ttl_ms, 2 * 61_000 + 600_000);

    let request = TaskRequestPayload::decode(envelopes[1].payload.clone()).unwrap();
    assert_eq!((request.task_id.as_str(), request.requested_assignee.as_str()), ("p1", "macp-executor"));
    let input: Value = serde_json::from_slice(&request.input).unwrap();
    let result = world.executor.result(&run_id).await.unwrap().unwrap();
    let link = result.session.as_ref().unwrap();
    assert_eq!(input["session_id"], link.session_id.as_str());
    assert_eq!(input["commitment_hash"], link.commitment_hash.as_str());
    assert_eq!(input["plan_hash"], frozen(&plan).hash.as_str());
    assert_eq!((&input["epoch"], &input["coordinator"]), (&json!(1), &json!("alice")));
    let accept = TaskAcceptPayload::decode(envelopes[2].payload.clone()).unwrap();
    assert_eq!((accept.task_id.as_str(), accept.assignee.as_str()), ("p1", "macp-executor"));

    let last = TaskUpdatePayload::decode(envelopes[2 + updates].payload.clone()).unwrap();
    assert_eq!((last.status.as_str(), last.progress), ("OK", 1.0));
    // AOS-111: ids that follow from the run and the entries.
    assert_eq!(envelopes[3].message_id, format!("aos:{run_id}:0"));
    let complete = TaskCompletePayload::decode(envelopes[3 + updates].payload.clone()).unwrap();
    let output: Value = serde_json::from_slice(&complete.output).unwrap();
    assert_eq!(output, serde_json::to_value(&result).unwrap());
    let commitment = CommitmentPayload::decode(envelopes[4 + updates].payload.clone()).unwrap();
    assert_eq!((commitment.action.as_str(), commitment.outcome_positive), ("task.completed", true));
    assert_eq!(commitment.authority_scope, "ops");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_run_that_fails() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step_with("s1", json!({"note": "answers 403"})), step("s2")]);
    let (run_id, envelopes) = run(&world, "fails", &plan).await;
    let end = &envelopes[envelopes.len() - 2..];
    let fail = TaskFailPayload::decode(end[0].payload.clone()).unwrap();
    let result = world.executor.result(&run_id).await.unwrap().unwrap();
    assert_eq!(Some(&fail.error_code), result.final_code.as_ref());
    assert!(!fail.retryable);
    let stop: Value = serde_json::from_str(&fail.reason).unwrap();
    assert_eq!((&stop["reason"], &stop["step_id"]), (&json!("step_failed"), &json!("s1")));
    let commitment = CommitmentPayload::decode(end[1].payload.clone()).unwrap();
    assert_eq!((commitment.action.as_str(), commitment.outcome_positive), ("task.failed", false));
    world.stop().await;
}

/// AOS-105: the session replays on its own, and the run can be mock-replayed from the session alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_enough() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1"), step("s2"), step("s3")]);
    let (run_id, _) = run(&world, "enough", &plan).await;
    let store = Arc::clone(world.engine.store());
    let id = execution_session_id(&run_id);
    let history = History::open(&*store, &id).unwrap().unwrap();
    let replayed = replay(&mut Source::Store(history), Options::default(), &mut |_| {});
    assert!(matches!(replayed, Replay::Match(_)), "{replayed:?}");

    let found = reported(&*store, &id).unwrap().unwrap();
    assert_eq!((found.run_id.as_str(), found.state), (run_id.as_str(), SessionState::Resolved));
    // AOS-112: what it was opened for is what it reports, the epoch included.
    ExportedRun::of_report(found.clone(), plan.clone()).unwrap();
    for (field, other) in [("epoch", json!(2)), ("epoch", Value::Null), ("plan_hash", json!("sha256:0"))] {
        let mut other_request = found.clone();
        other_request.request[field] = other;
        let refused = ExportedRun::of_report(other_request, plan.clone());
        assert!(matches!(&refused, Err(ReportError::Request { field: named, .. }) if *named == field), "{refused:?}");
    }
    let run = world.runs().load(&run_id).await.unwrap().unwrap();
    let entries = found.entries.unwrap();
    assert_eq!(entries.len(), run.entries.len());
    for ((text, hash, _), entry) in entries.iter().zip(&run.entries) {
        assert_eq!((text.as_slice(), hash.as_str()), (&entry.text[..], entry.hash.to_string().as_str()));
    }
    assert_eq!(found.head, Some(run.head().to_string()));

    let journal = Journal::read(entries.iter().map(|(text, hash, _)| (text, hash))).unwrap();
    let catalog = Arc::clone(world.executor.registry()) as Arc<dyn Catalog>;
    let plan = Arc::new(frozen(&plan));
    let mock = mock_replay(&plan, &journal, &|_| None, &catalog, &MockOptions::new("from-the-session")).unwrap();
    assert_eq!(mock.report.verdict, macp_plan_core::compare::Verdict::Match);
    world.stop().await;
}

/// A report that stopped in the middle goes on where it stopped: no entry is missing, none is there twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_goes_on_after_a_restart() {
    let (sessions, runs): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let skill = Gate::closed();
    let world =
        World::over(Arc::clone(&sessions), Arc::clone(&runs), Arc::clone(&skill), SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1"), step("s2"), step("s3")]);
    let (session_id, _) = committed(&world.engine, "goes-on", &plan).await;
    let run_id =
        world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap().run_id;
    skill.let_through(1);
    skill.reached(2).await;
    world.reported_so_far(&run_id).await;
    let before = envelopes(&*sessions, &execution_session_id(&run_id)).len();
    // Only the reports stop; the run goes on unreported and ends.
    world.session_runs.shutdown().await;
    skill.let_through(10);
    world.executor.finished(&run_id).await.unwrap();
    assert_eq!(envelopes(&*sessions, &execution_session_id(&run_id)).len(), before);
    world.stop().await;

    let world = World::over(sessions, runs, skill, SessionSettings::default()).await;
    world.session_runs.begin().await.unwrap();
    world.reported_to_the_end(&run_id).await;
    let store = world.engine.store();
    let found = reported(&**store, &execution_session_id(&run_id)).unwrap().unwrap();
    let run = world.runs().load(&run_id).await.unwrap().unwrap();
    assert_eq!((found.state, found.next_seq), (SessionState::Resolved, run.entries.len() as u64));
    assert_eq!(found.head, Some(run.head().to_string()));
    let last =
        envelopes(&**store, &execution_session_id(&run_id)).into_iter().rfind(|it| it.message_type == "TaskUpdate");
    let last = TaskUpdatePayload::decode(last.unwrap().payload).unwrap();
    assert_eq!(last.progress, 1.0, "the steps reported before count as well");
    world.stop().await;
}

/// Entries are divided to fit, and one that fits nowhere goes by its hash.
#[tokio::test(flavor = "multi_thread")]
async fn entries_that_are_too_long() {
    let execution = ExecutionSettings { update_bytes_max: 2_000, ..ExecutionSettings::default() };
    let world = World::memory(settings(execution)).await;
    let long = step_with("s2", json!({"output": "x".repeat(4_000)}));
    let (run_id, envelopes) = run(&world, "long", &plan("p1", vec![step("s1"), long])).await;
    let updates: Vec<_> = envelopes
        .iter()
        .filter(|envelope| envelope.message_type == "TaskUpdate")
        .map(|envelope| TaskUpdatePayload::decode(envelope.payload.clone()).unwrap())
        .collect();
    assert!(updates.iter().all(|update| update.partial_output.len() <= 2_000));
    let by_digest: Vec<Value> = updates
        .iter()
        .filter_map(|update| serde_json::from_slice::<Value>(&update.partial_output).ok())
        .filter(|value| value.get("by_digest").is_some())
        .collect();
    assert_eq!(by_digest.len(), 1);
    let run = world.runs().load(&run_id).await.unwrap().unwrap();
    let long = run.entries.iter().find(|entry| entry.text.len() > 2_000).unwrap();
    assert_eq!(
        by_digest[0]["by_digest"],
        json!({"from_seq": long.seq(), "to_seq": long.seq(), "head": long.hash.to_string()})
    );
    let found = reported(&**world.engine.store(), &execution_session_id(&run_id)).unwrap().unwrap();
    assert!(found.entries.is_none(), "they cannot all be told from the session");
    assert_eq!(found.head, Some(run.head().to_string()), "but their chain can be followed");
    world.stop().await;
}

/// Many runs, few sessions at once: all are reported in the end.
#[tokio::test(flavor = "multi_thread")]
async fn reports_wait_for_their_turn() {
    let execution = ExecutionSettings { sessions_max: 1, ..ExecutionSettings::default() };
    let world = World::memory(settings(execution)).await;
    let mut runs = Vec::new();
    for number in 0..8 {
        let plan = plan(&format!("p{number}"), vec![step("s1")]);
        let (session_id, _) = committed(&world.engine, &format!("turn-{number}"), &plan).await;
        let request = StartFromSession::first(&session_id, "op");
        runs.push(world.session_runs.start_from_session(request).await.unwrap().run_id);
    }
    for run_id in &runs {
        world.reported_to_the_end(run_id).await;
        assert_eq!(world.execution_state(run_id), Some(SessionState::Resolved));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_need_no_report() {
    let execution = ExecutionSettings { enabled: false, ..ExecutionSettings::default() };
    let world = World::memory(settings(execution)).await;
    let (session_id, _) = committed(&world.engine, "unreported", &plan("p1", vec![step("s1")])).await;
    let run_id =
        world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap().run_id;
    world.executor.finished(&run_id).await.unwrap();
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.execution_state(&run_id), None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sessions_are_no_reports() {
    let world = World::memory(SessionSettings::default()).await;
    let decision = Decision::standard(&world.engine, "other").await;
    let store = world.engine.store();
    assert!(matches!(reported(&**store, &decision.session_id), Err(NotAReport::OtherSession)));
    assert!(reported(&**store, "there-is-none").unwrap().is_none());
    world.stop().await;
}
