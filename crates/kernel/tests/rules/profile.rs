//! Which rules a SessionStart is born under (docs/PROTOCOL.md).

use std::sync::Arc;

use macp_kernel::policy::builtins;
use macp_kernel::{Caller, Command, Input, Limits, Profile, ProfileSetting, Registered, SignatureCheck, step};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::v1::Envelope;

use crate::world::{NOW, SESSION, World, participants, refusal, start, start_with, word};

const UUID: &str = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";

/// A decision start that lacks nothing by today's standard but a credential.
fn standard_payload() -> SessionStartPayload {
    SessionStartPayload {
        mode_version: "1.0.0".into(),
        configuration_version: "config.default".into(),
        ttl_ms: 60_000,
        ..participants(&["alice", "bob"])
    }
}

fn decision(session_id: &str, payload: &SessionStartPayload) -> Envelope {
    Envelope { mode: "macp.mode.decision.v1".into(), session_id: session_id.into(), ..start_with(payload) }
}

#[test]
fn profile_1_classic_names_are_classic_with_or_without_a_credential() {
    for mode in ["", "decision", "multi_round", "macp.mode.multi_round.v1"] {
        for caller in [Caller::anonymous(), Caller::identified("alice")] {
            for payload in [participants(&["alice"]), standard_payload()] {
                let mut world = World::new();
                let start = Envelope { mode: mode.into(), ..start_with(&payload) };
                assert_eq!(word(&world.send_as(caller.clone(), start)), "accepted", "{mode:?}");
                assert_eq!(world.session().binding().profile, Profile::Classic);
            }
        }
    }
}

#[test]
fn profile_2_decision_without_a_credential_is_classic() {
    for payload in [SessionStartPayload::default(), participants(&["alice"]), standard_payload()] {
        let mut world = World::new();
        world.expect(decision(SESSION, &payload), "accepted");
        assert_eq!(world.session().binding().profile, Profile::Classic);
    }
}

#[test]
fn profile_2_a_standard_start_without_a_credential_hears_so() {
    let mut world = World::new();
    let rejection = refusal(world.send(decision(UUID, &standard_payload())));
    assert_eq!(rejection.code, Code::Unauthenticated);
    assert!(rejection.operational);
    assert!(!world.exists(UUID));
    // An empty roster is legal for today's decision.
    let open = SessionStartPayload { participants: Vec::new(), ..standard_payload() };
    assert_eq!(refusal(world.send(decision(UUID, &open))).code, Code::Unauthenticated);
}

/// What is no valid standard start in some other respect lives by the classic rules.
#[test]
fn profile_2_anything_less_than_a_standard_start_is_classic() {
    type Spoil = fn(&mut SessionStartPayload);
    let cases: [(&str, Spoil, &str); 10] = [
        ("no mode_version", |start| start.mode_version.clear(), "accepted"),
        ("a mode_version nobody offers", |start| start.mode_version = "9.9.9".into(), "INVALID_ENVELOPE"),
        ("an endless configuration_version", |start| start.configuration_version = "x".repeat(257), "INVALID_ENVELOPE"),
        ("an endless participant", |start| start.participants.push("x".repeat(257)), "INVALID_ENVELOPE"),
        ("no configuration_version", |start| start.configuration_version.clear(), "accepted"),
        ("a blank configuration_version", |start| start.configuration_version = " ".into(), "accepted"),
        ("no ttl", |start| start.ttl_ms = 0, "accepted"),
        ("a repeated participant", |start| start.participants.push("bob".into()), "accepted"),
        ("a ttl beyond the limit", |start| start.ttl_ms = 86_400_001, "INVALID_ENVELOPE"),
        ("a blank participant", |start| start.participants.push(" ".into()), "accepted"),
    ];
    for (name, spoil, expected) in cases {
        let mut payload = standard_payload();
        spoil(&mut payload);
        let settled = World::new().send(decision(UUID, &payload));
        assert_eq!(word(&settled), expected, "{name}");
    }
    for session_id in ["short", "3F2504E0-4F89-41D3-9A0C-0305E82C3301"] {
        World::new().expect(decision(session_id, &standard_payload()), "accepted");
    }
    World::new()
        .expect(Envelope { message_id: String::new(), ..decision(UUID, &standard_payload()) }, "INVALID_ENVELOPE");
}

/// Only the fields both profiles share are read to choose: what follows may be of either's shape.
#[test]
fn profile_2_fields_from_7_up_do_not_choose() {
    let mut payload = prost::Message::encode_to_vec(&standard_payload());
    // A string at 8 is a context_id to the standard and no Root to the classic profile.
    payload.extend_from_slice(b"\x42\x01x");
    let start = Envelope { payload: payload.into(), ..decision(UUID, &standard_payload()) };
    assert_eq!(refusal(World::new().send(start)).code, Code::Unauthenticated);
}

