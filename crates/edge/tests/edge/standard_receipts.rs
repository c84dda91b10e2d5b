//! GetDecisionReceipt and GetReceiptKeys.

use std::sync::Arc;

use macp_archive::receipt::{PublicKeys, SigningKey, Verdict, verify};
use macp_edge::Receipts;
use macp_ledger::SqliteStore;
use macp_wire::v1::*;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::common::*;
use crate::standard_common::*;

async fn receipt(edge: &Edge, identity: &str, session_id: &str) -> Result<String, Status> {
    let request = authorized(identity, GetDecisionReceiptRequest { session_id: session_id.into() });
    Ok(body(edge.runtime.clone().get_decision_receipt(request).await)?.receipt_json)
}

async fn keys(edge: &Edge) -> String {
    body(edge.runtime.clone().get_receipt_keys(GetReceiptKeysRequest {}).await).expect("open to all").jwks_json
}

/// A key whose seed is its number, over and over.
fn key(kid: &str, number: u8) -> SigningKey {
    let seed = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, [number; 32]);
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "d": seed});
    SigningKey::from_jwk(&jwk.to_string(), None).expect("a key")
}

/// Signs with the first and publishes all of them.
fn signing(keys: &[SigningKey]) -> Receipts {
    let public_keys = PublicKeys::new(keys.iter().map(SigningKey::public_key)).expect("different kids");
    Receipts { signing_key: keys.first().cloned(), public_keys }
}

