//! Plans that sessions commit to, from the first message to the report.

use std::sync::Arc;

use macp_ledger::{MemoryStore, Store};
use macp_plan::session::execution_session_id;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::plan::v1::start_run_request::Source;
use macp_wire::plan::v1::*;
use macp_wire::v1::{Envelope, GetSessionRequest, SendRequest, SessionState};
use prost::Message;
use serde_json::{Value, json};

use crate::common::*;
use crate::target::Target;

/// Sends as alice, with this token if one is needed.
async fn send(world: &World, session_id: &str, message_type: &str, payload: Vec<u8>) {
    send_as(world, None, session_id, message_type, payload).await;
}

pub(crate) async fn send_as(
    world: &World,
    token: Option<&str>,
    session_id: &str,
    message_type: &str,
    payload: Vec<u8>,
) {
    let envelope = Envelope {
        macp_version: "1.0".to_owned(),
        message_type: message_type.to_owned(),
        message_id: format!("{session_id}-{message_type}"),
        session_id: session_id.to_owned(),
        sender: "alice".to_owned(),
        payload: payload.into(),
        ..Envelope::default()
    };
    let request = SendRequest { envelope: Some(envelope), signature: None };
    let request = match token {
        Some(token) => as_caller(token, request),
        None => tonic::Request::new(request),
    };
    let ack = world.runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack");
    assert!(ack.ok, "{message_type}: {ack:?}");
}

/// A classic session about one given plan, up to its commitment.
pub(crate) async fn commit(world: &World, session_id: &str, plan_json: &str) {
    commit_with(world, session_id, plan_json, json!({})).await;
}

/// As [`commit`], with more fields in the commitment.
async fn commit_with(world: &World, session_id: &str, plan_json: &str, more: Value) {
    let context = json!({"aos.plan.v1": parse(plan_json)}).to_string();
    let start = SessionStartPayload { ttl_ms: 60_000, context: context.into_bytes().into(), ..Default::default() };
    send(world, session_id, "SessionStart", start.encode_to_vec()).await;
    deliberate(world, session_id).await;
    let hash = macp_plan_core::plan::FrozenPlan::parse(plan_json.as_bytes()).expect("a plan").hash;
    let mut commitment = json!({"commitment_id": format!("aos-plan:{hash}"), "action": "go"});
    for (name, value) in more.as_object().expect("an object") {
        commitment[name] = value.clone();
    }
    send(world, session_id, "Commitment", commitment.to_string().into_bytes()).await;
}

/// AOS-106: a plan that is kept can be committed to by its digest alone.
#[tokio::test]
async fn aos_106_a_plan_by_reference_is_found_once_it_is_kept() {
    let world = World::start().await;
    let plan_json = world.plan(&["/a"]).await;
    let hash = macp_plan_core::plan::FrozenPlan::parse(plan_json.as_bytes()).expect("a plan").hash;
    let context = json!({"aos.plan.v1": {"plan_hash": hash, "uri": "plans/a"}}).to_string();
    let start = SessionStartPayload { ttl_ms: 60_000, context: context.into_bytes().into(), ..Default::default() };
    send(&world, "by-reference", "SessionStart", start.encode_to_vec()).await;
    deliberate(&world, "by-reference").await;
    let commitment = json!({"commitment_id": format!("aos-plan:{hash}"), "action": "go"});
    send(&world, "by-reference", "Commitment", commitment.to_string().into_bytes()).await;
    let status = refused(world.try_start(of_session("by-reference")).await, "PLAN_REFUSED");
    assert!(status.message().contains("macp plan keep"), "{status:?}");

    let keep = async |plan_json: String| {
        let request = ValidatePlanRequest { plan_json, keep: true };
        world.plans.clone().validate_plan(request).await.expect("an answer").into_inner()
    };
    let mut unfit = parse(&plan_json);
    unfit["steps"][0]["skill_version"] = json!("9.9.9");
    let unfit = keep(unfit.to_string()).await;
    assert!(!unfit.valid && !unfit.kept, "{unfit:?}");
    let kept = keep(plan_json).await;
    assert!(kept.valid && kept.kept, "{kept:?}");
    assert_eq!(kept.plan_hash, hash.to_string());
    let run_id = world.try_start(of_session("by-reference")).await.expect("a run").run_id;
    world.finished(&run_id).await;
    assert_eq!(world.target.asked(), ["/a"]);
    world.shut_down().await;
}

