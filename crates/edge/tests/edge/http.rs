//! Plain HTTP on the same port, gRPC health and reflection.

use std::net::SocketAddr;

use macp_wire::v1::*;
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tower::Service as _;

use crate::common::*;

/// Status line and headers, and the body, of a request over HTTP/1.1.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (String, String) {
    get_as(address, path, "*/*").await
}

async fn get_as(address: SocketAddr, path: &str, accept: &str) -> (String, String) {
    ask(address, "GET", path, &format!("accept: {accept}"), &[]).await
}

/// A request with one header more than it needs.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, header: &str, body: &[u8]) -> (String, String) {
    let mut connection = TcpStream::connect(address).await.expect("the server listens");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{header}\r\n");
    let head = format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n");
    connection.write_all(&[head.as_bytes(), body].concat()).await.expect("written");
    let mut response = Vec::new();
    connection.read_to_end(&mut response).await.expect("read");
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    (head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn liveness_and_readiness_are_told_over_http_1() {
    let edge = Edge::start().await;
    for path in ["/healthz", "/readyz"] {
        let (head, body) = get(edge.address(), path).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(body, "ok");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let edge = Edge::start().await;
    for path in ["/", "/nowhere", "/macp.v1.Unknown/Call"] {
        let (head, body) = get(edge.address(), path).await;
        assert!(head.starts_with("http/1.1 404") && head.contains("content-type: application/json"), "{head}");
        assert!(serde_json::from_str::<serde_json::Value>(&body).expect("JSON")["error"].is_string());
    }
    edge.shut_down().await;
}

/// A page in a browser may post what is not marked as gRPC, to any server its reader can reach.
#[tokio::test]
async fn what_is_not_marked_as_grpc_is_no_call() {
    let edge = Edge::start().await;
    let message = SendRequest { envelope: Some(start("s")), signature: None }.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let framed = [&[0][..], &length, &message].concat();
    let runtime = "/macp.v1.MACPRuntimeService";
    for (method, path) in [
        ("POST", format!("{runtime}/Send")),
        ("GET", format!("{runtime}/Send")),
        ("POST", format!("{runtime}/StreamSession")),
        ("POST", format!("{runtime}/CancelSession")),
        ("POST", "/macp.history.v1.HistoryService/ExportSession".to_owned()),
        ("POST", "/grpc.health.v1.Health/Check".to_owned()),
    ] {
        // gRPC-Web is not gRPC, and gRPC is defined for HTTP/2 alone.
        for (header, status) in [
            ("x-nothing: 1", 415),
            ("content-type: text/plain", 415),
            ("content-type: application/json", 415),
            ("content-type: application/grpc-web", 415),
            ("content-type: application/grpc-web+proto", 415),
            ("content-type: application/grpc-web-text", 415),
            ("content-type: application/grpcx", 415),
            ("content-type: application/grpc\r\nte: trailers", 505),
            ("content-type: application/grpc+proto\r\nte: trailers", 505),
            ("content-type: application/grpc; charset=utf-8", 505),
        ] {
            let (head, body) = ask(edge.address(), method, &path, header, &framed).await;
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{path} {header}: {head}");
            assert!(!head.contains("grpc-status") && head.contains("macp-error-code: invalid_request"), "{head}");
            let reason = serde_json::from_str::<serde_json::Value>(&body).expect("JSON")["error"].to_string();
            assert!(reason.contains("gRPC") && reason.contains("HTTP/2"), "{reason}");
        }
    }
    assert_eq!(edge.session("s").await.expect_err("nothing was sent").code(), Code::NotFound);
    edge.shut_down().await;
}

/// The same over HTTP/2, where nothing but the content type differs from a call.
#[tokio::test]
async fn grpc_web_is_refused_over_http_2() {
    let edge = Edge::start().await;
    let message = SendRequest { envelope: Some(start("s")), signature: None }.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let framed = [&[0][..], &length, &message].concat();
    for (content_type, status) in [("application/grpc-web+proto", 415), ("application/grpc", 200)] {
        let request = tonic::codegen::http::Request::post("/macp.v1.MACPRuntimeService/Send")
            .header("content-type", content_type)
            .body(tonic::body::Body::new(axum::body::Body::from(framed.clone())))
            .expect("a request");
        let mut channel = edge.channel.clone();
        std::future::poll_fn(|cx| channel.poll_ready(cx)).await.expect("a connection");
        let response = channel.call(request).await.expect("a response");
        assert_eq!(response.status().as_u16(), status, "{content_type}");
        let code = response.headers().get("macp-error-code").map(|code| code.as_bytes());
        assert_eq!(code, (status == 415).then_some(&b"INVALID_REQUEST"[..]), "{content_type}");
        let stored = edge.session("s").await.is_ok();
        assert_eq!(stored, status == 200, "{content_type}");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn metrics_count_what_happens() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    edge.accept(start("t")).await;
    edge.accept(proposal("s", "p")).await;
    edge.send(proposal("s", "p")).await;
    edge.refuse(vote("nowhere", "v"), "SESSION_NOT_FOUND").await;
    edge.refuse(start_without_version(), "UNSUPPORTED_PROTOCOL_VERSION").await;
    edge.accept(envelope("", "sig", "Signal", "")).await;
    let (head, body) = get(edge.address(), "/metrics").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    for line in [
        "macp_messages_accepted_total 3",
        "macp_messages_duplicate_total 1",
        "macp_signals_relayed_total 1",
        "macp_messages_rejected_total{code=\"SESSION_NOT_FOUND\"} 1",
        "macp_messages_rejected_total{code=\"UNSUPPORTED_PROTOCOL_VERSION\"} 1",
        "macp_messages_rejected_total{code=\"INTERNAL_ERROR\"} 0",
        "macp_request_duration_seconds_count{rpc=\"Send\"} 7",
        "macp_commit_entries_sum 3.0",
        "macp_commit_failures_total 0",
        "macp_sessions_open 2",
        "macp_requests_in_flight 0",
        "macp_trace_records_dropped_total 0",
    ] {
        assert!(body.lines().any(|found| found == line), "{line} is not in:\n{body}");
    }
    assert!(body.contains("macp_sessions_resident 2"), "{body}");
    assert!(body.contains(&format!("macp_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))));
    for line in ["# TYPE macp_messages_accepted_total counter", "# TYPE macp_build_info gauge"] {
        assert!(body.lines().any(|found| found == line), "{line} is not in:\n{body}");
    }
    assert!(!body.contains("# EOF") && !body.contains("# UNIT"), "{body}");
    edge.shut_down().await;
}

#[tokio::test]
async fn metrics_are_open_metrics_for_those_who_ask() {
    let edge = Edge::start().await;
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let (head, body) = get_as(edge.address(), "/metrics", prometheus).await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("# TYPE macp_messages_accepted counter\n") && body.ends_with("# EOF\n"), "{body}");
    edge.shut_down().await;
}

fn start_without_version() -> Envelope {
    Envelope { macp_version: String::new(), ..start("u") }
}

async fn check(edge: &Edge, service: &str) -> Result<HealthCheckResponse, tonic::Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(edge.channel.clone()).check(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn grpc_health_knows_our_services() {
    let edge = Edge::start().await;
    for service in ["", "macp.v1.MACPRuntimeService", "macp.history.v1.HistoryService"] {
        let response = check(&edge, service).await.expect("known");
        assert_eq!(response.status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(check(&edge, "unknown").await.expect_err("unknown").code(), Code::NotFound);
    edge.shut_down().await;
}

async fn reflect(edge: &Edge, request: MessageRequest) -> Result<ServerReflectionResponse, tonic::Status> {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let requests = tokio_stream::iter([request]);
    let response = ServerReflectionClient::new(edge.channel.clone()).server_reflection_info(requests).await?;
    Ok(next(&mut response.into_inner()).await)
}

#[tokio::test]
async fn reflection_describes_our_services() {
    let edge = Edge::start().await;
    let response = reflect(&edge, MessageRequest::ListServices(String::new())).await.expect("reflection");
    let Some(MessageResponse::ListServicesResponse(services)) = response.message_response else {
        panic!("{response:?}");
    };
    let names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    for name in ["macp.v1.MACPRuntimeService", "macp.history.v1.HistoryService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    let symbol = MessageRequest::FileContainingSymbol("macp.v1.Envelope".into());
    let response = reflect(&edge, symbol).await.expect("reflection");
    assert!(matches!(response.message_response, Some(MessageResponse::FileDescriptorResponse(_))), "{response:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn reflection_can_be_switched_off() {
    let edge = Edge::with(|settings| settings.reflection = false).await;
    let status = reflect(&edge, MessageRequest::ListServices(String::new())).await.expect_err("no such service");
    assert_eq!(status.code(), Code::Unimplemented);
    edge.shut_down().await;
}
