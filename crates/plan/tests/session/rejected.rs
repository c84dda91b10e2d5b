//! AOS-106: a commitment whose plan may not run leaves a rejected run that says why, once, and never in the way of the run
//! that carries the commitment out later.

use std::sync::Arc;

use macp_ledger::{MemoryStore, Store};
use macp_plan::executor::{Start, StartError, StartMode};
use macp_plan::export::{self, Exporter};
use macp_plan::session::{Error, Names, Reason, Scope, SessionRuns, SessionSettings, StartFromSession, StartPolicy};
use macp_plan::store::{RunStore, Status};
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::StopReason;
use macp_plan_core::replay::WhatIf;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::decision::{Decision, committed};
use crate::world::{Gate, World, frozen, plan, step, token, until};

/// Settings under which `ops` may use these skills.
fn allowing(skills: &[&str]) -> SessionSettings {
    let skills = Names::Only(skills.iter().map(|skill| (*skill).to_owned()).collect());
    let scopes = [("ops".to_owned(), Scope { agents: Names::Any, skills })];
    SessionSettings { scopes: scopes.into(), ..SessionSettings::default() }
}

fn sample() -> Value {
    plan("p1", vec![step("s1")])
}

/// Asks for the plan of a session that may not run; gives the run that says so.
async fn rejected(world: &World, session_id: &str) -> String {
    rejected_by(&world.session_runs, session_id).await
}

async fn rejected_by(session_runs: &SessionRuns, session_id: &str) -> String {
    match session_runs.start_from_session(StartFromSession::first(session_id, "op")).await {
        Err(Error::Rejected { run_id, .. }) => run_id,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rejected_run_tells_why_and_is_written_once() {
    let world = World::memory(allowing(&["http_call"])).await;
    let (session_id, hash) = committed(&world.engine, "narrow", &sample()).await;
    // All of them at once, the first included: none finds it written.
    let mut asking = JoinSet::new();
    for _ in 0..16 {
        let (session_runs, session_id) = (world.session_runs.clone(), session_id.clone());
        asking.spawn(async move { rejected_by(&session_runs, &session_id).await });
    }
    let mut run_ids = asking.join_all().await;
    run_ids.push(rejected(&world, &session_id).await);
    run_ids.dedup();
    let [run_id] = run_ids.as_slice() else { panic!("the same reasons leave nothing more behind: {run_ids:?}") };
    let listed = world.listed().await;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].status, listed[0].started_by.as_str()), (Status::Rejected, "op"));
    assert_eq!(listed[0].session_id.as_deref(), Some(session_id.as_str()));

    let result = world.executor.result(run_id).await.unwrap().unwrap();
    assert_eq!((result.status, result.final_code.as_deref()), (Status::Rejected, Some("ERR_PERMISSION_DENIED")));
    assert_eq!(result.findings[0].reason, Reason::SkillOutsideScope.as_str());
    assert!(result.findings[0].explanation.contains("sample"), "{:?}", result.findings);
    assert_eq!(result.stop.as_ref().unwrap().reason, StopReason::Preflight);
    assert_eq!(result.session.as_ref().unwrap().commitment_hash, hash);
    let report = world.executor.mock_replay(run_id, WhatIf::default()).await.unwrap();
    assert_eq!(report.verdict, Verdict::Match, "{report:#?}");
    assert_eq!(world.skill.begun(), 0);
    world.stop().await;
}

