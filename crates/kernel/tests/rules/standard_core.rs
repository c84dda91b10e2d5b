//! STD-CORE: what the standard asks of every envelope and every start, whatever the mode.

use std::collections::BTreeMap;

use bytes::Bytes;
use macp_kernel::{Caller, ID_BYTES_MAX, LABEL_BYTES_MAX, STANDARD_MESSAGE_ID_BYTES_MAX};
use macp_wire::modes::decision::v1::ProposalPayload;
use macp_wire::v1::{Envelope, ProgressPayload, SessionStartPayload};
use prost::Message;

use crate::world::{World, envelope, word};

const SESSION: &str = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e5f";
const MODE: &str = "macp.mode.decision.v1";

fn payload() -> SessionStartPayload {
    SessionStartPayload {
        participants: vec!["alice".into(), "bob".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "cfg-1".into(),
        ttl_ms: 60_000,
        ..SessionStartPayload::default()
    }
}

fn message(message_type: &str, message_id: &str, payload: &impl Message) -> Envelope {
    Envelope {
        mode: MODE.into(),
        session_id: SESSION.into(),
        payload: payload.encode_to_vec().into(),
        ..envelope(message_type, message_id)
    }
}

/// Sends as the one the envelope names, and compares the verdict.
#[track_caller]
fn expect(world: &mut World, envelope: Envelope, expected: &str) {
    let shown = format!("{} {}", envelope.message_type, envelope.message_id.len());
    let settled = world.send_as(Caller::identified(envelope.sender.as_str()), envelope);
    assert_eq!(word(&settled), expected, "{settled:?} for {shown}");
}

#[track_caller]
fn started(payload: &SessionStartPayload) -> World {
    let mut world = World::new();
    expect(&mut world, message("SessionStart", "start", payload), "accepted");
    world
}

/// A message id has no form, so whatever has one gets the same generous bound.
#[test]
fn std_core_4_message_ids_have_one_bound() {
    let longest = "m".repeat(STANDARD_MESSAGE_ID_BYTES_MAX);
    let too_long = format!("{longest}m");
    let proposal = ProposalPayload { proposal_id: "p".into(), option: "go".into(), ..ProposalPayload::default() };
    let mut world = started(&payload());
    expect(&mut world, message("Proposal", &longest, &proposal), "accepted");
    expect(&mut world, message("Proposal", &too_long, &proposal), "INVALID_ENVELOPE");

    let alice = || Caller::identified("alice");
    let progress = |message_id: &str| message("Progress", message_id, &ProgressPayload::default());
    let signal = Envelope { session_id: String::new(), ..envelope("Signal", "") };
    for ambient in [signal, progress("")] {
        for (message_id, taken) in [(&longest, true), (&too_long, false)] {
            let ambient = Envelope { message_id: message_id.clone(), ..ambient.clone() };
            assert_eq!(world.relay(alice(), &ambient).is_ok(), taken, "{} of {}", ambient.message_type, message_id.len());
        }
    }
    // What names a session or a mode names none that can exist.
    for spoilt in [
        Envelope { session_id: "s".repeat(ID_BYTES_MAX + 1), ..progress("m") },
        Envelope { mode: "m".repeat(ID_BYTES_MAX + 1), ..progress("m") },
    ] {
        assert!(world.relay(alice(), &spoilt).is_err());
    }
}

/// A start is never refused for its labels, and long ones stay in its first entry: not in memory, not in the index.
#[test]
fn std_core_11_labels_of_any_length_are_taken_and_only_short_ones_are_told() {
    let labelled = |context_id: String, keys: &[String]| {
        let extensions: BTreeMap<String, Bytes> = keys.iter().map(|key| (key.clone(), Bytes::from_static(b"x"))).collect();
        let payload = SessionStartPayload { context_id, extensions, ..payload() };
        let world = started(&payload);
        let session = world.session_named(SESSION);
        let (summary, metadata) = (session.summary(), session.metadata());
        assert_eq!(summary.extension_keys, metadata.extension_keys);
        assert_eq!(summary.context_id, metadata.context_id);
        (metadata.context_id.len(), metadata.extension_keys, summary.encoded_len())
    };
    let keys = ["b".to_owned(), "a".to_owned()];
    let (context_id, told, _) = labelled("x".repeat(LABEL_BYTES_MAX), &keys);
    assert_eq!((context_id, told), (LABEL_BYTES_MAX, vec!["a".to_owned(), "b".to_owned()]));

    let long = "x".repeat(500_000);
    let many: Vec<String> = (0..20_000).map(|number| format!("key-{number}")).collect();
    for (context_id, keys) in [(long.clone(), vec![long.clone()]), (long, many)] {
        let (context_id, told, bytes) = labelled(context_id, &keys);
        assert_eq!((context_id, told.len()), (0, 0));
        assert!(bytes < 1_000, "{bytes} bytes in the index");
    }
}
