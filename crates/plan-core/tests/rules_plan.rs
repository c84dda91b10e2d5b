//! Reading frozen plans: the model is closed, and every limit is kept.

mod rules;

use macp_plan_core::plan::{FrozenPlan, OnError, PlanError, StepStatus, Thousandths};
use rules::{PLAN, PLAN_HASH};
use serde_json::{Value, json};

fn plan() -> Value {
    serde_json::from_str(PLAN).expect("the published plan")
}

/// The published plan with one place set to something else.
fn with(pointer: &str, value: Value) -> Value {
    let mut plan = plan();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match plan.pointer_mut(parent).expect(pointer) {
        Value::Object(members) => drop(members.insert(key.to_owned(), value)),
        Value::Array(elements) => elements[key.parse::<usize>().expect("an index")] = value,
        _ => panic!("{pointer} is a leaf"),
    }
    plan
}

fn problem(plan: Value) -> String {
    match FrozenPlan::from_value(plan) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_published_plan_is_read() {
    let frozen = FrozenPlan::parse(PLAN.as_bytes()).expect("the published plan");
    assert_eq!(frozen.hash.as_str(), PLAN_HASH);
    let step = &frozen.plan.steps[0];
    assert_eq!((step.name(), step.skill_key().as_str()), ("s1", "http_call@1.2.0"));
    assert_eq!(step.on_error, OnError::Abort);
    assert_eq!(step.retry_policy.backoff_multiplier, Thousandths(2000));
    // Another spelling of the same numbers is the same plan.
    let spelled = PLAN.replace("\"budget_cents\": 5", "\"budget_cents\": 5.0").replace("60000", "6e4");
    assert_ne!(spelled, PLAN);
    assert_eq!(FrozenPlan::parse(spelled.as_bytes()).expect("the same plan").hash, frozen.hash);
}

/// AOS-10, 12, 13, 16, 17, 18, 20: each limit from both sides.
#[test]
fn limits_are_kept() {
    let deep = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"x": inner}));
    let step = plan()["steps"][0].clone();
    let steps = |count: usize| {
        (0..count)
            .map(|index| {
                let mut step = step.clone();
                step["step_id"] = json!(format!("s{index}"));
                step
            })
            .collect::<Vec<_>>()
    };
    let good = [
        ("/plan_id", json!("x".repeat(128))),
        ("/created_at", json!("2026-03-01t09:00:00.123456z")),
        ("/created_at", json!("2026-03-01T23:59:60-23:59")),
        ("/goal", json!("")),
        ("/steps", json!(steps(256))),
        ("/steps/0/step_id", json!("A-z_0.9")),
        ("/steps/0/skill_version", json!("1.2.0-rc.1")),
        ("/steps/0/timeout_ms", json!(3_600_000)),
        ("/steps/0/parameters", deep(100)),
        ("/steps/0/max_cost_cents", json!(0)),
        ("/steps/0/retry_policy/max_retries", json!(10)),
        ("/steps/0/retry_policy/backoff_multiplier", json!(1.125)),
        ("/steps/0/retry_policy/backoff_multiplier", json!(10)),
        ("/steps/0/retry_policy/retryable_codes", json!([])),
        ("/context/budget_cents", json!(9_000_000_000_u64)),
        ("/context/budget_policy/alert_threshold_percent", json!(100)),
        ("/context/currency", json!("EUR")),
        ("/metadata", json!({"planner": "p"})),
    ];
    for (place, value) in good {
        assert_eq!(problem(with(place, value)), "accepted", "{place}");
    }
    let bad = [
        ("/plan_id", json!(""), "plan_id must have"),
        ("/plan_id", json!("x".repeat(129)), "plan_id must have"),
        ("/agent_id", json!(""), "agent_id must have"),
        ("/created_at", json!("yesterday"), "RFC 3339"),
        ("/created_at", json!("2026-13-01T09:00:00Z"), "RFC 3339"),
        ("/created_at", json!("2026-03-01T09:00:00"), "RFC 3339"),
        ("/created_at", json!("2026-03-01T09:00:00.Z"), "RFC 3339"),
        ("/created_at", json!("2026-03-01T09:00:00+1:00"), "RFC 3339"),
        ("/steps", json!([]), "1 to 256 steps"),
        ("/steps", json!(steps(257)), "1 to 256 steps"),
        ("/steps/0/step_id", json!("a b"), "step `a b`: step_id is `a b`"),
        ("/steps/0/step_id", json!("x".repeat(65)), "step_id is"),
        ("/steps/0/output_key", json!(""), "output_key is"),
        ("/steps/0/skill_id", json!("Http"), "no skill id"),
        ("/steps/0/skill_version", json!("1.2"), "no exact version"),
        ("/steps/0/skill_version", json!("^1.2.0"), "no exact version"),
        ("/steps/0/skill_version", json!("01.2.0"), "no exact version"),
        ("/steps/0/timeout_ms", json!(0), "timeout_ms is 0"),
        ("/steps/0/timeout_ms", json!(3_600_001), "timeout_ms is"),
        ("/steps/0/parameters", deep(101), "nest deeper"),
        ("/steps/0/retry_policy/max_retries", json!(11), "max_retries is 11"),
        ("/steps/0/retry_policy/backoff_base_ms", json!(600_001), "backoff_base_ms is"),
        ("/steps/0/retry_policy/jitter_max_ms", json!(600_001), "jitter_max_ms is"),
        ("/steps/0/retry_policy/max_delay_ms", json!(3_600_001), "max_delay_ms is"),
        ("/steps/0/retry_policy/backoff_multiplier", json!(0.999), "three decimals"),
        ("/steps/0/retry_policy/backoff_multiplier", json!(10.001), "three decimals"),
        ("/steps/0/retry_policy/backoff_multiplier", json!(1.0001), "three decimals"),
        ("/steps/0/retry_policy/retryable_codes", json!(["ERR_HTTP_503", "ERR_DNS_FAILURE"]), "not sorted"),
        ("/steps/0/retry_policy/retryable_codes", json!(["ERR_HTTP_503", "ERR_HTTP_503"]), "not sorted"),
        ("/steps/0/run_if", json!({"step_id": "s0"}), "tests nothing"),
        ("/steps/0/run_if", json!({"step_id": "s0", "status_in": []}), "tests nothing"),
        ("/steps/0/run_if", json!({"step_id": "s0", "content_is": "x"}), "unknown field"),
        ("/steps/0/on_error", json!("fallback"), "unknown variant"),
        ("/steps/0/condition", json!("x"), "step `s1`: unknown field `condition`"),
        ("/steps/0/max_cost_cents", json!(9_000_000_001_u64), "max_cost_cents is"),
        ("/context/budget_cents", json!(9_000_000_001_u64), "budget_cents is"),
        ("/context/budget_cents", json!(-1), "invalid value"),
        ("/context/budget_cents", json!(1.5), "invalid type"),
        ("/context/allowed_skills", json!(["Http"]), "no skill id"),
        ("/context/budget_policy/alert_threshold_percent", json!(101), "alert_threshold_percent is 101"),
        ("/status", json!("running"), "unknown field `status`"),
        ("/pins/rate_card/hash", json!("sha256:short"), "64 lower-case"),
    ];
    for (place, value, expected) in bad {
        let found = problem(with(place, value));
        assert!(found.contains(expected), "{place}: {found}");
    }
}

