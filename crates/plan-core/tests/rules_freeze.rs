//! Freezing: defaults, other spellings, pins, and refusals that say what to do instead.

mod rules;

use std::collections::BTreeMap;

use macp_plan_core::finding::Finding;
use macp_plan_core::freeze::{FreezeOptions, Freezing, Profile, freeze, freeze_with_notes};
use macp_plan_core::lint::lint;
use macp_plan_core::plan::{AdmissionLimits, FrozenPlan, OnError, Step, StepStatus, Thousandths};
use macp_plan_core::rate_card;
use macp_plan_core::skill::IdempotencyClass;
use macp_plan_core::testkit::Kit;
use rules::{Declared, PLAN, PLAN_HASH, Shelf, build, http_call, reasons, shelf, warnings};
use serde_json::{Value, json};

fn options() -> FreezeOptions {
    FreezeOptions { created_at: Some("2026-11-03T10:00:00Z".to_owned()), ..FreezeOptions::default() }
}

fn authored() -> Value {
    json!({
        "plan_id": "p1", "agent_id": "a1", "goal": "g",
        "steps": [{"step_id": "s1", "skill_id": "http_call", "skill_version": "1.2.0",
                   "parameters": {"method": "GET", "url": "https://api.example.com/data"}}],
        "context": {"budget_cents": 10, "allowed_skills": ["http_call"]},
    })
}

/// The authored plan with more fields in its step.
fn with_step(fields: Value) -> Value {
    let mut plan = authored();
    let Value::Object(fields) = fields else { panic!("an object") };
    plan["steps"][0].as_object_mut().expect("a step").extend(fields);
    plan
}

fn step(plan: &Value) -> Step {
    frozen(plan).plan.steps.remove(0)
}

fn frozen(plan: &Value) -> FrozenPlan {
    freeze(plan, &shelf(), &options()).unwrap_or_else(|findings| panic!("{findings:#?}"))
}

fn refused(plan: &Value) -> Vec<Finding> {
    freeze(plan, &shelf(), &options()).expect_err("refused")
}

/// AOS-11, AOS-14, AOS-18, AOS-20, AOS-42: everything left open is written in.
#[test]
fn defaults_are_written_in() {
    let frozen = frozen(&authored());
    let policy = &frozen.plan.steps[0].retry_policy;
    assert_eq!((policy.max_retries, policy.backoff_base_ms, policy.max_delay_ms), (3, 100, 3_600_000));
    assert_eq!((policy.backoff_multiplier, policy.jitter_enabled, policy.jitter_max_ms), (Thousandths(2000), false, 0));
    // What http_call can fail with and the taxonomy calls retryable.
    let retryable = [
        "ERR_CONNECTION_REFUSED",
        "ERR_DNS_FAILURE",
        "ERR_HTTP_429",
        "ERR_HTTP_503",
        "ERR_HTTP_5XX",
        "ERR_HTTP_TIMEOUT",
    ];
    assert_eq!(policy.retryable_codes, retryable);
    let card = rate_card::builtin();
    let expected = json!({
        "spec": "aos/1", "taxonomy_version": "1.1.0", "jitter": "sha256-be64-mod100/1",
        "token_estimator": "bytes4-ceil/1", "rate_card": {"id": card.id(), "hash": card.digest()},
    });
    assert_eq!(frozen.value["pins"], expected);
    let expected = json!({"hard_limit": true, "per_step_max_cents": null, "alert_threshold_percent": 80,
                          "admission": null, "policy_version": "1.0.0"});
    assert_eq!(frozen.value["context"]["budget_policy"], expected);
    assert_eq!(frozen.value["steps"][0]["on_error"], "abort");
    assert_eq!(frozen.value["created_at"], "2026-11-03T10:00:00Z");
}

/// AOS-11: a frozen plan is already what freezing would make of it.
#[test]
fn freezing_twice_is_freezing_once() {
    let once = frozen(&with_step(json!({"retry_policy": {"retry_on": ["ERR_RATE_LIMITED"]}})));
    let twice = frozen(&once.value);
    assert_eq!((once.hash.clone(), once.value.clone()), (twice.hash, twice.value));
    let published: Value = serde_json::from_str(PLAN).expect("the published plan");
    assert_eq!(frozen(&published).hash.as_str(), PLAN_HASH);
    assert_eq!(FrozenPlan::parse(once.text().as_bytes()).expect("its own text").hash, once.hash);
}

