//! How a run goes: order, retries, references, conditions, effects and everything that ends a step.

use std::sync::Arc;

use macp_plan_core::behavior::Behavior;
use macp_plan_core::cause::{Cause, ConnectionFault};
use macp_plan_core::cost::CostBasis;
use macp_plan_core::effect::effect_key;
use macp_plan_core::journal::{
    Admission, Body, DedupeVerdict, LimiterVerdict, RunFinished, RunStatus, Stop, StopReason,
};
use macp_plan_core::limits::STEP_ID_MAX;
use macp_plan_core::machine::{Machine, Next, OutOfPlace, Pinned, Question};
use macp_plan_core::plan::StepStatus;
use macp_plan_core::reference::Reference;
use macp_plan_core::testkit::{Answer, Kit, Run, World, execute, freeze, http, plan, run, start, step};
use serde_json::{Value, json};

fn go(steps: Vec<Value>, world: World) -> Run {
    execute(&freeze(plan(1_000, steps)), &Kit::standard().shared(), world)
}

fn finished(run: &Run) -> &RunFinished {
    run.machine.finished().expect("a driven run finishes")
}

fn kinds(run: &Run) -> Vec<&'static str> {
    run.journal.entries().iter().map(|entry| entry.body.kind()).collect()
}

fn http_step(id: &str) -> Value {
    step(id, "http_call", json!({"host": format!("{id}.example")}))
}

fn stop(reason: StopReason, step_id: &str, code: &str) -> Option<Stop> {
    Some(Stop { reason, step_id: Some(step_id.to_owned()), code: code.to_owned() })
}

/// Test 16 (AOS-67): steps run in declared order, and the order of entries is that of AOS-71.
#[test]
fn order_is_declared_order() {
    let run = go(vec![http_step("b"), http_step("a"), http_step("c")], World::new());
    let order: Vec<&str> = run.world.calls.iter().map(|(step, ..)| step.as_str()).collect();
    assert_eq!(order, ["b", "a", "c"]);
    let per_step = [
        "step_started",
        "budget_checked",
        "limiter_verdict",
        "effect_intent",
        "attempt_observed",
        "attempt_judged",
        "step_finished",
    ];
    let mut expected = vec!["run_started", "admission"];
    (0..3).for_each(|_| expected.extend(per_step));
    expected.push("run_finished");
    assert_eq!(kinds(&run), expected);
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
    assert_eq!(finished(&run).final_code, "OK_HTTP_CALL");
    assert_eq!(finished(&run).stop, None);
}

/// Test 17 (AOS-41, AOS-91): so many retries as the policy allows, for every policy.
#[test]
fn all_503_counts() {
    for max_retries in 0..=3_u32 {
        let mut failing = http_step("s1");
        failing["retry_policy"]["max_retries"] = max_retries.into();
        let run = go(vec![failing, http_step("s2")], World::new().always("s1", http(503)));
        let result = run.machine.step_result("s1").expect("it ran");
        assert_eq!(result.backend_retries, max_retries);
        assert_eq!(result.total_attempts, max_retries + 1);
        assert_eq!(result.attempt_codes, vec!["ERR_HTTP_503"; max_retries as usize + 1]);
        assert!(result.retryable, "a code stays retryable when retries are used up (AOS-26)");
        assert_eq!(finished(&run).retry_count, max_retries);
        assert_eq!(finished(&run).final_code, "ERR_HTTP_503");
        assert_eq!(finished(&run).stop, stop(StopReason::StepFailed, "s1", "ERR_HTTP_503"));
        assert_eq!(finished(&run).not_reached, ["s2"]);
        assert_eq!(finished(&run).status, RunStatus::Failed);
        // 100, 200, 400: the formula without jitter.
        assert_eq!(run.world.waited_ms, [0, 100, 300, 700][max_retries as usize]);
    }
}