#[test]
fn every_misfit_is_listed_with_its_step() {
    let mut plan = with("/steps/0/timeout_ms", json!(0));
    plan["steps"][1]["skill_version"] = json!("latest");
    plan["context"]["budget_cents"] = json!(u32::MAX as u64 * 100);
    let Err(PlanError::Findings(findings)) = FrozenPlan::from_value(plan) else { panic!("refused") };
    let places: Vec<_> = findings.iter().map(|finding| (finding.rule, finding.step_id.as_deref())).collect();
    assert_eq!(places, [("AOS-13", Some("s1")), ("AOS-13", Some("s2")), ("AOS-17", None)]);
    let mut plan = with("/steps/0/colour", json!("red"));
    plan["steps"][1].as_object_mut().expect("a step").remove("parameters");
    let Err(PlanError::Findings(findings)) = FrozenPlan::from_value(plan) else { panic!("refused") };
    let steps: Vec<_> = findings.iter().map(|finding| finding.step_id.as_deref()).collect();
    assert_eq!(steps, [Some("s1"), Some("s2")]);
}

/// AOS-7, AOS-12: texts that are no plan at all.
#[test]
fn texts_are_read_strictly() {
    let text = |text: &str| FrozenPlan::parse(text.as_bytes());
    assert!(matches!(text("{"), Err(PlanError::Json(_))));
    assert!(matches!(text(&PLAN.replacen('{', "{\"goal\":\"g\",", 1)), Err(PlanError::Json(_))), "a key twice");
    assert!(matches!(text("[]"), Err(PlanError::Findings(_))));
    assert!(matches!(text(&"[".repeat(1000)), Err(PlanError::Json(_))));
    let large = PLAN.replace("Fetch the status page", &"x".repeat(512 * 1024));
    assert!(matches!(text(&large), Err(PlanError::TooLarge(_))));
    let padded = format!("{PLAN}{}", " ".repeat(512 * 1024));
    assert!(matches!(text(&padded), Err(PlanError::TooLarge(_))));
    let huge = PLAN.replace("5000", "9007199254740993");
    assert!(matches!(text(&huge), Err(PlanError::Canonical(_))));
}

/// AOS-16: a condition looks at status and code only; where both are given both must hold.
#[test]
fn conditions() {
    let condition = |value: Value| {
        let plan = with("/steps/1/run_if", value);
        FrozenPlan::from_value(plan).expect("a plan").plan.steps[1].run_if.clone().expect("a condition")
    };
    let by_status = condition(json!({"step_id": "s1", "status_in": ["success", "partial"]}));
    assert!(by_status.holds(StepStatus::Success, "OK_HTTP_CALL") && by_status.holds(StepStatus::Partial, "OK"));
    assert!(!by_status.holds(StepStatus::Failure, "ERR_HTTP_404"));
    let by_code = condition(json!({"step_id": "s1", "code_in": ["ERR_HTTP_404"]}));
    assert!(by_code.holds(StepStatus::Failure, "ERR_HTTP_404") && !by_code.holds(StepStatus::Failure, "ERR_HTTP_403"));
    let both = condition(json!({"step_id": "s1", "status_in": ["failure"], "code_in": ["ERR_HTTP_404"]}));
    assert!(both.holds(StepStatus::Failure, "ERR_HTTP_404"));
    assert!(!both.holds(StepStatus::Failure, "ERR_HTTP_403") && !both.holds(StepStatus::Skipped, "ERR_HTTP_404"));
}