/// AOS-20: other spellings are read, and what they say is converted.
#[test]
fn other_spellings_of_policies() {
    let policy = |policy: Value| step(&with_step(json!({"retry_policy": policy}))).retry_policy;
    assert_eq!(policy(json!({"max_attempts": 4})).max_retries, 3);
    assert_eq!(policy(json!({"max_attempts": 1})).max_retries, 0);
    assert_eq!(policy(json!({"backoff_ms": 7})).backoff_base_ms, 7);
    assert_eq!(policy(json!({"initial_delay_ms": 7.0})).backoff_base_ms, 7);
    assert_eq!(policy(json!({"initial_delay_seconds": 1.5})).backoff_base_ms, 1500);
    assert_eq!(policy(json!({"retry_on": ["ERR_HTTP_503"]})).retryable_codes, ["ERR_HTTP_503"]);
    assert_eq!(policy(json!({"retryable_errors": []})).retryable_codes, Vec::<String>::new());
    assert_eq!(policy(json!({"backoff_strategy": "exponential"})).max_retries, 3);
    for (wrong, reason) in [
        (json!({"jitter_range": 0.1}), "field_refused"),
        (json!({"strategy": "fibonacci"}), "field_refused"),
        (json!({"backoff_strategy": "constant"}), "field_refused"),
        (json!({"max_attempts": 0}), "limit"),
        (json!({"max_attempts": 3, "max_retries": 2}), "field_twice"),
        (json!({"backoff_ms": 1, "backoff_base_ms": 1}), "field_twice"),
        (json!({"initial_delay_seconds": 1, "backoff_base_ms": 1}), "field_twice"),
        (json!({"initial_delay_seconds": 0.0001}), "field_kind"),
        (json!({"max_retries": "3"}), "field_kind"),
        (json!({"max_retries": 11}), "limit"),
        (json!({"backoff_multiplier": 1.0001}), "field_kind"),
        (json!({"max_retrys": 1}), "field_unknown"),
        (json!({"retryable_codes": ["ERR_HTTP_404"]}), "code_not_retryable"),
        (json!({"retryable_codes": ["OK"]}), "code_not_retryable"),
        (json!({"retryable_codes": ["TIMEOUT"]}), "code_unknown"),
    ] {
        let findings = refused(&with_step(json!({"retry_policy": wrong})));
        assert_eq!(reasons(&findings), [reason], "{wrong}");
        assert!(findings.iter().all(|finding| finding.step_id.as_deref() == Some("s1") && !finding.fix.is_empty() || reason == "limit"));
    }
    let misspelt = refused(&with_step(json!({"retry_policy": {"max_retrys": 1}})));
    assert_eq!(misspelt[0].fix, "did you mean `max_retries`?");
}

/// AOS-37: another spelling becomes the taxonomy's code, and how it was written stays visible.
#[test]
fn aliases_are_resolved_and_kept() {
    let listed =
        json!(["ERR_RATE_LIMITED", "ERR_SOCKET_ERROR", "ERR_NETWORK_ERROR", "ERR_HTTP_503", "ERR_HTTP_503_BUSY"]);
    let policy = step(&with_step(json!({"retry_policy": {"retryable_codes": listed}}))).retry_policy;
    assert_eq!(policy.retryable_codes, ["ERR_CONNECTION_REFUSED", "ERR_HTTP_503", "ERR_RATE_LIMIT_INTERNAL"]);
    let aliases: BTreeMap<&str, &str> =
        policy.aliases.iter().map(|(spelling, code)| (spelling.as_str(), code.as_str())).collect();
    let expected = BTreeMap::from([
        ("ERR_RATE_LIMITED", "ERR_RATE_LIMIT_INTERNAL"),
        ("ERR_SOCKET_ERROR", "ERR_CONNECTION_REFUSED"),
        ("ERR_NETWORK_ERROR", "ERR_CONNECTION_REFUSED"),
        ("ERR_HTTP_503_BUSY", "ERR_HTTP_503"),
    ]);
    assert_eq!(aliases, expected);
    let mut plan = authored();
    let second = json!({"step_id": "s2", "skill": "json_transform", "params": {},
                        "run_if": {"step_id": "s1", "code_in": ["ERR_HTTP_404_NOT_FOUND", "ERR_HTTP_403"]}});
    plan["steps"].as_array_mut().expect("steps").push(second);
    plan["steps"][0]["on_error"] = json!("continue");
    plan["context"]["allowed_skills"] = json!(["http_call", "json_transform"]);
    let condition = frozen(&plan).plan.steps[1].run_if.clone().expect("a condition");
    assert_eq!(condition.code_in, Some(vec!["ERR_HTTP_403".to_owned(), "ERR_HTTP_404".to_owned()]));
    assert_eq!(condition.aliases["ERR_HTTP_404_NOT_FOUND"], "ERR_HTTP_404");
}

