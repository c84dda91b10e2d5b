//! Who may see and do what, where callers are known.

use std::sync::Arc;
use std::time::Duration;

use macp_auth::{Given, RoleRights};
use macp_edge::Settings;
use macp_ledger::{MemoryStore, Store};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::plan::v1::*;
use prost::Message;
use serde_json::{Value, json};
use tonic::{Code, Request, Response, Status};

use crate::common::*;
use crate::sessions::{of_session, send_as};
use crate::target::Target;

pub(crate) fn token(sender: &str) -> String {
    format!("token-of-{sender}-0123456789")
}

fn entry(sender: &str, more: Value) -> Value {
    let mut entry = json!({"token": token(sender), "sender": sender});
    for (name, value) in more.as_object().expect("an object") {
        entry[name] = value.clone();
    }
    entry
}

pub(crate) async fn guarded() -> World {
    guarded_with(|_| ()).await
}

pub(crate) async fn guarded_with(adjust: impl FnOnce(&mut Settings)) -> World {
    let (sessions, runs) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    guarded_on(sessions, runs, Target::start().await, adjust).await
}

pub(crate) async fn guarded_on(
    sessions: Arc<dyn Store>,
    runs: Arc<dyn Store>,
    target: Target,
    adjust: impl FnOnce(&mut Settings),
) -> World {
    let tokens = json!([
        entry("alice", json!({})),
        entry("bob", json!({})),
        entry("carol", json!({})),
        entry("olga", json!({"is_observer": true})),
        entry("cora", json!({"roles": ["operator"]})),
        entry("rita", json!({"roles": ["repeater"]})),
        entry("admin", json!({"can_manage_mode_registry": true})),
        entry("admin-2", json!({"can_manage_mode_registry": true})),
        entry("mute", json!({"can_start_sessions": false})),
        entry("macp-executor", json!({})),
    ]);
    let none = RoleRights::default();
    let roles = [
        ("operator".to_owned(), RoleRights { cancel: true, ..none }),
        ("repeater".to_owned(), RoleRights { repeat: true, ..none }),
    ];
    let given = Given { tokens_json: Some(tokens.to_string().into()), roles: roles.into(), ..Given::default() };
    World::on(sessions, runs, target, |settings| {
        settings.auth = given.settings().expect("settings that hold");
        adjust(settings);
    })
    .await
}

/// A plan of alice's.
pub(crate) async fn freeze(world: &World, paths: &[&str]) -> String {
    freeze_for(world, "alice", paths).await
}

/// The same, of another agent.
pub(crate) async fn freeze_for(world: &World, agent_id: &str, paths: &[&str]) -> String {
    let mut plan = world.authored(paths);
    plan["agent_id"] = json!(agent_id);
    let request = ValidatePlanRequest { plan_json: plan.to_string(), keep: false };
    let found = world.plans.clone().validate_plan(as_caller(&token("alice"), request)).await.expect("an answer");
    found.into_inner().frozen_plan_json
}

pub(crate) async fn start(world: &World, sender: &str, request: StartRunRequest) -> Result<String, Status> {
    let started = world.plans.clone().start_run(as_caller(&token(sender), request)).await?;
    Ok(started.into_inner().run_id)
}

pub(crate) async fn end(world: &World, sender: &str, run_id: &str) {
    let request = WatchRunRequest { run_id: run_id.to_owned(), from_seq: 0 };
    let mut stream =
        world.plans.clone().watch_run(as_caller(&token(sender), request)).await.expect("hers").into_inner();
    while let Some(message) = next(&mut stream).await {
        message.expect("entries");
    }
}

/// A classic session in which alice and others commit to a plan of hers.
pub(crate) async fn commit(world: &World, session_id: &str, participants: &[&str]) {
    commit_for(world, session_id, participants, "alice").await;
}

