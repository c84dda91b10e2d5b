//! MODE-1, MODE-2 and MODE-5 on classic Decision sessions.

use macp_kernel::{Profile, State, mode};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::history::v1::entry;
use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use macp_wire::v1::{CommitmentPayload, Envelope};
use prost::Message;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::world::{
    World, by, commitment, envelope, json as message, participants, proposal, start, start_with, vote, with_payload,
};

fn phase(world: &World) -> String {
    world.mode_state()["phase"].as_str().expect("the phase is a word").to_owned()
}

fn evaluation(message_id: &str, proposal_id: &str) -> Envelope {
    message("Evaluation", message_id, json!({ "proposal_id": proposal_id, "confidence": 0.9 }))
}

fn objection(message_id: &str, proposal_id: &str) -> Envelope {
    message("Objection", message_id, json!({ "proposal_id": proposal_id, "severity": "high" }))
}

/// Every move between phases, and every message each phase refuses.
#[test]
fn mode_2_phases() {
    type Make = fn(&str) -> Envelope;
    let messages: [(&str, Make); 5] = [
        ("Proposal", |id| proposal(id, "p1")),
        ("Evaluation", |id| evaluation(id, "p1")),
        ("Objection", |id| objection(id, "p1")),
        ("Vote", |id| vote(id, "p1")),
        ("Commitment", |id| commitment(id)),
    ];
    let refused = None;
    type Row<'a> = (&'a str, &'a [Envelope], [Option<&'a str>; 5]);
    let phases: [Row<'_>; 3] = [
        ("Proposal", &[], [Some("Evaluation"), refused, refused, refused, refused]),
        (
            "Evaluation",
            &[proposal("m1", "p1")],
            [Some("Evaluation"), Some("Evaluation"), Some("Evaluation"), Some("Voting"), refused],
        ),
        (
            "Voting",
            &[proposal("m1", "p1"), vote("m2", "p1")],
            [Some("Evaluation"), Some("Evaluation"), Some("Evaluation"), Some("Voting"), Some("Committed")],
        ),
    ];
    println!("{:<12} {:<12} next phase", "phase", "message");
    for (from, path, expected) in phases {
        for ((name, make), to) in messages.iter().zip(expected) {
            println!("{from:<12} {name:<12} {}", to.unwrap_or("refused"));
            let mut world = World::started(start());
            path.iter().for_each(|step| world.expect(step.clone(), "accepted"));
            assert_eq!(phase(&world), from);
            match to {
                Some(to) => {
                    world.expect(make("next"), "accepted");
                    assert_eq!(phase(&world), to, "{from} + {name}");
                }
                None => {
                    let rejection = world.refused(make("next"));
                    assert_eq!(rejection.code, Code::InvalidEnvelope, "{from} + {name}");
                    assert_eq!(phase(&world), from);
                }
            }
        }
    }
}

/// A vote given before a new evaluation still counts: only Committed forbids anything.
#[test]
fn mode_2_a_commitment_needs_a_vote_and_not_the_voting_phase() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    world.expect(objection("m3", "p1"), "accepted");
    assert_eq!(phase(&world), "Evaluation");
    world.expect(commitment("m4"), "accepted");
    assert_eq!(phase(&world), "Committed");
}

#[test]
fn mode_2_a_proposal_needs_its_id_alone() {
    let cases = [
        (json!({ "proposal_id": "p1" }), "accepted"),
        (json!({ "proposal_id": "p1", "option": "o", "rationale": "r", "supporting_data": "aGk=" }), "accepted"),
        (json!({ "proposal_id": "p1", "unknown": [1, 2] }), "accepted"),
        (json!({ "proposal_id": "" }), "INVALID_ENVELOPE"),
        (json!({ "option": "o" }), "INVALID_ENVELOPE"),
        (json!({ "proposal_id": 1 }), "INVALID_ENVELOPE"),
        (json!({ "proposal_id": null }), "INVALID_ENVELOPE"),
        (json!({ "proposal_id": "p1", "supporting_data": "?" }), "INVALID_ENVELOPE"),
    ];
    for (payload, expected) in cases {
        World::started(start()).expect(message("Proposal", "m1", payload), expected);
    }
}

#[test]
fn mode_2_a_proposal_of_the_same_id_overwrites() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(by("bob", proposal("m2", "p1")), "accepted");
    world.expect(proposal("m3", "p2"), "accepted");
    assert_eq!(world.mode_state()["proposals"], json!(["p1", "p2"]));
}