/// AOS-25: who waits for a success does not mind if it was a partial one.
#[test]
fn a_condition_on_success_holds_for_a_part_of_it() {
    use StepStatus::{Failure, Partial, Skipped, Success};
    for (listed, expected) in [
        (json!(["success"]), vec![Success, Partial]),
        (json!(["skipped", "success", "failure"]), vec![Skipped, Success, Partial, Failure]),
        (json!(["partial", "success"]), vec![Partial, Success]),
        (json!(["failure"]), vec![Failure]),
    ] {
        let mut plan = authored();
        let second = json!({"step_id": "s2", "skill": "json_transform", "params": {},
                            "run_if": {"step_id": "s1", "status_in": listed}});
        plan["steps"].as_array_mut().expect("steps").push(second);
        plan["context"]["allowed_skills"] = json!(["http_call", "json_transform"]);
        let condition = frozen(&plan).plan.steps[1].run_if.clone().expect("a condition");
        assert_eq!(condition.status_in, Some(expected));
    }
}

/// AOS-10, AOS-21: the step's policy comes first, then the plan's, then the skill's, field by field.
#[test]
fn policies_are_layered_field_by_field() {
    let mut shelf = shelf();
    let mut skill = http_call();
    skill.metadata.retry = Some(macp_plan_core::plan::RetryPolicy {
        max_retries: 7,
        jitter_enabled: true,
        jitter_max_ms: 50,
        retryable_codes: vec!["ERR_DNS_FAILURE".to_owned(), "ERR_HTTP_404".to_owned()],
        ..rules::policy()
    });
    shelf.add(skill);
    let mut plan = with_step(json!({"retry_policy": {"backoff_base_ms": 5}}));
    plan["default_retry_policy"] = json!({"max_attempts": 3, "backoff_base_ms": 9});
    plan["default_on_error"] = json!("continue");
    let step = freeze(&plan, &shelf, &options()).expect("a plan").plan.steps.remove(0);
    let policy = &step.retry_policy;
    assert_eq!((policy.backoff_base_ms, policy.max_retries, policy.jitter_max_ms), (5, 2, 50));
    assert_eq!((policy.max_delay_ms, policy.jitter_enabled), (60_000, true));
    assert_eq!(policy.retryable_codes, ["ERR_DNS_FAILURE"], "a skill's own list gives way to the taxonomy");
    assert_eq!(step.on_error, OnError::Continue);
    // AOS-32: a profile can only lower the number of retries.
    let capped = |most| {
        let profile = Profile { max_retries_per_step: Some(most), ..Profile::default() };
        let options = FreezeOptions { profile: Some(profile), ..options() };
        freeze(&plan, &shelf, &options).expect("a plan").plan.steps[0].retry_policy.max_retries
    };
    assert_eq!((capped(1), capped(5)), (1, 2));
}

/// AOS-42: where repeating does harm the default list proves that nothing happened; an author may say otherwise.
#[test]
fn unsafe_calls_have_a_short_default_list() {
    let method = |method: &str, dedupes: bool| {
        let parameters = json!({"method": method, "url": "https://x", "target_dedupes": dedupes});
        step(&with_step(json!({"parameters": parameters}))).retry_policy.retryable_codes
    };
    assert_eq!(method("POST", false), ["ERR_DNS_FAILURE", "ERR_HTTP_429"]);
    let mut later = authored();
    let second = json!({"step_id": "s2", "skill": "http_call", "skill_version": "1.2.0",
                        "params": {"method": "{{s1.method}}", "url": "https://x"}});
    later["steps"].as_array_mut().expect("steps").push(second);
    let open = &frozen(&later).plan.steps[1].retry_policy.retryable_codes;
    assert_eq!(open.len(), 2, "what a reference leaves open counts as unsafe");
    assert_eq!(method("POST", true).len(), 6);
    assert_eq!(method("GET", false).len(), 6);
    let explicit =
        json!({"parameters": {"method": "POST", "url": "https://x"}, "retry_policy": {"retry_on": ["ERR_HTTP_503"]}});
    assert_eq!(step(&with_step(explicit.clone())).retry_policy.retryable_codes, ["ERR_HTTP_503"]);
    let text = with_step(explicit).to_string();
    assert_eq!(warnings(&lint(text.as_bytes(), &shelf(), &options())), ["retry_repeats_effect"]);
}

