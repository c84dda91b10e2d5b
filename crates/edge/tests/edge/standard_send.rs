//! Send under the standard profile: the order of admission, duplicates, and whatever else may be wrong with an envelope.

use macp_wire::modes::decision::v1::{EvaluationPayload, ProposalPayload};
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Request};

use crate::common::*;
use crate::standard_common::*;

const TASK: &str = "macp.mode.task.v1";
const HANDOFF: &str = "macp.mode.handoff.v1";

fn with(adjust: impl FnOnce(&mut SessionStartPayload)) -> SessionStartPayload {
    let mut payload = start_payload();
    adjust(&mut payload);
    payload
}

#[tokio::test]
async fn std_core_1_only_a_missing_envelope_is_a_status() {
    let edge = Edge::start().await;
    let request = authorized("alice", SendRequest::default());
    refused(edge.runtime.clone().send(request).await, Code::InvalidArgument, "INVALID_ENVELOPE");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_4_the_shape_is_checked_before_the_credential_and_in_order() {
    let edge = Edge::start().await;
    let good = std_start(&sid(1), DECISION, &start_payload());
    // Each breaks its own rule and every later one; the sender is wrong throughout.
    let stranger = Envelope { sender: "mallory".into(), ..good.clone() };
    let oversized = Envelope { payload: vec![0; 1_048_577].into(), ..stranger };
    let blank_mode = Envelope { mode: "  ".into(), ..oversized.clone() };
    let no_session = Envelope { session_id: String::new(), ..blank_mode.clone() };
    let no_id = Envelope { message_id: String::new(), ..no_session.clone() };
    let no_type = Envelope { message_type: String::new(), ..no_id.clone() };
    let version = Envelope { macp_version: "1".into(), ..no_type.clone() };
    for (envelope, code) in [
        (version, "UNSUPPORTED_PROTOCOL_VERSION"),
        (no_type, "INVALID_ENVELOPE"),
        (no_id, "INVALID_ENVELOPE"),
        (no_session, "INVALID_ENVELOPE"),
        (blank_mode, "INVALID_ENVELOPE"),
        (oversized, "PAYLOAD_TOO_LARGE"),
        (Envelope { sender: "mallory".into(), ..good.clone() }, "UNAUTHENTICATED"),
    ] {
        let ack = edge.refuse_as("alice", envelope, code).await;
        assert_eq!(ack.session_state, 0, "there is no session");
    }
    // A credential that is no good: the shape still comes first (A2 before A3).
    let oversized = Envelope { payload: vec![0; 1_048_577].into(), ..good.clone() };
    for (envelope, code) in [(oversized, "PAYLOAD_TOO_LARGE"), (good.clone(), "UNAUTHENTICATED")] {
        let request = ill_authorized(SendRequest { envelope: Some(envelope), signature: None });
        let ack = edge.runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack");
        assert_eq!(ack_code(&ack), code);
    }
    edge.accept_as("alice", good).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_5_the_bound_sender_is_what_is_stored() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.accept_as("bob", propose(&sid(1), "p1")).await;
    edge.accept_as("bob", Envelope { sender: "bob".into(), ..propose(&sid(1), "p2") }).await;
    edge.refuse_as("bob", Envelope { sender: "alice".into(), ..propose(&sid(1), "p3") }, "UNAUTHENTICATED").await;
    let log = macp_wire::history::v1::GetSessionLogRequest { session_id: sid(1), ..Default::default() };
    let log = body(edge.history.clone().get_session_log(authorized("alice", log)).await).expect("a log");
    let senders: Vec<_> = log
        .entries
        .iter()
        .map(|record| match &record.entry.as_ref().expect("an entry").input {
            Some(macp_wire::history::v1::entry::Input::Envelope(envelope)) => envelope.sender.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(senders, ["alice", "bob", "bob"]);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_8_session_ids_are_unguessable() {
    let edge = Edge::start().await;
    for (number, (id, ok)) in [
        ("s1", false),
        ("3F2504E0-4F89-41D3-9A0C-0305E82C3301", false),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", false),
        ("3f2504e0-4f89-71d3-9a0c-0305e82c3301", true),
        ("abcdefghijklmnopqrstu", false),
        ("abcdefghijklmnopqrstuv", true),
        ("abcdefghijklmnopqrstu/", false),
        (&"a".repeat(128), true),
        (&"a".repeat(129), false),
    ]
    .into_iter()
    .enumerate()
    {
        let start = std_start(id, DECISION, &start_payload());
        if ok {
            edge.accept_as("alice", start).await;
        } else {
            edge.refuse_as("alice", start, "INVALID_SESSION_ID").await;
            let later = Envelope { message_id: format!("m{number}"), ..propose(id, "p") };
            edge.refuse_as("alice", later, "SESSION_NOT_FOUND").await;
        }
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_10_a_start_is_refused_by_the_first_rule_it_breaks() {
    let edge = Edge::start().await;
    edge.register_policy(policy("policy.for-tasks", TASK, "{}")).await;
    let start = |mode: &str, payload: &SessionStartPayload| std_start(&sid(1), mode, payload);
    let unknown_policy = |payload: &mut SessionStartPayload| payload.policy_version = "policy.unheard-of".into();

    // S2 before S3, S3 before S5.
    let nameless = Envelope { session_id: "s1".into(), ..start("ext.unheard.of", &start_payload()) };
    edge.refuse_as("alice", nameless, "INVALID_SESSION_ID").await;
    let unknown_mode = Envelope { payload: vec![0xff].into(), ..start("ext.unheard.of", &start_payload()) };
    edge.refuse_as("alice", unknown_mode, "MODE_NOT_SUPPORTED").await;
    // S5 to S8, all before the policy of S10.
    for payload in [vec![], vec![0xff], vec![0x0a, 0x05, b'x']] {
        let undecodable = Envelope { payload: payload.into(), ..start(DECISION, &start_payload()) };
        edge.refuse_as("alice", undecodable, "INVALID_ENVELOPE").await;
    }
    let adjustments: [fn(&mut SessionStartPayload); 12] = [
        |payload| payload.mode_version = String::new(),
        |payload| payload.mode_version = "  ".into(),
        |payload| payload.mode_version = "2.0.0".into(),
        |payload| payload.configuration_version = " \t".into(),
        |payload| payload.ttl_ms = 0,
        |payload| payload.ttl_ms = -1,
        |payload| payload.ttl_ms = 86_400_001,
        |payload| payload.participants = vec!["alice".into(), " ".into()],
        |payload| payload.participants = vec!["alice".into(), " alice".into()],
        |payload| payload.participants = (0..1001).map(|number| format!("p{number}")).collect(),
        |payload| payload.max_suspend_ms = -1,
        |payload| payload.participants = vec!["x".repeat(257)],
    ];
    for (number, adjust) in adjustments.into_iter().enumerate() {
        let mut payload = with(adjust);
        unknown_policy(&mut payload);
        let ack = edge.refuse_as("alice", start(DECISION, &payload), "INVALID_ENVELOPE").await;
        assert_eq!(ack.session_state, 0, "{number}");
    }
    // Participants are needed everywhere but in decisions.
    let nobody = with(|payload| payload.participants.clear());
    edge.refuse_as("alice", start(TASK, &nobody), "INVALID_ENVELOPE").await;
    edge.refuse_as("alice", start("ext.multi_round.v1", &nobody), "INVALID_ENVELOPE").await;
    // S10, S11 before the roster of S12: a handoff needs two, one of them its initiator.
    let mut outsiders = with(|payload| payload.participants = vec!["bob".into()]);
    edge.refuse_as("alice", start(HANDOFF, &outsiders), "INVALID_ENVELOPE").await;
    unknown_policy(&mut outsiders);
    edge.refuse_as("alice", start(HANDOFF, &outsiders), "UNKNOWN_POLICY_VERSION").await;
    outsiders.policy_version = "policy.for-tasks".into();
    edge.refuse_as("alice", start(HANDOFF, &outsiders), "INVALID_POLICY_DEFINITION").await;
    // S13.
    let reserved = Envelope { message_id: "implicit-accept:h".into(), ..start(HANDOFF, &start_payload()) };
    edge.refuse_as("alice", reserved, "INVALID_ENVELOPE").await;

    // Nothing of all that took the id, or a message id.
    edge.accept_as("alice", start(DECISION, &nobody)).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_15_a_second_start_is_a_duplicate_by_its_message_id_alone() {
    let edge = Edge::start().await;
    let start = std_start(&sid(1), DECISION, &start_payload());
    let original = edge.accept_as("alice", start.clone()).await;
    assert_eq!(original.session_state, OPEN);
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    // Neither sender nor payload is compared, and any accepted id will do.
    let other_payload = with(|payload| payload.policy_version = "policy.unheard-of".into());
    let again = Envelope { payload: other_payload.encode_to_vec().into(), ..start.clone() };
    let ack = edge.duplicate_as("mallory", again.clone()).await;
    assert_eq!((ack.accepted_at_unix_ms, ack.session_state), (original.accepted_at_unix_ms, OPEN));
    edge.duplicate_as("mallory", Envelope { message_id: "p".into(), ..again.clone() }).await;
    let second = Envelope { message_id: "second".into(), ..again };
    let ack = edge.refuse_as("alice", second, "SESSION_ALREADY_EXISTS").await;
    assert_eq!(ack.session_state, OPEN, "WIRE-3: a refusal tells the true state");
    // S5 to S8 come before S9: an invalid duplicate hears what is wrong with it.
    let invalid = Envelope { payload: with(|payload| payload.ttl_ms = 0).encode_to_vec().into(), ..start };
    edge.refuse_as("alice", invalid, "INVALID_ENVELOPE").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_17_a_message_is_refused_by_the_first_rule_it_breaks() {
    let edge = Edge::start().await;
    // M1: unknown sessions, whatever their id looks like.
    for id in [sid(9), "s1".into(), "../etc".into()] {
        edge.refuse_as("alice", propose(&id, "p"), "SESSION_NOT_FOUND").await;
    }
    edge.decide(&sid(1)).await;
    let malformed = Envelope { payload: vec![0xff].into(), ..propose(&sid(1), "p") };
    // M5 before M9: even an outsider hears of the mode first.
    let other_mode = Envelope { mode: TASK.into(), ..malformed.clone() };
    edge.refuse_as("mallory", other_mode, "INVALID_ENVELOPE").await;
    // STD-CORE-19: M9 before M12.
    edge.refuse_as("mallory", malformed.clone(), "FORBIDDEN").await;
    let ack = edge.refuse_as("bob", malformed, "INVALID_ENVELOPE").await;
    assert_eq!(ack.session_state, OPEN);
    // STD-CORE-36, STD-CORE-35: in Decision nobody may send what it does not know.
    for message_type in ["Gossip", "SessionCancel", "SessionSuspend", "SessionResume"] {
        let unknown = decision(&sid(1), "g", message_type, &SessionCancelPayload::default());
        edge.refuse_as("alice", unknown, "FORBIDDEN").await;
    }
    // ADM-2: a refused id stays free.
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    // M9 for a commitment, then its own rules.
    edge.refuse_as("bob", commit(&sid(1), "c"), "FORBIDDEN").await;
    let unbound = CommitmentPayload { policy_version: "policy.std.majority".into(), ..commitment_payload() };
    edge.refuse_as("alice", decision(&sid(1), "c", "Commitment", &unbound), "INVALID_ENVELOPE").await;

    // M7: suspended, then ended.
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    let ack = edge.refuse_as("mallory", propose(&sid(1), "q"), "SESSION_NOT_OPEN").await;
    assert_eq!(ack.session_state, SUSPENDED);
    edge.resume_as("alice", &sid(1)).await.expect("resumed");
    assert_eq!(edge.accept_as("alice", commit(&sid(1), "c")).await.session_state, RESOLVED);
    let ack = edge.refuse_as("bob", propose(&sid(1), "q"), "SESSION_NOT_OPEN").await;
    assert_eq!(ack.session_state, RESOLVED);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_18_duplicates_win_early() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let original = edge.accept_as("bob", propose(&sid(1), "p")).await;
    let variations = || {
        let plain = propose(&sid(1), "p");
        let other_mode = Envelope { mode: TASK.into(), ..plain.clone() };
        let other_payload = Envelope { payload: vec![0xff].into(), message_type: "Gossip".into(), ..plain.clone() };
        [plain, other_mode, other_payload]
    };
    let mut state = OPEN;
    for round in 0..3 {
        for identity in ["bob", "mallory"] {
            for envelope in variations() {
                let ack = edge.duplicate_as(identity, envelope).await;
                assert_eq!((ack.session_state, ack.accepted_at_unix_ms), (state, original.accepted_at_unix_ms));
            }
        }
        match round {
            0 => state = edge.suspend_as("alice", &sid(1)).await.expect("suspended").session_state,
            1 => state = edge.cancel_as("alice", &sid(1)).await.expect("cancelled").session_state,
            _ => assert_eq!(state, CANCELLED),
        }
    }
    // Only what comes before the session refuses it.
    edge.refuse_as("bob", Envelope { sender: "alice".into(), ..propose(&sid(1), "p") }, "UNAUTHENTICATED").await;
    edge.refuse_as("bob", Envelope { mode: " ".into(), ..propose(&sid(1), "p") }, "INVALID_ENVELOPE").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_20_a_policy_that_denies_says_why() {
    let edge = Edge::start().await;
    let payload = with(|payload| payload.policy_version = "policy.std.majority".into());
    edge.accept_as("alice", std_start(&sid(1), DECISION, &payload)).await;
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    let ack = edge.refuse_as("alice", commit(&sid(1), "c"), "POLICY_DENIED").await;
    // STD-POL-30.
    let details = ack.error.expect("an error").details;
    let details: serde_json::Value = serde_json::from_slice(&details).expect("JSON");
    let (reasons, denials) =
        (details["reasons"].as_array().expect("a list"), details["denials"].as_array().expect("a list"));
    assert!(!reasons.is_empty() && reasons.len() == denials.len());
    for (reason, denial) in reasons.iter().zip(denials) {
        assert_eq!(&denial["message"], reason);
        assert!(denial["code"].is_string());
    }
    edge.accept_as("bob", cast(&sid(1), "v1", "p", "APPROVE")).await;
    edge.accept_as("alice", cast(&sid(1), "v2", "p", "APPROVE")).await;
    let ack = edge.accept_as("alice", commit(&sid(1), "c")).await;
    assert_eq!(ack.session_state, RESOLVED, "the denied id was free");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_mode_2_payloads_are_protobuf_and_nothing_else() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let json = Envelope { payload: r#"{"proposal_id":"p","option":"x"}"#.into(), ..propose(&sid(1), "p") };
    edge.refuse_as("bob", json, "INVALID_ENVELOPE").await;
    for payload in [
        ProposalPayload::default(),
        ProposalPayload { proposal_id: "p".into(), option: " ".into(), ..Default::default() },
        ProposalPayload { proposal_id: "p".repeat(300), option: "x".into(), ..Default::default() },
    ] {
        edge.refuse_as("bob", decision(&sid(1), "p", "Proposal", &payload), "INVALID_ENVELOPE").await;
    }
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    for confidence in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
        let payload = EvaluationPayload {
            proposal_id: "p".into(),
            recommendation: "APPROVE".into(),
            confidence,
            ..Default::default()
        };
        edge.refuse_as("bob", decision(&sid(1), "e", "Evaluation", &payload), "INVALID_ENVELOPE").await;
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_31_to_33_signals_and_progress_of_callers_with_a_credential() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let signal = |payload: Vec<u8>| Envelope { sender: String::new(), ..envelope("", "s", "Signal", payload) };
    let typed = SignalPayload { signal_type: "ping".into(), ..Default::default() }.encode_to_vec();
    let untyped = SignalPayload { signal_type: " ".into(), data: "x".into(), ..Default::default() }.encode_to_vec();
    for payload in [vec![], typed.clone(), typed.clone()] {
        let ack = edge.accept_as("alice", signal(payload)).await;
        assert_eq!(ack.session_state, OPEN, "WIRE-3; never deduplicated");
    }
    for payload in [vec![0xff], untyped] {
        edge.refuse_as("alice", signal(payload), "INVALID_ENVELOPE").await;
    }
    edge.refuse_as("alice", Envelope { session_id: sid(1), ..signal(typed.clone()) }, "INVALID_ENVELOPE").await;
    edge.refuse_as("alice", Envelope { mode: DECISION.into(), ..signal(typed.clone()) }, "INVALID_ENVELOPE").await;
    edge.accept_as("alice", Envelope { mode: "  ".into(), ..signal(typed.clone()) }).await;
    edge.refuse_as("alice", Envelope { message_id: String::new(), ..signal(typed.clone()) }, "INVALID_ENVELOPE").await;
    edge.refuse_as("alice", Envelope { sender: "bob".into(), ..signal(typed) }, "UNAUTHENTICATED").await;

    let progress = ProgressPayload { progress_token: "t".into(), progress: 0.5, ..Default::default() };
    let about = message(&sid(1), DECISION, "p", "Progress", &progress);
    edge.accept_as("alice", about.clone()).await;
    edge.accept_as("alice", Envelope { session_id: String::new(), mode: String::new(), ..about.clone() }).await;
    edge.refuse_as("alice", Envelope { mode: String::new(), ..about.clone() }, "INVALID_ENVELOPE").await;
    edge.refuse_as("alice", Envelope { session_id: String::new(), ..about.clone() }, "INVALID_ENVELOPE").await;
    edge.refuse_as("alice", Envelope { payload: vec![0xff].into(), ..about }, "INVALID_ENVELOPE").await;
    let session = edge.session_as("alice", &sid(1)).await.expect("a session");
    assert!(session.participant_activity.is_empty(), "no session was touched");
    edge.shut_down().await;
}

#[tokio::test]
async fn malformed_credentials_are_refused_in_the_ack() {
    let edge = Edge::start().await;
    let start = || SendRequest { envelope: Some(std_start(&sid(1), DECISION, &start_payload())), signature: None };
    let mut twice = authorized("alice", start());
    twice.metadata_mut().append("authorization", "Bearer bob".parse().expect("ASCII"));
    let mut basic = Request::new(start());
    basic.metadata_mut().insert("authorization", "Basic YWxpY2U6eA==".parse().expect("ASCII"));
    for request in [ill_authorized(start()), twice, basic, Request::new(start())] {
        let ack = body(edge.runtime.clone().send(request).await).expect("an Ack").ack.expect("an Ack");
        assert_eq!(ack_code(&ack), "UNAUTHENTICATED");
    }
    refused(edge.session_as("alice", &sid(1)).await, Code::NotFound, "SESSION_NOT_FOUND");
    edge.shut_down().await;
}