#[test]
fn mode_2_evaluations_and_objections_name_an_existing_proposal() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    for unknown in ["", "p2", &"x".repeat(300)] {
        assert_eq!(world.refused(evaluation("m2", unknown)).code, Code::InvalidEnvelope);
        assert_eq!(world.refused(objection("m2", unknown)).code, Code::InvalidEnvelope);
    }
    world.expect(evaluation("m2", "p1"), "accepted");
    world.expect(evaluation("m3", "p1"), "accepted");
    world.expect(objection("m4", "p1"), "accepted");
    assert_eq!(world.mode_state()["evaluations"], 2);
    assert_eq!(world.mode_state()["objections"], 1);
}

#[test]
fn mode_2_a_vote_needs_some_proposal_but_not_that_one() {
    let mut world = World::started(start());
    world.refused(vote("m1", "p1"));
    world.expect(proposal("m2", "p1"), "accepted");
    world.expect(vote("m3", "nobody proposed this"), "accepted");
    assert_eq!(world.mode_state()["votes"]["alice"]["proposal_id"], "nobody proposed this");
}

#[test]
fn mode_2_the_last_vote_of_a_sender_wins() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    let cast = |id: &str, word: &str| message("Vote", id, json!({ "proposal_id": "p1", "vote": word }));
    world.expect(cast("m2", "approve"), "accepted");
    world.expect(by("bob", cast("m3", "abstain")), "accepted");
    world.expect(cast("m4", "reject"), "accepted");
    let votes = &world.mode_state()["votes"];
    assert_eq!(votes["alice"]["vote"], "reject");
    assert_eq!(votes["bob"]["vote"], "abstain");
    assert_eq!(votes.as_object().map(serde_json::Map::len), Some(2));
}

#[test]
fn mode_2_words_outside_the_lists_are_kept_as_given() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    let odd = json!({ "proposal_id": "p1", "recommendation": "PERHAPS", "severity": "cosmic", "vote": "Maybe" });
    for (at, message_type) in ["Evaluation", "Objection", "Vote"].iter().enumerate() {
        world.expect(message(message_type, &format!("odd{at}"), odd.clone()), "accepted");
    }
    assert_eq!(world.mode_state()["votes"]["alice"]["vote"], "Maybe");
}