/// AOS-13: other names of fields, fields that are dropped, and fields that are refused.
#[test]
fn fields_of_steps() {
    let plan = json!({
        "plan_id": "p1", "agent_id": "a1", "goal": "g", "status": "running", "duration_seconds": 3,
        "steps": [
            {"id": "s1", "skill": "skill.http_call", "skill_version": "1.2.0", "params": {"url": "https://x"},
             "idempotency_key": "k", "estimated_cost_cents": 4, "iterations": 1, "attempts": 2, "on_error": "retry"},
            {"step_id": "s2", "skill_id": "json_transform", "inputs": {"x": "{{first.body}}"}, "depends_on": ["s1"],
             "description": "d", "max_cost_cents": 3, "timeout_ms": 10},
        ],
        "context": {"budget_cents": 10, "allowed_skills": ["http_call", "json_transform"]},
    });
    let mut plan = plan;
    plan["steps"][0]["output_key"] = json!("first");
    let freezing = freeze_with_notes(&plan, &shelf(), &options()).unwrap_or_else(|found| panic!("{found:#?}"));
    let notes: Vec<_> = freezing.notes.iter().map(|note| note.reason).collect();
    assert_eq!(
        notes,
        [
            "field_dropped",
            "field_dropped",
            "field_dropped",
            "field_dropped",
            "field_dropped",
            "field_dropped",
            "on_error_retry",
            "skill_version_chosen"
        ]
    );
    let steps = &freezing.plan.plan.steps;
    assert_eq!((steps[0].step_id.as_str(), steps[0].name(), steps[0].skill_id.as_str()), ("s1", "first", "http_call"));
    assert_eq!(
        (steps[1].skill_version.as_str(), steps[1].max_cost_cents, steps[1].timeout_ms),
        ("2.0.0", Some(3), Some(10))
    );
    let text = freezing.plan.text();
    assert!(["depends_on", "iterations", "idempotency_key", "status"].iter().all(|field| !text.contains(field)));

    for (fields, reason, fix) in [
        (json!({"condition": "s0.body == 1"}), "field_refused", "run_if"),
        (json!({"fallback_skill": "x"}), "field_refused", "continue"),
        (json!({"fallback_params": {}}), "field_refused", "continue"),
        (json!({"iterations": 3}), "field_refused", "own step_id"),
        (json!({"on_error": "fallback"}), "on_error_unknown", "run_if"),
        (json!({"on_error": 1}), "on_error_unknown", "abort"),
        (json!({"depends_on": ["s9"]}), "dependency_not_earlier", "order"),
        (json!({"depends_on": ["s1"]}), "dependency_not_earlier", "order"),
        (json!({"skill": "http_call"}), "field_twice", "skill_id"),
        (json!({"params": {}}), "field_twice", "parameters"),
        (json!({"colour": "red"}), "field_unknown", "remove"),
        (json!({"skill_version": "9.9.9"}), "skill_not_registered", "1.2.0"),
        (json!({"skill_id": "nobody"}), "skill_not_registered", "register"),
        (json!({"run_if": {"step_id": "s0", "status_in": ["done"]}}), "field_kind", "success"),
        (json!({"run_if": {"step_id": "s1", "status_in": ["success"]}}), "condition_not_earlier", "earlier"),
        (json!({"run_if": {"step_id": "s0", "content": "x"}}), "field_unknown", "remove"),
        (json!({"parameters": {"url": 7}}), "parameters_invalid", "schema"),
        (json!({"parameters": []}), "field_kind", "object"),
    ] {
        let findings = refused(&with_step(fields.clone()));
        assert_eq!(findings[0].reason, reason, "{fields}: {findings:#?}");
        assert!(findings[0].fix.contains(fix), "{fields}: {}", findings[0].fix);
        assert_eq!(findings[0].step_id.as_deref(), Some("s1"));
    }
}