/// Test 18.
#[test]
fn recovers_on_third_attempt() {
    let world = World::new().answer("s1", 0, http(503)).answer("s1", 1, http(503)).answer("s1", 2, http(200));
    let run = go(vec![http_step("s1")], world);
    let result = run.machine.step_result("s1").expect("it ran");
    assert_eq!((result.status, result.code.as_str(), result.backend_retries), (StepStatus::Success, "OK_HTTP_CALL", 2));
    assert_eq!(result.attempt_codes, ["ERR_HTTP_503", "ERR_HTTP_503", "OK_HTTP_CALL"]);
}

/// AOS-49: after a failed attempt come budget, schedule and limiter, in that order, and the claim is not repeated.
#[test]
fn a_retry_is_paid_for_scheduled_and_limited_before_it_goes_out() {
    let run = go(vec![step("s1", "post_call", json!({}))], World::new().answer("s1", 0, http(503)));
    let after = [
        "attempt_observed",
        "attempt_judged",
        "budget_checked",
        "retry_scheduled",
        "limiter_verdict",
        "effect_intent",
        "attempt_observed",
    ];
    let kinds = kinds(&run);
    let first = kinds.iter().position(|kind| *kind == "attempt_observed").expect("an attempt");
    assert_eq!(kinds[first..first + after.len()], after);
    assert_eq!(kinds.iter().filter(|kind| **kind == "dedupe_verdict").count(), 1);
}

/// AOS-48: a hint lengthens the wait up to the cap and changes no decision.
#[test]
fn a_hint_lengthens_the_wait_only() {
    let hinted = |hint| {
        let mut answer = http(503);
        answer.retry_after_ms = Some(hint);
        go(vec![http_step("s1")], World::new().answer("s1", 0, answer))
    };
    for (hint, waited) in [(0, 100), (99, 100), (5_000, 5_000), (9_999_999, 60_000)] {
        let run = hinted(hint);
        assert_eq!(run.world.waited_ms, waited);
        let backoff = run.journal.entries().iter().find_map(|entry| match &entry.body {
            Body::RetryScheduled { backoff_ms, .. } => Some(*backoff_ms),
            _ => None,
        });
        assert_eq!(backoff, Some(100));
    }
}

/// AOS-47: waits follow from the seed in the start, not from the run's own id.
#[test]
fn jitter_follows_the_seed() {
    let mut jittery = http_step("s1");
    jittery["retry_policy"]["jitter_enabled"] = true.into();
    jittery["retry_policy"]["jitter_max_ms"] = 50.into();
    let plan = freeze(plan(10, vec![jittery]));
    let mut replay = start(&plan, "another id");
    replay.jitter_seed = "550e8400-e29b-41d4-a716-446655440000".to_owned();
    let world = World::new().always("s1", http(503));
    let run = run(&plan, &Kit::standard().shared(), Arc::new(Pinned), replay, world);
    let waits: Vec<Option<u64>> =
        Behavior::of(run.journal.entries()).steps[0].attempts.iter().map(|attempt| attempt.backoff_ms).collect();
    assert_eq!(waits, [Some(126), Some(245), Some(428), None]);
}

/// Test 22 (AOS-69): what is not allowed is not dispatched, even if a run got past its checks.
#[test]
fn allowed_skills_enforced() {
    let mut value = plan(10, vec![http_step("s1")]);
    value["context"]["allowed_skills"] = json!([]);
    let run = execute(&freeze(value), &Kit::standard().shared(), World::new());
    assert!(run.world.calls.is_empty());
    assert_eq!(finished(&run).final_code, "ERR_PERMISSION_DENIED");
}

/// Test 23 (AOS-68): a run that is not admitted has no steps, no intents, and says why.
#[test]
fn a_rejected_run_has_no_effects() {
    let mut world = World::new();
    let plan = freeze(plan(10, vec![http_step("s1"), http_step("s2")]));
    let catalog = Kit::empty().shared();
    let findings = macp_plan_core::check::preflight(&plan, catalog.as_ref());
    world.admission = Admission::refused(&findings);
    assert!(!world.admission.findings.is_empty());
    let run = execute(&plan, &catalog, world);
    assert_eq!(kinds(&run), ["run_started", "admission", "run_finished"]);
    let end = finished(&run);
    assert_eq!(end.status, RunStatus::Rejected);
    let code = macp_plan_core::check::rejection(&findings).expect("it is rejected").code;
    assert_eq!(end.final_code, code);
    assert_eq!(end.stop, Some(Stop { reason: StopReason::Preflight, step_id: None, code: code.to_owned() }));
    assert_eq!(end.not_reached, ["s1", "s2"]);
}

