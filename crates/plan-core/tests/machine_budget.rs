//! Budgets: the stop point, overruns, ceilings, soft limits and the one alert.

use macp_plan_core::behavior::Behavior;
use macp_plan_core::cause::Cause;
use macp_plan_core::journal::{Body, RunFinished, RunStatus, Stop, StopReason};
use macp_plan_core::plan::StepStatus;
use macp_plan_core::testkit::{Answer, Kit, Run, World, execute, freeze, llm_step, plan, rate_card, step};
use serde_json::{Value, json};

fn go(value: Value, world: World) -> Run {
    execute(&freeze(value), &Kit::standard().shared(), world)
}

fn finished(run: &Run) -> &RunFinished {
    run.machine.finished().expect("a driven run finishes")
}

/// A mail costs exactly one cent.
fn mails(count: usize) -> Vec<Value> {
    (0..count).map(|place| step(&format!("s{place}"), "mail_send", json!({}))).collect()
}

fn alerts(run: &Run) -> Vec<(u64, u64)> {
    let entries = run.journal.entries().iter();
    entries
        .filter_map(|entry| match &entry.body {
            Body::BudgetAlert { spent, .. } => Some((entry.seq, *spent)),
            _ => None,
        })
        .collect()
}

/// Test 20 (AOS-61, AOS-65): with k cents, k steps of one cent run, and the next is refused. Equality is enough.
#[test]
fn budget_stop_point() {
    for cents in 0..=5_u64 {
        let run = go(plan(cents, mails(5)), World::new());
        let end = finished(&run);
        let stops_at = usize::try_from(cents).expect("small");
        assert_eq!(run.world.calls.len(), stops_at);
        assert_eq!(end.total_cost_cents, cents);
        if stops_at == 5 {
            assert_eq!(end.status, RunStatus::Succeeded);
            continue;
        }
        let step_id = format!("s{stops_at}");
        assert_eq!(end.status, RunStatus::BudgetExceeded);
        let code = "ERR_BUDGET_EXCEEDED".to_owned();
        assert_eq!(end.stop, Some(Stop { reason: StopReason::Budget, step_id: Some(step_id.clone()), code }));
        let later: Vec<String> = (stops_at + 1..5).map(|place| format!("s{place}")).collect();
        assert_eq!(end.not_reached, later);
        let result = run.machine.step_result(&step_id).expect("an outcome");
        assert_eq!((result.status, result.total_attempts, result.cost_microcents), (StepStatus::Failure, 0, 0));
        assert!(result.side_effects.is_empty());
        let details = json!({"breach": "budget", "required": 1_000_000, "remaining": 0, "limit": cents * 1_000_000});
        assert_eq!(Value::Object(result.details.clone()), details);
    }
}

/// AOS-61: a free step needs nothing, also with a budget of nothing.
#[test]
fn free_steps_run_without_a_budget() {
    let run = go(plan(0, vec![step("s1", "http_call", json!({}))]), World::new());
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
    assert!(alerts(&run).is_empty());
}

/// Test 19 (AOS-49, AOS-64): a retry that cannot be paid for is not made.
#[test]
fn retry_stops_for_budget() {
    // Each failed attempt costs its bound of 900 000 microcents, so two cents pay for two attempts.
    let failing = llm_step("s1", &"x".repeat(4 * 1_000), 400);
    let bound = 1_000 * 300 + 400 * 1_500;
    let world = World::new().always("s1", Answer::of(Cause::LlmStatus { status: 529, context_length: false }));
    let run = go(plan(2, vec![failing]), world);
    let end = finished(&run);
    assert_eq!(end.status, RunStatus::BudgetExceeded);
    assert_eq!(run.world.calls.len(), 2);
    let result = &run.machine.results()[0];
    assert_eq!(result.code, "ERR_BUDGET_EXCEEDED");
    assert_eq!(result.attempt_codes, ["ERR_LLM_API_ERROR", "ERR_LLM_API_ERROR"]);
    assert_eq!((result.backend_retries, result.total_attempts), (1, 2));
    assert_eq!(result.details["last_error_code"], "ERR_LLM_API_ERROR");
    assert_eq!(result.cost_microcents, 2 * bound);
    let checks = &Behavior::of(run.journal.entries()).steps[0].budget_checks;
    let remaining: Vec<i64> = checks.iter().map(|check| check.remaining).collect();
    assert_eq!(remaining, [2_000_000, 1_100_000, 200_000]);
    assert_eq!(checks.iter().map(|check| check.allowed).collect::<Vec<_>>(), [true, true, false]);
}

