//! Preflight: every check, in its order, every finding listed.

mod rules;

use macp_plan_core::check::{preflight, rejection};
use macp_plan_core::effect::Idempotency;
use macp_plan_core::finding::{Finding, Level};
use macp_plan_core::freeze::FreezeOptions;
use macp_plan_core::limits::{FINDINGS_MAX, OFFERED_NAMES_MAX};
use macp_plan_core::lint::lint;
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::skill::IdempotencyClass;
use rules::{Declared, PLAN, Shelf, build, reasons, shelf, warnings};
use serde_json::{Value, json};

fn published() -> Value {
    serde_json::from_str(PLAN).expect("the published plan")
}

fn check(plan: Value, shelf: &Shelf) -> Vec<Finding> {
    preflight(&FrozenPlan::from_value(plan).expect("a frozen plan"), shelf)
}

fn edited(edit: impl FnOnce(&mut Value)) -> Value {
    let mut plan = published();
    edit(&mut plan);
    plan
}

#[test]
fn the_published_plan_passes() {
    let findings = check(published(), &shelf());
    assert_eq!(findings, []);
    assert!(rejection(&findings).is_none());
}

/// AOS-68, AOS-99: one violation at a time, with code, rule and step.
#[test]
fn each_check_finds_its_own() {
    let all_503 = json!(["ERR_HTTP_503"]);
    let cases: Vec<(Value, &str, &str, Option<&str>)> = vec![
        (edited(|plan| plan["steps"][1]["step_id"] = json!("s1")), "duplicate_step_id", "AOS-13", Some("s1")),
        (edited(|plan| plan["steps"][1]["output_key"] = json!("s1")), "duplicate_output_key", "AOS-13", Some("s2")),
        (
            edited(|plan| plan["steps"][0]["parameters"]["url"] = json!("{{s2.url}}")),
            "reference_not_earlier",
            "AOS-15",
            Some("s1"),
        ),
        (
            edited(|plan| plan["steps"][1]["parameters"]["prompt"] = json!("{{s2.x}}")),
            "reference_not_earlier",
            "AOS-15",
            Some("s2"),
        ),
        (
            edited(|plan| plan["steps"][1]["parameters"]["prompt"] = json!("{{s7.x}}")),
            "reference_unknown",
            "AOS-15",
            Some("s2"),
        ),
        (
            edited(|plan| plan["steps"][1]["parameters"]["prompt"] = json!("{{s1.x")),
            "reference_malformed",
            "AOS-15",
            Some("s2"),
        ),
        (edited(|plan| plan["steps"][0]["output_key"] = json!("page")), "reference_unknown", "AOS-15", Some("s2")),
        (
            edited(|plan| plan["steps"][0]["run_if"] = json!({"step_id": "s2", "status_in": ["success"]})),
            "condition_not_earlier",
            "AOS-16",
            Some("s1"),
        ),
        (edited(|plan| plan["pins"]["spec"] = json!("aos/2")), "spec_unavailable", "AOS-99", None),
        (edited(|plan| plan["pins"]["jitter"] = json!("dice")), "jitter_unavailable", "AOS-99", None),
        (
            edited(|plan| plan["pins"]["token_estimator"] = json!("chars")),
            "token_estimator_unavailable",
            "AOS-99",
            None,
        ),
        (edited(|plan| plan["pins"]["rate_card"]["id"] = json!("rc-0")), "rate_card_unavailable", "AOS-99", None),
        (edited(|plan| plan["pins"]["rate_card"]["hash"] = json!(build("other"))), "rate_card_differs", "AOS-99", None),
        (
            edited(|plan| plan["pins"]["rate_card"]["card"] = json!({"id": "rc-2026-03"})),
            "rate_card_unusable",
            "AOS-99",
            None,
        ),
        (
            edited(|plan| plan["steps"][0]["retry_policy"]["retryable_codes"] = json!(["ERR_HTTP_404"])),
            "code_not_retryable",
            "AOS-42",
            Some("s1"),
        ),
        (
            edited(|plan| plan["steps"][0]["retry_policy"]["retryable_codes"] = json!(["ERR_RATE_LIMITED"])),
            "code_unknown",
            "AOS-33",
            Some("s1"),
        ),
        (
            edited(|plan| plan["steps"][1]["run_if"] = json!({"step_id": "s1", "code_in": ["OK_MAYBE"]})),
            "code_unknown",
            "AOS-33",
            Some("s2"),
        ),
        (edited(|plan| plan["steps"][0]["parameters"]["url"] = json!(7)), "parameters_invalid", "AOS-68", Some("s1")),
    ];
    for (plan, reason, rule, step) in cases {
        let findings = check(plan, &shelf());
        let found: Vec<_> =
            findings.iter().map(|finding| (finding.reason, finding.rule, finding.step_id.as_deref())).collect();
        assert_eq!(found, [(reason, rule, step)]);
        assert_eq!((findings[0].code, findings[0].level), ("ERR_VALIDATION_FAILED", Level::Error), "{reason}");
        assert!(!findings[0].fix.is_empty(), "{reason}");
    }
    let other = edited(|plan| {
        plan["steps"][0]["retry_policy"]["retryable_codes"] = all_503;
        plan["pins"]["taxonomy_version"] = json!("7.0.0");
    });
    let findings = check(other, &shelf());
    assert_eq!(reasons(&findings), ["taxonomy_unavailable"]);
    assert_eq!(findings[0].available, ["1.0.0", "1.1.0"]);
}

