//! Budgets: where a run stops, and that it stops there again.

use macp_plan::store::Status;
use macp_plan_core::journal::StopReason;
use macp_plan_core::testkit::{llm_step, plan, step};
use serde_json::{Value, json};

use super::world::{World, begin, codes, count, ended, step_of};

/// 8 bytes of prompt are 2 tokens, so that the bound is 600 + 1500 for every token of the answer.
fn ask(step_id: &str, max_tokens: u64, script: &str) -> Value {
    let mut step = llm_step(step_id, "12345678", max_tokens);
    step["parameters"]["script"] = json!(script);
    step["retry_policy"]["retryable_codes"] = json!(["ERR_HTTP_503", "ERR_HTTP_TIMEOUT"]);
    step
}

/// Test 19, AOS-49 and AOS-64: a step that fails dearly is not tried again beyond its budget.
#[tokio::test(start_paused = true)]
async fn retry_stops_for_budget() {
    for world in World::both() {
        // A timeout is charged the bound of 150,600; one cent pays for six of them.
        let mut dear = ask("s1", 100, "timeout");
        dear["retry_policy"]["max_retries"] = json!(10);
        let result = world.run(plan(1, vec![dear, step("s2", "http_call", json!({}))])).await;
        let first = step_of(&result, "s1");
        assert_eq!((result.status, first.final_code.as_str()), (Status::BudgetExceeded, "ERR_BUDGET_EXCEEDED"));
        assert_eq!((first.retry_count, first.attempts.len()), (5, 6), "only retries that were made are counted");
        assert_eq!(first.outcome.details["last_error_code"], "ERR_HTTP_TIMEOUT");
        assert_eq!(first.outcome.details["breach"], "budget");
        assert_eq!(first.outcome.details["required"], 150_600);
        assert_eq!(first.outcome.details["remaining"], 1_000_000 - 6 * 150_600);
        assert_eq!(result.total_cost_microcents, 6 * 150_600);
        assert_eq!(result.not_reached, ["s2"]);
        assert_eq!(world.stage.calls(), 6);
    }
}

/// Test 20, AOS-65: stopped at step k, for every k.
#[tokio::test(start_paused = true)]
async fn budget_stop_point() {
    for k in 1..=5_usize {
        for world in World::both() {
            // Every mail costs a cent, and k - 1 of them are paid for.
            let steps: Vec<_> = (1..=5).map(|number| step(&format!("s{number}"), "mail_send", json!({}))).collect();
            let result = world.run(plan(k as u64 - 1, steps)).await;
            assert_eq!(result.status, Status::BudgetExceeded);
            let stop = result.stop.clone().unwrap();
            assert_eq!(
                (stop.reason, stop.step_id, stop.code.as_str()),
                (StopReason::Budget, Some(format!("s{k}")), "ERR_BUDGET_EXCEEDED")
            );
            let expected: Vec<_> = (k + 1..=5).map(|number| format!("s{number}")).collect();
            assert_eq!(result.not_reached, expected);
            assert_eq!((result.total_cost_cents, world.stage.calls()), (k as u64 - 1, k - 1));
            let refused = step_of(&result, &format!("s{k}"));
            assert!(refused.attempts.is_empty() && refused.outcome.side_effects.is_empty());
            assert_eq!(refused.outcome.cost_microcents, 0);
        }
    }
}

/// Test 21, AOS-63: the result stands whatever it cost, and the next check fails, even for a step that is free.
#[tokio::test(start_paused = true)]
async fn overrun_then_stop() {
    for world in World::both() {
        let steps = vec![ask("s1", 10, "usage 100/2000"), step("s2", "http_call", json!({}))];
        let result = world.run(plan(1, steps)).await;
        assert_eq!(codes(&result), [("s1", "OK_LLM_INVOKE"), ("s2", "ERR_BUDGET_EXCEEDED")]);
        let budget = result.budget.unwrap();
        assert_eq!((budget.spent, budget.overrun, budget.remaining), (3_030_000, 2_030_000, -2_030_000));
        assert_eq!((result.status, result.total_cost_cents), (Status::BudgetExceeded, 4));
    }
}

/// AOS-18, AOS-64: the threshold is told once and every refusal that nothing enforces, and the run goes on.
#[tokio::test(start_paused = true)]
async fn a_soft_limit_only_alerts() {
    let world = World::memory();
    let mut value = plan(1, (1..=3).map(|number| step(&format!("s{number}"), "mail_send", json!({}))).collect());
    value["context"]["budget_policy"]["hard_limit"] = json!(false);
    let executor = world.executor();
    let run_id = begin(&executor, value).await;
    let result = ended(&executor, &run_id).await;
    assert_eq!((result.status, result.total_cost_cents), (Status::Succeeded, 3));
    assert_eq!(count(&executor, &run_id, "budget_alert").await, 3);
    let told = result.alerts.iter().map(|it| it.refused.as_ref().map(|check| check.step_id.as_str()));
    assert_eq!(told.collect::<Vec<_>>(), [None, Some("s2"), Some("s3")]);
}

/// AOS-61: a step may have a ceiling of its own.
#[tokio::test(start_paused = true)]
async fn a_ceiling_for_one_step() {
    let world = World::memory();
    let mut dear = step("s1", "mail_send", json!({}));
    dear["max_cost_cents"] = json!(0);
    let result = world.run(plan(100, vec![dear])).await;
    assert_eq!(codes(&result), [("s1", "ERR_BUDGET_EXCEEDED")]);
    assert_eq!(step_of(&result, "s1").outcome.details["breach"], "per_step");
}
