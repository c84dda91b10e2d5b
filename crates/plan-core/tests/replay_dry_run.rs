//! Dry runs: nothing is called, nothing matches, and the worst case is not exceeded (test 37).

use macp_plan_core::behavior::Behavior;
use macp_plan_core::cause::Cause;
use macp_plan_core::compare::Verdict;
use macp_plan_core::dry_run::{Estimate, dry_run};
use macp_plan_core::journal::RunStatus;
use macp_plan_core::plan::StepStatus;
use macp_plan_core::testkit::{Answer, Kit, World, execute, freeze, http, llm_step, plan, random, start, step};
use serde_json::{Value, json};

fn estimate(value: Value) -> Estimate {
    let plan = freeze(value);
    let start = start(&plan, "r-estimate");
    dry_run(&plan, &Kit::standard().shared(), start).expect("its own plan")
}

/// AOS-86: every step is skipped with the code of a dry run and what one attempt may cost.
#[test]
fn dry_run_dispatches_nothing_and_never_says_match() {
    let estimate = estimate(plan(10, vec![step("s1", "http_call", json!({})), llm_step("s2", "abcd", 10)]));
    assert_eq!(estimate.verdict, Verdict::Estimate);
    assert_eq!(estimate.verdict.exit_code(), 0);
    assert!(estimate.findings.iter().all(|finding| !finding.is_error()), "{:?}", estimate.findings);
    for step in &estimate.steps {
        assert_eq!((step.status, step.code.as_deref()), (Some(StepStatus::Skipped), Some("OK_DRY_RUN")));
        assert_eq!(step.attempts_max, 4);
    }
    assert_eq!(estimate.status, RunStatus::Succeeded);
    assert_eq!(estimate.cost_low_microcents, 300 + 15_000);
    assert_eq!(estimate.cost_high_microcents, Some(4 * 15_300));
    assert_eq!(estimate.cost_high_cents, Some(1));
    assert_eq!(estimate.wait_ms_max, 2 * 700);
    assert_eq!(estimate.wait_with_hints_ms_max, 2 * 3 * 60_000);
    assert_eq!(estimate.duration_ms_max, 2 * (4 * 6_000 + 3 * 60_000));
}

/// A call without a target is asked to wait by nobody, so that its worst case holds no such wait, and none is obeyed.
#[test]
fn hints_count_only_where_somebody_can_give_them() {
    let steps = || vec![step("s1", "json_transform", json!({})), step("s2", "http_call", json!({}))];
    let estimate = estimate(plan(10, steps()));
    let waits: Vec<_> = estimate.steps.iter().map(|step| (step.wait_ms_max, step.wait_with_hints_ms_max)).collect();
    assert_eq!(waits, [(700, 700), (700, 3 * 60_000)]);
    let hint = || Answer { retry_after_ms: Some(50_000), ..http(503) };
    let world = World::new().always("s1", http(200)).answer("s1", 0, hint()).answer("s2", 0, hint());
    let run = execute(&freeze(plan(10, steps())), &Kit::standard().shared(), world);
    assert_eq!(run.machine.finished().expect("finished").status, RunStatus::Succeeded);
    assert_eq!(run.world.waited_ms, 100 + 50_000);
}

/// AOS-86: a step that would be blocked has the code that blocks it, and the run is predicted to stop there.
#[test]
fn blocked_steps_are_predicted() {
    let mails: Vec<Value> = (0..3).map(|place| step(&format!("s{place}"), "mail_send", json!({}))).collect();
    let stopped = estimate(plan(1, mails));
    assert_eq!(stopped.status, RunStatus::BudgetExceeded);
    assert_eq!(stopped.stop.as_ref().expect("a stop").step_id.as_deref(), Some("s1"));
    assert_eq!(stopped.steps[1].code.as_deref(), Some("ERR_BUDGET_EXCEEDED"));
    assert_eq!((stopped.steps[2].status, &stopped.not_reached), (None, &vec!["s2".to_owned()]));
    assert_eq!(stopped.cost_high_cents, Some(1), "a hard limit bounds the worst case");

    let missing = freeze(plan(10, vec![step("s1", "http_call", json!({}))]));
    let begin = start(&missing, "r");
    let catalog = Kit::standard().without("http_call", "1.2.0").shared();
    let missing = dry_run(&missing, &catalog, begin).expect("its own plan");
    assert_eq!(missing.steps[0].code.as_deref(), Some("ERR_SKILL_NOT_FOUND"));
    assert!(missing.findings.iter().any(|finding| finding.code == "ERR_SKILL_NOT_FOUND"));
}

