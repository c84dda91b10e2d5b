//! Whatever arrives, every call answers with a code, and the server answers the next one.

use bytes::Bytes;
use macp_wire::plan::v1::start_run_request::Source;
use macp_wire::plan::v1::*;
use tonic::Code;

use crate::common::*;

fn garbage() -> Vec<String> {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let texts = ["", "nonsense", "{", "null", "[]", "0", "\"\"", "{}", "{\"a\":1,\"a\":2}", "{\"steps\":7}", "\u{0}"];
    let mut garbage: Vec<String> = texts.map(str::to_owned).into();
    garbage.push(deep);
    garbage.push(format!("{{\"plan_id\":\"{}\"}}", "x".repeat(600_000)));
    garbage.push(r#"{"plan_id":1e400,"steps":[{"step_id":-1}],"context":{"budget_cents":-5}}"#.to_owned());
    garbage.push(
        r#"{"plan_id":"p","agent_id":"a","goal":"g","steps":[],"context":{"budget_cents":99999999999999999999}}"#
            .to_owned(),
    );
    garbage
}

fn ids() -> Vec<String> {
    vec![String::new(), "nowhere".to_owned(), "\u{0}\u{7f}é".to_owned(), "x".repeat(1_000_000), "../../etc".to_owned()]
}

#[tokio::test]
async fn garbage_for_plans() {
    let world = World::start().await;
    for plan_json in garbage() {
        let shown: String = plan_json.chars().take(60).collect();
        let mut client = world.plans.clone();
        let found = client.validate_plan(ValidatePlanRequest { plan_json: plan_json.clone(), keep: false }).await;
        let found = found.unwrap_or_else(|status| panic!("{shown}: {status:?}")).into_inner();
        assert!(!found.valid && !found.findings.is_empty(), "{shown}");
        let dry = client.dry_run(DryRunRequest { plan_json: plan_json.clone(), against_run_id: String::new() }).await;
        assert_eq!(refused(dry, "PLAN_INVALID").code(), Code::InvalidArgument, "{shown}");
        refused(world.try_start(of_plan(plan_json)).await, "PLAN_INVALID");
    }
    let huge = of_plan("x".repeat(5 * 1024 * 1024));
    let status = refused(world.try_start(huge).await, "PAYLOAD_TOO_LARGE");
    assert_eq!(status.code(), Code::ResourceExhausted);
    world.run_to_end(&["/a"]).await;
    world.shut_down().await;
}

#[tokio::test]
async fn unknown_runs() {
    let world = World::start().await;
    for run_id in ids() {
        let mut client = world.plans.clone();
        let not_found = |status: tonic::Status| {
            assert_eq!((status.code(), code(&status)), (Code::NotFound, "RUN_NOT_FOUND"), "{status:?}");
        };
        let id = || run_id.clone();
        not_found(client.get_run(GetRunRequest { run_id: id() }).await.expect_err("no run"));
        not_found(client.watch_run(WatchRunRequest { run_id: id(), from_seq: 0 }).await.expect_err("no run"));
        not_found(
            client.cancel_run(CancelRunRequest { run_id: id(), ..Default::default() }).await.expect_err("no run"),
        );
        let resolve = ResolveInDoubtRequest { run_id: id(), outcome: 1, ..Default::default() };
        not_found(client.resolve_in_doubt(resolve).await.expect_err("no run"));
        not_found(client.replay(mock(&run_id)).await.expect_err("no run"));
        not_found(client.replay(ReplayRequest { mode: 2, ..mock(&run_id) }).await.expect_err("no run"));
        let query = QueryRequest { run_id: id(), question: Question::WhyStopped.into(), as_of_seq: None };
        not_found(client.query(query).await.expect_err("no run"));
        not_found(client.export_run(ExportRunRequest { run_id: id() }).await.expect_err("no run"));
        not_found(world.try_start(retry_of(&run_id)).await.expect_err("no run"));
        let skill = DescribeSkillRequest { skill_id: id(), version: id() };
        refused(client.describe_skill(skill).await, "SKILL_NOT_FOUND");
        let session = StartRunRequest { source: Some(Source::SessionId(id())), ..StartRunRequest::default() };
        refused(world.try_start(session).await, "SESSION_NOT_FOUND");
        let listed =
            client.list_runs(ListRunsRequest { session_id: id(), of_run_id: id(), ..Default::default() }).await;
        assert_eq!(listed.expect("a page").into_inner().runs, []);
    }
    world.shut_down().await;
}

#[tokio::test]
async fn requests_that_contradict_themselves() {
    let world = World::start().await;
    let run_id = world.run_to_end(&["/a"]).await;
    let plan = world.plan(&["/a"]).await;
    for request in [
        StartRunRequest::default(),
        StartRunRequest { from_step_id: "s1".to_owned(), ..of_plan(plan.clone()) },
        StartRunRequest { request_id: "x".repeat(10_000), ..of_plan(plan.clone()) },
        StartRunRequest { reason: "x".repeat(10_000), ..of_plan(plan.clone()) },
        StartRunRequest { epoch: 1 << 53, ..of_plan(plan.clone()) },
        StartRunRequest { epoch: u64::MAX, source: Some(Source::SessionId("s".to_owned())), ..Default::default() },
        StartRunRequest { deadline_ms: 1 << 53, ..of_plan(plan.clone()) },
        StartRunRequest { deadline_ms: u64::MAX, ..retry_of(&run_id) },
        StartRunRequest { epoch: 2, ..retry_of(&run_id) },
        StartRunRequest { deadline_ms: 5, source: Some(Source::SessionId("s".to_owned())), ..Default::default() },
    ] {
        refused(world.try_start(request).await, "INVALID_REQUEST");
    }
    let mut client = world.plans.clone();
    let cancel = CancelRunRequest { run_id: run_id.clone(), reason: "x".repeat(1_000_000) };
    refused(client.cancel_run(cancel).await, "INVALID_REQUEST");
    for question in [0, 99, -1] {
        let query = QueryRequest { run_id: run_id.clone(), question, as_of_seq: Some(u64::MAX) };
        refused(client.query(query).await, "INVALID_REQUEST");
    }
    let query = QueryRequest { run_id: run_id.clone(), question: 1, as_of_seq: Some(u64::MAX) };
    refused(client.query(query).await, "INVALID_REQUEST");
    let resolve = ResolveInDoubtRequest {
        run_id: run_id.clone(),
        step_id: "x".repeat(500_000),
        outcome: 1,
        note: "asked them".to_owned(),
    };
    refused(client.resolve_in_doubt(resolve.clone()).await, "RUN_CONFLICT");
    let silent = ResolveInDoubtRequest { note: " ".to_owned(), ..resolve };
    refused(client.resolve_in_doubt(silent).await, "INVALID_REQUEST");
    let none: [ImportRunRequest; 0] = [];
    refused(client.import_run(tokio_stream::iter(none)).await, "INVALID_REQUEST");
    let huge = ImportRunRequest { chunk: Bytes::from(vec![0; 5 * 1024 * 1024]) };
    refused(client.import_run(tokio_stream::iter([huge])).await, "PAYLOAD_TOO_LARGE");
    assert_eq!(world.get(&run_id).await["status"], "succeeded");
    world.shut_down().await;
}