/// The same, to a plan of any agent's.
async fn commit_for(world: &World, session_id: &str, participants: &[&str], agent_id: &str) {
    let plan = freeze_for(world, agent_id, &["/a"]).await;
    let start_payload = SessionStartPayload {
        ttl_ms: 60_000,
        participants: participants.iter().map(|&participant| participant.to_owned()).collect(),
        context: json!({"aos.plan.v1": parse(&plan)}).to_string().into_bytes().into(),
        ..SessionStartPayload::default()
    };
    let hash = macp_plan_core::plan::FrozenPlan::parse(plan.as_bytes()).expect("a plan").hash;
    for (message_type, payload) in [
        ("SessionStart", start_payload.encode_to_vec()),
        ("Proposal", json!({"proposal_id": "p", "option": "run it"}).to_string().into_bytes()),
        ("Vote", json!({"proposal_id": "p", "vote": "approve"}).to_string().into_bytes()),
        ("Commitment", json!({"commitment_id": format!("aos-plan:{hash}"), "action": "go"}).to_string().into_bytes()),
    ] {
        send_as(world, Some(&token("alice")), session_id, message_type, payload).await;
    }
}

pub(crate) async fn listed(world: &World, sender: &str) -> usize {
    let request = as_caller(&token(sender), ListRunsRequest::default());
    world.plans.clone().list_runs(request).await.expect("a page").into_inner().runs.len()
}

fn forbidden<T>(answer: Result<Response<T>, Status>) {
    let status = answer.err().expect("a refusal");
    assert_eq!((status.code(), code(&status)), (Code::PermissionDenied, "FORBIDDEN"), "{status:?}");
}

/// As if there were no such run, to the letter: whoever may not see one does not learn that it exists.
async fn unheard_of<T>(run_id: &str, ask: impl AsyncFn(String) -> Result<Response<T>, Status>) {
    let missing = "r-nowhere";
    let existing = ask(run_id.to_owned()).await.err().expect("a refusal");
    let absent = ask(missing.to_owned()).await.err().expect("a refusal");
    assert_eq!((existing.code(), code(&existing)), (Code::NotFound, "RUN_NOT_FOUND"), "{existing:?}");
    assert_eq!((absent.code(), code(&absent)), (existing.code(), code(&existing)));
    assert_eq!(existing.message().replace(run_id, missing), absent.message());
}

#[tokio::test]
async fn a_call_without_a_credential_is_refused() {
    let world = guarded().await;
    let mut client = world.plans.clone();
    let run_id = || "r".to_owned();
    let none: [ImportRunRequest; 0] = [];
    for status in [
        client.validate_plan(ValidatePlanRequest::default()).await.err(),
        client.dry_run(DryRunRequest::default()).await.err(),
        client.start_run(StartRunRequest::default()).await.err(),
        client.get_run(GetRunRequest { run_id: run_id() }).await.err(),
        client.list_runs(ListRunsRequest::default()).await.err(),
        client.watch_run(WatchRunRequest { run_id: run_id(), from_seq: 0 }).await.err(),
        client.cancel_run(CancelRunRequest { run_id: run_id(), ..Default::default() }).await.err(),
        client.resolve_in_doubt(ResolveInDoubtRequest { run_id: run_id(), ..Default::default() }).await.err(),
        client.replay(mock("r")).await.err(),
        client.query(QueryRequest { run_id: run_id(), ..Default::default() }).await.err(),
        client.list_skills(ListSkillsRequest {}).await.err(),
        client.describe_skill(DescribeSkillRequest::default()).await.err(),
        client.export_run(ExportRunRequest { run_id: run_id() }).await.err(),
        client.import_run(tokio_stream::iter(none)).await.err(),
        client.list_skills(as_caller("unknown", ListSkillsRequest {})).await.err(),
    ] {
        let status = status.expect("a refusal");
        assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"), "{status:?}");
    }
    world.shut_down().await;
}

