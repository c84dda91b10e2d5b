//! The real `http_call` against a server on this machine that misbehaves: codes, retries and costs as specified.

use std::sync::Arc;

use macp_plan::egress;
use macp_plan::registry;
use macp_plan::skills::{SkillSettings, TrustSettings};
use macp_plan::store::Status;
use macp_plan_core::cost::CostBasis;
use macp_plan_core::freeze::{FreezeOptions, freeze};
use serde_json::{Value, json};

use super::server::{Reply, Server, answer, json_answer};
use super::world::{World, ended, step_of};

/// Loopback is allowed, by http.
pub(crate) fn settings() -> SkillSettings {
    let egress = egress::Settings {
        allow_networks: vec!["127.0.0.0/8".to_owned()],
        allow_http: true,
        ..egress::Settings::default()
    };
    let trust = TrustSettings { system_roots: false, roots_pem: Vec::new() };
    SkillSettings { egress, trust, ..SkillSettings::default() }
}

/// A world with the skills that come with the runtime.
pub(crate) fn standard(settings: &SkillSettings) -> World {
    let mut world = World::sqlite();
    world.registry = Arc::new(registry::standard(settings).unwrap());
    world
}

/// Freezes steps as an author writes them.
pub(crate) fn authored(world: &World, steps: Value) -> Value {
    let skills = ["http_call", "json_transform", "llm_invoke"];
    let value = json!({
        "plan_id": "p-http", "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent-http", "goal": "be answered",
        "steps": steps, "context": {"budget_cents": 100, "allowed_skills": skills},
        "default_retry_policy": {"max_retries": 2, "backoff_base_ms": 1, "retryable_codes":
            ["ERR_CONNECTION_REFUSED", "ERR_HTTP_429", "ERR_HTTP_503", "ERR_HTTP_TIMEOUT"]},
    });
    freeze(&value, &*world.registry, &FreezeOptions::default()).unwrap_or_else(|found| panic!("{found:#?}")).value
}

fn get(server: &Server, step_id: &str) -> Value {
    json!({"step_id": step_id, "skill_id": "http_call", "skill_version": "1.2.0",
        "parameters": {"url": server.url("/"), "expect_json": true, "timeout_ms": 300}})
}

fn ok() -> Reply {
    Reply::Bytes(json_answer(200, &json!({"fine": true})))
}

/// Replies in turn, then the code, the number of requests and the basis of the first charge.
async fn check(replies: Vec<Reply>, code: &str, requests: usize, basis: CostBasis) {
    let server = Server::start(replies).await;
    let world = standard(&settings());
    let result = world.run(authored(&world, json!([get(&server, "s1")]))).await;
    let step = step_of(&result, "s1");
    assert_eq!(step.final_code, code, "{:?}", step.outcome.message);
    assert_eq!((step.retry_count as usize + 1, server.requests().len()), (requests, requests), "{code}");
    assert_eq!((step.attempts[0].cost_basis, result.total_cost_microcents), (basis, 0));
    assert_eq!(step.outcome.side_effects.len(), requests);
    assert_eq!(step.outcome.side_effects[0].target, server.address.to_string());
    assert_eq!(result.status, if code.starts_with("OK") { Status::Succeeded } else { Status::Failed });
}

/// AOS-115: nobody asks a transformation to wait, so that a session may commit to as many as a plan can have.
#[tokio::test]
async fn the_worst_case_of_transformations_fits_into_a_session() {
    const LONGEST_SESSION_MS: u64 = 24 * 60 * 60 * 1_000;
    let world = standard(&settings());
    let transform = |at: usize| {
        json!({"step_id": format!("s{at}"), "skill_id": "json_transform", "skill_version": "2.0.0",
            "parameters": {"input": at, "expression": "@"}})
    };
    let value = json!({
        "plan_id": "p", "created_at": "2026-03-01T09:00:00Z", "agent_id": "a", "goal": "be short",
        "steps": (0..256).map(transform).collect::<Vec<_>>(),
        "context": {"budget_cents": 100, "allowed_skills": ["json_transform"]},
    });
    let plan = freeze(&value, &*world.registry, &FreezeOptions::default()).unwrap();
    let estimate = world.executor().dry_run(&Arc::new(plan)).unwrap();
    assert!(estimate.duration_ms_max < LONGEST_SESSION_MS, "{}", estimate.duration_ms_max);
}

