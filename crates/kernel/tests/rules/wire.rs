//! WIRE and RPC-3: what of the envelope, the Ack, the error codes and the metadata the rules themselves decide.

use bytes::Bytes;
use macp_kernel::{ACTIVITY_SHOWN_MAX, Caller, Limits, Settled, State};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::modes::decision::v1::{ProposalPayload, VotePayload};
use macp_wire::v1::Envelope;
use prost::Message;
use serde_json::json;

use crate::world::{
    NOW, SESSION, World, by, envelope, json, participants, proposal, refusal, start, start_with, vote, with_payload,
    word,
};

#[test]
fn wire_3_a_duplicate_tells_the_time_of_the_original_acceptance() {
    let mut world = World::started(start());
    world.now = NOW + 10;
    assert_eq!(world.send(proposal("m1", "p1")), Settled::Accepted { accepted_at_ms: NOW + 10 });
    world.now = NOW + 20;
    assert_eq!(world.send(proposal("m1", "p1")), Settled::Duplicate { accepted_at_ms: NOW + 10 });
    assert_eq!(world.send(start()), Settled::Duplicate { accepted_at_ms: NOW });
}

#[test]
fn wire_4_a_duplicate_is_never_an_error() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    for _ in 0..3 {
        let settled = world.send(proposal("m1", "p1"));
        assert_eq!(word(&settled), "duplicate");
    }
    assert_eq!(world.entries().len(), 2);
}

#[test]
fn wire_5_the_payload_limit_is_inclusive() {
    let limit = usize::try_from(Limits::default().payload_bytes_max).expect("a small number");
    assert_eq!(limit, 1_048_576);
    for (length, expected) in [(limit, "accepted"), (limit + 1, "PAYLOAD_TOO_LARGE")] {
        let mut world = World::started(start());
        let payload = Bytes::from(vec![b'x'; length]);
        world.expect(Envelope { payload, ..envelope("Message", "m1") }, expected);
    }
}

#[test]
fn wire_5_a_session_has_a_cap_on_entries_bound_at_its_start() {
    let mut world = World::new();
    world.limits.session_entries_max = 3;
    world.expect(start(), "accepted");
    world.limits.session_entries_max = 100;
    world.expect(envelope("Message", "m1"), "accepted");
    world.expect(envelope("Message", "m2"), "accepted");
    let rejection = world.refused(envelope("Message", "m3"));
    assert_eq!(rejection.code, Code::InvalidEnvelope);
    assert!(rejection.message.contains("full"), "{rejection}");
    // What ends a session is not held up by a cap on its growth.
    assert_eq!(word(&world.cancel(Caller::anonymous(), SESSION, "full")), "accepted");
    assert_eq!(world.session().state(), State::Expired);
}

#[test]
fn wire_5_a_session_has_a_cap_on_bytes_bound_at_its_start() {
    let mut world = World::new();
    world.limits.session_bytes_max = 200;
    world.expect(start(), "accepted");
    world.limits.session_bytes_max = 1_000_000;
    let message = |id: &str, length| Envelope { payload: Bytes::from(vec![b'x'; length]), ..envelope("Message", id) };
    assert_eq!(world.refused(message("m1", 200)).code, Code::PayloadTooLarge);
    world.expect(message("m1", 20), "accepted");
    // What fitted once does not fit for ever: every accepted envelope counts, to the byte.
    let more = (200 - start().encoded_len()) / message("m1", 20).encoded_len() - 1;
    for number in 2..2 + more {
        world.expect(message(&format!("m{number}"), 20), "accepted");
    }
    assert_eq!(world.refused(message("last", 20)).code, Code::PayloadTooLarge);
}

/// The edges of every length: 256 bytes pass, 257 do not. Bytes count, not characters.
#[test]
fn wire_6_lengths() {
    let longest = ["x".repeat(256), "ä".repeat(128)];
    let too_long = ["x".repeat(257), format!("{}x", "ä".repeat(128))];
    type Field = fn(&mut Envelope, &str);
    let fields: [(&str, Field); 3] = [
        ("session_id", |envelope, value| envelope.session_id = value.into()),
        ("message_id", |envelope, value| envelope.message_id = value.into()),
        ("sender", |envelope, value| envelope.sender = value.into()),
    ];
    for (field, set) in fields {
        for value in &longest {
            let mut envelope = start();
            set(&mut envelope, value);
            World::new().expect(envelope, "accepted");
        }
        for value in &too_long {
            let mut envelope = start();
            set(&mut envelope, value);
            let rejection = World::new().refused(envelope);
            assert_eq!(rejection.code, Code::InvalidEnvelope);
            assert!(rejection.message.contains(field), "{rejection}");
        }
    }
}

#[test]
fn wire_6_lengths_of_participants() {
    for (length, expected) in [(256, "accepted"), (257, "INVALID_ENVELOPE")] {
        let name = "x".repeat(length);
        World::new().expect(start_with(&participants(&["alice", &name])), expected);
    }
}

#[test]
fn wire_6_lengths_of_other_words_that_are_kept() {
    for (length, expected) in [(256, "accepted"), (257, "INVALID_ENVELOPE")] {
        let word = "x".repeat(length);
        let payload = SessionStartPayload { configuration_version: word.clone(), ..Default::default() };
        World::new().expect(start_with(&payload), expected);
        let payload = SessionStartPayload { policy_version: word.clone(), ..Default::default() };
        World::new().expect(start_with(&payload), expected);
        World::started(start()).expect(proposal("m1", &word), expected);
    }
}