#[test]
fn profile_3_everything_else_is_standard() {
    for mode in ["macp.mode.task.v1", "macp.mode.quorum.v1", "ext.multi_round.v1"] {
        let payload = participants(&["alice", "bob"]);
        let payload = SessionStartPayload { participants: payload.participants, ..standard_payload() };
        let start = Envelope { mode: mode.into(), session_id: UUID.into(), ..start_with(&payload) };
        assert_eq!(word(&World::new().send(start.clone())), "UNAUTHENTICATED", "{mode}");
        let mut world = World::new();
        assert_eq!(word(&world.send_as(Caller::identified("alice"), start)), "accepted", "{mode}");
        let binding = world.history(UUID)[0].binding.clone().expect("the first entry binds");
        assert_eq!(binding.profile(), macp_wire::history::v1::Profile::Standard);
    }
    // What names nothing with a profile is answered by whether a credential came with it.
    let start = Envelope { mode: "nonsense".into(), session_id: "short".into(), ..start() };
    assert_eq!(word(&World::new().send(start.clone())), "MODE_NOT_SUPPORTED");
    assert_eq!(word(&World::new().send_as(Caller::identified("alice"), start)), "INVALID_SESSION_ID");
}

#[test]
fn profile_3_a_credential_never_falls_back_to_classic_rules() {
    let cases = [
        (SESSION, standard_payload(), "INVALID_SESSION_ID"),
        (UUID, SessionStartPayload::default(), "INVALID_ENVELOPE"),
        (UUID, participants(&["alice"]), "INVALID_ENVELOPE"),
        (UUID, standard_payload(), "accepted"),
    ];
    for (session_id, payload, expected) in cases {
        let settled = World::new().send_as(Caller::identified("alice"), decision(session_id, &payload));
        assert_eq!(word(&settled), expected, "{session_id} {payload:?}");
    }
}

#[test]
fn profile_setting_classic_makes_every_known_mode_classic() {
    for mode in ["", "decision", "macp.mode.decision.v1", "multi_round", "macp.mode.multi_round.v1"] {
        for caller in [Caller::anonymous(), Caller::identified("alice")] {
            let mut world = World::new();
            world.limits.profile = ProfileSetting::Classic;
            let start = Envelope { mode: mode.into(), session_id: UUID.into(), ..start_with(&standard_payload()) };
            assert_eq!(word(&world.send_as(caller, start)), "accepted", "{mode:?}");
        }
    }
    for mode in ["macp.mode.task.v1", "ext.multi_round.v1"] {
        let mut world = World::new();
        world.limits.profile = ProfileSetting::Classic;
        world.expect(Envelope { mode: mode.into(), ..start() }, "MODE_NOT_SUPPORTED");
    }
}

#[test]
fn profile_a_start_for_an_existing_session_is_answered_by_its_own_profile() {
    let mut world = World::started(start());
    let arriving = Envelope { mode: "macp.mode.decision.v1".into(), ..start() };
    let settled = world.send_as(Caller::identified("alice"), arriving.clone());
    assert_eq!(word(&settled), "INVALID_SESSION_ID");
    assert_eq!(word(&world.send(arriving)), "duplicate");

    let mut world = World::started(Envelope { session_id: UUID.into(), ..start() });
    let arriving = Envelope { message_id: "another".into(), ..decision(UUID, &standard_payload()) };
    assert_eq!(word(&world.send_as(Caller::identified("alice"), arriving)), "SESSION_ALREADY_EXISTS");
}

#[test]
fn profile_setting_standard_refuses_classic_starts() {
    let refused = |envelope: Envelope| {
        let mut world = World::new();
        world.limits.profile = ProfileSetting::Standard;
        word(&world.send(envelope)).to_owned()
    };
    for mode in ["decision", "multi_round", "macp.mode.multi_round.v1"] {
        assert_eq!(refused(Envelope { mode: mode.into(), ..start() }), "MODE_NOT_SUPPORTED", "{mode}");
    }
    for mode in ["", "macp.mode.decision.v1"] {
        assert_eq!(refused(Envelope { mode: mode.into(), ..start() }), "INVALID_ENVELOPE", "{mode}");
    }
    assert_eq!(refused(decision(UUID, &standard_payload())), "UNAUTHENTICATED");
}

/// Nothing may look governed that is not.
#[test]
fn profile_a_classic_start_names_no_registered_policy() {
    let registered = Registered { policy: Some(Arc::clone(&builtins()[1])), ..Registered::default() };
    for (policy, expected) in [("policy.std.majority", "INVALID_ENVELOPE"), ("house-rules-7", "accepted")] {
        let payload = SessionStartPayload { policy_version: policy.into(), ..SessionStartPayload::default() };
        let input = Input::Envelope {
            envelope: start_with(&payload),
            signature: SignatureCheck::Absent,
            registered: registered.clone(),
        };
        let command = Command { caller: Caller::anonymous(), input };
        let outcome = step(&mut None, &command, NOW, &Limits::default());
        assert_eq!(word(&outcome.settled), expected, "{policy}");
    }
}
