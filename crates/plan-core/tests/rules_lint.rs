//! Lint and freezing tell everything at once: a step that cannot be frozen hides nothing of what else is wrong.

mod rules;

use macp_plan_core::finding::Finding;
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::lint::lint;
use macp_plan_core::plan::AdmissionLimits;
use rules::{reasons, shelf, warnings};
use serde_json::{Value, json};

fn options() -> FreezeOptions {
    FreezeOptions { created_at: Some("2026-11-03T10:00:00Z".to_owned()), ..FreezeOptions::default() }
}

fn step(step_id: &str, version: &str, parameters: Value) -> Value {
    json!({"step_id": step_id, "skill_id": "http_call", "skill_version": version, "parameters": parameters})
}

fn authored(steps: Vec<Value>) -> Value {
    json!({
        "plan_id": "p1", "agent_id": "a1", "goal": "g", "steps": steps,
        "context": {"budget_cents": 10, "allowed_skills": ["http_call"]},
    })
}

fn linted(plan: &Value) -> Vec<Finding> {
    lint(plan.to_string().as_bytes(), &shelf(), &options())
}

/// The reasons of errors with the steps they are about.
fn errors(findings: &[Finding]) -> Vec<(&str, &str)> {
    let errors = findings.iter().filter(|finding| finding.is_error());
    errors.map(|finding| (finding.step_id.as_deref().unwrap_or(""), finding.reason)).collect()
}

/// AOS-99, AOS-13, AOS-15, AOS-20: the step of an unknown version is checked like every other, and so are the rest.
#[test]
fn an_unknown_version_hides_nothing() {
    let url = || json!({"url": "https://a.example"});
    let mut unknown = step("s1", "9.9.9", json!({"url": "{{later.body}}"}));
    unknown["retry_policy"] = json!({"max_retries": 99});
    unknown["timeout_ms"] = json!(0);
    let mut not_allowed = step("s2", "1.2.0", url());
    not_allowed["skill_id"] = json!("json_transform");
    not_allowed["skill_version"] = json!("2.0.0");
    let reads = step("s3", "1.2.0", json!({"url": "{{s1.body}}{{nowhere}}"}));
    let plan = authored(vec![unknown, not_allowed, reads, step("s3", "1.2.0", json!({"url": 7}))]);
    let expected = [
        ("s1", "skill_not_registered"),
        ("s1", "limit"),
        ("s1", "limit"),
        ("s3", "duplicate_step_id"),
        ("s1", "reference_unknown"),
        ("s3", "reference_unknown"),
        ("s2", "skill_not_allowed"),
        ("s3", "parameters_invalid"),
    ];
    let findings = linted(&plan);
    assert_eq!(errors(&findings), expected, "{findings:#?}");
    let frozen = freeze(&plan, &shelf(), &options()).expect_err("it cannot be frozen");
    assert_eq!(errors(&frozen), expected, "freezing says the same");
}

/// What refers to a step of an unknown version is right, and is not called wrong.
#[test]
fn a_step_of_an_unknown_version_can_be_referred_to() {
    let mut last = step("s2", "1.2.0", json!({"url": "{{s1.body}}"}));
    last["run_if"] = json!({"step_id": "s1", "status_in": ["success"]});
    let findings = linted(&authored(vec![step("s1", "9.9.9", json!({})), last]));
    assert_eq!(errors(&findings), [("s1", "skill_not_registered")]);
}

/// AOS-16, AOS-69: advice is given beside errors.
#[test]
fn advice_is_given_beside_errors() {
    let secret = json!({"url": "https://a.example", "headers": {"Authorization": "Bearer abc"}});
    let mut plan = authored(vec![step("s1", "9.9.9", json!({})), step("s2", "1.2.0", secret)]);
    plan["context"]["allowed_skills"] = json!(["http_call", "llm_invoke"]);
    assert_eq!(warnings(&linted(&plan)), ["secret_in_plan", "skill_unused"]);
}

/// Parts that are missing keep the rest from being frozen, not from being looked at; steps that cannot even be named
/// are not missed by those that may refer to them.
#[test]
fn missing_parts_hide_nothing() {
    let mut plan = authored(vec![step("s1", "1.2.0", json!({"url": 7}))]);
    plan.as_object_mut().unwrap().remove("plan_id");
    plan["pins"] = json!({"taxonomy_version": "7.0.0"});
    assert_eq!(reasons(&linted(&plan)), ["field_missing", "taxonomy_unavailable", "parameters_invalid"]);
    let nameless = json!({"skill_id": "http_call", "skill_version": "1.2.0"});
    let plan = authored(vec![nameless, step("s2", "1.2.0", json!({"url": "{{it.body}}"}))]);
    assert_eq!(reasons(&linted(&plan)), ["field_missing"]);
    assert_eq!(reasons(&linted(&authored(vec![json!(7)]))), ["field_kind"]);
    let mut wrong = step("s1", "1.2.0", json!({"url": 7}));
    wrong["on_error"] = json!("explode");
    assert_eq!(reasons(&linted(&authored(vec![wrong]))), ["on_error_unknown", "parameters_invalid"]);
}

/// AOS-18: limits over runs are whole cents, and nothing else stands beside them.
#[test]
fn limits_over_runs_are_read() {
    let with = |admission: Value| {
        let mut plan = authored(vec![step("s1", "1.2.0", json!({"url": "https://a.example"}))]);
        plan["context"]["budget_policy"] = json!({"admission": admission});
        plan
    };
    let frozen = |admission: Value| freeze(&with(admission), &shelf(), &options()).expect("it can be frozen");
    let read = |admission: Value| frozen(admission).plan.context.budget_policy.admission;
    assert_eq!(read(json!(null)), None);
    let limits = AdmissionLimits { per_day_max_cents: Some(50), ..AdmissionLimits::default() };
    assert_eq!(read(json!({"per_day_max_cents": 50, "per_month_max_cents": null})), Some(limits));
    let written = json!({"per_run_max_cents": null, "per_day_max_cents": 50, "per_month_max_cents": null});
    let once = frozen(json!({"per_day_max_cents": 50}));
    assert_eq!(once.value["context"]["budget_policy"]["admission"], written);
    assert_eq!(freeze(&once.value, &shelf(), &options()).expect("frozen again").hash, once.hash);
    for (wrong, reason, told) in [
        (json!({"per_day_max_cents": -1}), "field_kind", "per_day_max_cents"),
        (json!({"per_day_max_cents": 1.5}), "field_kind", "per_day_max_cents"),
        (json!({"per_day_max_cents": "50"}), "field_kind", "per_day_max_cents"),
        (json!({"per_week_max_cents": 50}), "field_unknown", "per_week_max_cents"),
        (json!({"per_run_max_cents": 9_000_000_001_u64}), "limit", "admission.per_run_max_cents"),
        (json!([]), "field_kind", "admission"),
    ] {
        let findings = freeze(&with(wrong.clone()), &shelf(), &options()).expect_err("refused");
        assert_eq!(reasons(&findings), [reason], "{wrong}");
        assert!(findings[0].problem.contains(told), "{wrong}: {}", findings[0].problem);
    }
}
