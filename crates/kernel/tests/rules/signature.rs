//! REPLAY-6: Ed25519 signatures of envelopes, on admission and on replay.

use ed25519_dalek::{Signer, SigningKey};
use macp_kernel::replay::{Replayer, Stop};
use macp_kernel::signature::{Error, Key, verify, verify_bytes};
use macp_kernel::{Caller, SignatureCheck, SignatureRule};
use macp_wire::history::v1::RecordedSignature;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::signing::signing_bytes;
use macp_wire::v1::Envelope;

use crate::world::{World, by, proposal, refusal, start, word};

fn signing_key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn key(seed: u8, sender: &str) -> Key {
    Key { sender: sender.into(), public_key: signing_key(seed).verifying_key().to_bytes() }
}

fn sign(seed: u8, envelope: &Envelope) -> EnvelopeSignature {
    let signature = signing_key(seed).sign(&signing_bytes(envelope));
    EnvelopeSignature { key_id: "k1".into(), signature: signature.to_bytes().to_vec().into() }
}

fn valid(seed: u8, envelope: &Envelope) -> SignatureCheck {
    SignatureCheck::Valid(RecordedSignature {
        signature: Some(sign(seed, envelope)),
        public_key: signing_key(seed).verifying_key().to_bytes().to_vec().into(),
    })
}

fn unregistered(envelope: &Envelope) -> SignatureCheck {
    SignatureCheck::Unregistered(RecordedSignature {
        signature: Some(sign(1, envelope)),
        ..RecordedSignature::default()
    })
}

#[test]
fn replay_6_a_valid_signature() {
    let envelope = proposal("m1", "p1");
    assert_eq!(verify(&envelope, &sign(1, &envelope), &key(1, "alice")), Ok(()));
}

#[test]
fn replay_6_wrong_key_owner_sender_and_lengths() {
    let envelope = proposal("m1", "p1");
    let signature = sign(1, &envelope);
    assert_eq!(verify(&envelope, &signature, &key(2, "alice")), Err(Error::Mismatch));
    assert_eq!(
        verify(&envelope, &signature, &key(1, "bob")),
        Err(Error::Owner { key_id: "k1".into(), owner: "bob".into(), sender: "alice".into() })
    );
    let nobody = by("", envelope.clone());
    assert_eq!(verify(&nobody, &sign(1, &nobody), &key(1, "")), Err(Error::NoSender));
    for length in [0, 63, 65] {
        let short = EnvelopeSignature { signature: vec![0; length].into(), ..signature.clone() };
        assert_eq!(verify(&envelope, &short, &key(1, "alice")), Err(Error::Length(length)));
    }
    let public_key = key(1, "alice").public_key;
    for bad in [&public_key[..31], &[2; 32], b""] {
        assert_eq!(verify_bytes(&envelope, &signature.signature, bad), Err(Error::Key));
    }
}

/// Every field is under the signature.
#[test]
fn replay_6_a_changed_envelope_does_not_fit_its_signature() {
    let envelope = Envelope { mode: "decision".into(), ..proposal("m1", "p1") };
    let signature = sign(1, &envelope);
    let public_key = key(1, "alice").public_key;
    let changes: [fn(&mut Envelope); 8] = [
        |envelope| envelope.macp_version = "1.1".into(),
        |envelope| envelope.mode.clear(),
        |envelope| envelope.message_type = "Vote".into(),
        |envelope| envelope.message_id = "m2".into(),
        |envelope| envelope.session_id = "s2".into(),
        |envelope| envelope.sender = "bob".into(),
        |envelope| envelope.timestamp_unix_ms = 1,
        |envelope| envelope.payload = "{}".into(),
    ];
    for change in changes {
        let mut changed = envelope.clone();
        change(&mut changed);
        assert_eq!(verify_bytes(&changed, &signature.signature, &public_key), Err(Error::Mismatch), "{changed:?}");
    }
}

/// Signatures that hold for any message under a key of small order are refused.
#[test]
fn replay_6_weak_keys_are_refused() {
    let envelope = proposal("m1", "p1");
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut signature = [0; 64];
    signature[0] = 1;
    assert!(verify_bytes(&envelope, &signature, &neutral).is_err());
}

#[test]
fn replay_6_required_and_optional() {
    let message = proposal("m1", "p1");
    let invalid = || SignatureCheck::Invalid("forged".into());
    let cases = [
        (SignatureRule::Optional, SignatureCheck::Absent, "accepted"),
        (SignatureRule::Optional, valid(1, &message), "accepted"),
        (SignatureRule::Optional, unregistered(&message), "accepted"),
        (SignatureRule::Optional, invalid(), "UNAUTHENTICATED"),
        (SignatureRule::Required, SignatureCheck::Absent, "UNAUTHENTICATED"),
        (SignatureRule::Required, valid(1, &message), "accepted"),
        (SignatureRule::Required, unregistered(&message), "UNAUTHENTICATED"),
        (SignatureRule::Required, invalid(), "UNAUTHENTICATED"),
    ];
    for (rule, signature, expected) in cases {
        let mut world = World::started(start());
        world.limits.signatures = rule;
        let settled = world.send_signed(Caller::anonymous(), message.clone(), signature.clone());
        assert_eq!(word(&settled), expected, "{rule:?} {signature:?}");
        if expected == "UNAUTHENTICATED" {
            assert!(refusal(settled).operational);
        }
    }
}

fn signed_session() -> World {
    let mut world = World::new();
    let start = start();
    let signature = valid(1, &start);
    world.send_signed(Caller::anonymous(), start, signature);
    let message = proposal("m1", "p1");
    let signature = valid(1, &message);
    world.send_signed(Caller::anonymous(), message, signature);
    let message = proposal("m2", "p1");
    let signature = unregistered(&message);
    world.send_signed(Caller::anonymous(), message, signature);
    world
}

#[test]
fn replay_6_signatures_are_stored_and_replayed() {
    let world = signed_session();
    let mut replayer = Replayer::default();
    for entry in world.entries() {
        let recorded = entry.signature.as_ref().expect("every entry is signed");
        assert_eq!(recorded.public_key.is_empty(), entry.sequence == 3);
        replayer.feed(entry).expect("good signatures replay");
    }
    assert_eq!(replayer.into_session().as_ref(), Some(world.session()));
}

#[test]
fn replay_6_a_recorded_signature_is_verified_on_replay() {
    let world = signed_session();
    let mut history = world.entries().to_vec();
    let recorded = history[1].signature.as_mut().expect("it is signed");
    recorded.signature = Some(sign(2, &proposal("m1", "p1")));
    let mut replayer = Replayer::default();
    replayer.feed(&history[0]).expect("the start is untouched");
    match replayer.feed(&history[1]) {
        Err(Stop::Diverged(divergence)) => {
            assert_eq!((divergence.sequence, divergence.field.as_str()), (2, "decision"));
            assert!(divergence.found.contains("UNAUTHENTICATED"), "{divergence}");
        }
        other => panic!("{other:?} is no divergence"),
    }
}
