//! What refuses to start, and how it says so.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use macp_edge::{AuditSettings, Server, Settings, StartError};
use macp_ledger::MemoryStore;

use crate::common::Edge;

fn settings(listen: impl Into<SocketAddr>) -> Settings {
    Settings { listen: listen.into(), ..Settings::default() }
}

async fn refused(settings: Settings) -> StartError {
    Server::start(settings, Arc::new(MemoryStore::new())).await.expect_err("it must not start")
}

#[test]
fn the_default_is_local() {
    let settings = Settings::default();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:50051");
    assert!(!settings.allow_insecure);
}

#[tokio::test]
async fn an_address_others_can_reach_needs_to_be_allowed() {
    let error = refused(settings((Ipv4Addr::UNSPECIFIED, 0))).await;
    assert!(matches!(error, StartError::Unsafe(_)));
    let text = error.to_string();
    assert!(text.contains("--allow-insecure") && text.contains("127.0.0.1"), "{text}");

    let settings = Settings { allow_insecure: true, ..settings((Ipv4Addr::UNSPECIFIED, 0)) };
    let server = Server::start(settings, Arc::new(MemoryStore::new())).await.expect("it was allowed");
    server.shut_down().await.expect("a clean shutdown");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let edge = Edge::start().await;
    let error = refused(settings(edge.address())).await;
    assert!(matches!(&error, StartError::Bind { address, .. } if *address == edge.address()));
    assert!(error.to_string().contains("another process listens there"), "{error}");
    assert!(std::error::Error::source(&error).is_some(), "the cause is kept");
    edge.shut_down().await;
}

#[tokio::test]
async fn an_audit_trace_that_cannot_be_written_is_named() {
    let path = std::path::Path::new("/nowhere/at/all/trace.jsonl");
    let settings = Settings { audit: Some(AuditSettings::new(path)), ..settings((Ipv4Addr::LOCALHOST, 0)) };
    let error = refused(settings).await;
    assert!(error.to_string().contains("/nowhere/at/all/trace.jsonl"), "{error}");
}