#[tokio::test]
async fn a_run_is_seen_by_its_starter_by_observers_and_by_who_may_act_on_it() {
    let world = guarded().await;
    let run_id = start(&world, "alice", of_plan(freeze(&world, &["/a"]).await)).await.expect("a run");
    end(&world, "alice", &run_id).await;
    for sender in ["alice", "olga", "cora"] {
        let request = as_caller(&token(sender), GetRunRequest { run_id: run_id.clone() });
        let summary =
            world.plans.clone().get_run(request).await.expect("seen").into_inner().summary.expect("a summary");
        assert_eq!(summary.started_by, "alice");
        assert_eq!(listed(&world, sender).await, 1);
    }
    assert_eq!(listed(&world, "bob").await, 0);
    let (bob, plan_json) = (token("bob"), freeze(&world, &["/a"]).await);
    let (client, bob, plan_json) = (|| world.plans.clone(), &bob, &plan_json);
    unheard_of(&run_id, async |run_id| client().get_run(as_caller(bob, GetRunRequest { run_id })).await).await;
    let watch = async |run_id| client().watch_run(as_caller(bob, WatchRunRequest { run_id, from_seq: 0 })).await;
    unheard_of(&run_id, watch).await;
    unheard_of(&run_id, async |run_id| client().export_run(as_caller(bob, ExportRunRequest { run_id })).await).await;
    unheard_of(&run_id, async |run_id: String| client().replay(as_caller(bob, mock(&run_id))).await).await;
    let query =
        async |run_id| client().query(as_caller(bob, QueryRequest { run_id, question: 1, as_of_seq: None })).await;
    unheard_of(&run_id, query).await;
    let dry_run = async |against_run_id| {
        client().dry_run(as_caller(bob, DryRunRequest { plan_json: plan_json.clone(), against_run_id })).await
    };
    unheard_of(&run_id, dry_run).await;
    world.shut_down().await;
}

#[tokio::test]
async fn a_run_is_acted_on_by_its_starter_and_by_a_role() {
    let world = guarded().await;
    let run_id = start(&world, "alice", of_plan(freeze(&world, &["/gate", "/b"]).await)).await.expect("a run");
    world.target.wait_for(1).await;
    let cancel = |sender: &str| {
        as_caller(&token(sender), CancelRunRequest { run_id: run_id.clone(), reason: "stop".to_owned() })
    };
    for sender in ["bob", "rita", "admin"] {
        let sender_token = token(sender);
        let caller = &sender_token;
        let cancel = async |run_id| {
            let request = CancelRunRequest { run_id, reason: "stop".to_owned() };
            world.plans.clone().cancel_run(as_caller(caller, request)).await
        };
        unheard_of(&run_id, cancel).await;
        let retry = async |run_id: String| start(&world, sender, retry_of(&run_id)).await.map(Response::new);
        unheard_of(&run_id, retry).await;
        let resolve = async |run_id| {
            let request = ResolveInDoubtRequest { run_id, outcome: 1, ..Default::default() };
            world.plans.clone().resolve_in_doubt(as_caller(caller, request)).await
        };
        unheard_of(&run_id, resolve).await;
    }
    // To look is not to act.
    forbidden(world.plans.clone().cancel_run(cancel("olga")).await);
    forbidden(start(&world, "olga", retry_of(&run_id)).await.map(Response::new));
    let resolve = ResolveInDoubtRequest { run_id: run_id.clone(), outcome: 1, ..Default::default() };
    forbidden(world.plans.clone().resolve_in_doubt(as_caller(&token("olga"), resolve)).await);
    let full = ReplayRequest { mode: ReplayMode::Full.into(), ..mock(&run_id) };
    forbidden(world.plans.clone().replay(as_caller(&token("olga"), full)).await);
    world.plans.clone().cancel_run(cancel("cora")).await.expect("may");
    world.target.open_gate();
    end(&world, "alice", &run_id).await;
    assert_eq!(world.target.asked(), ["/gate"]);
    world.shut_down().await;
}

