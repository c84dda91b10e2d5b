//! Secrets stay in: a server that echoes them, a plan that fails, logs at their most talkative.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_plan::export::Exporter;
use macp_plan::skills::SkillSettings;
use macp_plan::skills::llm_invoke::{LlmKind, LlmProvider};
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::http::{authored, settings, standard};
use super::log;
use super::server::{Reply, Server, answer, json_answer};
use super::world::{SECRET, World, begin, codes, contents, ended, step_of};

/// The secret in its plain form, and the part of its encodings that does not depend on what is beside it.
fn shapes() -> Vec<String> {
    let encoded = |before: &str| {
        let text = STANDARD.encode(format!("{before}{SECRET}"));
        text[8..text.len() - 8].to_owned()
    };
    vec![SECRET.to_owned(), encoded(""), encoded("a"), encoded("ab")]
}

#[track_caller]
fn holds_none(text: &str, what: &str) {
    for shape in shapes() {
        assert!(!text.contains(&shape), "{what}: {text}");
    }
}

/// Nothing that is stored, exported, told or logged holds the secret.
async fn check(world: &World, value: Value) -> macp_plan::result::RunResult {
    log::listen();
    let executor = world.executor();
    let run_id = begin(&executor, value).await;
    let result = ended(&executor, &run_id).await;
    for (kind, place, bytes) in contents(&*world.store) {
        holds_none(&String::from_utf8_lossy(&bytes), &format!("{kind} {place}"));
    }
    let mut exporter = Exporter::open(&*world.store, &run_id).unwrap().unwrap();
    while let Some(chunk) = exporter.next_chunk().unwrap() {
        holds_none(&String::from_utf8_lossy(&chunk), "the export");
    }
    holds_none(&serde_json::to_string(&result).unwrap(), "the result");
    let heard = log::heard();
    assert!(heard.iter().any(|seen| seen.name == "attempt"), "{heard:?}");
    holds_none(&format!("{heard:?}"), "the log");
    assert!(log::leaks().is_empty(), "{:?}", log::leaks());
    result
}

fn call(step_id: &str, url: &str, header: &str) -> Value {
    json!({"step_id": step_id, "skill_id": "http_call", "skill_version": "1.2.0",
        "parameters": {"url": url, "headers": {"authorization": header}}})
}

/// Whatever a server does with what it was sent.
#[tokio::test]
async fn a_server_that_echoes() {
    let basic = STANDARD.encode(format!("user:{SECRET}"));
    let replies = [
        (json_answer(200, &json!({"you": {"said": format!("Bearer {SECRET}"), SECRET: [SECRET]}})), "OK_HTTP_CALL"),
        (answer(200, &[("content-type", "text/plain")], &format!("{SECRET}{SECRET}")), "OK_HTTP_CALL"),
        (answer(200, &[("content-type", "text/plain")], &basic), "OK_HTTP_CALL"),
        (answer(403, &[("etag", SECRET)], SECRET), "ERR_HTTP_403"),
        (answer(302, &[("location", &format!("http://10.9.8.7/{SECRET}"))], ""), "ERR_POLICY_VIOLATION"),
        (answer(302, &[("location", &format!("http://{SECRET}.invalid/"))], ""), "ERR_POLICY_VIOLATION"),
        (format!("HTTP/1.1 200 {SECRET}\r\nbroken {SECRET}\r\n\r\n").into_bytes(), "ERR_UNKNOWN"),
    ];
    for (reply, code) in replies {
        let server = Server::start(vec![Reply::Bytes(reply)]).await;
        let world = standard(&settings());
        let value = authored(&world, json!([call("s1", &server.url("/"), "Bearer secret://token")]));
        let result = check(&world, value).await;
        assert_eq!(codes(&result), [("s1", code)]);
        assert_eq!(server.requests()[0].header("authorization").unwrap(), format!("Bearer {SECRET}"));
    }
    // Bytes that are no text are told in base64, and are looked through all the same.
    let mut binary = b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe".to_vec();
    binary.extend_from_slice(SECRET.as_bytes());
    let server = Server::start(vec![Reply::Bytes(binary)]).await;
    let world = standard(&settings());
    let value = authored(&world, json!([call("s1", &server.url("/"), "secret://token")]));
    let result = check(&world, value).await;
    let told = step_of(&result, "s1").outcome.details["output"]["body_base64"].to_string();
    assert!(told.contains("[secret token]"), "{told}");
}