/// What a commitment needs before it.
async fn deliberate(world: &World, session_id: &str) {
    send(world, session_id, "Proposal", json!({"proposal_id": "p", "option": "run it"}).to_string().into_bytes()).await;
    send(world, session_id, "Vote", json!({"proposal_id": "p", "vote": "approve"}).to_string().into_bytes()).await;
}

pub(crate) fn of_session(session_id: &str) -> StartRunRequest {
    StartRunRequest { source: Some(Source::SessionId(session_id.to_owned())), ..StartRunRequest::default() }
}

/// Waits until a session has come to its end, and says how.
async fn ended(world: &World, session_id: &str) -> SessionState {
    let waiting = async {
        loop {
            let request = as_caller("observer", GetSessionRequest { session_id: session_id.to_owned() });
            match world.runtime.clone().get_session(request).await {
                Ok(found) => {
                    let state = found.into_inner().metadata.expect("metadata").state();
                    if state != SessionState::Open {
                        return state;
                    }
                }
                Err(status) if status.code() == tonic::Code::NotFound => {}
                // Whoever may not read it cannot see its end, only that it is there.
                Err(status) if status.code() == tonic::Code::PermissionDenied => return SessionState::Unspecified,
                Err(status) => panic!("{status:?}"),
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("an end in time")
}

#[tokio::test]
async fn aos_110_what_a_session_committed_to_runs_once() {
    let world = World::start().await;
    let plan = world.plan(&["/a", "/b"]).await;
    commit(&world, "decided", &plan).await;
    let first = world.try_start(of_session("decided")).await.expect("a run");
    let second = world.try_start(of_session("decided")).await.expect("the same run");
    assert_eq!((first.existing, second.existing, &first.run_id), (false, true, &second.run_id));
    world.finished(&first.run_id).await;
    assert_eq!(world.target.asked(), ["/a", "/b"]);
    let (result, summary) = world.get_run(&first.run_id).await;
    assert_eq!((summary.session_id.as_str(), summary.status()), ("decided", RunStatus::Succeeded));
    assert_eq!(result["session"]["session_id"], "decided");
    let listed = ListRunsRequest { session_id: "decided".to_owned(), ..Default::default() };
    let listed = world.plans.clone().list_runs(listed).await.expect("a page").into_inner();
    assert_eq!(listed.runs.len(), 1);
    let state = ended(&world, &execution_session_id(&first.run_id)).await;
    assert!(matches!(state, SessionState::Resolved | SessionState::Unspecified), "{state:?}");

    // AOS-9.4: a further epoch is the only way to repeat effects, and says why.
    let again = |reason: &str| StartRunRequest { epoch: 2, reason: reason.to_owned(), ..of_session("decided") };
    refused(world.try_start(again("")).await, "INVALID_REQUEST");
    let repeated = world.try_start(again("the first went to the wrong place")).await.expect("a run");
    world.finished(&repeated.run_id).await;
    assert_eq!(world.target.asked(), ["/a", "/b", "/a", "/b"]);
    refused(
        world.try_start(StartRunRequest { epoch: 9, reason: "x".to_owned(), ..of_session("decided") }).await,
        "PLAN_REFUSED",
    );
    world.shut_down().await;
}

#[tokio::test]
async fn a_session_that_has_not_decided_starts_nothing() {
    let world = World::start().await;
    send(&world, "open", "SessionStart", SessionStartPayload { ttl_ms: 60_000, ..Default::default() }.encode_to_vec())
        .await;
    let status = refused(world.try_start(of_session("open")).await, "PLAN_REFUSED");
    assert!(status.message().contains("session_not_resolved"), "{status:?}");
    deliberate(&world, "open").await;
    send(&world, "open", "Commitment", json!({"commitment_id": "c", "action": "go"}).to_string().into_bytes()).await;
    let status = refused(world.try_start(of_session("open")).await, "PLAN_REFUSED");
    assert!(status.message().contains("no_plan_named"), "{status:?}");
    assert!(world.target.asked().is_empty());
    world.shut_down().await;
}

#[tokio::test]
async fn a_committed_plan_starts_by_itself_where_that_is_set() {
    let world = World::with(|settings| {
        let plans = settings.plans.as_mut().expect("plans are executed");
        plans.sessions.start = macp_plan::session::StartPolicy::Auto;
    })
    .await;
    let plan = world.plan(&["/a"]).await;
    commit(&world, "auto", &plan).await;
    world.target.wait_for(1).await;
    let started = world.try_start(of_session("auto")).await.expect("the same run");
    assert!(started.existing);
    world.finished(&started.run_id).await;
    assert_eq!(world.target.asked(), ["/a"]);
    world.shut_down().await;
}

#[tokio::test]
async fn a_retry_that_was_not_reported_is_reported_when_it_is_asked_for_again() {
    let (sessions, runs): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let target = Target::start().await;
    // Nothing is reported here.
    let world = World::on(Arc::clone(&sessions), Arc::clone(&runs), target.clone(), |settings| {
        settings.plans.as_mut().expect("plans are executed").sessions.execution.enabled = false;
    })
    .await;
    commit(&world, "decided", &world.plan(&["/a"]).await).await;
    let first = world.try_start(of_session("decided")).await.expect("a run").run_id;
    world.finished(&first).await;
    let retry = StartRunRequest { request_id: "again".to_owned(), from_step_id: "s1".to_owned(), ..retry_of(&first) };
    let started = world.try_start(retry.clone()).await.expect("a run");
    assert!(!started.existing);
    world.finished(&started.run_id).await;
    let calls = target.asked();
    world.shut_down().await;

    let report = execution_session_id(&started.run_id);
    assert!(sessions.head(&report).expect("readable").is_none(), "nothing was reported");
    let world = World::on(sessions, runs, target.clone(), |_| ()).await;
    for _ in 0..2 {
        let again = world.try_start(retry.clone()).await.expect("the same run");
        assert_eq!((again.existing, &again.run_id), (true, &started.run_id));
        let state = ended(&world, &report).await;
        assert!(matches!(state, SessionState::Resolved | SessionState::Unspecified), "{state:?}");
    }
    assert_eq!(target.asked(), calls, "to report is not to call");
    world.shut_down().await;
}

#[tokio::test]
async fn aos_109_a_run_of_a_superseded_commitment_is_not_retried_and_not_replayed_in_full() {
    let sessions: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let target = Target::start().await;
    let world = World::on(Arc::clone(&sessions), Arc::new(MemoryStore::new()), target.clone(), |_| ()).await;
    commit(&world, "earlier", &world.plan(&["/a"]).await).await;
    let run_id = world.try_start(of_session("earlier")).await.expect("a run").run_id;
    world.finished(&run_id).await;
    let retry = || StartRunRequest { from_step_id: "s1".to_owned(), ..retry_of(&run_id) };
    let retried = world.try_start(retry()).await.expect("nothing has taken its place yet");
    world.finished(&retried.run_id).await;

    let commitment_hash = world.get(&run_id).await["session"]["commitment_hash"].clone();
    let instead = json!({"supersedes": {"session_id": "earlier", "commitment_hash": commitment_hash}});
    commit_with(&world, "later", &world.plan(&["/b"]).await, instead).await;
    let noted = async {
        while sessions.documents("aos.superseded", None, 1).expect("readable").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.expect("noted in time");
    let calls = target.asked();
    for request in [retry(), StartRunRequest { from_step_id: "s1".to_owned(), ..retry_of(&retried.run_id) }] {
        let status = refused(world.try_start(request).await, "PLAN_REFUSED");
        assert!(status.message().contains("superseded") && status.message().contains("later"), "{status:?}");
    }
    let replay = ReplayRequest { mode: ReplayMode::Full.into(), ..mock(&run_id) };
    refused(world.try_replay(replay).await, "PLAN_REFUSED");
    assert_eq!(target.asked(), calls);
    world.shut_down().await;
}
