//! REPLAY-6: signatures are kept, and checked again whenever a key is at hand.

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{command, decision, write};
use ed25519_dalek::{Signer, SigningKey};
use macp_archive::{Keys, Source, verify};
use macp_kernel::SignatureCheck;
use macp_ledger::{History, MemoryStore};
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::signing::signing_bytes;
use macp_wire::v1::Envelope;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn keys(key: &SigningKey) -> Keys {
    let public_key = STANDARD.encode(key.verifying_key().as_bytes());
    let json = format!(r#"{{"keys":[{{"key_id":"k1","sender":"alice","public_key":"{public_key}"}}]}}"#);
    Keys::from_json(&json).expect("keys")
}

fn sign(key: &SigningKey, envelope: &Envelope) -> EnvelopeSignature {
    let signature = key.sign(&signing_bytes(envelope)).to_bytes().to_vec().into();
    EnvelopeSignature { key_id: "k1".into(), signature }
}

/// A decision in which alice signs; returns what verifying with these keys shows.
fn verified(admitted_with: &Keys, verified_with: &Keys) -> macp_archive::Verification {
    let store = MemoryStore::new();
    let commands = decision("s")
        .into_iter()
        .map(|envelope| {
            let signature = (envelope.sender == "alice").then(|| sign(&key(1), &envelope));
            let check = admitted_with.check(&envelope, signature.as_ref());
            command(envelope, check)
        })
        .collect();
    write(&store, "s", commands);
    let history = History::open(&store, "s").expect("readable").expect("there");
    verify(&mut Source::Store(history), verified_with, &mut |_| {}).expect("readable")
}

#[test]
fn registered_keys_verify_and_unknown_ones_are_counted() {
    let found = verified(&keys(&key(1)), &keys(&key(1)));
    assert_eq!((found.ok(), found.signatures_verified, found.signatures_unchecked), (true, 3, 0));
    let found = verified(&keys(&key(1)), &Keys::none());
    assert_eq!((found.ok(), found.signatures_verified, found.signatures_unchecked), (true, 0, 3));
    let found = verified(&Keys::none(), &keys(&key(1)));
    assert_eq!((found.ok(), found.signatures_verified), (true, 3));
}

#[test]
fn another_key_under_the_same_name_is_found() {
    let bad = verified(&keys(&key(1)), &keys(&key(2))).bad.expect("found");
    assert_eq!(bad.sequence, 1);
    let bad = verified(&Keys::none(), &keys(&key(2))).bad.expect("found");
    assert_eq!(bad.sequence, 1);
}

#[test]
fn a_signature_shows_what_it_is_worth() {
    let keys = keys(&key(1));
    let envelope = decision("s").remove(0);
    let good = sign(&key(1), &envelope);
    assert!(matches!(keys.check(&envelope, Some(&good)), SignatureCheck::Valid(_)));
    assert_eq!(keys.check(&envelope, None), SignatureCheck::Absent);
    let mut changed = envelope.clone();
    changed.message_id.push('x');
    assert!(matches!(keys.check(&changed, Some(&good)), SignatureCheck::Invalid(_)));
    let mut foreign = envelope.clone();
    foreign.sender = "bob".into();
    assert!(matches!(keys.check(&foreign, Some(&sign(&key(1), &foreign))), SignatureCheck::Invalid(_)));
    let mut nobody = envelope.clone();
    nobody.sender.clear();
    assert!(matches!(keys.check(&nobody, Some(&sign(&key(1), &nobody))), SignatureCheck::Invalid(_)));
    let unknown = EnvelopeSignature { key_id: "k2".into(), ..good.clone() };
    assert!(matches!(keys.check(&envelope, Some(&unknown)), SignatureCheck::Unregistered(_)));
    let short = EnvelopeSignature { signature: vec![1; 63].into(), ..good };
    assert!(matches!(keys.check(&envelope, Some(&short)), SignatureCheck::Invalid(_)));
}

#[test]
fn bad_lists_of_keys_are_refused() {
    let of = |lines: &str| Keys::from_json(&format!(r#"{{"keys":[{lines}]}}"#));
    let good = STANDARD.encode([7_u8; 32]);
    let line =
        |id: &str, sender: &str, key: &str| format!(r#"{{"key_id":"{id}","sender":"{sender}","public_key":"{key}"}}"#);
    assert_eq!(of(&line("a", "alice", &good)).expect("good").len(), 1);
    for bad in [
        line("", "alice", &good),
        line("a", "", &good),
        line("a", "alice", "AAAA"),
        line("a", "alice", "not base64"),
        format!("{},{}", line("a", "alice", &good), line("a", "bob", &good)),
        r#"{"key_id":"a"}"#.to_owned(),
    ] {
        assert!(of(&bad).is_err(), "{bad}");
    }
}