/// AOS-19: a limit that depends on other runs refuses a run with the code of its cause.
#[test]
fn a_used_up_quota_rejects_with_its_code() {
    let mut world = World::new();
    world.admission = Admission { cause: Some(Cause::QuotaExceeded), ..Admission::default() };
    assert_eq!(finished(&go(vec![http_step("s1")], world)).final_code, "ERR_QUOTA_EXCEEDED");
}

/// AOS-38: a plan whose taxonomy is unknown is never executed under another, whatever the admission says.
#[test]
fn nothing_stands_in_for_an_unknown_taxonomy() {
    let mut value = plan(10, vec![http_step("s1")]);
    value["pins"]["taxonomy_version"] = "9.0.0".into();
    let run = execute(&freeze(value), &Kit::standard().shared(), World::new());
    assert!(run.world.calls.is_empty());
    assert_eq!(finished(&run).status, RunStatus::Rejected);
    assert_eq!(finished(&run).final_code, "ERR_VALIDATION_FAILED");
}

/// AOS-15: a reference becomes the earlier value, with its type.
#[test]
fn references_are_resolved_before_dispatch() {
    let world =
        World::new().answer("s1", 0, Answer::of(Cause::Success).output(json!({"host": "found.example", "n": 2})));
    let taking = step("s2", "http_call", json!({"host": "{{s1.host}}", "effects": "{{s1.n}}"}));
    let run = go(vec![http_step("s1"), taking], world);
    let result = run.machine.step_result("s2").expect("it ran");
    let effect = ("http_request".to_owned(), "found.example".to_owned());
    assert_eq!(result.side_effects, [effect.clone(), effect]);
}

/// Test 24 (AOS-15): a reference that leads nowhere fails the step before anything is sent.
#[test]
fn unresolved_reference_never_dispatched() {
    let taking = step("s2", "http_call", json!({"host": "{{s1.nowhere.at_all}}"}));
    let run = go(vec![http_step("s1"), taking], World::new());
    assert_eq!(run.world.calls.len(), 1);
    let result = run.machine.step_result("s2").expect("it has an outcome");
    assert_eq!((result.code.as_str(), result.total_attempts), ("ERR_VALIDATION_FAILED", 0));
    assert!(result.side_effects.is_empty());
    let digest = run.journal.entries().iter().find_map(|entry| match &entry.body {
        Body::StepStarted { step_id, request_digest, .. } if step_id == "s2" => Some(request_digest.is_some()),
        _ => None,
    });
    assert_eq!(digest, Some(false), "nothing was ever requested");
}

/// The other causes that end a step before its budget is looked at.
#[test]
fn invalid_and_unpriced_requests_are_never_dispatched() {
    let refused = step("s1", "http_call", json!({"refuse": true}));
    let unpriced = step("s1", "llm_invoke", json!({"model": "unheard of"}));
    for failing in [refused, unpriced] {
        let run = go(vec![failing], World::new());
        assert!(run.world.calls.is_empty());
        assert_eq!(finished(&run).final_code, "ERR_VALIDATION_FAILED");
        assert!(!kinds(&run).contains(&"budget_checked"));
    }
}

