//! `http_call` when there is no answer, or none that can be read.

use macp_plan::skill::Observation;
use macp_plan_core::cause::{Cause, ConnectionFault};
use serde_json::json;

use crate::server::{Reply, Server, answer};
use crate::world::{BRIEF, PATIENT, call, expect_code, http, registry_with, settings};

async fn observed(reply: Reply) -> Observation {
    let skill = http(&settings());
    let server = Server::start(vec![reply]).await;
    let seen = call(&*skill, json!({"url": server.url("/?q=confidential")}), PATIENT).await;
    assert!(!seen.message.contains("confidential"), "{}", seen.message);
    assert_eq!(server.requests().len(), 1, "a skill never sends twice");
    seen
}

fn connection(fault: ConnectionFault) -> Cause {
    Cause::Connection { fault }
}

/// AOS-36, AOS-72: the skill's own timer, before and after the head.
#[tokio::test]
async fn silence_is_a_timeout_of_the_client() {
    let skill = http(&settings());
    let cut = answer(200, &[], "a body that is longer")[..50].to_vec();
    for reply in [Reply::ThenHang(Vec::new()), Reply::ThenHang(b"HTTP/1.1 200".to_vec()), Reply::ThenHang(cut)] {
        let server = Server::start(vec![reply]).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), BRIEF).await;
        assert_eq!(seen.cause, Cause::ClientTimeout);
        expect_code(&*skill, &seen, "ERR_HTTP_TIMEOUT");
        assert_eq!(seen.usage, None, "nobody knows what was used");
    }
}

/// A status that arrived decides, whatever happens to the body behind it.
#[tokio::test]
async fn a_failing_status_stands_without_its_body() {
    let skill = http(&settings());
    let cut = b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\npart".to_vec();
    // Time enough for the head to arrive, also on a machine that is busy.
    let unhurried = std::time::Duration::from_secs(2);
    for (reply, timeout) in [
        (Reply::ThenHang(cut.clone()), unhurried),
        (Reply::ThenReset(cut.clone()), PATIENT),
        (Reply::Bytes(cut), PATIENT),
    ] {
        let server = Server::start(vec![reply]).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), timeout).await;
        assert_eq!(seen.cause, Cause::http(503));
        assert!(seen.message.contains("body was lost"), "{}", seen.message);
    }
}

#[tokio::test]
async fn a_port_nobody_listens_on_refuses() {
    let skill = http(&settings());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let seen = call(&*skill, json!({"url": format!("http://127.0.0.1:{port}/")}), PATIENT).await;
    assert_eq!(seen.cause, connection(ConnectionFault::Refused));
    expect_code(&*skill, &seen, "ERR_CONNECTION_REFUSED");
}

#[tokio::test]
async fn resets_and_early_ends_are_told_apart() {
    let skill = http(&settings());
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart".to_vec();
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\npart".to_vec();
    let rows = [
        (Reply::ThenReset(Vec::new()), ConnectionFault::Reset),
        (Reply::Bytes(Vec::new()), ConnectionFault::ClosedEarly),
        (Reply::Bytes(b"HTTP/1.1 200 OK\r\nconte".to_vec()), ConnectionFault::ClosedEarly),
        (Reply::Bytes(head.clone()), ConnectionFault::ClosedEarly),
        (Reply::Bytes(chunked), ConnectionFault::ClosedEarly),
        (Reply::ThenReset(head), ConnectionFault::Reset),
    ];
    for (reply, fault) in rows {
        let told = format!("{reply:?}");
        let seen = observed(reply).await;
        assert_eq!(seen.cause, connection(fault), "{told}: {seen:?}");
        expect_code(&*skill, &seen, "ERR_CONNECTION_REFUSED");
    }
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_malformed() {
    let skill = http(&settings());
    let heads = [
        "HELO who is there\r\n\r\n".to_owned(),
        "HTTP/1.1 abc OK\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd".to_owned(),
        format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1_000_000)),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(500)),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot-a-size\r\n".to_owned(),
    ];
    for head in heads {
        let seen = observed(Reply::ThenHang(head.clone().into_bytes())).await;
        assert_eq!(seen.cause, Cause::HttpMalformed, "{}: {seen:?}", &head[..head.len().min(60)]);
        expect_code(&*skill, &seen, "ERR_UNKNOWN");
    }
}

/// AOS-36: an answer beyond the limit, announced or not. Reading stops at the limit.
#[tokio::test]
async fn answers_that_are_too_large_are_not_read() {
    let mut settings = settings();
    settings.limits.answer_bytes_max = 100_000;
    let skill = http(&settings);
    let endless = "HTTP/1.1 200 OK\r\n\r\n".to_owned();
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n".to_owned();
    for head in [endless, announced] {
        let server = Server::start(vec![Reply::Endless(head)]).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
        assert_eq!(seen.cause, Cause::AnswerTooLarge);
        expect_code(&*skill, &seen, "ERR_VALIDATION_FAILED");
        assert!(seen.message.contains("100000 bytes"), "{}", seen.message);
    }
    let fits = Server::answering(answer(200, &[], &"x".repeat(100_000))).await;
    let seen = call(&*skill, json!({"url": fits.url("/")}), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    // What HEAD announces is not sent.
    let head = Server::answering(b"HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n".to_vec()).await;
    let seen = call(&*skill, json!({"url": head.url("/"), "method": "HEAD"}), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
}

#[tokio::test]
async fn a_name_without_an_address_is_a_failure_of_names() {
    let mut settings = settings();
    settings.egress.allow_any_public = true;
    let skill = registry_with(&settings, &[]).callable("http_call", "1.2.0").unwrap();
    let seen = call(&*skill, json!({"url": "https://name.invalid/"}), PATIENT).await;
    assert_eq!(seen.cause, Cause::DnsFailure);
    expect_code(&*skill, &seen, "ERR_DNS_FAILURE");
    assert!(seen.message.contains("name.invalid"), "{}", seen.message);
}