/// What is left of an answer that held a secret can be looked at, and is not sent on: who gets it would take it for whole.
#[tokio::test]
async fn an_answer_that_held_a_secret_is_used() {
    let server = Server::start(vec![Reply::Bytes(json_answer(200, &json!({"x": SECRET})))]).await;
    let world = standard(&settings());
    let first = call("s1", &server.url("/"), "Bearer secret://token");
    let second = json!({"step_id": "s2", "skill_id": "json_transform", "skill_version": "2.0.0",
        "parameters": {"input": "{{s1.body}}", "expression": "x"}});
    let value = authored(&world, json!([first, second, call("s3", &server.url("/"), "{{s2.result}}")]));
    let result = check(&world, value).await;
    assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "OK_JSON_TRANSFORM"), ("s3", "ERR_VALIDATION_FAILED")]);
    assert_eq!(step_of(&result, "s2").outcome.details["output"]["result"], "[secret token]");
    assert_eq!(server.requests().len(), 1);
}

/// A model that repeats the key it was asked with, and a provider that quotes it in an error.
#[tokio::test]
async fn a_provider_that_echoes() {
    let reply = json_answer(
        200,
        &json!({"model": "stub", "choices": [{"message": {"role": "assistant", "content": format!("key: {SECRET}")},
            "finish_reason": SECRET}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    );
    for (reply, code) in [(reply, "OK_LLM_INVOKE"), (json_answer(401, &json!({"error": SECRET})), "ERR_HTTP_401")] {
        let server = Server::start(vec![Reply::Bytes(reply)]).await;
        let provider = LlmProvider {
            name: "local".to_owned(),
            kind: LlmKind::OpenAi,
            base_url: server.url("/v1"),
            api_key: Some("token".to_owned()),
            models: None,
            max_tokens_field: None,
        };
        let world = standard(&SkillSettings { providers: vec![provider], ..settings() });
        let asked = json!({"step_id": "s1", "skill_id": "llm_invoke", "skill_version": "2.0.0",
            "parameters": {"model": "stub", "prompt": "hello"}});
        let result = check(&world, authored(&world, json!([asked]))).await;
        assert_eq!(codes(&result), [("s1", code)]);
        if code == "OK_LLM_INVOKE" {
            assert_eq!(step_of(&result, "s1").outcome.details["output"]["text"], "key: [secret token]");
        }
    }
}

/// Only a plan itself may name a secret: an answer that names one does not get it sent anywhere.
#[tokio::test]
async fn an_answer_names_a_secret() {
    let server = Server::start(vec![Reply::Bytes(json_answer(200, &json!({"x": "secret://token"})))]).await;
    let world = standard(&settings());
    let value = authored(
        &world,
        json!([call("s1", &server.url("/"), "none"), call("s2", &server.url("/steal"), "{{s1.body.x}}")]),
    );
    let result = check(&world, value).await;
    assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "ERR_VALIDATION_FAILED")]);
    assert_eq!(server.requests().len(), 1, "the second request was never sent");
}

/// A secret that is not configured is named, and nothing is sent.
#[tokio::test]
async fn a_secret_that_is_missing() {
    let server = Server::start(vec![Reply::Bytes(answer(200, &[], ""))]).await;
    let world = standard(&settings());
    let value = authored(&world, json!([call("s1", &server.url("/"), "secret://other")]));
    let result = check(&world, value).await;
    assert_eq!(codes(&result), [("s1", "ERR_POLICY_VIOLATION")]);
    assert!(step_of(&result, "s1").outcome.message.contains("`other`"), "{result:?}");
    assert!(server.requests().is_empty());
}

/// Skills of others are looked after in the same way.
#[tokio::test]
async fn a_skill_that_tells() {
    #[derive(Debug)]
    struct Telling(macp_plan_core::testkit::ScriptedSkill);
    impl macp_plan_core::skill::PureSkill for Telling {
        fn metadata(&self) -> &macp_plan_core::skill::SkillMetadata {
            &self.0.metadata
        }
        fn effects(&self, _: &serde_json::Map<String, Value>) -> Vec<macp_plan_core::effect::Effect> {
            Vec::new()
        }
        fn usage_bound(&self, _: &serde_json::Map<String, Value>) -> macp_plan_core::cost::Usage {
            macp_plan_core::cost::Usage::default()
        }
        fn check_input(&self, _: &serde_json::Map<String, Value>) -> Result<(), String> {
            Ok(())
        }
    }
    impl macp_plan::skill::Skill for Telling {
        fn call<'a>(&'a self, call: macp_plan::skill::Call<'a>) -> macp_plan::skill::Calling<'a> {
            Box::pin(async move {
                let secret = call.secrets.secret("token").unwrap();
                let told = format!("it is {}", *secret);
                macp_plan::skill::Observation::success(json!({"it": *secret}), told.clone()).with_detail("it", told)
            })
        }
    }
    let world = World::memory().with_registry(|registry, _| {
        let pure = macp_plan_core::testkit::ScriptedSkill::new("http_call", "1.2.0", None, "OK_HTTP_CALL");
        registry.register(Arc::new(Telling(pure)), None).unwrap();
    });
    let named = json!({"as": "secret://token"});
    let result = check(&world, plan(0, vec![step("s1", "http_call", named)])).await;
    assert_eq!(step_of(&result, "s1").outcome.details["output"], json!({"it": "[secret token]"}));
}