/// Test 25 (AOS-74): effects in order, those of failed attempts too, and none of attempts that were not dispatched.
#[test]
fn side_effects_in_order_including_failed_attempts() {
    let world = World::new().answer("s1", 0, http(503)).limit("s1", 1, LimiterVerdict::RateLimited).answer(
        "s1",
        2,
        Answer::of(Cause::Success),
    );
    let run = go(vec![step("s1", "http_call", json!({"host": "x.example", "effects": 2}))], world);
    let result = run.machine.step_result("s1").expect("it ran");
    assert_eq!(result.attempt_codes, ["ERR_HTTP_503", "ERR_RATE_LIMIT_INTERNAL", "OK_HTTP_CALL"]);
    assert_eq!(result.side_effects, vec![("http_request".to_owned(), "x.example".to_owned()); 4]);
    let attempts: Vec<u32> =
        Behavior::of(run.journal.entries()).steps[0].effects.iter().map(|effect| effect.attempt).collect();
    assert_eq!(attempts, [0, 0, 2, 2]);
}

/// Test 28 (AOS-34): some codes stop a run whatever the step says, and others do not.
#[test]
fn always_stop_codes() {
    let mut lenient = http_step("s1");
    lenient["on_error"] = "continue".into();
    let ends = [
        (Cause::BudgetExceeded, StopReason::Budget, "ERR_BUDGET_EXCEEDED"),
        (Cause::QuotaExceeded, StopReason::Policy, "ERR_QUOTA_EXCEEDED"),
        (Cause::EgressForbidden, StopReason::Policy, "ERR_POLICY_VIOLATION"),
        (Cause::SafetyRejected, StopReason::Policy, "ERR_SAFETY_REJECTED"),
        (Cause::PromptInjection, StopReason::Policy, "ERR_PROMPT_INJECTION"),
    ];
    for (cause, reason, code) in ends {
        let run = go(vec![lenient.clone(), http_step("s2")], World::new().always("s1", Answer::of(cause)));
        assert_eq!(finished(&run).stop, stop(reason, "s1", code));
        assert_eq!(finished(&run).not_reached, ["s2"]);
    }
    let run = go(vec![lenient, http_step("s2")], World::new().always("s1", http(404)));
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
    assert_eq!(run.machine.step_result("s1").expect("it ran").code, "ERR_HTTP_404");
}

/// AOS-16: conditions look at status and code of earlier steps.
#[test]
fn conditions_choose_steps() {
    let mut first = http_step("s1");
    first["on_error"] = "continue".into();
    let when = |id: &str, condition: Value| {
        let mut step = http_step(id);
        step["run_if"] = condition;
        step
    };
    let steps = vec![
        first,
        when("s2", json!({"step_id": "s1", "status_in": ["success"]})),
        when("s3", json!({"step_id": "s1", "code_in": ["ERR_HTTP_404"]})),
        when("s4", json!({"step_id": "s2", "status_in": ["skipped"], "code_in": ["OK_SKIP_CONDITION"]})),
    ];
    let run = go(steps, World::new().always("s1", http(404)));
    let codes: Vec<&str> = run.machine.results().iter().map(|result| result.code.as_str()).collect();
    assert_eq!(codes, ["ERR_HTTP_404", "OK_SKIP_CONDITION", "OK_HTTP_CALL", "OK_HTTP_CALL"]);
    assert_eq!(run.machine.step_result("s2").expect("an outcome").status, StepStatus::Skipped);
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
}

/// Test 29, the machine's part (AOS-78): what the three verdicts lead to.
#[test]
fn dedupe_verdicts() {
    let steps = || vec![step("s1", "post_call", json!({})), step("s2", "http_call", json!({"host": "{{s1.host}}"}))];
    let output = json!({"host": "reused.example"});
    let run = go(steps(), World::new().dedupe("s1", DedupeVerdict::Duplicate, Some(output)));
    let result = run.machine.step_result("s1").expect("an outcome");
    assert_eq!((result.status, result.code.as_str()), (StepStatus::Skipped, "OK_SKIP_DUPLICATE"));
    assert_eq!((result.total_attempts, result.cost_microcents), (0, 0));
    assert_eq!(run.machine.step_result("s2").expect("it ran").side_effects[0].1, "reused.example");
    assert_eq!(run.world.calls.len(), 1);

    let run = go(steps(), World::new().dedupe("s1", DedupeVerdict::Conflict, None));
    assert_eq!(finished(&run).stop, stop(StopReason::StepFailed, "s1", "ERR_IDEMPOTENCY_CONFLICT"));
    assert!(run.world.calls.is_empty());
}

