//! `llm_invoke`, by both protocols.

use std::sync::Arc;

use macp_plan::skill::{Observation, Skill};
use macp_plan::skills::SkillSettings;
use macp_plan::skills::llm_invoke::{LlmKind, LlmProvider};
use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Idempotency;
use serde_json::{Value, json};

use crate::server::{Reply, Server, answer, json_answer};
use crate::world::{BRIEF, PATIENT, SECRET, call, expect_code, object, registry};

fn provider(name: &str, kind: LlmKind, base_url: String) -> LlmProvider {
    LlmProvider {
        name: name.to_owned(),
        kind,
        base_url,
        api_key: Some("token".to_owned()),
        models: None,
        max_tokens_field: None,
    }
}

/// No egress rule: naming a provider allows its host.
fn skill(providers: Vec<LlmProvider>) -> Arc<dyn Skill> {
    let trust = macp_plan::skills::TrustSettings { system_roots: false, roots_pem: Vec::new() };
    let settings = SkillSettings { providers, trust, ..SkillSettings::default() };
    registry(&settings).callable("llm_invoke", "2.0.0").expect("llm_invoke comes with the runtime")
}

async fn asked(kind: LlmKind, reply: Vec<u8>) -> (Arc<dyn Skill>, Observation, Server) {
    let server = Server::answering(reply).await;
    let base = match kind {
        LlmKind::OpenAi => server.url("/v1/"),
        LlmKind::Anthropic => server.url(""),
    };
    let skill = skill(vec![provider("main", kind, base)]);
    let parameters =
        json!({"model": "m-1", "system": "be brief", "prompt": "hello", "max_tokens": 50, "temperature": 0.5});
    let seen = call(&*skill, parameters, PATIENT).await;
    assert_eq!(seen.details["provider"], "main");
    (skill, seen, server)
}

fn open_ai_answer(choice: Value) -> Value {
    json!({"id": "x", "model": "m-1-0601", "choices": [choice], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}})
}

const USED: Usage = Usage { requests: 1, bytes: 0, input_tokens: 12, output_tokens: 3 };