#[test]
fn mode_2_a_confidence_is_a_number() {
    let json_case = |confidence: serde_json::Value| {
        message("Evaluation", "m2", json!({ "proposal_id": "p1", "confidence": confidence }))
    };
    let raw = |text: &'static str| with_payload("Evaluation", "m2", text);
    let protobuf = |confidence| {
        let payload = EvaluationPayload { proposal_id: "p1".into(), confidence, ..Default::default() };
        with_payload("Evaluation", "m2", payload.encode_to_vec())
    };
    let cases = [
        (json_case(json!(0.5)), "accepted"),
        (json_case(json!(-3)), "accepted"),
        (json_case(json!("0.5")), "INVALID_ENVELOPE"),
        (raw(r#"{"proposal_id":"p1","confidence":NaN}"#), "INVALID_ENVELOPE"),
        (raw(r#"{"proposal_id":"p1","confidence":1e999}"#), "INVALID_ENVELOPE"),
        (protobuf(0.5), "accepted"),
        (protobuf(f64::NAN), "INVALID_ENVELOPE"),
        (protobuf(f64::INFINITY), "INVALID_ENVELOPE"),
        (protobuf(f64::NEG_INFINITY), "INVALID_ENVELOPE"),
    ];
    for (evaluation, expected) in cases {
        let mut world = World::started(start());
        world.expect(proposal("m1", "p1"), "accepted");
        world.expect(evaluation, expected);
    }
}

#[test]
fn mode_2_a_commitment_resolves_with_its_payload() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.refused(commitment("m2"));
    world.expect(vote("m3", "p1"), "accepted");
    let commitment = commitment("m4");
    world.expect(commitment.clone(), "accepted");
    assert_eq!(world.session().state(), State::Resolved);
    assert_eq!(world.resolution(), commitment.payload);
    let terminal = world.entries()[3].terminal.as_ref().expect("it ends the session");
    assert_eq!(terminal.resolution_sha256, Sha256::digest(&commitment.payload).to_vec());
}

#[test]
fn mode_2_an_empty_commitment_is_an_empty_payload() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    world.expect(envelope("Commitment", "m3"), "accepted");
    assert_eq!(world.resolution(), b"");
}

#[test]
fn mode_2_legacy_resolve() {
    let mut world = World::started(start());
    world.expect(with_payload("Message", "m1", "resolve "), "accepted");
    world.expect(with_payload("Message", "m2", "Resolve"), "accepted");
    world.expect(envelope("Message", "m3"), "accepted");
    assert_eq!(world.session().state(), State::Open);
    assert_eq!(phase(&world), "Proposal");
    world.expect(with_payload("Message", "m4", "resolve"), "accepted");
    assert_eq!(world.session().state(), State::Resolved);
    assert_eq!(world.resolution(), b"resolve");
}

#[test]
fn mode_2_unknown_message_types_are_refused() {
    for unknown in ["Contribute", "vote", "Ack", "TtlExpired", "SessionCancel", "sessionstart"] {
        let rejection = World::started(start()).refused(envelope(unknown, "m1"));
        assert_eq!(rejection.code, Code::InvalidEnvelope, "{unknown}");
    }
}

#[test]
fn mode_2_payloads_may_be_protobuf() {
    let mut world = World::started(start());
    let id = || "p1".to_owned();
    let payloads = [
        ("Proposal", ProposalPayload { proposal_id: id(), ..Default::default() }.encode_to_vec()),
        ("Evaluation", EvaluationPayload { proposal_id: id(), ..Default::default() }.encode_to_vec()),
        ("Objection", ObjectionPayload { proposal_id: id(), ..Default::default() }.encode_to_vec()),
        ("Vote", VotePayload { proposal_id: id(), vote: "approve".into(), ..Default::default() }.encode_to_vec()),
        ("Commitment", CommitmentPayload { action: "go".into(), ..Default::default() }.encode_to_vec()),
    ];
    for (message_type, payload) in payloads {
        world.expect(with_payload(message_type, message_type, payload), "accepted");
    }
    assert_eq!(world.session().state(), State::Resolved);
}

#[test]
fn mode_2_payloads_that_are_neither_are_refused() {
    let bad: [&[u8]; 9] = [
        b"{",
        b"{}}",
        b"{\"proposal_id\":\"p1\"",
        b"{\"proposal_id\":\"p1\",\"proposal_id\":\"p1\"}",
        b"{\"proposal_id\":\"\xff\"}",
        b"[\"p1\"]",
        b" {\"proposal_id\":\"p1\"}",
        b"\x0a\x7fp1",
        b"\xff\xff\xff",
    ];
    for payload in bad {
        for message_type in ["Proposal", "Evaluation", "Objection", "Vote", "Commitment"] {
            let mut world = World::started(start());
            world.expect(proposal("m1", "p1"), "accepted");
            world.expect(vote("m2", "p1"), "accepted");
            let rejection = world.refused(with_payload(message_type, "m3", payload.to_vec()));
            assert_eq!(rejection.code, Code::InvalidEnvelope, "{message_type} {payload:?}");
        }
    }
}

/// Change and resolution of a PersistAndResolve arrive together, in one entry.
#[test]
fn mode_1_a_response_is_one_atomic_change() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    let before = world.entries().len();
    world.expect(commitment("m3"), "accepted");
    assert_eq!(world.entries().len(), before + 1);
    assert_eq!(phase(&world), "Committed");
    assert_eq!(world.session().state(), State::Resolved);
}

#[test]
fn mode_1_every_mode_is_found_by_its_names() {
    for kind in mode::ALL {
        let spec = kind.spec();
        match (spec.profile, kind) {
            (Profile::Classic, _) => assert_eq!(mode::find_classic(spec.name), Some(*kind)),
            // Found in the registry that holds it, not by a name of its own.
            (Profile::Standard, mode::Kind::Extension) => assert_eq!(mode::find_standard(spec.name), None),
            (Profile::Standard, _) => assert_eq!(mode::find_standard(spec.name), Some(*kind)),
        }
        for alias in spec.aliases {
            assert_eq!(mode::find_classic(alias), Some(*kind), "{alias}");
        }
        let descriptor = spec.descriptor();
        assert_eq!((descriptor.mode.as_str(), descriptor.mode_version.as_str()), (spec.name, spec.version));
        if *kind == mode::Kind::Extension {
            // Its message types are those of the descriptor it was registered with.
            continue;
        }
        for terminal in &descriptor.terminal_message_types {
            assert!(descriptor.message_types.contains(terminal), "{terminal}");
        }
    }
    assert_eq!(mode::find_classic(""), mode::find_classic(mode::DECISION));
    assert_eq!(mode::find_classic("Decision"), None);
}

#[test]
fn mode_5_the_mode_of_a_message() {
    let cases = [
        ("", "accepted"),
        ("decision", "accepted"),
        ("macp.mode.decision.v1", "accepted"),
        ("multi_round", "INVALID_ENVELOPE"),
        ("macp.mode.multi_round.v1", "INVALID_ENVELOPE"),
        ("macp.mode.task.v1", "MODE_NOT_SUPPORTED"),
        ("nonsense", "MODE_NOT_SUPPORTED"),
    ];
    for (mode, expected) in cases {
        let named = Envelope { mode: mode.into(), ..proposal("m1", "p1") };
        World::started(start()).expect(named, expected);
    }
}

#[test]
fn mode_5_outsiders_of_a_declared_roster() {
    let mut world = World::started(start_with(&participants(&["bob", "carol"])));
    world.expect(by("bob", proposal("m1", "p1")), "accepted");
    assert_eq!(world.refused(by("dave", vote("m2", "p1"))).code, Code::InvalidEnvelope);
    // The initiator is an outsider too, unless listed.
    assert_eq!(world.refused(vote("m2", "p1")).code, Code::InvalidEnvelope);
    // Names are compared byte for byte.
    assert_eq!(world.refused(by("Bob", vote("m2", "p1"))).code, Code::InvalidEnvelope);
    // An open roster has no outsiders.
    World::started(start()).expect(by("dave", proposal("m1", "p1")), "accepted");
}

#[test]
fn mode_5_repeated_participants_count_once() {
    let world = World::started(start_with(&participants(&["bob", "alice", "bob", "alice"])));
    assert_eq!(world.session().metadata().participants, ["bob", "alice"]);
    let binding = world.entries()[0].binding.as_ref().expect("the first entry binds");
    assert_eq!(binding.participants, ["bob", "alice"]);
}

#[test]
fn mode_5_an_empty_participant_name_is_refused() {
    let rejection = World::new().refused(start_with(&participants(&["alice", ""])));
    assert_eq!(rejection.code, Code::InvalidEnvelope);
}

#[test]
fn mode_5_bound_names_and_versions() {
    for mode in ["", "decision", "macp.mode.decision.v1"] {
        let payload = SessionStartPayload {
            configuration_version: "config-7".into(),
            policy_version: "policy-3".into(),
            ..Default::default()
        };
        let world = World::started(Envelope { mode: mode.into(), ..start_with(&payload) });
        let metadata = world.session().metadata();
        assert_eq!(metadata.mode, "macp.mode.decision.v1");
        assert_eq!(metadata.mode_version, "1.0.0");
        assert_eq!(metadata.configuration_version, "config-7");
        assert_eq!(metadata.policy_version, "policy-3");
        assert_eq!(metadata.initiator, "alice");
    }
    let metadata = World::started(start()).session().metadata();
    assert_eq!((metadata.configuration_version.as_str(), metadata.policy_version.as_str()), ("", ""));
}

#[test]
fn mode_5_a_mode_version_we_do_not_have_is_refused() {
    for (version, expected) in [
        ("", "accepted"),
        ("1.0.0", "accepted"),
        ("1.0", "INVALID_ENVELOPE"),
        ("2.0.0", "INVALID_ENVELOPE"),
        (" 1.0.0", "INVALID_ENVELOPE"),
    ] {
        let payload = SessionStartPayload { mode_version: version.into(), ..Default::default() };
        World::new().expect(start_with(&payload), expected);
    }
}

/// The envelope in history is the one sent, with its sender bound and nothing else changed.
#[test]
fn mode_2_history_holds_the_envelope_as_sent() {
    let mut world = World::started(start());
    let sent = Envelope { timestamp_unix_ms: 5, mode: "decision".into(), ..proposal("m1", "p1") };
    world.expect(sent.clone(), "accepted");
    assert_eq!(world.entries()[1].input, Some(entry::Input::Envelope(sent)));
}
