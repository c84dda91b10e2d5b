//! The kit for authors: scripts under a paused clock, and checks that the runtime's own skills pass.

use std::time::Duration;

use macp_plan::outbound::Http;
use macp_plan::registry::Registry;
use macp_plan::secrets::Held;
use macp_plan::skill::{Call, Observation, Skill};
use macp_plan::testkit::{Act, ScriptedSkill, check_skill};
use macp_plan_core::cause::{Cause, ConnectionFault};
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Idempotency;
use serde_json::{Map, json};
use tokio::time::Instant;

use crate::server::{Reply, Server, json_answer};
use crate::world::{BRIEF, object, registry, settings};

async fn play(skill: &ScriptedSkill) -> Observation {
    let parameters = object(json!({"n": skill.calls().len()}));
    let keys = ["key".to_owned()];
    let secrets = Held::default();
    let timeout = Duration::from_secs(5);
    let http = Http::closed(&secrets);
    let call = Call { parameters: &parameters, timeout, effect_keys: &keys, secrets: &secrets, http, random_seed: 3 };
    skill.call(call).await
}

#[tokio::test(start_paused = true)]
async fn scripts_are_played_in_order() {
    let skill = ScriptedSkill::new("fetch", "1.0.0")
        .script("503, timeout, reset, retry-after 2500 429, usage 1200/300, 200")
        .unwrap();
    let begun = Instant::now();
    assert_eq!(play(&skill).await.cause, Cause::http(503));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(play(&skill).await.cause, Cause::ClientTimeout);
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!(play(&skill).await.cause, Cause::Connection { fault: ConnectionFault::Reset });
    assert_eq!(play(&skill).await.retry_after_ms, Some(2500));
    let used = play(&skill).await;
    assert_eq!(
        (used.cause, used.usage),
        (Cause::Success, Some(Usage { requests: 1, bytes: 0, input_tokens: 1200, output_tokens: 300 }))
    );
    assert_eq!(skill.left(), 1);
    assert_eq!(play(&skill).await.output.unwrap()["status_code"], 200);
    assert_eq!(play(&skill).await.cause, Cause::Internal, "the script is over");
    let calls = skill.calls();
    assert_eq!((calls.len(), calls[6].parameters["n"].clone(), calls[6].random_seed), (7, json!(6), 3));
    assert_eq!(calls[0].effect_keys, ["key"]);
}

#[tokio::test(start_paused = true)]
async fn scripts_can_wait_hang_and_panic() {
    let late = Observation::new(Cause::Success, "late");
    let skill = ScriptedSkill::new("fetch", "1.0.0")
        .act(Act::After(Duration::from_secs(4), late.clone()))
        .act(Act::After(Duration::from_secs(6), late))
        .script("hang, panic")
        .unwrap();
    assert_eq!(play(&skill).await.cause, Cause::Success);
    assert_eq!(play(&skill).await.cause, Cause::ClientTimeout);
    let hung = tokio::time::timeout(Duration::from_secs(3600), play(&skill)).await;
    assert!(hung.is_err());
    let panicked = tokio::spawn(async move { play(&skill).await }).await;
    assert!(panicked.unwrap_err().is_panic());
}

#[test]
fn what_is_no_script_is_refused() {
    for script in ["", "503,", "never", "usage 1200", "usage a/b", "retry-after 5", "99999"] {
        assert!(ScriptedSkill::new("fetch", "1.0.0").script(script).is_err(), "{script}");
    }
}

#[tokio::test]
async fn the_skills_of_the_runtime_pass() {
    let server = Server::answering(json_answer(200, &json!({"a": 1}))).await;
    let silent = Server::start(vec![Reply::ThenHang(Vec::new())]).await;
    let mut settings = settings();
    settings.providers = serde_json::from_value(json!([
        {"name": "silent", "kind": "open_ai", "base_url": silent.url("")},
        {"name": "wrong", "kind": "anthropic", "base_url": server.url("")}
    ]))
    .unwrap();
    let registry = registry(&settings);
    let check = async |skill_id: &str, version: &str, samples: &[serde_json::Value]| {
        let samples: Vec<Map<_, _>> = samples.iter().cloned().map(object).collect();
        let skill = registry.callable(skill_id, version).unwrap();
        check_skill(&*skill, &samples, &registry, &Held::default(), BRIEF)
            .await
            .unwrap_or_else(|findings| panic!("{skill_id}:\n{findings}"));
    };
    let post = json!({"url": server.url("/"), "method": "POST", "body": {}, "target_dedupes": true});
    check("http_call", "1.2.0", &[json!({"url": server.url("/")}), json!({"url": silent.url("/")}), post]).await;
    let ask = |provider: &str| json!({"model": "stub", "prompt": "x", "provider": provider});
    check("llm_invoke", "2.0.0", &[ask("silent"), ask("wrong")]).await;
    check(
        "json_transform",
        "2.0.0",
        &[json!({"input": {"a": 1}, "expression": "a"}), json!({"input": 1, "expression": "length(@)"})],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_check_finds_what_is_wrong() {
    let findings = async |skill: ScriptedSkill| {
        let samples = [Map::new()];
        match check_skill(&skill, &samples, &Registry::new(), &Held::default(), BRIEF).await {
            Ok(()) => String::new(),
            Err(findings) => findings.to_string(),
        }
    };
    let sample = || ScriptedSkill::new("sample", "1.0.0");
    assert_eq!(findings(sample().script("ok").unwrap()).await, "");
    assert!(findings(sample().script("hang").unwrap()).await.contains("does not keep to its timeout"));
    let undeclared = sample().declare(|metadata| metadata.failure_modes = vec!["ERR_TIMEOUT".to_owned()]);
    assert!(
        findings(undeclared.script("503").unwrap()).await.contains("ERR_HTTP_503, which failure_modes does not list")
    );
    let classed = sample()
        .effect("mail", "a", Idempotency::None)
        .declare(|metadata| metadata.idempotency = macp_plan_core::skill::IdempotencyClass::Natural);
    assert!(findings(classed.script("ok").unwrap()).await.contains("idempotency class"));
    let shaped = sample().declare(|metadata| metadata.output_schema = json!({"required": ["text"]}));
    assert!(findings(shaped.script("ok").unwrap()).await.contains("does not match output_schema"));
    let unbounded = sample().usage_bound(Usage { requests: 1, ..Usage::default() });
    assert!(findings(unbounded.script("usage 10/10").unwrap()).await.contains("more than usage_bound"));
    let unnamed = sample().declare(|metadata| metadata.name = String::new());
    assert!(findings(unnamed.script("ok").unwrap()).await.contains("it has no name"));
    let none = check_skill(&sample(), &[], &Registry::new(), &Held::default(), BRIEF).await;
    assert!(none.unwrap_err().to_string().contains("no samples"));
}
