//! REPLAY-6 from outside: signatures beside envelopes, and keys that are swapped while the server runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use macp_archive::Keys;
use macp_edge::Reloadable;
use macp_kernel::SignatureRule;
use macp_wire::history::v1::VerifySessionRequest;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::signing::signing_bytes;
use macp_wire::v1::{Ack, Envelope, SendRequest};

use crate::common::*;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn registered(sender: &str) -> Reloadable {
    let public_key = STANDARD.encode(key().verifying_key().as_bytes());
    let json = format!(r#"{{"keys":[{{"key_id":"k","sender":"{sender}","public_key":"{public_key}"}}]}}"#);
    Reloadable { keys: Keys::from_json(&json).expect("keys"), ..Reloadable::default() }
}

async fn send_signed(edge: &Edge, envelope: Envelope, signature: Vec<u8>) -> Ack {
    let signature = EnvelopeSignature { key_id: "k".into(), signature: signature.into() };
    let request = SendRequest { envelope: Some(envelope), signature: Some(signature) };
    edge.runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack")
}

fn sign(envelope: &Envelope) -> Vec<u8> {
    key().sign(&signing_bytes(envelope)).to_vec()
}

#[tokio::test]
async fn replay_6_signatures_are_checked_with_the_keys_of_the_moment() {
    let edge = Edge::start().await;
    let envelope = start("s");
    assert!(send_signed(&edge, envelope.clone(), sign(&envelope)).await.ok, "kept, although no key is registered");

    edge.server.reload(registered("alice"));
    let envelope = proposal("s", "p");
    let ack = send_signed(&edge, envelope.clone(), vec![0; 64]).await;
    assert_eq!(ack.error.expect("refused").code, "UNAUTHENTICATED");
    assert!(send_signed(&edge, envelope.clone(), sign(&envelope)).await.ok);

    edge.server.reload(registered("bob"));
    let envelope = vote("s", "v");
    let ack = send_signed(&edge, envelope.clone(), sign(&envelope)).await;
    assert_eq!(ack.error.expect("the key is another's").code, "UNAUTHENTICATED");

    edge.server.reload(registered("alice"));
    let verify = VerifySessionRequest { session_id: "s".into() };
    let verified = edge.history.clone().verify_session(verify).await.expect("verified").into_inner();
    assert!(verified.ok, "{verified:?}");
    assert_eq!(verified.entries, 2);
    assert_eq!(verified.signatures_verified + verified.signatures_unchecked, 2);
    edge.shut_down().await;
}

#[tokio::test]
async fn replay_6_signatures_can_be_required() {
    let edge = Edge::with(|settings| {
        settings.engine.limits.signatures = SignatureRule::Required;
        settings.reloadable = registered("alice");
    })
    .await;
    edge.refuse(start("s"), "UNAUTHENTICATED").await;
    let envelope = start("s");
    assert!(send_signed(&edge, envelope.clone(), sign(&envelope)).await.ok);
    edge.shut_down().await;
}
