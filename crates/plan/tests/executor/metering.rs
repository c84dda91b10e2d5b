//! Prices per KiB (AOS-54): what a call moved is what it costs, and what it can move at most is what is reserved.

use std::sync::Arc;

use macp_plan::registry;
use macp_plan::result::RunResult;
use macp_plan::skills::SkillSettings;
use macp_plan::store::Status;
use macp_plan_core::cost::CostBasis;
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::journal::Body;
use serde_json::{Value, json};

use super::http::settings;
use super::server::{Reply, Server, answer, json_answer};
use super::world::{World, begin, ended, step_of};

/// Microcents for a KiB of a call.
const PER_KIB: u64 = 100;
/// The most that can come back, in KiB.
const ANSWER_KIB: u64 = 10 * 1_024;

/// A world whose card has the given price for `http_call`.
fn world(http_call: Value) -> World {
    let skills = json!({"http_call@1.2.0": http_call, "json_transform@2.0.0": {"per_kib": 7}});
    let card = json!({"id": "rc-metered", "currency": "USD", "skills": skills});
    let settings = SkillSettings { rate_cards: vec![card], ..settings() };
    let mut world = World::memory();
    world.registry = Arc::new(registry::standard(&settings).unwrap());
    world
}

fn frozen(world: &World, budget_cents: u64, steps: Value) -> Value {
    let value = json!({
        "plan_id": "p-metered", "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent", "goal": "be metered",
        "steps": steps, "context": {"budget_cents": budget_cents, "allowed_skills": ["http_call", "json_transform"]},
        "pins": {"rate_card": {"id": "rc-metered"}},
    });
    freeze(&value, &*world.registry, &FreezeOptions::default()).unwrap_or_else(|found| panic!("{found:#?}")).value
}

/// Runs steps, and gives the result with what was reserved for every one of them.
async fn run(world: &World, budget_cents: u64, steps: Value) -> (RunResult, Vec<u64>) {
    let executor = world.executor();
    let run_id = begin(&executor, frozen(world, budget_cents, steps)).await;
    let result = ended(&executor, &run_id).await;
    let run = executor.runs().load(&run_id).await.unwrap().unwrap();
    let required = run.bodies().filter_map(|body| match body {
        Body::BudgetChecked { required, .. } => Some(*required),
        _ => None,
    });
    (result, required.collect())
}

fn post(server: &Server, body: &str) -> Value {
    let parameters = json!({"url": server.url("/"), "method": "POST", "body_text": body});
    json!({"step_id": "s1", "skill_id": "http_call", "skill_version": "1.2.0", "parameters": parameters})
}

/// Request and answer together, in started KiB; a transformation pays for its input.
#[tokio::test]
async fn started_kibibytes_are_paid_for() {
    for (sent, answered, kib) in [(0, 0, 0), (1, 0, 1), (1_000, 24, 1), (1_000, 25, 2), (2_048, 1_024, 3)] {
        let server = Server::answering(answer(200, &[], &"y".repeat(answered))).await;
        let world = world(json!({"per_kib": PER_KIB}));
        let (result, required) = run(&world, 2, json!([post(&server, &"x".repeat(sent))])).await;
        let step = step_of(&result, "s1");
        assert_eq!(
            (result.status, step.outcome.cost_microcents),
            (Status::Succeeded, kib * PER_KIB),
            "{sent}, {answered}"
        );
        assert_eq!(step.attempts[0].cost_basis, CostBasis::Metered);
        let most = (sent as u64 + ANSWER_KIB * 1_024).div_ceil(1_024);
        assert_eq!(required, [most * PER_KIB]);
    }
    let server = Server::answering(json_answer(200, &json!({"list": "z".repeat(2_000)}))).await;
    let transform = json!({"step_id": "t", "skill_id": "json_transform", "skill_version": "2.0.0",
        "parameters": {"input": "{{s1.body}}", "expression": "length(list)"}});
    let (result, required) = run(&world(json!({"base": 5})), 2, json!([post(&server, ""), transform])).await;
    assert_eq!((step_of(&result, "t").outcome.cost_microcents, required), (2 * 7, vec![5, 2 * 7]));
}