/// AOS-10, AOS-17: what nobody can fill in is asked for, all at once.
#[test]
fn missing_parts_are_asked_for_together() {
    let findings =
        freeze(&json!({"steps": [{}], "contxt": {}}), &shelf(), &FreezeOptions::default()).expect_err("refused");
    let problems: Vec<_> = findings.iter().map(|finding| finding.problem.as_str()).collect();
    assert_eq!(
        problems,
        [
            "the plan has no `plan_id`",
            "the plan has no `created_at`",
            "the plan has no `agent_id`",
            "the plan has no `goal`",
            "the plan has no `context`",
            "the plan has a field `contxt` that has no meaning",
            "the step has no `step_id`",
            "the step has no `skill_id`",
        ]
    );
    let fix = findings.iter().find(|finding| finding.reason == "field_unknown").map(|finding| finding.fix.as_str());
    assert_eq!(fix, Some("did you mean `context`?"));
    let mut plan = authored();
    plan["context"] = json!({"budget_policy": {"hard": true}});
    assert_eq!(reasons(&refused(&plan)), ["field_missing", "field_missing", "field_unknown"]);
    assert_eq!(reasons(&refused(&json!([]))), ["not_a_plan"]);
    // Null is the same as nothing: it is asked for where something is needed, and passed over elsewhere.
    let mut plan = with_step(json!({"timeout_ms": null, "condition": null, "run_if": null}));
    assert_eq!(frozen(&plan).hash, frozen(&authored()).hash);
    plan["agent_id"] = json!(null);
    assert_eq!(reasons(&refused(&plan)), ["field_missing"]);
}

/// AOS-32: what an agent may use comes from its profile, and only at freezing.
#[test]
fn profiles_decide_what_is_allowed() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let profile = Profile {
        allowed_skills: Some(names(&["http_call", "llm_invoke"])),
        denied_skills: names(&["llm_invoke"]),
        ..Profile::default()
    };
    let options = FreezeOptions { profile: Some(profile), ..options() };
    let mut plan = authored();
    plan["context"].as_object_mut().expect("a context").remove("allowed_skills");
    let allowed = freeze(&plan, &shelf(), &options).expect("a plan").plan.context.allowed_skills;
    assert_eq!(allowed, ["http_call"]);
    for listed in [json!(["http_call", "llm_invoke"]), json!(["http_call", "json_transform"])] {
        plan["context"]["allowed_skills"] = listed;
        let findings = freeze(&plan, &shelf(), &options).expect_err("refused");
        assert_eq!((findings[0].reason, findings[0].code), ("skill_outside_profile", "ERR_PERMISSION_DENIED"));
    }
}

fn kit_options() -> FreezeOptions {
    FreezeOptions { rate_card: Some("rc-kit".to_owned()), ..options() }
}

fn by_profile(profile: Value, plan: &Value) -> Result<Freezing, Vec<Finding>> {
    let profile = Some(serde_json::from_value(profile).expect("a profile"));
    freeze_with_notes(plan, &Kit::standard(), &FreezeOptions { profile, ..kit_options() })
}

/// AOS-32: the smaller of two limits counts, and a plan without any takes those of the profile.
#[test]
fn budgets_of_profiles_are_folded_in() {
    let profile = json!({"budget": {"max_cost_cents_per_run": 50, "max_cost_cents_per_day": 500,
                                    "alert_threshold_percent": 60}});
    let mut plan = authored();
    let policy = |plan: &Value| by_profile(profile.clone(), plan).expect("a plan").plan.plan.context.budget_policy;
    let limits = |run, day, month| AdmissionLimits {
        per_run_max_cents: run,
        per_day_max_cents: day,
        per_month_max_cents: month,
    };
    assert_eq!(policy(&plan).admission, Some(limits(Some(50), Some(500), None)));
    assert_eq!(policy(&plan).alert_threshold_percent, 60);
    plan["context"]["budget_policy"] = json!({"alert_threshold_percent": 10, "admission": {
        "per_run_max_cents": 40, "per_day_max_cents": 600, "per_month_max_cents": 7}});
    assert_eq!(policy(&plan).admission, Some(limits(Some(40), Some(500), Some(7))));
    assert_eq!(policy(&plan).alert_threshold_percent, 10);
}