#[tokio::test]
async fn open_ai_style() {
    let reply =
        open_ai_answer(json!({"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}));
    let (skill, seen, server) = asked(LlmKind::OpenAi, json_answer(200, &reply)).await;
    expect_code(&*skill, &seen, "OK_LLM_INVOKE");
    assert_eq!(seen.usage, Some(USED));
    let expected = json!({"text": "hi", "model": "m-1-0601", "finish_reason": "stop", "usage": {"input_tokens": 12, "output_tokens": 3}});
    assert_eq!(seen.output, Some(expected));
    let request = server.only_request();
    assert_eq!(request.line(), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]);
    assert_eq!(request.json(), json!({"model": "m-1", "messages": messages, "max_tokens": 50, "temperature": 0.5}));
}

#[tokio::test]
async fn anthropic_style() {
    let reply = json!({
        "type": "message", "model": "m-1-0601", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hi "}, {"type": "thinking", "thinking": "…"}, {"type": "text", "text": "there"}],
        "usage": {"input_tokens": 12, "output_tokens": 3}
    });
    let (skill, seen, server) = asked(LlmKind::Anthropic, json_answer(200, &reply)).await;
    expect_code(&*skill, &seen, "OK_LLM_INVOKE");
    assert_eq!(seen.usage, Some(USED));
    let expected = json!({"text": "hi there", "model": "m-1-0601", "finish_reason": "end_turn", "usage": {"input_tokens": 12, "output_tokens": 3}});
    assert_eq!(seen.output, Some(expected));
    let request = server.only_request();
    assert_eq!(request.line(), "POST /v1/messages HTTP/1.1");
    assert_eq!(request.header("x-api-key"), Some(SECRET));
    assert!(request.header("anthropic-version").is_some());
    let messages = json!([{"role": "user", "content": "hello"}]);
    assert_eq!(
        request.json(),
        json!({"model": "m-1", "system": "be brief", "messages": messages, "max_tokens": 50, "temperature": 0.5})
    );
}

/// AOS-57, AOS-60: what a provider says it used counts however much it is, up to the largest number that a journal
/// carries; what is no number of tokens says nothing.
#[tokio::test]
async fn however_much_is_used_counts() {
    const MOST: u64 = (1 << 53) - 1;
    let rows = [
        ("9007199254740991", Some(MOST)),
        ("9007199254740993", Some(MOST)),
        ("18446744073709551615", Some(MOST)),
        ("18446744073709551616", Some(MOST)),
        ("1e30", Some(MOST)),
        ("0", Some(0)),
        ("-1", None),
        ("1.5", None),
        ("\"12\"", None),
        ("null", None),
    ];
    for (text, expected) in rows {
        let body = format!(
            r#"{{"model": "m", "choices": [{{"message": {{"content": "hi"}}}}], "usage": {{"prompt_tokens": {text}, "completion_tokens": 3}}}}"#
        );
        let reply = answer(200, &[("content-type", "application/json")], &body);
        let (skill, seen, _server) = asked(LlmKind::OpenAi, reply).await;
        expect_code(&*skill, &seen, "OK_LLM_INVOKE");
        assert_eq!(seen.usage.map(|usage| usage.input_tokens), expected, "{text}");
    }
}

/// AOS-36: the rows about providers.
#[tokio::test]
async fn refusals_have_their_codes() {
    let rows = [
        (429, "ERR_LLM_RATE_LIMIT"),
        (500, "ERR_LLM_API_ERROR"),
        (503, "ERR_LLM_API_ERROR"),
        (529, "ERR_LLM_API_ERROR"),
        (401, "ERR_HTTP_401"),
        (403, "ERR_HTTP_403"),
        (400, "ERR_VALIDATION_FAILED"),
        (404, "ERR_VALIDATION_FAILED"),
        (409, "ERR_HTTP_4XX"),
        (422, "ERR_VALIDATION_FAILED"),
    ];
    for kind in [LlmKind::OpenAi, LlmKind::Anthropic] {
        for (status, code) in rows {
            let refusal = json!({"type": "error", "error": {"type": "some_error", "message": "context_length_exceeded, says the text"}});
            let (skill, seen, _) = asked(kind, json_answer(status, &refusal)).await;
            assert_eq!(seen.cause, Cause::LlmStatus { status, context_length: false });
            expect_code(&*skill, &seen, code);
            let kept = json!({"status_code": status, "body": refusal});
            assert_eq!((seen.usage, &seen.output), (Some(Usage::default()), &Some(kept)));
            assert_eq!(seen.details["upstream_status"], status);
        }
    }
}

#[tokio::test]
async fn reasons_are_taken_from_fields_and_not_from_prose() {
    let refused = async |status: u16, code: &str| {
        let reply = json!({"error": {"code": code, "message": "whatever", "type": "invalid_request_error"}});
        let (skill, seen, _) = asked(LlmKind::OpenAi, json_answer(status, &reply)).await;
        crate::world::code(&*skill, &seen)
    };
    assert_eq!(refused(400, "context_length_exceeded").await, "ERR_LLM_CONTEXT_LENGTH");
    assert_eq!(refused(400, "content_filter").await, "ERR_LLM_CONTENT_FILTER");
    assert_eq!(refused(429, "insufficient_quota").await, "ERR_QUOTA_EXCEEDED");
    assert_eq!(refused(429, "rate_limit_exceeded").await, "ERR_LLM_RATE_LIMIT");
    assert_eq!(refused(400, "model_not_found").await, "ERR_VALIDATION_FAILED");
}

#[tokio::test]
async fn a_throttled_call_says_how_long_to_wait() {
    let headers = [("content-type", "application/json"), ("retry-after", "20")];
    let (_, seen, _) = asked(LlmKind::Anthropic, answer(429, &headers, "{}")).await;
    assert_eq!(seen.retry_after_ms, Some(20_000));
}

/// AOS-58: what was used is charged although nothing usable came of it.
#[tokio::test]
async fn withheld_answers_are_metered() {
    let choices = [
        json!({"message": {"role": "assistant", "content": ""}, "finish_reason": "content_filter"}),
        json!({"message": {"role": "assistant", "content": null, "refusal": "I cannot"}, "finish_reason": "stop"}),
        json!({"index": 0, "finish_reason": "content_filter"}),
        json!({"message": null, "finish_reason": "content_filter", "content_filter_results": {"hate": true}}),
    ];
    for choice in choices {
        let (skill, seen, _) = asked(LlmKind::OpenAi, json_answer(200, &open_ai_answer(choice))).await;
        expect_code(&*skill, &seen, "ERR_LLM_CONTENT_FILTER");
        assert_eq!((seen.usage, seen.output), (Some(USED), None));
    }
    for content in [json!([]), json!(null)] {
        let usage = json!({"input_tokens": 12, "output_tokens": 3});
        let reply = json!({"content": content, "stop_reason": "refusal", "usage": usage});
        let (skill, seen, _) = asked(LlmKind::Anthropic, json_answer(200, &reply)).await;
        expect_code(&*skill, &seen, "ERR_LLM_CONTENT_FILTER");
        assert_eq!((seen.usage, seen.output), (Some(USED), None));
    }
}

/// AOS-58: what an answer reports counts also where the rest of it cannot be read.
#[tokio::test]
async fn answers_that_cannot_be_used_are_metered() {
    let open_ai = json!({"prompt_tokens": 12, "completion_tokens": 3});
    let anthropic = json!({"input_tokens": 12, "output_tokens": 3});
    let replies = [
        (LlmKind::OpenAi, json!({"usage": open_ai})),
        (LlmKind::OpenAi, json!({"choices": [], "usage": open_ai})),
        (LlmKind::OpenAi, json!({"choices": [{"finish_reason": "stop"}], "usage": open_ai})),
        (LlmKind::Anthropic, json!({"usage": anthropic})),
        (LlmKind::Anthropic, json!({"content": "hi", "usage": anthropic})),
    ];
    for (kind, reply) in replies {
        let (skill, seen, _) = asked(kind, json_answer(200, &reply)).await;
        expect_code(&*skill, &seen, "ERR_LLM_INVALID_RESPONSE");
        assert_eq!(seen.usage, Some(USED), "{reply}");
    }
}

#[tokio::test]
async fn an_empty_refusal_is_none() {
    let message = json!({"role": "assistant", "content": "hi", "refusal": ""});
    let reply = open_ai_answer(json!({"message": message, "finish_reason": "stop"}));
    let (skill, seen, _) = asked(LlmKind::OpenAi, json_answer(200, &reply)).await;
    expect_code(&*skill, &seen, "OK_LLM_INVOKE");
    assert_eq!(seen.output.unwrap()["text"], "hi");
}

/// AOS-57: what is read from a cache and put there is told beside the rest, and is used like it.
#[tokio::test]
async fn cached_tokens_count() {
    const MOST: u64 = (1 << 53) - 1;
    let rows = [
        (json!({"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}), Some(132)),
        (json!({"cache_read_input_tokens": 100, "cache_creation_input_tokens": null}), Some(112)),
        (json!({"cache_creation_input_tokens": 20}), Some(32)),
        (json!({"cache_read_input_tokens": u64::MAX, "cache_creation_input_tokens": u64::MAX}), Some(MOST)),
        (json!({"cache_read_input_tokens": -1}), None),
    ];
    for (cached, expected) in rows {
        let mut usage = cached.clone();
        usage["input_tokens"] = json!(12);
        usage["output_tokens"] = json!(3);
        let reply = json!({"content": [{"type": "text", "text": "hi"}], "usage": usage});
        let (skill, seen, _) = asked(LlmKind::Anthropic, json_answer(200, &reply)).await;
        expect_code(&*skill, &seen, "OK_LLM_INVOKE");
        assert_eq!(seen.usage.map(|usage| usage.input_tokens), expected, "{cached}");
    }
}

/// AOS-58: a refusal meters what it reports and otherwise nothing. Where the answer broke off or never came, what was
/// used is unknown, and the executor charges what it reserved (AOS-57).
#[tokio::test]
async fn refusals_are_metered() {
    let reported = [
        (LlmKind::OpenAi, json!({"prompt_tokens": 12, "completion_tokens": 3})),
        (LlmKind::Anthropic, json!({"input_tokens": 12, "output_tokens": 3})),
    ];
    for (kind, usage) in reported {
        let (_, seen, _) = asked(kind, json_answer(500, &json!({"error": {}, "usage": usage}))).await;
        assert_eq!(seen.usage, Some(USED));
        for status in [400, 429, 500, 504] {
            let (_, seen, _) = asked(kind, answer(status, &[], "<html>")).await;
            assert_eq!(seen.usage, Some(Usage::default()), "{status}");
        }
    }
    let head = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 100\r\n\r\n{".to_vec();
    for (reply, patience) in [
        (Reply::Bytes(head.clone()), PATIENT),
        (Reply::ThenReset(Vec::new()), PATIENT),
        (Reply::ThenHang(head), BRIEF),
        (Reply::ThenHang(Vec::new()), BRIEF),
    ] {
        let server = Server::start(vec![reply]).await;
        let skill = skill(vec![provider("main", LlmKind::OpenAi, server.url(""))]);
        let seen = call(&*skill, json!({"model": "m", "prompt": "hello"}), patience).await;
        assert_eq!((seen.usage, &seen.output), (None, &None), "{}", seen.message);
    }
}

/// What a provider says to people is for people: told, and nothing decided by it.
#[tokio::test]
async fn the_reason_of_a_refusal_is_told() {
    let said = json!({"error": {"message": "temperature is not supported", "code": null}});
    let (skill, seen, _) = asked(LlmKind::OpenAi, json_answer(400, &said)).await;
    expect_code(&*skill, &seen, "ERR_VALIDATION_FAILED");
    assert_eq!(seen.message, "the provider main answered 400: temperature is not supported");
    assert_eq!(seen.output, Some(json!({"status_code": 400, "body": said})));
}

#[tokio::test]
async fn answers_that_cannot_be_used() {
    let replies = [
        (LlmKind::OpenAi, answer(200, &[], "<html>")),
        (LlmKind::OpenAi, json_answer(200, &json!({}))),
        (LlmKind::OpenAi, json_answer(200, &json!({"choices": []}))),
        (LlmKind::OpenAi, json_answer(200, &json!({"choices": [{"message": "hi"}]}))),
        (LlmKind::OpenAi, json_answer(200, &open_ai_answer(json!({"message": {"content": null}})))),
        (LlmKind::OpenAi, answer(302, &[("location", "/elsewhere")], "")),
        (LlmKind::Anthropic, json_answer(200, &json!({"content": "hi"}))),
        (LlmKind::Anthropic, json_answer(200, &json!({"content": [{"type": "tool_use"}]}))),
        (LlmKind::Anthropic, json_answer(200, &json!([1]))),
    ];
    for (kind, reply) in replies {
        let told = String::from_utf8_lossy(&reply).into_owned();
        let (skill, seen, server) = asked(kind, reply).await;
        assert_eq!(seen.cause, Cause::LlmInvalidResponse, "{told}");
        expect_code(&*skill, &seen, "ERR_LLM_INVALID_RESPONSE");
        assert!(seen.output.expect("it is kept, to be looked at")["status_code"].is_number(), "{told}");
        server.only_request();
    }
}

/// AOS-57: without a report of usage the executor charges what it reserved.
#[tokio::test]
async fn usage_that_is_not_reported_is_unknown() {
    for usage in
        [json!(null), json!({}), json!({"prompt_tokens": 1}), json!({"prompt_tokens": -1, "completion_tokens": 2})]
    {
        let reply = json!({"choices": [{"message": {"content": "hi"}}], "usage": usage});
        let (skill, seen, _) = asked(LlmKind::OpenAi, json_answer(200, &reply)).await;
        expect_code(&*skill, &seen, "OK_LLM_INVOKE");
        assert_eq!(seen.usage, None);
        let expected = json!({"text": "hi", "model": "m-1", "finish_reason": null, "usage": null});
        assert_eq!(seen.output, Some(expected), "the model that was asked for stands in");
    }
}

#[tokio::test]
async fn a_silent_provider_runs_into_the_timeout() {
    let server = Server::start(vec![Reply::ThenHang(Vec::new())]).await;
    let skill = skill(vec![provider("main", LlmKind::OpenAi, server.url(""))]);
    let seen = call(&*skill, json!({"model": "m", "prompt": "hello"}), BRIEF).await;
    assert_eq!(seen.cause, Cause::ClientTimeout);
    expect_code(&*skill, &seen, "ERR_HTTP_TIMEOUT");
}

#[tokio::test]
async fn conversations_are_put_the_way_each_protocol_wants() {
    let messages = json!([
        {"role": "system", "content": "one"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}, {"role": "system", "content": "two"}, {"role": "user", "content": "c"}
    ]);
    let parameters = json!({"model": "m", "messages": messages, "system": "zero"});
    let sent = async |kind: LlmKind, field: Option<&str>| {
        let server = Server::answering(answer(500, &[], "")).await;
        let settings = LlmProvider {
            max_tokens_field: field.map(str::to_owned),
            api_key: None,
            ..provider("p", kind, server.url(""))
        };
        call(&*skill(vec![settings]), parameters.clone(), PATIENT).await;
        let request = server.only_request();
        assert_eq!(request.header("authorization").or(request.header("x-api-key")), None);
        request.json()
    };
    let open_ai = sent(LlmKind::OpenAi, Some("max_completion_tokens")).await;
    assert_eq!(open_ai["messages"].as_array().unwrap().len(), 6);
    assert_eq!(open_ai["messages"][0], json!({"role": "system", "content": "zero"}));
    assert_eq!((open_ai["max_completion_tokens"].clone(), open_ai.get("max_tokens")), (json!(1024), None));
    let anthropic = sent(LlmKind::Anthropic, None).await;
    assert_eq!(anthropic["system"], "zero\n\none\n\ntwo");
    assert_eq!(anthropic["messages"].as_array().unwrap().len(), 3);
    assert_eq!(anthropic["max_tokens"], 1024);
}

#[tokio::test]
async fn a_model_finds_its_provider() {
    let reply = || Server::answering(answer(500, &[], ""));
    let (listed, any) = (reply().await, reply().await);
    let skill = skill(vec![
        provider("any", LlmKind::OpenAi, any.url("")),
        LlmProvider {
            models: Some(vec!["special".to_owned()]),
            ..provider("listed", LlmKind::Anthropic, listed.url(""))
        },
    ]);
    let asked = async |parameters: Value| call(&*skill, parameters, PATIENT).await;
    assert_eq!(asked(json!({"model": "special", "prompt": "x"})).await.details["provider"], "listed");
    assert_eq!(asked(json!({"model": "other", "prompt": "x"})).await.details["provider"], "any");
    assert_eq!(asked(json!({"model": "special", "prompt": "x", "provider": "any"})).await.details["provider"], "any");
    for (parameters, told) in [
        (json!({"model": "other", "prompt": "x", "provider": "listed"}), "not configured for `other`"),
        (json!({"model": "other", "prompt": "x", "provider": "nobody"}), "no provider `nobody`"),
    ] {
        let seen = asked(parameters).await;
        expect_code(&*skill, &seen, "ERR_VALIDATION_FAILED");
        assert!(seen.message.contains(told), "{}", seen.message);
    }
    assert_eq!((listed.requests().len(), any.requests().len()), (1, 2));
}

#[tokio::test]
async fn without_a_provider_or_its_key_nothing_is_asked() {
    let seen = call(&*skill(Vec::new()), json!({"model": "m", "prompt": "x"}), PATIENT).await;
    assert!(seen.message.contains("no configured provider serves `m`"), "{}", seen.message);
    let server = Server::answering(answer(200, &[], "")).await;
    let keyless = LlmProvider { api_key: Some("absent".to_owned()), ..provider("p", LlmKind::OpenAi, server.url("")) };
    let seen = call(&*skill(vec![keyless]), json!({"model": "m", "prompt": "x"}), PATIENT).await;
    assert_eq!(seen.cause, Cause::InputInvalid);
    assert_eq!(seen.message, "the key of the provider `p` cannot be used; the server's log has the reason");
    assert!(server.requests().is_empty());
}

/// AOS-56 and AOS-22: from the parameters alone.
#[test]
fn bounds_and_effects() {
    let skill = skill(Vec::new());
    let bound = |parameters: Value| skill.usage_bound(&object(parameters));
    let tokens = |input_tokens, output_tokens| Usage { requests: 1, bytes: 0, input_tokens, output_tokens };
    assert_eq!(bound(json!({"model": "m", "prompt": "12345", "max_tokens": 7})), tokens(2, 7));
    assert_eq!(
        bound(json!({"model": "m", "prompt": "éé", "system": "12345"})),
        tokens(3, 1024),
        "bytes, over all text at once"
    );
    let messages = json!([{"role": "user", "content": "12"}, {"role": "assistant", "content": "34"}]);
    assert_eq!(bound(json!({"model": "m", "messages": messages})), tokens(1, 1024));
    let effects = |parameters: Value| {
        skill
            .effects(&object(parameters))
            .into_iter()
            .map(|effect| (effect.kind, effect.target, effect.idempotency))
            .collect::<Vec<_>>()
    };
    let one = |target: &str| vec![("llm_request".to_owned(), target.to_owned(), Idempotency::Natural)];
    assert_eq!(effects(json!({"model": "m", "prompt": "x"})), one("m"));
    assert_eq!(effects(json!({"model": "m", "prompt": "x", "provider": "p"})), one("p"));
    assert_eq!(skill.model(&object(json!({"model": "m"}))), Some("m"));
}

#[test]
fn questions_are_checked_beforehand() {
    let skill = skill(Vec::new());
    let check = |parameters: Value| skill.check_input(&object(parameters));
    assert!(check(json!({"model": "m", "prompt": "x"})).is_ok());
    assert!(check(json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})).is_ok());
    for bad in [
        json!({"prompt": "x"}),
        json!({"model": "m"}),
        json!({"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}]}),
        json!({"model": "m", "messages": []}),
        json!({"model": "m", "messages": [{"role": "tool", "content": "x"}]}),
        json!({"model": "m", "prompt": "x", "max_tokens": 0}),
        json!({"model": "m", "prompt": "x", "temperature": 3}),
    ] {
        assert!(check(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn providers_that_cannot_be_used_are_refused() {
    let refused = |providers: Vec<LlmProvider>| {
        let settings = SkillSettings { providers, ..crate::world::settings() };
        macp_plan::registry::standard(&settings).expect_err("must be refused").to_string()
    };
    let at = |url: &str| provider("p", LlmKind::OpenAi, url.to_owned());
    assert!(refused(vec![at("https://a.example"), at("https://b.example")]).contains("twice"));
    for url in ["", "a.example", "ftp://a.example", "https://user:hunter2@a.example", "https://a.example/?key=hunter2"]
    {
        let told = refused(vec![at(url)]);
        assert!(told.contains("base_url") && !told.contains("hunter2"), "{told}");
    }
}