#[tokio::test]
async fn std_rcpt_1_an_unsigned_receipt_says_what_was_decided() {
    let edge = Edge::with(|settings| settings.runtime_id = "referee".into()).await;
    edge.resolve(&sid(1)).await;
    let text = receipt(&edge, "bob", &sid(1)).await.expect("a receipt");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["receipt_format"], "macp-receipt/1");
    assert_eq!((&document["session_id"], &document["mode"]), (&json!(sid(1)), &json!(DECISION)));
    assert_eq!((&document["issuer"], &document["attestations"]), (&json!("runtime:referee"), &json!([])));
    let commitment = json!({
        "action": "decision.selected",
        "authority_scope": "team",
        "commitment_id": "c",
        "configuration_version": "c1",
        "mode_version": "1.0.0",
        "outcome_positive": true,
        "policy_version": "",
        "reason": "agreed",
    });
    assert_eq!(document["commitment"], commitment);
    let verification = verify(&text, &PublicKeys::none());
    assert_eq!(verification.verdict, Verdict::IntegrityOnly, "{verification:?}");
    assert_eq!(keys(&edge).await, r#"{"keys":[]}"#);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rcpt_3_a_receipt_is_the_same_bytes_for_ever() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    edge.resolve(&sid(1)).await;
    edge.resolve(&sid(2)).await;
    let first = receipt(&edge, "alice", &sid(1)).await.expect("a receipt");
    // The time of issue is part of it, in whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(receipt(&edge, "bob", &sid(1)).await.expect("a receipt"), first);
    edge.shut_down().await;

    // Under another name and with a key that was not there before.
    let edge = Edge::on(store(), |settings| {
        settings.runtime_id = "another".into();
        settings.receipts = signing(&[key("k1", 1)]);
    })
    .await;
    assert_eq!(receipt(&edge, "alice", &sid(1)).await.expect("a receipt"), first);
    let signed = receipt(&edge, "alice", &sid(2)).await.expect("a receipt");
    assert_eq!(verify(&signed, &signing(&[key("k1", 1)]).public_keys).verdict, Verdict::Attested);
    edge.shut_down().await;

    // After a rotation of keys.
    let edge = Edge::on(store(), |settings| settings.receipts = signing(&[key("k2", 2), key("k1", 1)])).await;
    assert_eq!(receipt(&edge, "alice", &sid(2)).await.expect("a receipt"), signed);
    let published = PublicKeys::from_jwks(&keys(&edge).await).expect("keys");
    assert_eq!(verify(&signed, &published).verdict, Verdict::Attested, "retired keys stay published");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rcpt_2_signed_receipts_verify_with_the_published_keys() {
    let edge = Edge::with(|settings| {
        settings.receipts = signing(&[key("active", 1), key("retired", 2)]);
    })
    .await;
    edge.resolve(&sid(1)).await;
    let text = receipt(&edge, "alice", &sid(1)).await.expect("a receipt");
    let jwks: Value = serde_json::from_str(&keys(&edge).await).expect("JSON");
    let listed = jwks["keys"].as_array().expect("a list");
    assert_eq!((&listed[0]["kid"], &listed[1]["kid"]), (&json!("active"), &json!("retired")), "STD-RCPT-5");
    for key in listed {
        assert_eq!((&key["kty"], &key["crv"]), (&json!("OKP"), &json!("Ed25519")));
        assert_eq!((&key["alg"], &key["use"]), (&json!("EdDSA"), &json!("sig")));
        assert!(key.get("d").is_none(), "nothing private");
    }
    let published = PublicKeys::from_jwks(&jwks.to_string()).expect("keys");
    assert_eq!(verify(&text, &published).verdict, Verdict::Attested);
    let stranger = signing(&[key("active", 3)]).public_keys;
    assert_eq!(verify(&text, &stranger).verdict, Verdict::IntegrityOnly, "another key of the same name");
    let tampered = text.replace("\"agreed\"", "\"argued\"");
    assert_eq!(verify(&tampered, &published).verdict, Verdict::Unverified);

    let request = InitializeRequest { supported_protocol_versions: vec!["1.0".into()], ..Default::default() };
    let capabilities = body(edge.runtime.clone().initialize(request).await).expect("initialized").capabilities;
    assert!(capabilities.expect("capabilities").decision_receipt.expect("listed").signed);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rcpt_3_4_who_gets_a_receipt_and_for_what() {
    let edge = Edge::with(|settings| settings.message_limit_per_minute = Some(6)).await;
    edge.decide(&sid(1)).await;
    for id in ["", "unknown", &sid(9)] {
        refused(receipt(&edge, "mallory", id).await, Code::NotFound, "SESSION_NOT_FOUND");
    }
    refused(receipt(&edge, "mallory", &sid(1)).await, Code::PermissionDenied, "FORBIDDEN");
    for _ in 0..2 {
        refused(receipt(&edge, "alice", &sid(1)).await, Code::FailedPrecondition, "RECEIPT_UNAVAILABLE");
    }
    edge.cancel_as("alice", &sid(1)).await.expect("cancelled");
    refused(receipt(&edge, "alice", &sid(1)).await, Code::FailedPrecondition, "RECEIPT_UNAVAILABLE");
    // A commitment that says more than its hash covers has none.
    edge.decide(&sid(2)).await;
    edge.accept_as("bob", propose(&sid(2), "p")).await;
    let mut extended = commit(&sid(2), "c");
    extended.payload = [&extended.payload[..], &[0x98, 0x06, 0x01]].concat().into();
    edge.accept_as("alice", extended).await;
    refused(receipt(&edge, "alice", &sid(2)).await, Code::FailedPrecondition, "RECEIPT_UNAVAILABLE");
    // Five of alice's six messages are used up; the refusals before that cost mallory nothing.
    refused(receipt(&edge, "alice", &sid(2)).await, Code::FailedPrecondition, "RECEIPT_UNAVAILABLE");
    let status = refused(receipt(&edge, "alice", &sid(2)).await, Code::ResourceExhausted, "RATE_LIMITED");
    assert!(status.message().contains("retry after"), "{status:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn many_who_ask_at_once_get_the_same_receipt() {
    let edge = Edge::start().await;
    edge.resolve(&sid(1)).await;
    let asking: Vec<_> = (0..32)
        .map(|_| {
            let mut client = edge.runtime.clone();
            let request = authorized("alice", GetDecisionReceiptRequest { session_id: sid(1) });
            tokio::spawn(async move { client.get_decision_receipt(request).await.expect("a receipt").into_inner() })
        })
        .collect();
    let mut receipts = Vec::new();
    for asked in asking {
        receipts.push(asked.await.expect("no panic").receipt_json);
    }
    receipts.dedup();
    assert_eq!(receipts.len(), 1);
    edge.shut_down().await;
}