/// AOS-16, AOS-114: a step that was done before is skipped, and what depends on it is not. A journal that does not say
/// how the step ended means what it meant when it was written.
#[test]
fn conditions_see_how_a_step_ended_that_was_done_before() {
    let steps = || {
        let mut second = http_step("s2");
        second["run_if"] = json!({"step_id": "s1", "status_in": ["success"], "code_in": ["OK"]});
        vec![step("s1", "post_call", json!({})), second]
    };
    let codes = |world: World| {
        let run = go(steps(), world);
        run.machine.results().iter().map(|result| result.code.clone()).collect::<Vec<_>>()
    };
    let done = |status, code| codes(World::new().done_before("s1", status, code));
    assert_eq!(done(StepStatus::Success, "OK"), ["OK_SKIP_DUPLICATE", "OK_HTTP_CALL"]);
    assert_eq!(done(StepStatus::Partial, "OK_PARTIAL"), ["OK_SKIP_DUPLICATE", "OK_SKIP_CONDITION"]);
    let silent = World::new().dedupe("s1", DedupeVerdict::Duplicate, None);
    assert_eq!(codes(silent), ["OK_SKIP_DUPLICATE", "OK_SKIP_CONDITION"]);
}

/// AOS-78, AOS-81: natural calls claim nothing, except in a run that goes on from another.
#[test]
fn a_run_with_a_parent_asks_about_every_step() {
    let plan = freeze(plan(10, vec![http_step("s1"), step("s2", "json_transform", json!({}))]));
    let catalog = Kit::standard().shared();
    let alone = execute(&plan, &catalog, World::new());
    assert!(!kinds(&alone).contains(&"dedupe_verdict"));
    let mut child = start(&plan, "r-child");
    child.parent_run_id = Some("r-original".to_owned());
    let world = World::new().dedupe("s1", DedupeVerdict::Duplicate, Some(json!({})));
    let run = run(&plan, &catalog, Arc::new(Pinned), child, world);
    assert_eq!(kinds(&run).iter().filter(|kind| **kind == "dedupe_verdict").count(), 2);
    assert_eq!(run.world.calls.len(), 1);
}

/// AOS-75: every attempt carries the same key, and effects of one dispatch have keys of their own.
#[test]
fn keys_do_not_hold_the_attempt() {
    let run = go(vec![step("s1", "post_call", json!({"effects": 2}))], World::new().always("s1", http(503)));
    let keys = [0, 1].map(|index| effect_key("kit", "", "p-kit", "s1", 1, index));
    assert_eq!(run.world.calls.len(), 4);
    assert!(run.world.calls.iter().all(|(.., used)| used[..] == keys));
}

/// AOS-82, AOS-49: a cancel during a call takes effect before the next attempt is paid for.
#[test]
fn cancel_takes_effect_at_the_next_boundary() {
    let run = go(vec![http_step("s1"), http_step("s2")], World::new().always("s1", http(503)).cancel("s1", 1));
    let end = finished(&run);
    assert_eq!((end.status, end.final_code.as_str()), (RunStatus::Cancelled, "ERR_CANCELLED"));
    assert_eq!(end.stop, stop(StopReason::Cancelled, "s1", "ERR_CANCELLED"));
    assert_eq!(kinds(&run)[7..], ["attempt_judged", "cancel_requested", "step_finished", "run_finished"]);
    let result = run.machine.step_result("s1").expect("an outcome");
    assert_eq!((result.backend_retries, result.total_attempts), (0, 1));
    assert_eq!(result.details["last_error_code"], "ERR_HTTP_503");
}

