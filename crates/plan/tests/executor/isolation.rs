//! Agents apart: nothing one agent's runs do changes how another's behave.

use std::time::Duration;

use macp_plan::executor::{AgentLimits, Executor};
use macp_plan::store::Status;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::world::{World, begin, codes, ended, step_of};

fn of_agent(agent: &str, number: usize, budget: u64, steps: Vec<Value>) -> Value {
    let mut value = plan(budget, steps);
    value["agent_id"] = json!(agent);
    value["plan_id"] = json!(format!("p-{agent}-{number}"));
    value
}

fn quiet() -> Value {
    of_agent("quiet", 0, 2, vec![call("a", "503, 200"), step("b", "mail_send", json!({})), call("c", "slow 300")])
}

/// Everything that can go wrong, all at once.
async fn noise(executor: &Executor) -> Vec<String> {
    let mut run_ids = Vec::new();
    for number in 0..8 {
        let steps = vec![
            call("a", "200"),
            call("b", ["panic", "hang", "404", "timeout"][number % 4]),
            step("c", "mail_send", json!({})),
            call("d", "503"),
        ];
        run_ids.push(begin(executor, of_agent("loud", number, 0, steps)).await);
    }
    run_ids
}

/// Budgets, limiters and failures of one agent leave another's runs as they are.
#[tokio::test(start_paused = true)]
async fn one_agent_never_changes_another() {
    let limits =
        AgentLimits { runs_max: Some(4), calls_max: Some(1), calls_per_minute: Some(4), ..AgentLimits::default() };
    let mut alone = World::memory();
    alone.settings.agent = limits;
    let expected = alone.run(quiet()).await;
    assert_eq!(expected.status, Status::Succeeded, "{:?}", codes(&expected));
    for mut world in World::both() {
        world.settings.agent = limits;
        let executor = world.executor();
        let loud = noise(&executor).await;
        let run_id = begin(&executor, quiet()).await;
        let result = ended(&executor, &run_id).await;
        assert_eq!(result.behavior_digest, expected.behavior_digest);
        let mut codes = Vec::new();
        for run_id in loud {
            codes.extend(ended(&executor, &run_id).await.final_code);
        }
        assert!(codes.iter().any(|code| code.starts_with("ERR_RATE_LIMIT")), "the loud one met its own: {codes:?}");
    }
}

/// Two agents that chose the same name for their plans: neither meets the claims of the other, whatever it asks for.
#[tokio::test(start_paused = true)]
async fn plans_of_one_name_belong_to_their_agents() {
    for world in World::both() {
        let executor = world.executor();
        let named = |agent: &str, value: u64| {
            let mut plan =
                of_agent(agent, 0, 10, vec![step("s1", "post_call", json!({"script": "give", "value": value}))]);
            plan["plan_id"] = json!("the-plan");
            plan
        };
        for (agent, value, code) in [("a", 1, "OK"), ("b", 1, "OK"), ("c", 2, "OK"), ("a", 1, "OK_SKIP_DUPLICATE")] {
            let run_id = begin(&executor, named(agent, value)).await;
            assert_eq!(codes(&ended(&executor, &run_id).await), [("s1", code)], "{agent}");
        }
        assert_eq!(world.stage.counts().len(), 3, "a target sees keys of three");
    }
}

/// AOS-71: a refusal by the limiter is an attempt without a dispatch, and is tried again if the policy says so.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_attempt_without_a_call() {
    for mut world in World::both() {
        world.settings.agent = AgentLimits { calls_per_minute: Some(1), ..AgentLimits::default() };
        let mut patient = call("s2", "200");
        patient["retry_policy"]["backoff_base_ms"] = json!(40_000);
        let mut hasty = call("s3", "200");
        hasty["retry_policy"]["max_retries"] = json!(0);
        let result = world.run(plan(0, vec![call("s1", "200"), patient, hasty])).await;
        let expected = [("s1", "OK_HTTP_CALL"), ("s2", "OK_HTTP_CALL"), ("s3", "ERR_RATE_LIMIT_INTERNAL")];
        assert_eq!(codes(&result), expected);
        let second = step_of(&result, "s2");
        assert!(second.retry_count > 0 && second.outcome.side_effects.len() == 1);
        assert!(serde_json::to_string(&second.attempts[0].cause).unwrap().contains("rate_limited"));
        assert_eq!((world.stage.calls(), result.total_cost_microcents), (2, 0));
    }
}

/// A place among the calls that are out is taken from the verdict until the answer, and given back when a step is
/// skipped.
#[tokio::test]
async fn places_are_given_back() {
    let mut world = World::memory();
    world.settings.agent = AgentLimits { calls_max: Some(1), ..AgentLimits::default() };
    let executor = world.executor();
    let first = begin(&executor, of_agent("a", 1, 10, vec![step("s1", "post_call", json!({}))])).await;
    ended(&executor, &first).await;
    // Skipped as a duplicate after the verdict, then the next step needs the place.
    let second = begin(&executor, of_agent("a", 1, 10, vec![step("s1", "post_call", json!({}))])).await;
    assert_eq!(codes(&ended(&executor, &second).await), [("s1", "OK_SKIP_DUPLICATE")]);
    let mut hasty = call("s1", "200");
    hasty["retry_policy"]["max_retries"] = json!(0);
    let holding = begin(&executor, of_agent("a", 2, 0, vec![call("s1", "gate")])).await;
    world.stage.wait_for_calls(2).await;
    let refused = begin(&executor, of_agent("a", 3, 0, vec![hasty.clone()])).await;
    assert_eq!(codes(&ended(&executor, &refused).await), [("s1", "ERR_RATE_LIMIT_CONCURRENT")]);
    world.stage.gate.add_permits(1);
    ended(&executor, &holding).await;
    let allowed = begin(&executor, of_agent("a", 4, 0, vec![hasty])).await;
    assert_eq!(codes(&ended(&executor, &allowed).await), [("s1", "OK_HTTP_CALL")]);
}

/// Many runs at once, each as it would be alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_runs() {
    for world in World::both() {
        let executor = world.executor();
        let mut starts = tokio::task::JoinSet::new();
        for number in 0..64 {
            let executor = executor.clone();
            starts.spawn(async move {
                let steps = vec![
                    call("a", "503, 200"),
                    step("b", "post_call", json!({"script": "give", "value": number})),
                    step("c", "http_call", json!({"script": "give", "value": "{{b.value}}"})),
                ];
                let run_id = begin(&executor, of_agent("a", number, 10, steps)).await;
                (number, ended(&executor, &run_id).await)
            });
        }
        for (number, result) in tokio::time::timeout(Duration::from_secs(120), starts.join_all()).await.unwrap() {
            assert_eq!(result.status, Status::Succeeded);
            assert_eq!(step_of(&result, "c").outcome.details["output"]["value"], number);
            assert_eq!(step_of(&result, "a").retry_count, 1);
        }
        assert_eq!((world.stage.calls(), executor.live()), (64 * 4, 0));
    }
}