#[tokio::test]
async fn effects_are_repeated_only_with_a_right_to() {
    let world = guarded().await;
    let second = async |sender: &str| {
        let plan = freeze_for(&world, sender, &["/a"]).await;
        start(&world, sender, StartRunRequest { epoch: 2, ..of_plan(plan) }).await
    };
    for sender in ["alice", "cora", "olga", "admin"] {
        forbidden(second(sender).await.map(Response::new));
    }
    let run_id = second("rita").await.expect("may");
    end(&world, "rita", &run_id).await;
    let request = as_caller(&token("rita"), GetRunRequest { run_id });
    assert_eq!(world.plans.clone().get_run(request).await.expect("hers").into_inner().summary.expect("one").epoch, 2);
    let plan = freeze_for(&world, "mute", &["/a"]).await;
    forbidden(start(&world, "mute", of_plan(plan)).await.map(Response::new));
    world.shut_down().await;
}

#[tokio::test]
async fn steps_are_allowed_in_a_full_replay_only_with_a_right_to_repeat() {
    let world = guarded().await;
    for (sender, may) in [("alice", false), ("rita", true)] {
        let plan = freeze_for(&world, sender, &["/a"]).await;
        let run_id = start(&world, sender, of_plan(plan)).await.expect("a run");
        end(&world, sender, &run_id).await;
        let full = ReplayRequest { mode: ReplayMode::Full.into(), ..mock(&run_id) };
        let allowing = ReplayRequest { allow_step_ids: vec!["s1".to_owned()], ..full.clone() };
        let before = world.target.asked().len();
        match world.plans.clone().replay(as_caller(&token(sender), allowing)).await {
            Ok(answer) if may => {
                let mut stream = answer.into_inner();
                while let Some(message) = next(&mut stream).await {
                    message.expect("progress or the report");
                }
            }
            answer => {
                forbidden(answer);
                assert_eq!(world.target.asked().len(), before, "nothing is called");
            }
        }
        // What repeats no effects is the starter's right as before.
        world.plans.clone().replay(as_caller(&token(sender), full)).await.expect("hers");
    }
    world.shut_down().await;
}

#[tokio::test]
async fn a_plan_is_started_by_its_agent_or_by_an_operator() {
    let world = guarded().await;
    let plan = freeze(&world, &["/a"]).await;
    for sender in ["bob", "olga", "rita", "admin"] {
        let status = refused(start(&world, sender, of_plan(plan.clone())).await, "FORBIDDEN");
        assert!(status.message().contains("alice") && status.message().contains(sender), "{status:?}");
    }
    assert!(world.target.asked().is_empty());
    for sender in ["alice", "cora"] {
        let run_id = start(&world, sender, of_plan(plan.clone())).await.expect("may");
        end(&world, sender, &run_id).await;
    }
    world.shut_down().await;
}

/// Budgets and limits count by agent: a session neither spends another agent's nor escapes them under a new name.
#[tokio::test]
async fn a_committed_plan_names_an_agent_of_its_session() {
    let world = guarded().await;
    for (session_id, agent_id) in [("other", "carol"), ("invented", "alice-2")] {
        commit_for(&world, session_id, &["alice", "bob"], agent_id).await;
        let status = refused(start(&world, "alice", of_session(session_id)).await, "POLICY_DENIED");
        assert!(status.message().contains("agent_not_in_session"), "{status:?}");
    }
    assert!(world.target.asked().is_empty());
    commit_for(&world, "bob-s", &["alice", "bob"], "bob").await;
    let run_id = start(&world, "alice", of_session("bob-s")).await.expect("bob takes part");
    end(&world, "alice", &run_id).await;
    world.shut_down().await;
}

/// Local development does not authenticate callers, so names are not checked.
#[tokio::test]
async fn in_local_development_a_committed_plan_names_any_agent() {
    let world = World::start().await;
    let mut plan = world.authored(&["/a"]);
    plan["agent_id"] = json!("some-agent");
    crate::sessions::commit(&world, "s", &world.freeze(&plan).await).await;
    world.try_start(of_session("s")).await.expect("started");
    world.shut_down().await;
}

