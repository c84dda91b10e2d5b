//! `http_call`, as long as the server answers: statuses, bodies, headers, what is sent.

use macp_plan::skills::http_call::ANSWER_BYTES_MAX;
use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Idempotency;
use serde_json::{Value, json};

use crate::server::{Server, answer, json_answer};
use crate::world::{EFFECT_KEY, PATIENT, SECRET, call, call_with_keys, expect_code, http, object, settings};

/// AOS-36: every status row.
#[tokio::test]
async fn statuses_have_their_codes() {
    let skill = http(&settings());
    let rows = [
        (200, "OK_HTTP_CALL"),
        (204, "OK_HTTP_CALL"),
        (304, "OK_HTTP_CALL"),
        (400, "ERR_HTTP_400"),
        (401, "ERR_HTTP_401"),
        (403, "ERR_HTTP_403"),
        (404, "ERR_HTTP_404"),
        (405, "ERR_HTTP_4XX"),
        (408, "ERR_HTTP_TIMEOUT"),
        (409, "ERR_HTTP_4XX"),
        (422, "ERR_HTTP_4XX"),
        (429, "ERR_HTTP_429"),
        (500, "ERR_HTTP_500"),
        (501, "ERR_HTTP_5XX"),
        (502, "ERR_HTTP_502"),
        (503, "ERR_HTTP_503"),
        (504, "ERR_HTTP_504"),
        (599, "ERR_HTTP_5XX"),
        (600, "ERR_UNKNOWN"),
        (999, "ERR_UNKNOWN"),
    ];
    for (status, code) in rows {
        let body = if matches!(status, 204 | 304) { "" } else { "x" };
        let server = Server::answering(answer(status, &[], body)).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
        assert_eq!(seen.cause, Cause::http(status));
        expect_code(&*skill, &seen, code);
        assert_eq!(seen.output.as_ref().unwrap()["status_code"], status);
        assert_eq!(seen.details["upstream_status"], status);
        let bytes = body.len() as u64;
        assert_eq!(seen.usage, Some(Usage { requests: 1, bytes, ..Usage::default() }));
        server.only_request();
    }
}