/// Test 21 (AOS-63): a result stands whatever it cost; then nothing runs, not even what is free.
#[test]
fn overrun_then_stop() {
    let steps = vec![llm_step("s1", "short", 10), step("s2", "http_call", json!({}))];
    let run = go(plan(1, steps), World::new().always("s1", Answer::of(Cause::Success).tokens(10_000, 0)));
    let end = finished(&run);
    assert_eq!(run.machine.results()[0].code, "OK_LLM_INVOKE");
    assert_eq!(end.status, RunStatus::BudgetExceeded);
    assert_eq!(end.stop.as_ref().expect("a stop").step_id.as_deref(), Some("s2"));
    assert_eq!(end.budget.spent, 3_000_000);
    assert_eq!((end.budget.remaining, end.budget.overrun), (-2_000_000, 2_000_000));
    assert_eq!(run.machine.results()[1].details["remaining"], -2_000_000);
}

/// AOS-61: the ceiling is the step's own, else the policy's.
#[test]
fn ceilings() {
    let check = |own: Option<u64>, policy: Option<u64>| {
        let mut value = plan(100, mails(1));
        value["context"]["budget_policy"]["per_step_max_cents"] = json!(policy);
        if let Some(own) = own {
            value["steps"][0]["max_cost_cents"] = own.into();
        }
        let run = go(value, World::new());
        (finished(&run).status, run.machine.results()[0].details.get("breach").cloned())
    };
    let refused = (RunStatus::BudgetExceeded, Some(json!("per_step")));
    assert_eq!(check(None, None), (RunStatus::Succeeded, None));
    assert_eq!(check(None, Some(1)), (RunStatus::Succeeded, None));
    assert_eq!(check(None, Some(0)), refused);
    assert_eq!(check(Some(0), Some(1)), refused);
    assert_eq!(check(Some(1), Some(0)), (RunStatus::Succeeded, None));
}

/// AOS-62: what is required is the larger of the skill's estimate and the bound.
#[test]
fn an_estimate_above_the_bound_is_required() {
    let mut skill = macp_plan_core::testkit::ScriptedSkill::new("mail_send", "1.0.0", None, "OK");
    skill.metadata.cost_estimate_cents = 7;
    let run = execute(&freeze(plan(6, mails(1))), &Kit::standard().with(skill).shared(), World::new());
    assert_eq!(run.machine.results()[0].details["required"], 7_000_000);
}

/// AOS-64: without a hard limit a refusal is recorded and told, and the run goes on.
#[test]
fn a_soft_limit_records_and_goes_on() {
    let mut value = plan(1, mails(3));
    value["context"]["budget_policy"]["hard_limit"] = false.into();
    let run = go(value, World::new());
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
    assert_eq!(run.world.calls.len(), 3);
    let refused = Behavior::of(run.journal.entries());
    let refused: Vec<bool> = refused.steps.iter().map(|step| step.budget_checks[0].allowed).collect();
    assert_eq!(refused, [true, false, false]);
    assert_eq!(alerts(&run).len(), 1, "people are told once");
    assert_eq!(finished(&run).budget.overrun, 2_000_000);

    // A ceiling that is broken before anything is spent is told as well.
    let mut value = plan(100, mails(2));
    value["context"]["budget_policy"]["hard_limit"] = false.into();
    value["context"]["budget_policy"]["per_step_max_cents"] = 0.into();
    let run = go(value, World::new());
    assert_eq!(alerts(&run).iter().map(|(_, spent)| *spent).collect::<Vec<_>>(), [0]);
    assert_eq!(run.world.calls.len(), 2);
}

/// AOS-18: one alert, when the threshold is reached, right after the charge.
#[test]
fn one_alert_at_the_threshold() {
    for (percent, spent) in [(0, 1), (20, 1), (21, 2), (80, 4), (100, 5)] {
        let mut value = plan(5, mails(5));
        value["context"]["budget_policy"]["alert_threshold_percent"] = percent.into();
        let run = go(value, World::new());
        let alerts = alerts(&run);
        assert_eq!(alerts.len(), 1);
        assert_eq!(alerts[0].1, spent * 1_000_000);
        let before = &run.journal.entries()[usize::try_from(alerts[0].0).expect("small") - 1];
        assert_eq!(before.body.kind(), "attempt_judged");
    }
}

/// AOS-60: a metered cost beyond everything is over every budget, and still a number everyone reads.
#[test]
fn a_cost_beyond_everything_is_over_budget() {
    let mut value = plan(9_000_000_000, vec![llm_step("s1", "x", 1), step("s2", "http_call", json!({}))]);
    let mut card = rate_card();
    card["skills"]["llm_invoke@2.0.0"]["models"]["large"] = json!({"input": 9_000_000_000_000_u64, "output": 0});
    let digest = macp_plan_core::rate_card::RateCard::from_value(card.clone()).expect("a card").digest().clone();
    value["pins"]["rate_card"] = json!({"id": "rc-kit", "hash": digest, "card": card});
    let run = go(value, World::new().always("s1", Answer::of(Cause::Success).tokens(9_007_199_254_740_991, 0)));
    let end = finished(&run);
    assert_eq!(end.status, RunStatus::BudgetExceeded);
    assert_eq!(end.stop.as_ref().expect("a stop").step_id.as_deref(), Some("s2"));
    assert!(end.budget.remaining < 0);
}