#[tokio::test]
async fn to_have_plans_checked_takes_a_share_of_the_rate() {
    let world = World::with(|settings| settings.message_limit_per_minute = Some(2)).await;
    let plan_json = world.plan(&["/a"]).await;
    let validate = async |sender: &str| {
        let request = ValidatePlanRequest { plan_json: plan_json.clone(), keep: false };
        world.plans.clone().validate_plan(as_caller(sender, request)).await
    };
    let dry_run = async |sender: &str| {
        let request = DryRunRequest { plan_json: plan_json.clone(), against_run_id: String::new() };
        world.plans.clone().dry_run(as_caller(sender, request)).await
    };
    validate("alice").await.expect("the first");
    dry_run("alice").await.expect("the second");
    refused(validate("alice").await, "RATE_LIMITED");
    refused(dry_run("alice").await, "RATE_LIMITED");
    validate("bob").await.expect("his own share");
    world.shut_down().await;
}

#[tokio::test]
async fn runs_of_elsewhere_are_brought_by_administrators() {
    let world = guarded().await;
    let import = |sender: &str| {
        let mut request = Request::new(tokio_stream::iter([ImportRunRequest { chunk: "x".into() }]));
        request.metadata_mut().insert("authorization", format!("Bearer {}", token(sender)).parse().expect("ASCII"));
        request
    };
    for sender in ["alice", "olga", "cora"] {
        forbidden(world.plans.clone().import_run(import(sender)).await);
    }
    refused(world.plans.clone().import_run(import("admin")).await, "INVALID_REQUEST");
    world.shut_down().await;
}

#[tokio::test]
async fn nobody_speaks_under_the_name_of_the_executor() {
    let world = guarded().await;
    let request = as_caller(&token("macp-executor"), ListSkillsRequest {});
    refused(world.plans.clone().list_skills(request).await, "UNAUTHENTICATED");
    let request = as_caller(&token("macp-executor"), macp_wire::v1::ListSessionsRequest::default());
    refused(world.runtime.clone().list_sessions(request).await, "UNAUTHENTICATED");
    world.shut_down().await;
}

#[tokio::test]
async fn a_run_of_a_session_is_seen_by_those_who_may_read_the_session() {
    let world = guarded().await;
    commit(&world, "s", &["alice", "bob"]).await;
    forbidden(start(&world, "carol", of_session("s")).await.map(Response::new));
    // An observer reads the session, and takes no part in it.
    forbidden(start(&world, "olga", of_session("s")).await.map(Response::new));
    let run_id = start(&world, "bob", of_session("s")).await.expect("takes part");
    assert_eq!(start(&world, "alice", of_session("s")).await.expect("takes part"), run_id);
    end(&world, "bob", &run_id).await;
    let get = |sender: &str| as_caller(&token(sender), GetRunRequest { run_id: run_id.clone() });
    for (sender, seen) in [("alice", true), ("bob", true), ("olga", true), ("cora", true), ("carol", false)] {
        assert_eq!(listed(&world, sender).await, usize::from(seen), "{sender}");
        match world.plans.clone().get_run(get(sender)).await {
            Ok(_) if seen => {}
            answer => drop(refused(answer, "RUN_NOT_FOUND")),
        }
    }
    // So is the session in which it is reported.
    let report = async |sender: &str| {
        let session_id = macp_plan::session::execution_session_id(&run_id);
        let request = as_caller(&token(sender), macp_wire::v1::GetSessionRequest { session_id });
        world.runtime.clone().get_session(request).await
    };
    let reported = async {
        while report("alice").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reported).await.expect("the coordinator reads the report");
    report("bob").await.expect("he took part in the decision");
    report("carol").await.expect_err("she did not");
    // Alice may look, but the run is bob's.
    let retry = StartRunRequest { from_step_id: "s1".to_owned(), ..retry_of(&run_id) };
    forbidden(start(&world, "alice", retry.clone()).await.map(Response::new));
    start(&world, "bob", retry).await.expect("his own");
    let again = StartRunRequest { epoch: 2, reason: "once more".to_owned(), ..of_session("s") };
    forbidden(start(&world, "bob", again).await.map(Response::new));
    world.shut_down().await;
}
