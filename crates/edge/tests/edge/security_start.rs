//! Combinations that must not start, and policies an operator brings along.

use std::net::Ipv4Addr;
use std::sync::Arc;

use macp_edge::{OperatorPolicy, Server, Settings, StartError, Tls};
use macp_ledger::{MemoryStore, Store};
use macp_wire::v1::*;
use rcgen::{CertificateParams, KeyPair};

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

fn tls() -> Tls {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("names").self_signed(&key);
    let certificate = certificate.expect("a certificate").pem().into_bytes();
    Tls { certificate, key: key.serialize_pem().into_bytes(), client_authorities: None }
}

async fn refused_start(settings: Settings) -> StartError {
    Server::start(settings, Arc::new(MemoryStore::new())).await.expect_err("it must not start")
}

#[tokio::test]
async fn std_sec_8_other_machines_need_tls_and_authentication_or_an_explicit_word() {
    let listen = (Ipv4Addr::UNSPECIFIED, 0).into();
    let open = Settings { listen, ..Settings::default() };
    let with_tls = Settings { tls: Some(tls()), ..open.clone() };
    let with_auth = Settings { auth: settled(team()), ..open.clone() };
    for (settings, expected) in [
        (open, "neither TLS nor authentication is configured"),
        (with_tls, "no authentication is configured"),
        (with_auth.clone(), "credentials would travel in clear text"),
    ] {
        let error = refused_start(settings).await;
        assert!(matches!(error, StartError::Unsafe(_)));
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains("--allow-insecure"), "{text}");
    }
    for settings in [Settings { tls: Some(tls()), ..with_auth.clone() }, Settings { allow_insecure: true, ..with_auth }]
    {
        let server = Server::start(settings, Arc::new(MemoryStore::new())).await.expect("safe, or allowed");
        server.shut_down().await.expect("a clean shutdown");
    }
}

#[tokio::test]
async fn certificates_and_tokens_that_cannot_be_used_stop_the_start() {
    let local = || Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Settings::default() };
    let other = tls();
    for bad in [
        Tls { certificate: b"nonsense".to_vec(), ..tls() },
        Tls { key: b"nonsense".to_vec(), ..tls() },
        Tls { key: other.key, ..tls() },
    ] {
        let error = refused_start(Settings { tls: Some(bad), ..local() }).await;
        assert!(matches!(error, StartError::Tls(_)), "{error:?}");
    }
    let twice = serde_json::json!([entry("alice", serde_json::json!({})), entry("alice", serde_json::json!({}))]);
    let error = refused_start(Settings { auth: settled(tokens(&twice)), ..local() }).await;
    let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(text.contains("same token") && !text.contains("token-of"), "{text}");
}

fn brought(origin: &str, id: &str, rules: &str) -> OperatorPolicy {
    OperatorPolicy { descriptor: policy(id, DECISION, rules), origin: origin.to_owned() }
}

#[tokio::test]
async fn std_pol_12_policies_of_the_operator_are_there_from_the_start() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let majority = r#"{"voting":{"algorithm":"majority"}}"#;
    let edge =
        Edge::on(Arc::clone(&store), |settings| settings.policies = vec![brought("1.json", "p1", majority)]).await;
    let bound = SessionStartPayload { policy_version: "p1".into(), ..start_payload() };
    edge.accept_as("alice", std_start(&sid(1), DECISION, &bound)).await;
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("readable").policy_version, "p1");
    edge.shut_down().await;

    // Again, said otherwise: a default spelled out and other words beside it.
    let same = r#"{"voting":{"threshold":0.5,"algorithm":"majority"},"_note":"the same"}"#;
    let again = vec![brought("1.json", "p1", majority), brought("2.json", "p1", same)];
    let edge = Edge::on(Arc::clone(&store), |settings| settings.policies = again).await;
    edge.shut_down().await;

    for (bad, expected) in [
        (brought("3.json", "p1", r#"{"voting":{"algorithm":"unanimous"}}"#), "another definition"),
        (brought("4.json", "p2", r#"{"voting":{"algorithm":"loudest"}}"#), "INVALID_POLICY_DEFINITION"),
        (brought("5.json", "policy.default", "{}"), "policy.default"),
        (brought("6.json", "", "{}"), "INVALID_POLICY_DEFINITION"),
    ] {
        let settings =
            Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), policies: vec![bad.clone()], ..Settings::default() };
        let error = Server::start(settings, Arc::clone(&store)).await.expect_err("a bad policy");
        let text = error.to_string();
        assert!(text.contains(&bad.origin) && text.contains(expected), "{text}");
    }
}
