//! The registry: what it takes in, and what it finds.

use std::sync::Arc;

use macp_plan::registry::{Error, Registry, standard};
use macp_plan::skills::SkillSettings;
use macp_plan::testkit::ScriptedSkill;
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::skill::{Catalog, SkillMetadata};
use macp_plan_core::{rate_card, retry};
use serde_json::json;

use crate::world::settings;

fn register(change: impl FnOnce(&mut SkillMetadata)) -> Result<(), Error> {
    Registry::new().register(Arc::new(ScriptedSkill::new("sample", "1.0.0").declare(change)), None)
}

#[test]
fn what_comes_with_the_runtime() {
    let registry = standard(&settings()).unwrap();
    for (skill_id, version) in [("http_call", "1.2.0"), ("llm_invoke", "2.0.0"), ("json_transform", "2.0.0")] {
        let found = registry.skill(skill_id, version).expect("registered");
        assert!(found.enabled);
        assert_eq!(found.skill.metadata().version, version);
        assert!(registry.callable(skill_id, version).is_some());
        // AOS-14: which build it is follows from its source, not from when or where it was set up.
        let again = standard(&settings()).unwrap().skill(skill_id, version).expect("registered");
        assert!(found.build.is_some() && found.build == again.build);
        // AOS-54: the card that comes with the runtime prices what comes with the runtime.
        let card = rate_card::builtin();
        let model = if skill_id == "llm_invoke" { Some("stub") } else { None };
        assert!(card.price(&found.skill.metadata().cost_model.rate_card_key, model).is_some());
    }
    assert_eq!(registry.registrations().count(), 3);
    assert!(registry.rate_card(rate_card::BUILTIN_ID).is_some());
}

/// AOS-20, AOS-21, AOS-44: what a plan says itself counts, then what its skill declares, then the hour, up to which waits
/// grow by the formula of document 004.
#[test]
fn waits_are_capped_by_the_plan_the_skill_or_the_hour() {
    let registry = standard(&settings()).unwrap();
    let (get, sum) = (json!({"url": "https://example.com/"}), json!({"input": [1], "expression": "sum(@)"}));
    let step = |step_id: &str, (skill, version): (&str, &str), parameters: &serde_json::Value, policy| json!({"step_id": step_id, "skill_id": skill, "skill_version": version, "parameters": parameters, "retry_policy": policy});
    let (http, transform) = (("http_call", "1.2.0"), ("json_transform", "2.0.0"));
    let plan = json!({
        "plan_id": "p", "created_at": "2026-01-01T00:00:00Z", "agent_id": "a", "goal": "g",
        "steps": [
            step("s1", http, &get, json!({})),
            step("s2", http, &get, json!({"max_delay_ms": 7_000})),
            step("s3", transform, &sum, json!({"max_retries": 9, "backoff_base_ms": 1_000})),
        ],
        "context": {"budget_cents": 5, "allowed_skills": ["http_call", "json_transform"]},
    });
    let frozen = freeze(&plan, &registry, &FreezeOptions::default()).unwrap();
    let caps: Vec<u64> = frozen.plan.steps.iter().map(|step| step.retry_policy.max_delay_ms).collect();
    assert_eq!(caps, [60_000, 7_000, 3_600_000]);
    let patient = &frozen.plan.steps[2].retry_policy;
    assert_eq!(retry::backoff_ms(patient, 8, "r"), 256_000, "1 s doubled eight times");
}

/// AOS-68: what a skill may do is granted by the operator, and a plan hears of what is not before anything is called.
#[test]
fn permissions_are_granted_by_a_list_or_all_together() {
    let grants = |listed: Option<&[&str]>| {
        let permissions = listed.map(|listed| listed.iter().map(|it| (*it).to_owned()).collect());
        standard(&SkillSettings { permissions, ..settings() }).unwrap().grants("network:outbound")
    };
    assert!(grants(None));
    assert!(grants(Some(&["files:read", "network:outbound"])));
    assert!(!grants(Some(&["network"])) && !grants(Some(&[])));

    let registry = standard(&SkillSettings { permissions: Some(Vec::new()), ..settings() }).unwrap();
    let step = |skill: &str, version: &str, parameters| json!({"step_id": skill, "skill_id": skill, "skill_version": version, "parameters": parameters});
    let plan = json!({
        "plan_id": "p", "created_at": "2026-01-01T00:00:00Z", "agent_id": "a", "goal": "g",
        "steps": [
            step("json_transform", "2.0.0", json!({"input": [1], "expression": "length(@)"})),
            step("http_call", "1.2.0", json!({"url": "https://example.com/"})),
        ],
        "context": {"budget_cents": 5, "allowed_skills": ["http_call", "json_transform"]},
    });
    let findings = freeze(&plan, &registry, &FreezeOptions::default()).unwrap_err();
    let told: Vec<_> = findings.iter().map(|it| (it.reason, it.code, it.step_id.as_deref())).collect();
    assert_eq!(told, [("permission_missing", "ERR_PERMISSION_DENIED", Some("http_call"))]);
    freeze(&plan, &standard(&settings()).unwrap(), &FreezeOptions::default()).expect("everything is granted");
}

/// No version stands in for another.
#[test]
fn versions_are_exact() {
    let mut registry = Registry::new();
    for version in ["1.0.0", "1.0.1", "2.0.0-rc.1"] {
        registry.register(Arc::new(ScriptedSkill::new("sample", version)), None).unwrap();
    }
    assert_eq!(registry.versions("sample"), ["1.0.0", "1.0.1", "2.0.0-rc.1"]);
    for absent in ["1.0", "1", "1.0.2", "^1.0.0", "2.0.0", ""] {
        assert!(registry.skill("sample", absent).is_none(), "{absent}");
        assert!(registry.callable("sample", absent).is_none(), "{absent}");
    }
    assert!(registry.versions("other").is_empty());
    let again = registry.register(Arc::new(ScriptedSkill::new("sample", "1.0.0")), None);
    assert!(matches!(again, Err(Error::Twice(_))));
}

