//! Budgets: the stop point, overruns, ceilings, soft limits and their alerts.

use std::sync::Arc;

use macp_plan_core::behavior::Behavior;
use macp_plan_core::budget::Breach;
use macp_plan_core::cause::Cause;
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::{
    Body, BudgetAlert, Journal, REVISION, RunFinished, RunStart, RunStatus, Stop, StopReason,
};
use macp_plan_core::machine::{Machine, Pinned};
use macp_plan_core::plan::StepStatus;
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::testkit::{self, Answer, Kit, Run, World, execute, freeze, llm_step, plan, rate_card, step};
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

/// Alerts with their places in the journal.
fn alerts(run: &Run) -> Vec<(u64, &BudgetAlert)> {
    let entries = run.journal.entries().iter();
    entries
        .filter_map(|entry| match &entry.body {
            Body::BudgetAlert(alert) => Some((entry.seq, alert)),
            _ => None,
        })
        .collect()
}

/// What every alert is about: what had been spent, in cents, and the step of a check that was refused.
fn about(run: &Run) -> Vec<(u64, Option<&str>)> {
    let alerts = alerts(run).into_iter();
    alerts.map(|(_, it)| (it.spent / 1_000_000, it.refused.as_ref().map(|check| check.step_id.as_str()))).collect()
}

fn kind_before(run: &Run, seq: u64) -> &'static str {
    run.journal.entries()[usize::try_from(seq).expect("small") - 1].body.kind()
}

fn soft(budget_cents: u64, steps: Vec<Value>) -> Value {
    let mut value = plan(budget_cents, steps);
    value["context"]["budget_policy"]["hard_limit"] = false.into();
    value
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
    let run = go(soft(1, mails(3)), World::new());
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
    assert_eq!(run.world.calls.len(), 3);
    let refused = Behavior::of(run.journal.entries());
    let refused: Vec<bool> = refused.steps.iter().map(|step| step.budget_checks[0].allowed).collect();
    assert_eq!(refused, [true, false, false]);
    assert_eq!(about(&run), [(1, None), (1, Some("s1")), (2, Some("s2"))], "the threshold once, and every refusal");
    assert_eq!(finished(&run).budget.overrun, 2_000_000);
    let (seq, alert) = alerts(&run)[2];
    assert_eq!(kind_before(&run, seq), "budget_checked");
    let told = json!({"threshold_percent": 80, "spent": 2_000_000, "refused":
        {"step_id": "s2", "attempt": 0, "breach": "budget", "required": 1_000_000, "remaining": -1_000_000}});
    assert_eq!(serde_json::to_value(alert).expect("plain"), told);

    // A ceiling that is broken before anything is spent is told as well.
    // The threshold is another matter, and is told once it is reached.
    let mut value = soft(2, mails(2));
    value["context"]["budget_policy"]["per_step_max_cents"] = 0.into();
    let run = go(value, World::new());
    assert_eq!(about(&run), [(0, Some("s0")), (1, Some("s1")), (2, None)]);
    assert_eq!(alerts(&run)[0].1.refused.as_ref().expect("a refusal").breach, Some(Breach::PerStep));
    assert_eq!(run.world.calls.len(), 2);
}

/// A retry is checked like a first attempt, and told like one.
#[test]
fn a_refused_retry_is_told_with_its_attempt() {
    let failing = Answer::of(Cause::LlmStatus { status: 503, context_length: false }).tokens(1, 1);
    let value = soft(0, vec![llm_step("s0", "say", 10)]);
    let run = go(value, World::new().answer("s0", 0, failing).answer("s0", 1, Answer::of(Cause::Success).tokens(1, 1)));
    let refused = alerts(&run).into_iter().filter_map(|(_, alert)| alert.refused.as_ref());
    assert_eq!(refused.map(|check| check.attempt).collect::<Vec<_>>(), [0, 1]);
}

/// Runs of the first revision had one alert for both, and go on and replay as they began.
#[test]
fn a_run_keeps_the_revision_it_began_under() {
    let (frozen, catalog) = (freeze(soft(1, mails(3))), Kit::standard().shared());
    let first = RunStart { revision: 1, ..testkit::start(&frozen, "r-first") };
    let run = testkit::run(&frozen, &catalog, Arc::new(Pinned), first, World::new());
    assert_eq!(about(&run), [(1, None)]);
    let told = serde_json::to_value(&run.journal.entries()[0]).expect("plain");
    assert_eq!(told.get("revision"), None, "journals of the first revision do not say it");
    let replay = |run: &Run| {
        let options = Options::new("r-replay");
        mock_replay(&frozen, &run.journal, &|_| None, &catalog, &options).expect("its own plan").report
    };
    assert_eq!(replay(&run).verdict, Verdict::Match, "{:#?}", replay(&run).mismatches);
    let now = go(soft(1, mails(3)), World::new());
    assert_eq!(serde_json::to_value(&now.journal.entries()[0]).expect("plain")["revision"], REVISION);
    assert_eq!(replay(&now).verdict, Verdict::Match);
    assert_eq!(finished(&now).behavior_digest, finished(&run).behavior_digest, "what is told is no behaviour");
}

/// What nobody here knows the rules of is neither gone on with nor compared.
#[test]
fn a_revision_to_come_is_refused() {
    let (frozen, catalog) = (freeze(soft(1, mails(1))), Kit::standard().shared());
    for revision in [0, REVISION + 1] {
        let start = RunStart { revision, ..testkit::start(&frozen, "r-later") };
        let body = Body::RunStarted(Box::new(start.clone()));
        let mut machine = Machine::new(Arc::clone(&frozen), Arc::clone(&catalog), Arc::new(Pinned), start.clone());
        let told = machine.apply(&body, None).expect_err("must be refused").to_string();
        assert!(told.contains(&format!("revision {revision}")), "{told}");
        let journal = Journal::begin(start).expect("canonical");
        let report = mock_replay(&frozen, &journal, &|_| None, &catalog, &Options::new("r")).expect("its plan").report;
        assert_eq!((report.verdict, report.pin_violations[0].kind.as_str()), (Verdict::NotComparable, "revision"));
    }
}

/// AOS-18: one alert, when the threshold is reached, right after the charge.
#[test]
fn one_alert_at_the_threshold() {
    for (percent, spent) in [(0, 1), (20, 1), (21, 2), (80, 4), (100, 5)] {
        let mut value = plan(5, mails(5));
        value["context"]["budget_policy"]["alert_threshold_percent"] = percent.into();
        let run = go(value, World::new());
        assert_eq!(about(&run), [(spent, None)]);
        assert_eq!(kind_before(&run, alerts(&run)[0].0), "attempt_judged");
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