/// Names and ids in payloads take 256 bytes, texts 64 KiB, in either encoding.
#[test]
fn wire_6_lengths_of_names_and_texts_in_payloads() {
    let deliberated = || {
        let mut world = World::started(start());
        world.expect(proposal("p", "p1"), "accepted");
        world.expect(vote("v", "p1"), "accepted");
        world
    };
    let fields = [
        ("Evaluation", "recommendation", 256),
        ("Objection", "severity", 256),
        ("Vote", "vote", 256),
        ("Commitment", "commitment_id", 256),
        ("Commitment", "action", 65_536),
        ("Commitment", "authority_scope", 256),
        ("Commitment", "mode_version", 256),
        ("Proposal", "option", 65_536),
        ("Proposal", "rationale", 65_536),
        ("Evaluation", "reason", 65_536),
        ("Objection", "reason", 65_536),
        ("Vote", "reason", 65_536),
        ("Commitment", "reason", 65_536),
    ];
    for (message_type, field, most) in fields {
        let with = |length| json(message_type, "m", json!({ "proposal_id": "p1", field: "x".repeat(length) }));
        deliberated().expect(with(most), "accepted");
        let rejection = deliberated().refused(with(most + 1));
        assert_eq!(rejection.code, Code::InvalidEnvelope);
        let expected = format!("{field} is {} bytes long, at most {most} are allowed", most + 1);
        assert_eq!(rejection.message, expected, "{message_type}");
    }
    for (length, expected) in [(65_536, "accepted"), (65_537, "INVALID_ENVELOPE")] {
        let reason = "x".repeat(length);
        let vote = VotePayload { proposal_id: "p1".into(), reason: reason.clone(), ..Default::default() };
        deliberated().expect(with_payload("Vote", "m", vote.encode_to_vec()), expected);
        let payload = SessionStartPayload { intent: reason, ..Default::default() };
        World::new().expect(start_with(&payload), expected);
    }
    let attached =
        ProposalPayload { proposal_id: "p2".into(), supporting_data: vec![b'x'; 900_000].into(), ..Default::default() };
    deliberated().expect(with_payload("Proposal", "m", attached.encode_to_vec()), "accepted");
}

#[test]
fn wire_6_at_most_a_thousand_participants() {
    for (count, expected) in [(1000, "accepted"), (1001, "INVALID_ENVELOPE")] {
        let names: Vec<String> = (0..count).map(|number| format!("agent-{number}")).collect();
        let payload = SessionStartPayload { participants: names, ..Default::default() };
        World::new().expect(start_with(&payload), expected);
    }
}

#[test]
fn wire_6_required_fields() {
    type Clear = fn(&mut Envelope);
    let fields: [(&str, Clear); 4] = [
        ("message_type", |envelope| envelope.message_type.clear()),
        ("session_id", |envelope| envelope.session_id.clear()),
        ("message_id", |envelope| envelope.message_id.clear()),
        ("sender", |envelope| envelope.sender.clear()),
    ];
    for (field, clear) in fields {
        for base in [start(), envelope("Message", "m1")] {
            let mut envelope = base;
            clear(&mut envelope);
            let rejection = World::started(start()).refused(envelope);
            assert_eq!(rejection.code, Code::InvalidEnvelope, "{field}");
            assert!(rejection.message.contains(field), "{rejection}");
        }
    }
}

#[test]
fn wire_6_a_credential_fills_in_an_empty_sender() {
    let mut world = World::new();
    let settled = world.send_as(Caller::identified("carol"), by("", start()));
    assert_eq!(word(&settled), "accepted");
    assert_eq!(world.session().binding().initiator, "carol");
    assert_eq!(world.entries()[0].identity, "carol");
}

#[test]
fn wire_6_a_signal_needs_no_sender() {
    let signal = Envelope { session_id: String::new(), ..by("", envelope("Signal", "m1")) };
    let relayed = World::new().relay(Caller::anonymous(), &signal).expect("passed on");
    assert_eq!(relayed, signal);
    let progress = Envelope { message_type: "Progress".into(), ..signal };
    let rejection = World::new().relay(Caller::anonymous(), &progress).expect_err("no sender");
    assert_eq!(rejection.code, Code::InvalidEnvelope);
}

#[test]
fn wire_1_only_one_protocol_version_is_spoken() {
    for version in ["", "1", "v1", "1.0 ", "2.0"] {
        let envelope = Envelope { macp_version: version.into(), ..start() };
        let rejection = refusal(World::new().send(envelope));
        assert_eq!(rejection.code, Code::UnsupportedProtocolVersion, "{version:?}");
    }
}

/// Anyone may write to a session that lists nobody, and GetSession must stay small.
#[test]
fn rpc_3_activity_tells_of_the_latest_senders_only() {
    let mut world = World::started(start());
    for index in 0..ACTIVITY_SHOWN_MAX + 5 {
        world.now = NOW + i64::try_from(index / 2).expect("small");
        world.expect(
            by(&format!("sender-{index:05}"), proposal(&format!("m{index}"), &format!("p{index}"))),
            "accepted",
        );
    }
    // The first writes again and so belongs to the latest.
    world.expect(by("sender-00000", proposal("again", "again")), "accepted");
    let activity = world.session().metadata().participant_activity;
    assert_eq!(activity.len(), ACTIVITY_SHOWN_MAX);
    assert!(activity.is_sorted_by(|a, b| a.participant_id < b.participant_id), "in the order of their names");
    assert_eq!((activity[0].participant_id.as_str(), activity[0].message_count), ("sender-00000", 2));
    assert_eq!(activity[1].participant_id, "sender-00006", "the five before it wrote longest ago");
    assert_eq!(activity[999].participant_id, "sender-01004");
}