/// AOS-32: what a profile does not allow is found, and what it says in vain is named.
#[test]
fn profiles_bound_steps_and_hosts() {
    let mut plan = authored();
    plan["steps"][0]["parameters"] = json!({"url": "https://api.example.com/", "host": "api.example.com:8443"});
    let refusals = |profile: Value| match by_profile(profile, &plan) {
        Ok(_) => Vec::new(),
        Err(findings) => findings.iter().map(|finding| finding.reason).collect::<Vec<_>>(),
    };
    let domains = |profile: Value| refusals(json!({"policies": profile}));
    assert_eq!(domains(json!({"max_plan_steps": 1, "allowed_domains": ["API.example.com"]})), [""; 0]);
    assert_eq!(domains(json!({"allowed_domains": ["*.example.com"], "blocked_domains": ["example.com"]})), [""; 0]);
    assert_eq!(domains(json!({"max_plan_steps": 0})), ["too_many_steps"]);
    for outside in [
        json!({"allowed_domains": []}),
        json!({"allowed_domains": ["example.com", "*.api.example.com", "ample.com"]}),
        json!({"blocked_domains": ["*.example.com"]}),
    ] {
        assert_eq!(domains(outside.clone()), ["domain_outside_profile"], "{outside}");
    }
    for unreadable in [
        "bücher.example",
        "example.com.",
        "::1",
        "example.com:443",
        "*.",
        "https://example.com",
        "[0:0:0:0:0:0:0:1]",
        "127.1",
        "010.0.0.1",
        "10.0.0.0x1",
        "*.10.0.0.1",
    ] {
        assert_eq!(domains(json!({"blocked_domains": [unreadable]})), ["profile_domain_invalid"], "{unreadable}");
    }
    assert_eq!(domains(json!({"blocked_domains": ["[::1]", "10.0.0.1", "xn--bcher-kva.example"]})), [""; 0]);
    assert_eq!(refusals(json!({"agent_id": "a2"})), ["profile_of_another"]);
    assert_eq!(refusals(json!({"budget": {"max_cost_cents_per_run": 9}})), ["budget_outside_profile"]);
    assert_eq!(refusals(json!({"budget": {"max_cost_cents_per_run": 10}})), [""; 0]);

    let unused = json!({"agent_id": "a1", "planner": {"name": "p"}, "policies": {"require_human_approval": true}});
    let notes = by_profile(unused, &plan).expect("a plan").notes;
    let told: Vec<&str> =
        notes.iter().filter(|it| it.reason == "profile_field_unused").map(|it| &*it.problem).collect();
    assert!(told.len() == 2 && told[0].contains("planner") && told[1].contains("require_human_approval"), "{told:?}");
    assert!(serde_json::from_value::<Profile>(json!({"budgets": {}})).is_err(), "a slip of the pen is not passed over");
}

/// AOS-32: an output behind the host changes nothing, and one that chooses the host could choose any.
#[test]
fn a_profile_is_not_got_around_with_an_output() {
    let reasons = |url: &str| {
        let mut plan = authored();
        let mut later = plan["steps"][0].clone();
        (later["step_id"], later["parameters"]) = (json!("later"), json!({"url": url, "host": "api.example.com"}));
        plan["steps"].as_array_mut().expect("steps").push(later);
        match by_profile(json!({"policies": {"blocked_domains": ["api.example.com"]}}), &plan) {
            Ok(_) => Vec::new(),
            Err(findings) => findings.iter().map(|finding| finding.problem.clone()).collect::<Vec<_>>(),
        }
    };
    let first = authored()["steps"][0]["step_id"].as_str().expect("an id").to_owned();
    for (behind, chooses) in [
        ("https://api.example.com/", false),
        ("https://api.example.com?q=", false),
        ("https://", true),
        ("https:///", true),
        ("https://\\/", true),
        ("https://\t/", true),
        ("", true),
    ] {
        let problems = reasons(&format!("{behind}{{{{{first}.id}}}}"));
        let told = if chooses { "depends on an output" } else { "`api.example.com`" };
        assert!(problems.len() == 1 && problems[0].contains(told), "{behind:?}: {problems:?}");
    }
}