/// AOS-99: skills that are missing, switched off, or of another build.
#[test]
fn skills_must_be_here_in_exactly_the_pinned_version() {
    let findings = check(edited(|plan| plan["steps"][0]["skill_version"] = json!("1.3.0")), &shelf());
    assert_eq!((findings[0].code, findings[0].reason), ("ERR_SKILL_NOT_FOUND", "skill_not_registered"));
    assert_eq!((findings[0].available.clone(), findings.len()), (vec!["1.2.0".to_owned()], 1));

    let mut disabled = shelf();
    disabled.registration("http_call", "1.2.0").enabled = false;
    let findings = check(published(), &disabled);
    assert_eq!((findings[0].code, findings[0].reason), ("ERR_SKILL_DISABLED", "skill_disabled"));

    let pinned = edited(|plan| plan["pins"]["skill_builds"] = json!({"http_call@1.2.0": build("a")}));
    let mut built = shelf();
    built.registration("http_call", "1.2.0").build = Some(build("a"));
    assert_eq!(check(pinned.clone(), &built), []);
    for other in [Some(build("b")), None] {
        built.registration("http_call", "1.2.0").build = other;
        let findings = check(pinned.clone(), &built);
        assert_eq!(warnings(&findings), ["skill_build_changed"]);
        assert!(rejection(&findings).is_none(), "a warning rejects nothing");
    }
}

/// AOS-69: the plan's own list decides; an empty one allows nothing.
#[test]
fn only_allowed_skills_pass() {
    for (allowed, steps) in [(json!(["http_call"]), vec!["s2"]), (json!([]), vec!["s1", "s2"])] {
        let findings = check(edited(|plan| plan["context"]["allowed_skills"] = allowed), &shelf());
        let found: Vec<_> = findings.iter().map(|finding| finding.step_id.clone().expect("a step")).collect();
        assert_eq!(found, steps);
        assert!(findings.iter().all(|it| (it.code, it.reason) == ("ERR_PERMISSION_DENIED", "skill_not_allowed")));
    }
}

#[test]
fn permissions_are_granted_by_the_operator() {
    let mut shelf = shelf();
    let mut skill = rules::http_call();
    skill.metadata.permissions = vec!["network:outbound".to_owned()];
    shelf.add(skill);
    assert_eq!(check(published(), &shelf), []);
    shelf.withheld.insert("network:outbound".to_owned());
    let findings = check(published(), &shelf);
    assert_eq!((findings[0].code, findings[0].reason), ("ERR_PERMISSION_DENIED", "permission_missing"));
}