/// Once the scope allows it, the commitment is carried out, by a run of its own; another reason is another rejected run.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_rejected_blocks_nothing() {
    let (sessions, runs): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let over = |settings| World::over(Arc::clone(&sessions), Arc::clone(&runs), Gate::open(), settings);
    let world = over(allowing(&["http_call"])).await;
    let (session_id, _) = committed(&world.engine, "later", &sample()).await;
    let run_id = rejected(&world, &session_id).await;
    world.stop().await;

    let world =
        over(SessionSettings { scopes: [("other".to_owned(), Scope::default())].into(), ..SessionSettings::default() })
            .await;
    let other = rejected(&world, &session_id).await;
    assert_ne!(other, run_id, "it is another reason");
    world.stop().await;

    let world = over(allowing(&["sample"])).await;
    // What was never admitted is not tried again: that would be a second run of the commitment.
    let link = world.session_runs.bind(&session_id).await.unwrap().link;
    drop(world.session_runs.claim_start(&link).await.unwrap());
    let replay = StartMode::FullReplay { original_run_id: run_id.clone(), allow_steps: Vec::new() };
    for mode in [StartMode::Retry { parent_run_id: run_id.clone(), from_step: None }, replay] {
        let error = world.executor.start(Start { mode, ..Start::execute(frozen(&sample()), "op") }).await.unwrap_err();
        assert!(matches!(&error, StartError::NeverAdmitted { .. }), "{error}");
        assert!(error.to_string().contains(&format!("macp run start --session {session_id}")), "{error}");
    }
    let started = world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap();
    assert!(!started.existing && started.run_id != run_id);
    let result = world.executor.finished(&started.run_id).await.unwrap().unwrap();
    assert_eq!(result.status, Status::Succeeded);
    world.reported_to_the_end(&started.run_id).await;
    assert_eq!(world.listed().await.len(), 3);
    world.stop().await;

    // A right that was taken away afterwards is a refusal; the run that there is stays the only one.
    let world = over(allowing(&["http_call"])).await;
    let error = world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert_eq!(world.listed().await.len(), 3);
    world.stop().await;
}

/// Elsewhere a rejected run is a record, and does not count as the commitment carried out.
#[tokio::test(flavor = "multi_thread")]
async fn an_imported_rejected_run_carries_out_nothing() {
    let world = World::memory(allowing(&["http_call"])).await;
    let (session_id, commitment_hash) = committed(&world.engine, "exported", &sample()).await;
    let run_id = rejected(&world, &session_id).await;
    let mut file = Vec::new();
    let mut exporter = Exporter::open(&**world.runs().ledger(), &run_id).unwrap().unwrap();
    while let Some(chunk) = exporter.next_chunk().unwrap() {
        file.extend_from_slice(&chunk);
    }
    let elsewhere = RunStore::open(Arc::new(MemoryStore::new())).unwrap();
    elsewhere.import(export::read(&*file).unwrap()).await.unwrap();
    let commitment = macp_plan::store::Commitment { session_id, commitment_hash, epoch: 1 };
    assert_eq!(elsewhere.admissions().run_of(commitment).await.unwrap(), None);
    elsewhere.shutdown().await;
    world.stop().await;
}

/// The epochs of what may not run begin no sooner than those of what may.
#[tokio::test(flavor = "multi_thread")]
async fn epochs_are_not_skipped_by_being_rejected() {
    let world = World::memory(allowing(&["http_call"])).await;
    let (session_id, _) = committed(&world.engine, "epochs", &sample()).await;
    for epoch in [2, 3, 1_000_000] {
        let epoch_reason = Some("again".to_owned());
        let request =
            StartFromSession { epoch, epoch_reason, may_repeat: true, ..StartFromSession::first(&session_id, "op") };
        let error = world.session_runs.start_from_session(request).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
    }
    assert!(world.listed().await.is_empty());
    world.stop().await;
}

/// Where plans start by themselves, one that may not is told like any other; one that was decided against is nobody's run.
#[tokio::test(flavor = "multi_thread")]
async fn by_itself_only_what_was_wanted_is_rejected() {
    let world = World::memory(SessionSettings { start: StartPolicy::Auto, ..allowing(&["http_call"]) }).await;
    world.session_runs.begin().await.unwrap();
    let mut against = Decision::standard(&world.engine, "against").await;
    against.propose_plan(&sample()).await;
    against
        .commit_with(|commitment| {
            commitment.commitment_id = token(&sample());
            commitment.action = "decision.rejected".to_owned();
            commitment.outcome_positive = false;
        })
        .await;
    let (session_id, _) = committed(&world.engine, "narrow", &sample()).await;
    until("the rejected run", || async { !world.listed().await.is_empty() }).await;
    crate::decision::dealt_with_everything(&world).await;
    let listed = world.listed().await;
    let of = |session_id: &str| listed.iter().filter(|run| run.session_id.as_deref() == Some(session_id)).count();
    assert_eq!((of(&session_id), of(&against.session_id)), (1, 0), "{listed:#?}");
    assert!(listed.iter().all(|run| run.status == Status::Rejected));
    world.stop().await;
}