/// AOS-57, AOS-61: what could come back is reserved before the call, and charged if nobody knows what did.
#[tokio::test]
async fn what_could_come_back_is_reserved() {
    let mut step = {
        let server = Server::answering(answer(200, &[], "")).await;
        post(&server, "x")
    };
    step["retry_policy"] = json!({"max_retries": 0});
    let dear = world(json!({"per_kib": 1_000}));
    let (result, _) = run(&dear, 10, json!([step])).await;
    assert_eq!(result.status, Status::BudgetExceeded, "10 MiB cost more than 10 cents");
    let server =
        Server::start(vec![Reply::ThenHang(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_vec())]).await;
    let mut step = post(&server, "x");
    step["parameters"]["timeout_ms"] = json!(200);
    step["retry_policy"] = json!({"max_retries": 0});
    let (result, required) = run(&dear, 11, json!([step])).await;
    let step = step_of(&result, "s1");
    assert_eq!(step.attempts[0].cost_basis, CostBasis::Reserved);
    assert_eq!(required, [step.outcome.cost_microcents]);
}

/// A card without a price per KiB costs what it cost.
#[tokio::test]
async fn without_a_price_bytes_are_free() {
    for (price, cost, basis) in
        [(json!({"base": 3}), 3, CostBasis::Flat), (json!({"per_request": 4}), 4, CostBasis::Metered)]
    {
        let server = Server::answering(answer(200, &[], "many bytes")).await;
        let (result, required) = run(&world(price), 1, json!([post(&server, "many more")])).await;
        let step = step_of(&result, "s1");
        assert_eq!((step.outcome.cost_microcents, step.attempts[0].cost_basis), (cost, basis));
        assert_eq!(required, [cost]);
    }
}

/// AOS-57, AOS-58: a call that was answered with a redirect used something, whatever keeps the next request from going
/// out. What never went out is still free.
#[tokio::test]
async fn an_answered_redirect_is_paid_for() {
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    };
    let sent = "x".repeat(1_500);
    for (status, location, code) in [
        (307, nobody.as_str(), "ERR_CONNECTION_REFUSED"),
        (307, "http://nowhere.invalid:1/", "ERR_POLICY_VIOLATION"),
        (303, nobody.as_str(), "ERR_UNKNOWN"),
    ] {
        let prices = [
            (json!({"base": 3}), 3, CostBasis::Flat),
            (json!({"base": 3, "per_request": 4}), 7, CostBasis::Metered),
            (json!({"per_kib": PER_KIB}), 2 * PER_KIB, CostBasis::Metered),
        ];
        for (price, cost, basis) in prices {
            let server = Server::answering(answer(status, &[("location", location)], "moved")).await;
            let mut step = post(&server, &sent);
            step["retry_policy"] = json!({"max_retries": 0});
            let (result, _) = run(&world(price), 2, json!([step])).await;
            let step = step_of(&result, "s1");
            let found = (step.outcome.code.as_str(), step.outcome.cost_microcents, step.attempts[0].cost_basis);
            assert_eq!(found, (code, cost, basis), "{status} {location}");
        }
    }
    let mut unheard = post(&Server::answering(answer(200, &[], "")).await, &sent);
    unheard["parameters"]["url"] = json!(nobody);
    unheard["retry_policy"] = json!({"max_retries": 0});
    let (result, _) = run(&world(json!({"base": 3})), 2, json!([unheard])).await;
    let step = step_of(&result, "s1");
    assert_eq!((step.outcome.cost_microcents, step.attempts[0].cost_basis), (0, CostBasis::None));
}

/// AOS-58: redirects without end were answered, every one, and nothing more can have been used.
#[tokio::test]
async fn a_loop_of_redirects_costs_what_it_used() {
    let server = Server::answering(answer(302, &[("location", "/again")], "moved")).await;
    let mut step = post(&server, "x");
    step["retry_policy"] = json!({"max_retries": 0});
    let (result, _) = run(&world(json!({"per_kib": PER_KIB})), 2, json!([step])).await;
    let step = step_of(&result, "s1");
    assert_eq!(step.outcome.code, "ERR_HTTP_4XX");
    assert_eq!((step.outcome.cost_microcents, step.attempts[0].cost_basis), (PER_KIB, CostBasis::Metered));
}