/// AOS-60, AOS-54, AOS-21, AOS-68: what a skill declares must be usable.
#[test]
fn declarations_are_checked() {
    let mut costly = published();
    costly["steps"][1]["parameters"] =
        json!({"model": "claude-sonnet-4-20250514", "max_tokens": 9_000_000_000_000_u64});
    assert_eq!(reasons(&check(costly, &shelf())), ["cost_too_large"]);

    let replaced = |skill: Declared| {
        let mut shelf = shelf();
        shelf.add(skill);
        reasons(&check(published(), &shelf))
    };
    let mut unpriced = rules::http_call();
    unpriced.metadata.cost_model.rate_card_key = "http_call@9.9.9".to_owned();
    assert_eq!(replaced(unpriced), ["price_unknown"]);
    assert_eq!(
        replaced(Declared::new("http_call", "1.2.0", IdempotencyClass::PerCall, &["ERR_ODD"])),
        ["failure_mode_unknown"]
    );
    let keyed = Declared::new("http_call", "1.2.0", IdempotencyClass::Keyed, &[]);
    assert_eq!(replaced(keyed.clone()), [""; 0]);
    assert_eq!(replaced(Declared { in_fact: Some(Idempotency::None), ..keyed }), ["idempotency_undeclared"]);
    // Codes of a later version are no fault of a plan that is pinned to an earlier one.
    let mut shelf = shelf();
    shelf.add(Declared::new("http_call", "1.2.0", IdempotencyClass::PerCall, &["ERR_EFFECT_IN_DOUBT"]));
    assert_eq!(check(edited(|plan| plan["pins"]["taxonomy_version"] = json!("1.0.0")), &shelf), []);
    // A model that only a reference names is priced when it is known.
    let late = edited(|plan| plan["steps"][1]["parameters"]["model"] = json!("{{s1.model}}"));
    assert_eq!(check(late, &rules::shelf()), []);
}

/// Names with points can be ambiguous; then one of them must get another name.
#[test]
fn ambiguous_references_are_refused() {
    let plan = edited(|plan| {
        let mut dotted = plan["steps"][0].clone();
        dotted["step_id"] = json!("s1.body");
        plan["steps"].as_array_mut().expect("steps").insert(1, dotted);
    });
    let findings = check(plan.clone(), &shelf());
    assert_eq!(reasons(&findings), ["reference_ambiguous"]);
    assert!(findings[0].problem.contains("`s1.body` and of `s1`"), "{}", findings[0].problem);
    let mut renamed = plan;
    renamed["steps"][1]["output_key"] = json!("other");
    assert_eq!(check(renamed, &shelf()), []);
}

/// AOS-68: all findings, in the order of the checks; the first error gives the code.
#[test]
fn findings_come_in_the_order_of_the_checks() {
    let plan = edited(|plan| {
        plan["context"]["allowed_skills"] = json!([]);
        plan["steps"][1]["step_id"] = json!("s1");
        plan["steps"][0]["parameters"] = json!({"url": 7});
        plan["steps"][0]["retry_policy"]["retryable_codes"] = json!(["ERR_HTTP_404"]);
        plan["steps"][1]["skill_version"] = json!("9.0.0");
        plan["steps"][1]["parameters"]["prompt"] = json!("{{nobody}}");
        plan["pins"]["spec"] = json!("aos/9");
        plan["pins"]["skill_builds"] = json!({"http_call@1.2.0": build("a")});
    });
    let findings = check(plan, &shelf());
    let expected = [
        "duplicate_step_id",
        "reference_unknown",
        "spec_unavailable",
        "code_not_retryable",
        "skill_not_registered",
        "skill_not_allowed",
        "skill_not_allowed",
        "parameters_invalid",
    ];
    assert_eq!(reasons(&findings), expected);
    assert_eq!(warnings(&findings), ["skill_build_changed"]);
    assert_eq!(findings.last().map(|finding| finding.level), Some(Level::Warning));
    assert_eq!(rejection(&findings).map(|finding| finding.reason), Some("duplicate_step_id"));
    let code = |plan: Value| rejection(&check(plan, &shelf())).map(|finding| finding.code);
    let not_found = edited(|plan| {
        plan["steps"][1]["skill_version"] = json!("9.0.0");
        plan["context"]["allowed_skills"] = json!([]);
    });
    assert_eq!(code(not_found), Some("ERR_SKILL_NOT_FOUND"));
}

/// A plan that is no longer what its digest names is refused before all else.
#[test]
fn an_altered_plan_is_noticed() {
    let mut frozen = FrozenPlan::parse(PLAN.as_bytes()).expect("the published plan");
    frozen.value["goal"] = json!("another");
    assert_eq!(reasons(&preflight(&frozen, &shelf())), ["plan_altered"]);
}