/// AOS-73.
#[test]
fn a_deadline_ends_the_pending_step() {
    let run = go(vec![http_step("s1"), http_step("s2")], World::new().deadline("s2", 0));
    let end = finished(&run);
    assert_eq!((end.status, end.final_code.as_str()), (RunStatus::Failed, "ERR_TIMEOUT"));
    assert_eq!(end.stop, stop(StopReason::Deadline, "s2", "ERR_TIMEOUT"));
}

/// An interruption is refused while a call is out.
#[test]
fn nothing_interrupts_a_call() {
    let plan = freeze(plan(10, vec![http_step("s1")]));
    let start = start(&plan, "r");
    let mut machine = Machine::new(plan, Kit::standard().shared(), Arc::new(Pinned), start);
    let mut world = World::new();
    loop {
        let body = match machine.next() {
            Next::Ask(Question::Dispatch { .. }) => break,
            Next::Ask(question) => world.ask(&question),
            Next::Decide(body) => *body,
            Next::Finished => panic!("a call is due before the end"),
        };
        machine.apply(&body, None).expect("in place");
    }
    assert!(!machine.boundary());
    let cancel = Body::CancelRequested { by: "x".into(), reason: "y".into() };
    assert!(matches!(machine.apply(&cancel, None), Err(OutOfPlace::Kind { .. })));
    let other = Body::LimiterVerdict { step_id: "s1".into(), attempt: 0, verdict: LimiterVerdict::Allowed };
    let error = machine.apply(&other, None).expect_err("out of place");
    assert_eq!(error.to_string(), "`limiter_verdict` cannot come here: `attempt_observed` is due");
}

/// AOS-57: where the cost of an attempt comes from.
#[test]
fn cost_basis() {
    let llm = || macp_plan_core::testkit::llm_step("s1", "abcd", 10);
    let refused = Cause::Connection { fault: ConnectionFault::Refused };
    let reset = Cause::Connection { fault: ConnectionFault::Reset };
    let bound = 300 + 10 * 1_500;
    let cases = [
        (llm(), Answer::of(Cause::Success).tokens(2, 3), CostBasis::Metered, 2 * 300 + 3 * 1_500),
        (
            llm(),
            Answer::of(Cause::LlmStatus { status: 400, context_length: false }).tokens(1, 0),
            CostBasis::Metered,
            300,
        ),
        (llm(), Answer::of(Cause::ClientTimeout), CostBasis::Reserved, bound),
        (llm(), Answer::of(reset), CostBasis::Reserved, bound),
        (llm(), Answer::of(refused.clone()), CostBasis::None, 0),
        (llm(), Answer::of(Cause::DnsFailure), CostBasis::None, 0),
        (http_step("s1"), http(404), CostBasis::Flat, 0),
        (step("s1", "mail_send", json!({})), Answer::of(Cause::Success), CostBasis::Flat, 1_000_000),
        (step("s1", "mail_send", json!({})), http(404), CostBasis::Flat, 1_000_000),
        (step("s1", "mail_send", json!({})), Answer::of(refused), CostBasis::None, 0),
    ];
    for (step, answer, basis, cost) in cases {
        let said = format!("{answer:?}");
        let run = go(vec![step], World::new().always("s1", answer));
        let attempt = &Behavior::of(run.journal.entries()).steps[0].attempts[0];
        assert_eq!((attempt.cost_basis, attempt.cost_microcents), (basis, cost), "{said}");
        assert_eq!(finished(&run).total_cost_microcents, cost);
    }
}