/// Conditions see the success that a dry run assumes; what they exclude still counts for the worst case.
#[test]
fn conditions_see_assumed_success() {
    let mut on_success = step("s2", "http_call", json!({}));
    on_success["run_if"] = json!({"step_id": "s1", "status_in": ["success"], "code_in": ["OK_HTTP_CALL"]});
    let mut on_failure = step("s3", "mail_send", json!({}));
    on_failure["run_if"] = json!({"step_id": "s1", "status_in": ["failure"]});
    let mut first = step("s1", "http_call", json!({}));
    first["on_error"] = "continue".into();
    let estimate = estimate(plan(10, vec![first, on_success, on_failure]));
    let codes: Vec<_> = estimate.steps.iter().map(|step| step.code.as_deref().unwrap_or("")).collect();
    assert_eq!(codes, ["OK_DRY_RUN", "OK_DRY_RUN", "OK_SKIP_CONDITION"]);
    assert_eq!((estimate.cost_low_microcents, estimate.cost_high_microcents), (0, Some(4_000_000)));
}

/// A request that depends on an earlier answer is bounded by a hard budget only.
#[test]
fn unknown_requests_are_bounded_by_the_budget() {
    let steps = || vec![step("s1", "http_call", json!({})), llm_step("s2", "Summarise: {{s1.body}}", 10)];
    let hard = estimate(plan(5, steps()));
    assert_eq!(hard.steps[1].depends_on, ["s1"]);
    assert_eq!(hard.steps[1].code.as_deref(), Some("OK_DRY_RUN"));
    assert_eq!(hard.cost_high_microcents, Some(5_000_000));
    let mut soft = plan(5, steps());
    soft["context"]["budget_policy"]["hard_limit"] = false.into();
    assert_eq!(estimate(soft).cost_high_microcents, None);
}

#[test]
fn prediction_beside_a_run() {
    let plan = freeze(plan(10, vec![llm_step("s1", "abcd", 10), step("s2", "http_call", json!({}))]));
    let catalog = Kit::standard().shared();
    let begin = start(&plan, "r");
    let estimate = dry_run(&plan, &catalog, begin).expect("its own plan");
    let world = World::new().always("s1", Answer::of(Cause::Success).tokens(1, 10));
    let same = execute(&plan, &catalog, world.clone());
    assert_eq!(estimate.against(&Behavior::of(same.journal.entries())), []);
    let other = execute(&plan, &catalog, world.always("s2", http(503)));
    let fields: Vec<_> =
        estimate.against(&Behavior::of(other.journal.entries())).iter().map(|difference| difference.field).collect();
    assert_eq!(fields, ["code", "backend_retries", "status", "stopped_at"]);
}

/// The estimate is not exceeded by any run whose calls use no more than they said.
#[test]
fn the_worst_case_holds() {
    for seed in 0..400 {
        let random::Case { plan, catalog, world } = random::case(seed);
        let begin = start(&plan, "r");
        let estimate = dry_run(&plan, &catalog, begin).expect("its own plan");
        let run = execute(&plan, &catalog, world.without_usage());
        let behavior = Behavior::of(run.journal.entries());
        let end = run.machine.finished().expect("finished");
        if let Some(high) = estimate.cost_high_microcents {
            assert!(end.total_cost_microcents <= high, "seed {seed}: {} > {high}", end.total_cost_microcents);
        }
        assert!(run.world.waited_ms <= estimate.wait_with_hints_ms_max, "seed {seed}");
        for step in &estimate.steps {
            let Some(actual) = behavior.step(&step.step_id).and_then(|step| step.finished.as_ref()) else { continue };
            if let Some(high) = step.cost_high_microcents {
                assert!(actual.cost_microcents <= high, "seed {seed}, {}", step.step_id);
            }
            assert!(actual.total_attempts <= step.attempts_max);
        }
    }
}