/// AOS-11: a frozen plan stays as it is, also where freezing would make something else of it today.
#[test]
fn a_frozen_plan_is_kept_as_it_is() {
    let mut frozen = freeze(&authored(), &Kit::standard(), &kit_options()).expect("a plan").value;
    // Frozen before a part of a success counted as one.
    let step_id = frozen["steps"][0]["step_id"].clone();
    let mut later = frozen["steps"][0].clone();
    later["step_id"] = json!("later");
    later["run_if"] = json!({"step_id": step_id, "status_in": ["success"]});
    frozen["steps"].as_array_mut().expect("steps").push(later);
    let before = macp_plan_core::plan::FrozenPlan::from_value(frozen.clone()).expect("a frozen plan");
    let again = freeze_with_notes(&frozen, &Kit::standard(), &kit_options()).expect("a plan");
    assert_eq!((again.plan.hash, again.plan.value), (before.hash, before.value));
    let kept = by_profile(json!({"max_retries_per_step": 0}), &frozen).expect("a plan");
    assert_eq!(kept.plan.value, frozen);
    assert!(kept.notes.iter().any(|note| note.reason == "frozen_already"), "{:?}", kept.notes);
}

/// AOS-14, AOS-55: cards by id, embedded, and wrong.
#[test]
fn pins_of_cards_and_builds() {
    let pinned = |pins: Value, options: &FreezeOptions| {
        let mut plan = authored();
        plan["pins"] = pins;
        freeze(&plan, &shelf(), options)
    };
    let other = FreezeOptions { rate_card: Some("rc-2026-03".to_owned()), embed_rate_card: true, ..options() };
    let frozen = pinned(json!({}), &other).expect("a plan");
    assert_eq!(frozen.value["pins"]["rate_card"]["card"], rules::published_card());
    assert_eq!(frozen.plan.pins.rate_card.id, "rc-2026-03");
    // A plan with its own card needs none here.
    let mut bare = shelf();
    bare.cards.clear();
    assert!(freeze(&frozen.value, &bare, &options()).is_ok());
    assert_eq!(reasons(&freeze(&authored(), &bare, &options()).expect_err("refused")), ["rate_card_unavailable"]);
    for (pins, reason) in [
        (json!({"rate_card": {"id": "rc-2026-03", "hash": format!("sha256:{}", "0".repeat(64))}}), "rate_card_differs"),
        (json!({"rate_card": {"id": "other", "card": rules::published_card()}}), "rate_card_differs"),
        (json!({"rate_card": {"card": {"id": "x"}}}), "rate_card_unusable"),
        (json!({"rate_card": {"id": "nobody"}}), "rate_card_unavailable"),
        (json!({"spec": "aos/2"}), "pin_unavailable"),
        (json!({"jitter": "random"}), "pin_unavailable"),
        (json!({"taxonomy_version": "9.0.0"}), "taxonomy_unavailable"),
        (json!({"tax": "1.0.0"}), "field_unknown"),
    ] {
        assert_eq!(reasons(&pinned(pins.clone(), &options()).expect_err("refused")), [reason], "{pins}");
    }
    let mut large = rules::published_card();
    large["id"] = json!("large");
    for index in 0..3000 {
        large["skills"][format!("skill_{index}@1.0.0")] = json!({"base": index});
    }
    let mut shelf = shelf();
    shelf.cards.insert("large".to_owned(), large);
    let by = |embed_rate_card| FreezeOptions { rate_card: Some("large".to_owned()), embed_rate_card, ..options() };
    assert!(freeze(&authored(), &shelf, &by(false)).is_ok());
    assert_eq!(reasons(&freeze(&authored(), &shelf, &by(true)).expect_err("refused")), ["rate_card_too_large"]);

    shelf.registration("http_call", "1.2.0").build = Some(build("a"));
    let frozen = freeze(&authored(), &shelf, &options()).expect("a plan");
    assert_eq!(frozen.value["pins"].get("skill_builds"), None, "builds are pinned on request");
    let pinning = FreezeOptions { pin_builds: true, ..options() };
    let frozen = freeze(&authored(), &shelf, &pinning).expect("a plan");
    assert_eq!(frozen.value["pins"]["skill_builds"], json!({"http_call@1.2.0": build("a")}));
    let again = freeze(&frozen.value, &shelf, &options()).expect("a frozen plan");
    assert_eq!(again.hash, frozen.hash, "what is pinned stays");
}