#[tokio::test]
async fn a_server_that_misbehaves() {
    let unavailable = || Reply::Bytes(answer(503, &[], ""));
    check(vec![ok()], "OK_HTTP_CALL", 1, CostBasis::Flat).await;
    check(vec![unavailable(), unavailable(), ok()], "OK_HTTP_CALL", 3, CostBasis::Flat).await;
    check(vec![unavailable()], "ERR_HTTP_503", 3, CostBasis::Flat).await;
    check(vec![Reply::ThenHang(Vec::new()), ok()], "OK_HTTP_CALL", 2, CostBasis::Flat).await;
    check(vec![Reply::ThenHang(Vec::new())], "ERR_HTTP_TIMEOUT", 3, CostBasis::Flat).await;
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    check(vec![Reply::ThenHang(half.clone())], "ERR_HTTP_TIMEOUT", 3, CostBasis::Flat).await;
    check(vec![Reply::ThenReset(half.clone())], "ERR_CONNECTION_REFUSED", 3, CostBasis::Flat).await;
    check(vec![Reply::Bytes(half)], "ERR_CONNECTION_REFUSED", 3, CostBasis::Flat).await;
    let wrong = answer(200, &[("content-type", "application/json")], "{\"not\": json");
    check(vec![Reply::Bytes(wrong)], "ERR_DESERIALIZATION_FAILED", 1, CostBasis::Flat).await;
    check(vec![Reply::Bytes(b"NOT HTTP AT ALL\r\n\r\n".to_vec())], "ERR_UNKNOWN", 1, CostBasis::Flat).await;
    check(vec![Reply::Bytes(answer(404, &[], ""))], "ERR_HTTP_404", 1, CostBasis::Flat).await;
    let hinted = answer(429, &[("retry-after", "0")], "");
    check(vec![Reply::Bytes(hinted), ok()], "OK_HTTP_CALL", 2, CostBasis::Flat).await;
}

/// A port nobody listens on proves that nothing was used.
#[tokio::test]
async fn nobody_listens() {
    let server = Server::answering(answer(200, &[], "")).await;
    let step = get(&server, "s1");
    let address = server.address;
    drop(server);
    // The port is free once the server's task has ended.
    while std::net::TcpStream::connect(address).is_ok() {
        tokio::task::yield_now().await;
    }
    let world = standard(&settings());
    let result = world.run(authored(&world, json!([step]))).await;
    let step = step_of(&result, "s1");
    assert_eq!((step.final_code.as_str(), step.retry_count), ("ERR_CONNECTION_REFUSED", 2));
    assert!(step.attempts.iter().all(|attempt| attempt.cost_basis == CostBasis::None));
    assert_eq!(step.outcome.details["connection_fault"], "refused");
}

/// Redirects are followed, hop by hop within one dispatch; a host that is not allowed stays unreached.
#[tokio::test]
async fn redirects() {
    let target = Server::start(vec![ok()]).await;
    let to = |url: &str| Reply::Bytes(answer(302, &[("location", url)], ""));
    let server = Server::start(vec![to(&target.url("/there"))]).await;
    let world = standard(&settings());
    let result = world.run(authored(&world, json!([get(&server, "s1")]))).await;
    let step = step_of(&result, "s1");
    assert_eq!((step.final_code.as_str(), step.outcome.side_effects.len()), ("OK_HTTP_CALL", 1));
    assert_eq!(target.only_request().line(), "GET /there HTTP/1.1");

    let circle = Server::start(vec![Reply::Bytes(answer(302, &[("location", "/again")], ""))]).await;
    let world = standard(&settings());
    let result = world.run(authored(&world, json!([get(&circle, "s1")]))).await;
    assert_eq!((step_of(&result, "s1").final_code.as_str(), circle.requests().len()), ("ERR_HTTP_4XX", 6));

    let away = Server::start(vec![to("http://10.1.2.3/")]).await;
    let world = standard(&settings());
    let mut stubborn = get(&away, "s1");
    stubborn["on_error"] = json!("continue");
    let result = world.run(authored(&world, json!([stubborn, get(&target, "s2")]))).await;
    assert_eq!(step_of(&result, "s1").final_code, "ERR_POLICY_VIOLATION");
    assert_eq!(result.not_reached, ["s2"], "it stops the run whatever the step says (AOS-34)");
}

/// AOS-75, AOS-76: every attempt of an effect carries the same key, and the answer flows on to the next step.
#[tokio::test]
async fn keys_and_references() {
    let server =
        Server::start(vec![Reply::Bytes(answer(503, &[], "")), Reply::Bytes(json_answer(201, &json!({"id": 4711})))])
            .await;
    let world = standard(&settings());
    let steps = json!([
        {"step_id": "post", "skill_id": "http_call", "skill_version": "1.2.0", "parameters": {
            "url": server.url("/orders"), "method": "POST", "target_dedupes": true, "body": {"n": 1}}},
        {"step_id": "pick", "skill_id": "json_transform", "skill_version": "2.0.0",
            "parameters": {"input": "{{post.body}}", "expression": "id"}},
    ]);
    let executor = world.executor();
    let run_id = super::world::begin(&executor, authored(&world, steps)).await;
    let result = ended(&executor, &run_id).await;
    assert_eq!(result.status, Status::Succeeded, "{:?}", super::world::codes(&result));
    assert_eq!(step_of(&result, "pick").outcome.details["output"]["result"], 4711);
    let keys: Vec<_> =
        server.requests().iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect();
    let recorded = &step_of(&result, "post").outcome.side_effects[0].effect_key;
    assert_eq!((keys.len(), &keys[0], &keys[0]), (2, &keys[1], recorded));
}