#[tokio::test]
async fn json_is_parsed_and_everything_else_is_text() {
    let skill = http(&settings());
    let body_of = async |headers: &[(&str, &str)], body: &str| {
        let server = Server::answering(answer(200, headers, body)).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
        expect_code(&*skill, &seen, "OK_HTTP_CALL");
        seen.output.unwrap()["body"].clone()
    };
    let json_type = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(body_of(&json_type, r#"{"a":[1,2.5,null]}"#).await, json!({"a": [1, 2.5, null]}));
    assert_eq!(body_of(&[("Content-Type", "application/problem+JSON")], "[1]").await, json!([1]));
    assert_eq!(body_of(&[("content-type", "text/plain")], "[1]").await, json!("[1]"));
    assert_eq!(body_of(&[], "[1]").await, json!("[1]"));
    assert_eq!(body_of(&json_type, "{\"a\":").await, json!("{\"a\":"), "JSON that is broken stays a text");
    assert_eq!(body_of(&json_type, "").await, json!(""));
    // What a journal could not carry, or would give back changed.
    assert_eq!(body_of(&json_type, r#"{"a":1,"a":2}"#).await, json!(r#"{"a":1,"a":2}"#));
    assert_eq!(body_of(&json_type, "[9007199254740993]").await, json!("[9007199254740993]"));
    assert_eq!(body_of(&json_type, "[1e17]").await, json!("[1e17]"), "it would be written as such an integer");
    assert_eq!(body_of(&json_type, "[3.0]").await.to_string(), "[3]");
    let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
    assert_eq!(body_of(&json_type, &deep).await, json!(deep));
    let less_deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(body_of(&json_type, &less_deep).await.is_array());
}

#[tokio::test]
async fn bytes_that_are_no_text_come_as_base64() {
    let skill = http(&settings());
    let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n".to_vec();
    bytes.extend([0xff, 0x00, 0xfe]);
    let server = Server::answering(bytes).await;
    let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
    let output = seen.output.unwrap();
    assert_eq!((output["body"].clone(), output["body_base64"].clone()), (Value::Null, json!("/wD+")));
}

#[tokio::test]
async fn a_plan_can_insist_on_json() {
    let skill = http(&settings());
    for (kind, body) in [("application/json", "{\"a\":"), ("text/html", "<p>sorry</p>")] {
        let server = Server::answering(answer(200, &[("content-type", kind)], body)).await;
        let seen = call(&*skill, json!({"url": server.url("/"), "expect_json": true}), PATIENT).await;
        assert_eq!(seen.cause, Cause::DeserializationFailed);
        expect_code(&*skill, &seen, "ERR_DESERIALIZATION_FAILED");
        assert_eq!(seen.output.unwrap()["body"], body);
    }
    // A failing status stays what it is.
    let server = Server::answering(answer(503, &[("content-type", "text/html")], "busy")).await;
    let seen = call(&*skill, json!({"url": server.url("/"), "expect_json": true}), PATIENT).await;
    expect_code(&*skill, &seen, "ERR_HTTP_503");
}

#[tokio::test]
async fn of_the_head_only_a_safe_selection_is_told() {
    let skill = http(&settings());
    let headers = [
        ("ETag", "\"7\""),
        ("Link", "<a>"),
        ("Link", "<b>"),
        ("Set-Cookie", "session=confidential"),
        ("WWW-Authenticate", "Bearer confidential"),
        ("X-Internal", "confidential"),
    ];
    let server = Server::answering(answer(200, &headers, "x")).await;
    let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
    assert_eq!(
        seen.output.as_ref().unwrap()["headers"],
        json!({"content-length": "1", "etag": "\"7\"", "link": "<a>, <b>"})
    );
    assert!(!format!("{seen:?}").contains("confidential"));
}

/// AOS-76: the effect key goes out with every method that changes something, and with no other.
#[tokio::test]
async fn effect_keys_are_sent_where_they_matter() {
    let skill = http(&settings());
    for (method, keyed) in
        [("GET", false), ("HEAD", false), ("POST", true), ("PUT", true), ("PATCH", true), ("DELETE", true)]
    {
        let server = Server::answering(answer(200, &[], "")).await;
        let seen = call(&*skill, json!({"url": server.url("/things?x=1"), "method": method}), PATIENT).await;
        expect_code(&*skill, &seen, "OK_HTTP_CALL");
        let request = server.only_request();
        assert_eq!(request.line(), format!("{method} /things?x=1 HTTP/1.1"));
        assert_eq!(request.header("idempotency-key"), keyed.then_some(EFFECT_KEY), "{method}");
        let unkeyed = call_with_keys(&*skill, json!({"url": "http://127.0.0.1:9/", "method": method}), PATIENT, &[]);
        assert_eq!(unkeyed.await.cause == Cause::InputInvalid, keyed, "{method} is not sent without its key");
    }
}

/// AOS-77.
#[tokio::test]
async fn effects_follow_from_the_parameters() {
    let skill = http(&settings());
    let effect = |parameters: Value| {
        let effects = skill.effects(&object(parameters));
        assert_eq!(effects.len(), 1, "AOS-74: one per dispatch");
        (effects[0].kind.clone(), effects[0].target.clone(), effects[0].idempotency)
    };
    let expected = |target: &str, class| ("http_request".to_owned(), target.to_owned(), class);
    assert_eq!(
        effect(json!({"url": "https://API.Example.com/a?b=c"})),
        expected("api.example.com", Idempotency::Natural)
    );
    assert_eq!(
        effect(json!({"url": "https://a.example:443/", "method": "HEAD"})),
        expected("a.example", Idempotency::Natural)
    );
    assert_eq!(
        effect(json!({"url": "http://a.example:443/", "method": "POST"})),
        expected("a.example:443", Idempotency::None)
    );
    assert_eq!(effect(json!({"url": "http://[::1]:80/", "method": "PUT"})), expected("[::1]", Idempotency::None));
    let deduped = json!({"url": "https://a.example./", "method": "DELETE", "target_dedupes": true});
    assert_eq!(effect(deduped), expected("a.example", Idempotency::Keyed));
    // A template says nothing of what it becomes: neither a retry nor a full replay may take it for a GET.
    for method in ["{{s1.method}}", "{{s1.verb}}T", "get"] {
        let templated = json!({"url": "https://a.example/", "method": method});
        assert_eq!(effect(templated), expected("a.example", Idempotency::None), "{method}");
        let deduped = json!({"url": "https://a.example/", "method": method, "target_dedupes": true});
        assert_eq!(effect(deduped), expected("a.example", Idempotency::Keyed), "{method}");
    }
}

/// AOS-83: the value goes to the server and nowhere else.
#[tokio::test]
async fn secrets_reach_the_server_and_nothing_else() {
    let skill = http(&settings());
    let server = Server::answering(json_answer(200, &json!({"fine": true}))).await;
    let headers = json!({"Authorization": "Bearer secret://token", "X-Key": "secret://token", "X-Plain": "plain"});
    let seen = call(&*skill, json!({"url": server.url("/"), "headers": headers}), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    let request = server.only_request();
    assert_eq!(request.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
    assert_eq!(request.header("x-key"), Some(SECRET));
    assert_eq!(request.header("x-plain"), Some("plain"));
}

#[tokio::test]
async fn a_secret_that_is_missing_stops_the_call_before_it_is_made() {
    let skill = http(&settings());
    let server = Server::answering(answer(200, &[], "")).await;
    let seen = call(&*skill, json!({"url": server.url("/"), "headers": {"x-key": "secret://other"}}), PATIENT).await;
    expect_code(&*skill, &seen, "ERR_POLICY_VIOLATION");
    assert!(seen.message.contains("`other`"), "{}", seen.message);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn bodies_are_sent_with_their_type() {
    let skill = http(&settings());
    let sent = async |extra: Value| {
        let server = Server::answering(answer(200, &[], "")).await;
        let mut parameters = json!({"url": server.url("/"), "method": "POST"});
        parameters.as_object_mut().unwrap().extend(object(extra));
        expect_code(&*skill, &call(&*skill, parameters, PATIENT).await, "OK_HTTP_CALL");
        let request = server.only_request();
        (request.header("content-type").map(str::to_owned), String::from_utf8(request.body).unwrap())
    };
    let with = |kind: &str, body: &str| (Some(kind.to_owned()), body.to_owned());
    assert_eq!(sent(json!({"body": {"b": 1, "a": [2.0]}})).await, with("application/json", r#"{"a":[2],"b":1}"#));
    assert_eq!(sent(json!({"body": null})).await, with("application/json", "null"));
    assert_eq!(sent(json!({"body_text": "hé"})).await, with("text/plain; charset=utf-8", "hé"));
    let own = json!({"body_text": "<a/>", "headers": {"Content-Type": "application/xml"}});
    assert_eq!(sent(own).await, with("application/xml", "<a/>"));
    assert_eq!(sent(json!({})).await, (None, String::new()));
}

/// AOS-48.
#[tokio::test]
async fn retry_after_is_reported_in_milliseconds() {
    let skill = http(&settings());
    let hint = async |value: &str| {
        let server = Server::answering(answer(503, &[("Retry-After", value)], "busy")).await;
        call(&*skill, json!({"url": server.url("/")}), PATIENT).await.retry_after_ms
    };
    assert_eq!(hint("7").await, Some(7_000));
    assert_eq!(hint("soon").await, None);
    assert_eq!(hint("Sun, 06 Nov 1994 08:49:37 GMT").await, Some(0));
    let later = httpdate_in(3600);
    let wait = hint(&later).await.expect("a date in the future");
    assert!((3_500_000..=3_600_000).contains(&wait), "{wait}");
}

fn httpdate_in(seconds: u64) -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now() + std::time::Duration::from_secs(seconds))
}

#[test]
fn parameters_that_cannot_be_sent_are_refused_beforehand() {
    let skill = http(&settings());
    let refused = |parameters: Value| skill.check_input(&object(parameters)).expect_err("must be refused");
    assert!(refused(json!({})).contains("url"));
    assert!(refused(json!({"url": 7})).contains("/url"));
    assert!(refused(json!({"url": "not a url"})).contains("/url"));
    assert!(refused(json!({"url": "mailto:a@b"})).contains("no host"));
    assert!(refused(json!({"url": "https://me:pass@a.example/"})).contains("secret://name"));
    assert!(refused(json!({"url": "https://a.example", "method": "TRACE"})).contains("/method"));
    assert!(refused(json!({"url": "https://a.example", "timeout_ms": 30_001})).contains("/timeout_ms"));
    assert!(refused(json!({"url": "https://a.example", "body": 1, "body_text": "x"})).contains("at the top"));
    assert!(refused(json!({"url": "https://a.example", "surprise": 1})).contains("surprise"));
    for reserved in ["Host", "Content-Length", "Transfer-Encoding", "Idempotency-Key", "Accept-Encoding"] {
        let told = refused(json!({"url": "https://a.example", "headers": {reserved: "x"}}));
        assert!(told.contains("set by the executor"), "{told}");
    }
    assert!(refused(json!({"url": "https://a.example", "headers": {"a b": "x"}})).contains("/headers"));
    assert!(refused(json!({"url": "https://a.example", "headers": {"a": "secret://"}})).contains("/headers/a"));
    for broken in ["a\r\nX-Other: b", "a\nb", "a\0b", "a\u{7f}"] {
        let told = refused(json!({"url": "https://a.example", "headers": {"x-note": broken}}));
        assert!(told.contains("/headers/x-note") && !told.contains("X-Other"), "{told:?}");
        // A reference elsewhere, or beside it, does not hide it.
        for template in [
            json!({"url": "{{s1.url}}", "headers": {"x-note": broken}}),
            json!({"url": "https://a.example", "headers": {"x-note": format!("{{{{s1.a}}}} {broken}")}}),
        ] {
            let told = skill.check_template(&object(template)).expect_err("must be refused");
            assert!(told.contains("/headers/x-note"), "{told:?}");
        }
    }
    let template = json!({"url": "{{s1.url}}", "headers": {"x-note": "a\tb {{s1.caf\u{e9}}} c"}});
    skill.check_template(&object(template)).expect("what a reference brings is checked when it is there");
    let told =
        skill.check_template(&object(json!({"url": "ftp://a.example/{{s1.path}}"}))).expect_err("must be refused");
    assert!(told.contains("https or http"), "{told}");
    // AOS-83: where nobody puts the secret into its place, its name is not sent either.
    assert!(refused(json!({"url": "https://a.example/?key=secret://shop"})).contains("in a header only"));
    for body in [json!({"body": {"keys": [{"key": "secret://shop"}]}}), json!({"body_text": "secret://shop"})] {
        let mut parameters = object(body);
        parameters.insert("url".to_owned(), json!("https://a.example"));
        assert!(refused(Value::Object(parameters)).contains("in a header only"));
    }
    // What was given may be confidential and is not repeated.
    let told = refused(json!({"url": "https://a.example", "headers": {"a": ["confidential"]}}));
    assert!(!told.contains("confidential"), "{told}");

    let taken = |parameters: Value| skill.check_input(&object(parameters)).expect("must be taken");
    taken(json!({"url": "https://a.example", "method": "POST", "body": {"any": [1]}, "target_dedupes": true}));
    taken(json!({"url": "{{s1.next}}", "headers": {"x": "secret://{{s1.name}}"}}));
    taken(json!({"url": "https://a.example", "method": "POST", "body": "secrets are named as in secret://shop"}));
}

/// AOS-54: bytes are those of the two bodies, and never more than was reserved for them.
#[tokio::test]
async fn the_bytes_of_both_bodies_are_counted() {
    let skill = http(&settings());
    let cases = [
        (json!({}), 0, 5),
        (json!({"method": "POST", "body": {"b": 1, "a": "\u{e9}"}}), r#"{"a":"é","b":1}"#.len(), 5),
        (json!({"method": "PUT", "body_text": "twelve bytes"}), 12, 5),
        (json!({"method": "HEAD"}), 0, 0),
    ];
    for (mut parameters, sent, answered) in cases {
        let server = Server::answering(answer(200, &[], if answered == 0 { "" } else { "12345" })).await;
        parameters["url"] = json!(server.url("/"));
        let bound = skill.usage_bound(parameters.as_object().unwrap());
        let seen = call(&*skill, parameters.clone(), PATIENT).await;
        let usage = seen.usage.unwrap();
        assert_eq!((usage.requests, usage.bytes), (1, sent as u64 + answered), "{parameters}");
        assert_eq!(server.only_request().body.len(), sent);
        let room = if answered == 0 { 0 } else { ANSWER_BYTES_MAX as u64 };
        assert_eq!((bound.requests, bound.bytes), (1, sent as u64 + room), "{parameters}");
    }
}

/// A short text of small objects takes gigabytes once it is read; it is kept as the text it is.
#[tokio::test]
async fn answers_that_would_take_too_much_memory_stay_texts() {
    let body = format!("[{}]", vec![r#"{"":0}"#; 200_000].join(","));
    let server = Server::answering(answer(200, &[("content-type", "application/json")], &body)).await;
    let skill = http(&settings());
    let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    assert!(seen.message.contains("kept as text, since its body cannot be taken as JSON"), "{}", seen.message);
    assert_eq!(seen.output.unwrap()["body"], body);
    let seen = call(&*skill, json!({"url": server.url("/"), "expect_json": true}), PATIENT).await;
    expect_code(&*skill, &seen, "ERR_DESERIALIZATION_FAILED");
    assert!(seen.message.contains("bytes of memory"), "{}", seen.message);
}