#[test]
fn declarations_are_checked() {
    register(|_| {}).expect("the sample as it is");
    assert!(matches!(register(|sample| sample.skill_id = "Sample".to_owned()), Err(Error::SkillId(_))));
    assert!(matches!(register(|sample| sample.skill_id = String::new()), Err(Error::SkillId(_))));
    assert!(matches!(register(|sample| sample.version = "1.0".to_owned()), Err(Error::Version { .. })));
    assert!(matches!(register(|sample| sample.nondeterminism = None), Err(Error::Nondeterminism { .. })));
    assert!(matches!(
        register(|sample| sample.nondeterminism = Some(" ".to_owned())),
        Err(Error::Nondeterminism { .. })
    ));
    register(|sample| (sample.deterministic, sample.nondeterminism) = (true, None)).expect("nothing to explain");
    let unknown = |code: &str| register(|sample| sample.failure_modes.push(code.to_owned()));
    assert!(matches!(unknown("ERR_NO_SUCH_CODE"), Err(Error::FailureMode { .. })));
    assert!(matches!(unknown("OK"), Err(Error::FailureMode { .. })), "a success is no way to fail");
    assert!(matches!(
        register(|sample| sample.input_schema = json!({"type": 7})),
        Err(Error::Schema { which: "input_schema", .. })
    ));
    let remote = json!({"$ref": "https://schemas.example/a.json"});
    assert!(matches!(
        register(|sample| sample.output_schema = remote),
        Err(Error::Schema { which: "output_schema", .. })
    ));
    assert!(matches!(register(|sample| sample.timeout_ms = 0), Err(Error::Metadata { .. })));
    let coded =
        Registry::new().register(Arc::new(ScriptedSkill::new("sample", "1.0.0").success_code("ERR_UNKNOWN")), None);
    assert!(matches!(coded, Err(Error::SuccessCode { .. })));
    let http = standard(&settings()).unwrap().skill("http_call", "1.2.0").unwrap().skill.metadata().clone();
    let retry = |code: &str| {
        let (mut retry, code) = (http.retry.clone().unwrap(), code.to_owned());
        retry.retryable_codes.push(code);
        register(|sample| sample.retry = Some(retry))
    };
    assert!(matches!(retry("ERR_VALIDATION_FAILED"), Err(Error::RetryableCode { .. })));
}

#[test]
fn skills_can_be_switched_off() {
    let mut settings = settings();
    settings.disabled = vec!["http_call".to_owned(), "llm_invoke@2.0.0".to_owned()];
    let registry = standard(&settings).unwrap();
    let enabled = |skill_id, version| registry.skill(skill_id, version).unwrap().enabled;
    assert!(!enabled("http_call", "1.2.0"));
    assert!(!enabled("llm_invoke", "2.0.0"));
    assert!(enabled("json_transform", "2.0.0"));
    for unknown in ["http_cal", "http_call@9.9.9"] {
        settings.disabled = vec![unknown.to_owned()];
        assert!(matches!(standard(&settings), Err(Error::Unknown(_))), "{unknown}");
    }
}

#[test]
fn rate_cards_are_never_edited() {
    let card = json!({"id": "mine", "skills": {"sample@1.0.0": {"base": 5}}});
    let mut registry = Registry::new();
    registry.add_rate_card(card.clone()).unwrap();
    registry.add_rate_card(card.clone()).expect("the same card again");
    assert_eq!(registry.rate_card("mine"), Some(card));
    let edited = json!({"id": "mine", "skills": {"sample@1.0.0": {"base": 6}}});
    assert!(matches!(registry.add_rate_card(edited), Err(Error::RateCardTwice(_))));
    assert!(matches!(registry.add_rate_card(json!({"id": "broken"})), Err(Error::RateCard(_))));
    assert_eq!(registry.rate_cards().count(), 2);
}

#[test]
fn outputs_are_checked_against_the_schema() {
    let registry = standard(&settings()).unwrap();
    let check = |output| registry.check_output("http_call", "1.2.0", &output);
    assert_eq!(check(json!({"status_code": 200, "body": [1]})), Ok(()));
    assert!(check(json!({"body": [1]})).unwrap_err().contains("status_code"));
    assert!(check(json!({"status_code": "200"})).unwrap_err().contains("/status_code"));
    assert!(registry.check_output("http_call", "9.9.9", &json!({})).is_err());
}

/// Settings are what a file says: unknown names are refused, and what is left out has a default that allows nothing.
#[test]
fn settings_are_read_strictly() {
    let read = serde_json::from_value::<macp_plan::skills::SkillSettings>;
    let minimal = read(json!({})).unwrap();
    assert_eq!(minimal, Default::default());
    assert!(!minimal.egress.allow_any_public && minimal.egress.allow_hosts.is_empty());
    assert_eq!(minimal.limits.answer_bytes_max, 10 * 1024 * 1024);
    assert!(read(json!({"egress": {"allow_host": ["a"]}})).is_err());
    let full = read(json!({
        "egress": {"allow_hosts": ["a.example"]},
        "providers": [{"name": "p", "kind": "anthropic", "base_url": "https://a.example", "api_key": "k"}],
        "secrets": {"environment_prefix": null, "directory": "/run/secrets"},
        "disabled": ["llm_invoke"]
    }));
    assert_eq!(full.unwrap().providers.len(), 1);
}