/// AOS-35: an older taxonomy is pinned if asked for, and then its codes are the only ones.
#[test]
fn older_taxonomies_can_be_pinned() {
    let mut plan = authored();
    plan["pins"] = json!({"taxonomy_version": "1.0.0"});
    assert_eq!(frozen(&plan).plan.pins.taxonomy_version, "1.0.0");
    let second = json!({"step_id": "s2", "skill_id": "http_call", "skill_version": "1.2.0",
                        "run_if": {"step_id": "s1", "code_in": ["OK_PARTIAL"]}});
    plan["steps"].as_array_mut().expect("steps").push(second);
    assert_eq!(reasons(&refused(&plan)), ["code_unknown"]);
    plan["pins"] = json!({});
    frozen(&plan);
}

/// No version stands in for another, not even if the catalog hands one out.
#[test]
fn a_catalog_cannot_substitute_versions() {
    let mut shelf = shelf();
    let newer = Declared::new("http_call", "1.3.0", IdempotencyClass::PerCall, &[]);
    shelf.add(newer);
    let registration = shelf.registration("http_call", "1.3.0").clone();
    *shelf.registration("http_call", "1.2.0") = registration;
    let findings = freeze(&authored(), &shelf, &options()).expect_err("refused");
    assert_eq!(reasons(&findings), ["skill_not_registered"]);
    assert_eq!(findings[0].available, ["1.2.0", "1.3.0"]);
    // With two versions to choose from, the author must choose.
    let mut plan = authored();
    plan["steps"][0].as_object_mut().expect("a step").remove("skill_version");
    let mut two = rules::shelf();
    two.add(Declared::new("http_call", "1.3.0", IdempotencyClass::PerCall, &[]));
    let findings = freeze(&plan, &two, &options()).expect_err("refused");
    assert!(findings[0].problem.contains("which version") && findings[0].fix.contains("1.2.0, 1.3.0"));
}

/// Lint says what freezing says, and more.
#[test]
fn lint_warns_of_what_is_hardly_meant() {
    let lint = |plan: &Value, shelf: &Shelf| lint(plan.to_string().as_bytes(), shelf, &options());
    assert_eq!(lint(&authored(), &shelf()), []);
    let mut plan = authored();
    plan["context"]["allowed_skills"] = json!(["http_call", "llm_invoke"]);
    plan["context"]["currency"] = json!("EUR");
    plan["steps"][0]["parameters"]["headers"] = json!({"Authorization": "Bearer abc", "X-Api-Key": "secret://k"});
    let second = json!({"step_id": "s2", "skill_id": "llm_invoke", "skill_version": "2.0.0", "max_cost_cents": 1,
                        "parameters": {"model": "gpt-4o", "max_tokens": 100_000},
                        "run_if": {"step_id": "s1", "status_in": ["failure"]}});
    plan["steps"].as_array_mut().expect("steps").push(second);
    let expected = ["secret_in_plan", "condition_never_holds", "ceiling_small", "budget_small", "currency_differs"];
    let findings = lint(&plan, &shelf());
    assert_eq!(warnings(&findings), expected);
    assert!(findings.iter().all(|finding| !finding.is_error() && !finding.fix.is_empty()));
    // The same of the frozen plan, and its errors if it was edited.
    let mut edited = frozen(&plan).value;
    assert_eq!(warnings(&lint(&edited, &shelf())), expected);
    edited["steps"][0]["colour"] = json!("red");
    assert_eq!(reasons(&lint(&edited, &shelf())), ["not_a_plan"]);
    // A step that was made earlier counts as it ended then, so nobody can wait for its having been made.
    plan["steps"][1]["run_if"] = json!({"step_id": "s1", "code_in": ["OK_SKIP_DUPLICATE"]});
    assert_eq!(warnings(&lint(&plan, &shelf())), expected);
    plan["steps"][1]["run_if"]["code_in"] = json!(["OK_SKIP_DUPLICATE", "OK"]);
    assert!(!warnings(&lint(&plan, &shelf())).contains(&"condition_never_holds"));
    plan["context"]["allowed_skills"] = json!(["http_call", "llm_invoke", "json_transform"]);
    assert!(warnings(&lint(&plan, &shelf())).contains(&"skill_unused"));
    assert_eq!(reasons(&macp_plan_core::lint::lint(b"{", &shelf(), &options())), ["not_json"]);
}