#[test]
fn findings_are_data_and_text() {
    let findings = check(edited(|plan| plan["steps"][0]["skill_version"] = json!("1.3.0")), &shelf());
    let value = serde_json::to_value(&findings[0]).expect("JSON");
    assert_eq!(value["level"], "error");
    assert_eq!(
        (&value["rule"], &value["step_id"], &value["available"]),
        (&json!("AOS-99"), &json!("s1"), &json!(["1.2.0"]))
    );
    let text = findings[0].to_string();
    assert!(text.starts_with("step `s1`: the skill `http_call`") && text.ends_with("[AOS-99]"), "{text}");
}

/// AOS-15: a reference beyond its limit is refused, and the finding does not repeat it.
#[test]
fn an_over_long_reference_is_one_short_finding() {
    let long = format!("{{{{s1{}}}}}", ".a".repeat(200_000));
    let findings = check(edited(|plan| plan["steps"][1]["parameters"]["prompt"] = json!(long)), &shelf());
    assert_eq!(reasons(&findings), ["reference_malformed"]);
    assert!(findings[0].problem.len() < 300, "{} bytes", findings[0].problem.len());
}

/// As many findings as anybody reads, and one that says that there are more; names are offered once per step.
#[test]
fn findings_are_bounded() {
    let bad = |count: usize| edited(|plan| plan["steps"][1]["parameters"]["prompt"] = json!("{{x}}".repeat(count)));
    assert_eq!(reasons(&check(bad(FINDINGS_MAX), &shelf())), vec!["reference_unknown"; FINDINGS_MAX]);
    for count in [FINDINGS_MAX + 1, 50_000] {
        let findings = check(bad(count), &shelf());
        assert_eq!(findings.len(), FINDINGS_MAX + 1);
        let last = findings.last().expect("a finding");
        assert_eq!((last.reason, last.level), ("findings_left_out", Level::Error));
        assert_eq!(findings[0].available, ["s1"]);
        assert!(findings[1..].iter().all(|finding| finding.available.is_empty()));
        assert_eq!(rejection(&findings).map(|finding| finding.reason), Some("reference_unknown"));
        let linted = lint(bad(count).to_string().as_bytes(), &shelf(), &FreezeOptions::default());
        assert_eq!(reasons(&linted), reasons(&findings), "said once, however often it is bounded");
    }
    let mut skills = published();
    skills["context"]["allowed_skills"] = json!(vec![""; 100_000]);
    let findings = FrozenPlan::from_value(skills).expect_err("no skill ids").into_findings();
    assert_eq!((findings.len(), findings[FINDINGS_MAX].reason), (FINDINGS_MAX + 1, "findings_left_out"));
}

/// Only the nearest earlier steps are offered, and warnings stay behind the errors where some are left out.
#[test]
fn names_are_offered_from_near_by() {
    let plan = edited(|plan| {
        let first = plan["steps"][0].clone();
        let steps = (0..100).map(|number| {
            let mut step = first.clone();
            step["step_id"] = json!(format!("n{number}"));
            step
        });
        let mut steps: Vec<Value> = steps.collect();
        steps[99]["parameters"]["url"] = json!("{{x}}{{y}}");
        plan["steps"] = json!(steps);
        plan["pins"]["skill_builds"] = json!({"http_call@1.2.0": build("a")});
    });
    let findings = check(plan.clone(), &shelf());
    assert_eq!(reasons(&findings), ["reference_unknown"; 2]);
    assert_eq!(findings[0].available.len(), OFFERED_NAMES_MAX);
    assert_eq!(findings[0].available.last().map(String::as_str), Some("n98"));
    assert!(findings[1].available.is_empty());
    assert_eq!(warnings(&findings).len(), 100);

    let mut more = plan;
    more["steps"][99]["parameters"]["url"] = json!("{{x}}".repeat(150));
    let findings = check(more, &shelf());
    assert_eq!((reasons(&findings).len(), findings.len()), (150, FINDINGS_MAX + 1));
    let last = findings.last().expect("a finding");
    assert_eq!((last.reason, last.level), ("findings_left_out", Level::Warning), "no error was left out");
}