/// AOS-35: what a plan pinned to 1.0.0 says instead of the codes that came later.
#[test]
fn the_first_taxonomy_has_substitutes() {
    let under_first = |steps: Vec<Value>, world: World| {
        let mut value = plan(1_000, steps);
        value["pins"]["taxonomy_version"] = "1.0.0".into();
        execute(&freeze(value), &Kit::standard().shared(), world)
    };
    let code = |run: &Run, id: &str| run.machine.step_result(id).expect("an outcome").code.clone();
    let partial = under_first(vec![http_step("s1")], World::new().always("s1", Answer::of(Cause::Partial)));
    assert_eq!(code(&partial, "s1"), "OK");
    assert_eq!(partial.machine.results()[0].status, StepStatus::Partial);
    let post = || vec![step("s1", "post_call", json!({}))];
    let conflict = under_first(post(), World::new().dedupe("s1", DedupeVerdict::Conflict, None));
    assert_eq!(code(&conflict, "s1"), "ERR_VALIDATION_FAILED");
    let duplicate = under_first(post(), World::new().dedupe("s1", DedupeVerdict::Duplicate, None));
    assert_eq!(code(&duplicate, "s1"), "OK");
    assert_eq!(duplicate.machine.results()[0].status, StepStatus::Skipped);
    let cancelled = under_first(post(), World::new().cancel("s1", 0));
    assert_eq!(code(&cancelled, "s1"), "ERR_POLICY_VIOLATION");
    assert_eq!(finished(&cancelled).status, RunStatus::Cancelled);
    let doubt = under_first(post(), World::new().always("s1", Answer::of(Cause::EffectInDoubt)));
    assert_eq!(code(&doubt, "s1"), "ERR_UNKNOWN");
    assert_eq!(finished(&doubt).status, RunStatus::InDoubt);
}

/// Partial success counts as success (AOS-25), with its own code where the taxonomy has one.
#[test]
fn partial_goes_on() {
    let run = go(vec![http_step("s1"), http_step("s2")], World::new().always("s1", Answer::of(Cause::Partial)));
    let first = &run.machine.results()[0];
    assert_eq!((first.status, first.code.as_str()), (StepStatus::Partial, "OK_PARTIAL"));
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
}

/// AOS-72: the first timeout that exists.
#[test]
fn timeouts_by_precedence() {
    let asked = |step: Value| {
        let plan = freeze(plan(10, vec![step]));
        let start = start(&plan, "r");
        let mut machine = Machine::new(plan, Kit::standard().shared(), Arc::new(Pinned), start);
        let mut world = World::new();
        loop {
            let body = match machine.next() {
                Next::Ask(Question::Dispatch { timeout_ms, .. }) => return timeout_ms,
                Next::Ask(question) => world.ask(&question),
                Next::Decide(body) => *body,
                Next::Finished => panic!("a call is due before the end"),
            };
            machine.apply(&body, None).expect("in place");
        }
    };
    let mut with_own = step("s1", "http_call", json!({}));
    assert_eq!(asked(with_own.clone()), 5_000);
    with_own["timeout_ms"] = 700.into();
    assert_eq!(asked(with_own.clone()), 700);
    with_own["parameters"]["timeout_ms"] = 300.into();
    assert_eq!(asked(with_own), 300);
}

/// A plan of the largest size costs a multiple of entries, not a multiple of their square.
#[test]
fn the_journal_grows_with_the_plan_only() {
    let steps: Vec<Value> = (0..256).map(|place| http_step(&format!("s{place}"))).collect();
    let run = go(steps, World::new());
    assert_eq!(run.journal.entries().len(), 3 + 256 * 7);
    assert_eq!(finished(&run).status, RunStatus::Succeeded);
}

/// AOS-15: a reference beyond its limit makes no names to keep outputs for, and the step that has it is never called.
#[test]
fn an_over_long_reference_is_not_resolved() {
    let long = format!("s1{}", ".a".repeat(200_000));
    assert!(Reference { text: long.clone() }.names().count() <= STEP_ID_MAX);
    let second = step("s2", "http_call", json!({"host": format!("{{{{{long}}}}}")}));
    let run = go(vec![http_step("s1"), second], World::new());
    assert_eq!(finished(&run).stop, stop(StopReason::StepFailed, "s2", "ERR_VALIDATION_FAILED"));
    assert_eq!(run.machine.output("s1"), None, "nothing refers to it");
    let size = serde_json::to_string(run.journal.entries()).expect("JSON").len();
    assert!(size < 20_000, "the journal does not repeat the reference: {size} bytes");
}
