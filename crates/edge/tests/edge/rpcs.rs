//! The unary calls of the runtime service.

use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Request};

use crate::common::*;

/// Everything a server offers that nobody has registered anything with.
const SUPPORTED_MODES: [&str; 7] = [
    "ext.multi_round.v1",
    "macp.mode.decision.v1",
    "macp.mode.handoff.v1",
    "macp.mode.multi_round.v1",
    "macp.mode.proposal.v1",
    "macp.mode.quorum.v1",
    "macp.mode.task.v1",
];

#[tokio::test]
async fn rpc_1_initialize_picks_the_version_and_tells_what_works() {
    let edge = Edge::start().await;
    let request =
        InitializeRequest { supported_protocol_versions: vec!["0.9".into(), "1.0".into()], ..Default::default() };
    let response = edge.runtime.clone().initialize(request).await.expect("initialized").into_inner();
    assert_eq!(response.selected_protocol_version, "1.0");
    let info = response.runtime_info.expect("runtime_info");
    assert_eq!((info.name.as_str(), info.version.as_str()), ("macp-runtime", env!("CARGO_PKG_VERSION")));
    assert_eq!(response.supported_modes, SUPPORTED_MODES);
    assert!(!response.instructions.is_empty());
    let capabilities = response.capabilities.expect("capabilities");
    let sessions = capabilities.sessions.expect("sessions");
    let modes = capabilities.mode_registry.expect("mode_registry");
    let roots = capabilities.roots.expect("roots");
    assert!(sessions.stream && sessions.list_sessions && sessions.watch_sessions);
    assert!(capabilities.cancellation.expect("cancellation").cancel_session);
    assert!(capabilities.progress.expect("progress").progress);
    assert!(capabilities.manifest.expect("manifest").get_manifest);
    assert!(modes.list_modes && modes.list_changed && roots.list_roots && roots.list_changed);
    let policies = capabilities.policy_registry.expect("policy_registry");
    assert!(policies.register_policy && policies.list_policies && policies.list_changed && policies.what_if_replay);
    assert!(policies.rule_extensions.is_empty());
    let receipts = capabilities.decision_receipt.expect("decision_receipt");
    assert!(receipts.get_decision_receipt && !receipts.signed, "no key is configured");
    let features = capabilities.experimental.expect("experimental").features;
    assert_eq!(features.get("ext_mode_lifecycle").map(String::as_str), Some("true"));
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_1_initialize_refuses_other_versions() {
    let edge = Edge::start().await;
    for (versions, expected) in [(vec![], "INVALID_REQUEST"), (vec!["2.0".to_owned()], "UNSUPPORTED_PROTOCOL_VERSION")]
    {
        let request = InitializeRequest { supported_protocol_versions: versions, ..Default::default() };
        let status = edge.runtime.clone().initialize(request).await.expect_err("refused");
        assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, expected));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_2_send_takes_a_session_to_its_end() {
    let edge = Edge::start().await;
    let before = now_ms();
    let ack = edge.accept(start("s")).await;
    assert_eq!((ack.message_id.as_str(), ack.session_id.as_str(), ack.session_state), ("s-start", "s", OPEN));
    assert!(ack.accepted_at_unix_ms >= before && ack.accepted_at_unix_ms <= now_ms());
    edge.accept(proposal("s", "p")).await;
    edge.accept(vote("s", "v")).await;
    let ack = edge.accept(commitment("s", "c")).await;
    assert_eq!(ack.session_state, RESOLVED);
    let ack = edge.refuse(vote("s", "late"), "SESSION_NOT_OPEN").await;
    assert_eq!(ack.session_state, RESOLVED, "a refusal tells the true state");
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_2_protocol_errors_travel_in_the_ack_and_only_a_missing_envelope_is_a_status() {
    let edge = Edge::start().await;
    let request = SendRequest::default();
    let status = edge.runtime.clone().send(request).await.expect_err("a status");
    assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"));

    let version = Envelope { macp_version: "2.0".into(), ..start("s") };
    edge.refuse(version, "UNSUPPORTED_PROTOCOL_VERSION").await;
    edge.refuse(Envelope { mode: "unheard.of".into(), ..start("s") }, "MODE_NOT_SUPPORTED").await;
    edge.refuse(Envelope { sender: String::new(), ..start("s") }, "INVALID_ENVELOPE").await;
    let ack = edge.refuse(vote("s", "v"), "SESSION_NOT_FOUND").await;
    assert_eq!(ack.session_state, 0, "no session, no state");
    let error = ack.error.expect("an error");
    assert_eq!((error.session_id.as_str(), error.message_id.as_str()), ("s", "v"));
    assert!(!error.message.is_empty());
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_2_a_credential_that_is_no_good_is_refused_in_the_ack() {
    let edge = Edge::start().await;
    for header in ["Basic YQ==", "Bearer ", "bearer alice"] {
        let mut request = Request::new(SendRequest { envelope: Some(start("s")), signature: None });
        request.metadata_mut().insert("authorization", header.parse().expect("ASCII"));
        let ack = edge.runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack");
        assert_eq!(ack.error.expect("refused").code, "UNAUTHENTICATED", "{header:?}");
    }
    let ack = edge.send_as("bob", Envelope { mode: "decision".into(), ..start("s") }).await;
    assert_eq!(ack.error.expect("the sender is another").code, "UNAUTHENTICATED");
    edge.shut_down().await;
}

#[tokio::test]
async fn identity_of_a_credential_fills_in_the_sender() {
    let edge = Edge::start().await;
    let nameless = Envelope { mode: "decision".into(), sender: String::new(), ..start("s") };
    assert!(edge.send_as("bob", nameless).await.ok);
    assert_eq!(edge.session("s").await.expect("a session").initiator, "bob");

    let mut request = Request::new(SendRequest {
        envelope: Some(Envelope { sender: String::new(), ..proposal("s", "p") }),
        signature: None,
    });
    request.metadata_mut().insert("x-macp-token", "carol".parse().expect("ASCII"));
    let ack = edge.runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack");
    assert!(ack.ok, "{ack:?}");
    let session = edge.session("s").await.expect("a session");
    assert_eq!(session.participant_activity[0].participant_id, "carol");
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_3_a_duplicate_keeps_the_time_of_its_acceptance() {
    let edge = Edge::start().await;
    let original = edge.accept(start("s")).await;
    edge.accept(proposal("s", "p")).await;
    // The clock must have moved on, or the test would show nothing.
    while now_ms() <= original.accepted_at_unix_ms {
        tokio::task::yield_now().await;
    }
    let again = edge.send(start("s")).await;
    assert!(again.ok && again.duplicate, "{again:?}");
    assert_eq!(again.accepted_at_unix_ms, original.accepted_at_unix_ms);
    assert_eq!(again.session_state, OPEN);
    assert_eq!(again.error, None);
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_5_the_payload_limit_is_inclusive_and_more_is_refused_in_the_ack() {
    let edge = Edge::start().await;
    edge.accept(start_with("s", SessionStartPayload::default())).await;
    let fitting = envelope("s", "p", "Proposal", padded(1_048_576));
    edge.accept(fitting).await;
    let over = envelope("s", "q", "Proposal", padded(1_048_577));
    edge.refuse(over, "PAYLOAD_TOO_LARGE").await;
    let far_over = envelope("s", "q", "Proposal", padded(5_000_000));
    edge.refuse(far_over.clone(), "PAYLOAD_TOO_LARGE").await;
    let frames = tokio_stream::iter([frame(far_over), frame(proposal("s", "r"))]);
    let mut answers = edge.runtime.clone().stream_session(frames).await.expect("a stream").into_inner();
    assert_eq!(delivered(next(&mut answers).await).message_id, "err-q");
    assert_eq!(delivered(next(&mut answers).await).message_id, "ack-r", "the stream goes on");

    let beyond = SendRequest { envelope: Some(envelope("s", "q", "Proposal", padded(6_000_000))), signature: None };
    let status = edge.runtime.clone().send(beyond).await.expect_err("longer than any request may be");
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "PAYLOAD_TOO_LARGE"));
    edge.accept(proposal("s", "q")).await;
    edge.shut_down().await;
}

/// A Proposal of a given length.
fn padded(length: usize) -> Vec<u8> {
    let (head, tail) = (r#"{"proposal_id":"p","padding":""#, r#""}"#);
    format!("{head}{}{tail}", "x".repeat(length - head.len() - tail.len())).into_bytes()
}

#[tokio::test]
async fn rpc_3_get_session_tells_what_the_session_is_bound_to() {
    let edge = Edge::start().await;
    let payload = SessionStartPayload {
        participants: vec!["alice".into(), "bob".into(), "alice".into()],
        configuration_version: "c1".into(),
        ttl_ms: 30_000,
        ..Default::default()
    };
    let started = edge.accept(start_with("s", payload)).await;
    edge.accept(proposal("s", "p")).await;
    let session = edge.session("s").await.expect("a session");
    assert_eq!((session.session_id.as_str(), session.mode.as_str()), ("s", DECISION));
    assert_eq!((session.mode_version.as_str(), session.configuration_version.as_str()), ("1.0.0", "c1"));
    assert_eq!(session.policy_version, "");
    assert_eq!(session.participants, ["alice", "bob"]);
    assert_eq!(session.initiator, "alice");
    assert_eq!(session.state, OPEN);
    assert_eq!(session.started_at_unix_ms, started.accepted_at_unix_ms);
    assert_eq!(session.expires_at_unix_ms, started.accepted_at_unix_ms + 30_000);
    assert_eq!(session.participant_activity.len(), 1);
    assert_eq!(session.participant_activity[0].message_count, 1);

    for session_id in ["", "unknown", &"x".repeat(10_000)] {
        let status = edge.session(session_id).await.expect_err("unknown");
        assert_eq!((status.code(), code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_4_rpc_9_cancel_ends_a_session_and_changes_nothing_that_ended() {
    let edge = Edge::start().await;
    let mut client = edge.runtime.clone();
    edge.accept(start("s")).await;
    let cancel = CancelSessionRequest { session_id: "s".into(), reason: "no longer needed".into() };
    for _ in 0..2 {
        let ack = client.cancel_session(cancel.clone()).await.expect("an Ack").into_inner().ack.expect("an Ack");
        assert!(ack.ok, "{ack:?}");
        assert_eq!((ack.session_id.as_str(), ack.message_id.as_str(), ack.session_state), ("s", "", EXPIRED));
    }
    let log = macp_wire::history::v1::GetSessionLogRequest { session_id: "s".into(), ..Default::default() };
    let log = edge.history.clone().get_session_log(log).await.expect("a log").into_inner();
    assert_eq!(log.entries.len(), 2, "the start and one cancellation");
    edge.refuse(vote("s", "v"), "SESSION_NOT_OPEN").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_9_cancel_of_an_unknown_session_is_answered_by_the_callers_rules() {
    let edge = Edge::start().await;
    let mut client = edge.runtime.clone();
    for session_id in ["", "unknown"] {
        let cancel = CancelSessionRequest { session_id: session_id.into(), reason: String::new() };
        let ack = client.cancel_session(cancel.clone()).await.expect("an Ack").into_inner().ack.expect("an Ack");
        assert_eq!(ack.error.expect("refused").code, "SESSION_NOT_FOUND");
        let status = client.cancel_session(authorized("alice", cancel)).await.expect_err("a status");
        assert_eq!((status.code(), code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_9_only_the_initiator_may_cancel_and_ended_sessions_are_no_exception() {
    let edge = Edge::start().await;
    let mut client = edge.runtime.clone();
    edge.accept(start("s")).await;
    let cancel = CancelSessionRequest { session_id: "s".into(), reason: String::new() };
    for _ in 0..2 {
        let response = client.cancel_session(authorized("mallory", cancel.clone())).await.expect("an Ack");
        assert_eq!(response.into_inner().ack.expect("an Ack").error.expect("refused").code, "FORBIDDEN");
        let response = client.cancel_session(authorized("alice", cancel.clone())).await.expect("an Ack");
        assert!(response.into_inner().ack.expect("an Ack").ok);
    }
    let mut request = Request::new(cancel);
    request.metadata_mut().insert("authorization", "Bearer ".parse().expect("ASCII"));
    let status = client.cancel_session(request).await.expect_err("a status");
    assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_5_the_manifest_is_the_runtimes_own() {
    let edge = Edge::with(|settings| settings.runtime_id = "referee".into()).await;
    for agent_id in ["", "referee"] {
        let request = GetManifestRequest { agent_id: agent_id.into() };
        let manifest = edge.runtime.clone().get_manifest(request).await.expect("a manifest").into_inner().manifest;
        let manifest = manifest.expect("a manifest");
        assert_eq!(manifest.agent_id, "referee");
        assert_eq!(manifest.title, "MACP Coordination Runtime");
        assert_eq!(manifest.supported_modes, SUPPORTED_MODES);
        assert_eq!(manifest.input_content_types, ["application/macp-envelope+proto"]);
        assert_eq!(manifest.output_content_types, ["application/macp-envelope+proto"]);
    }
    let request = GetManifestRequest { agent_id: "somebody".into() };
    for request in [Request::new(request.clone()), authorized("alice", request)] {
        let status = edge.runtime.clone().get_manifest(request).await.expect_err("unknown");
        assert_eq!((status.code(), code(&status)), (Code::NotFound, "AGENT_NOT_FOUND"));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_6_modes_are_listed_with_full_descriptors() {
    let edge = Edge::start().await;
    let modes = edge.runtime.clone().list_modes(ListModesRequest {}).await.expect("modes").into_inner().modes;
    // STD-DISC-1: the standard's in its order, then the classic one it has no place for.
    let expected = [
        ("decision", "Decision Mode", "declared", "semantic-deterministic", "Proposal Evaluation Objection Vote"),
        (
            "proposal",
            "Proposal Mode",
            "peer",
            "semantic-deterministic",
            "Proposal CounterProposal Accept Reject Withdraw",
        ),
        (
            "task",
            "Task Mode",
            "orchestrated",
            "structural-only",
            "TaskRequest TaskAccept TaskReject TaskUpdate TaskComplete TaskFail",
        ),
        (
            "handoff",
            "Handoff Mode",
            "delegated",
            "context-frozen",
            "HandoffOffer HandoffContext HandoffAccept HandoffDecline",
        ),
        ("quorum", "Quorum Mode", "quorum", "semantic-deterministic", "ApprovalRequest Approve Reject Abstain"),
    ];
    assert_eq!(modes.len(), expected.len() + 1);
    for (mode, (name, title, participants, determinism, messages)) in modes.iter().zip(expected) {
        assert_eq!((mode.mode.as_str(), mode.title.as_str()), (format!("macp.mode.{name}.v1").as_str(), title));
        assert_eq!((mode.participant_model.as_str(), mode.determinism_class.as_str()), (participants, determinism));
        assert_eq!(mode.message_types.join(" "), format!("SessionStart {messages} Commitment"));
        assert_eq!(mode.terminal_message_types, ["Commitment"]);
    }
    assert_eq!(modes[5].mode, "macp.mode.multi_round.v1");
    assert_eq!(modes[5].message_types, ["Contribute"]);
    for mode in &modes {
        assert_eq!(mode.mode_version, "1.0.0");
        assert!(!mode.description.is_empty() && !mode.schema_uris.is_empty());
    }
    let extensions = edge.runtime.clone().list_ext_modes(ListExtModesRequest {}).await.expect("modes");
    let extensions = extensions.into_inner().modes;
    assert_eq!(extensions.len(), 1);
    assert_eq!((extensions[0].mode.as_str(), extensions[0].mode_version.as_str()), ("ext.multi_round.v1", "1.0.0"));
    assert_eq!(extensions[0].message_types, ["SessionStart", "Contribute", "Commitment"]);
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_8_roots_come_from_the_settings() {
    let root = Root { uri: "file:///srv".into(), name: "srv".into() };
    let edge = Edge::with(|settings| settings.reloadable.roots = vec![root.clone()]).await;
    let roots = edge.runtime.clone().list_roots(ListRootsRequest {}).await.expect("roots").into_inner().roots;
    assert_eq!(roots, [root]);
    edge.shut_down().await;
}

#[tokio::test]
async fn sessions_are_listed_page_by_page() {
    let edge = Edge::with(|settings| settings.list_page_size_default = 2).await;
    let ids = ["a", "b", "c", "d", "e"];
    for id in ids.iter().rev() {
        edge.accept(start(id)).await;
    }
    edge.accept(proposal("c", "p")).await;
    edge.accept(vote("c", "v")).await;
    edge.accept(commitment("c", "x")).await;

    let (mut found, mut pages, mut page_token) = (Vec::new(), 0, String::new());
    loop {
        let request = ListSessionsRequest { page_size: 0, page_token };
        let page = edge.runtime.clone().list_sessions(request).await.expect("a page").into_inner();
        found.extend(page.sessions);
        (pages, page_token) = (pages + 1, page.next_page_token);
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(found.iter().map(|session| session.session_id.as_str()).collect::<Vec<_>>(), ids);
    for session in &found {
        assert_eq!(session.state, if session.session_id == "c" { RESOLVED } else { OPEN });
        assert_eq!((session.mode.as_str(), session.initiator.as_str()), (DECISION, "alice"));
        assert_eq!(session.expires_at_unix_ms, session.started_at_unix_ms + 60_000);
    }

    // base64url of "v1:b": a cursor need not name a session that exists.
    for (page_size, page_token, expected) in [
        (1000, "", 5),
        (100_000, "", 5),
        (5, "", 5),
        (4, "", 4),
        (10, "djE6Yg", 3),
        (10, "djE6YmI", 3),
        (10, "djE6eg", 0),
    ] {
        let request = ListSessionsRequest { page_size, page_token: page_token.into() };
        let page = edge.runtime.clone().list_sessions(request).await.expect("a page").into_inner();
        assert_eq!(page.sessions.len(), expected, "{page_size} {page_token}");
        assert_eq!(page.next_page_token.is_empty(), expected != 4);
    }
    for (page_size, page_token) in [(-1, ""), (1, "???"), (1, "djI6Yg"), (1, "Yg"), (i32::MIN, "")] {
        let request = ListSessionsRequest { page_size, page_token: page_token.into() };
        let status = edge.runtime.clone().list_sessions(request).await.expect_err("refused");
        assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_REQUEST"));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_2_calls_of_the_standard_need_a_credential() {
    let edge = Edge::start().await;
    let client = || edge.runtime.clone();
    let statuses = [
        client().suspend_session(SuspendSessionRequest::default()).await.map(drop).expect_err("refused"),
        client().resume_session(ResumeSessionRequest::default()).await.map(drop).expect_err("refused"),
        client().register_ext_mode(RegisterExtModeRequest::default()).await.map(drop).expect_err("refused"),
        client().unregister_ext_mode(UnregisterExtModeRequest::default()).await.map(drop).expect_err("refused"),
        client().promote_mode(PromoteModeRequest::default()).await.map(drop).expect_err("refused"),
        client().register_policy(RegisterPolicyRequest::default()).await.map(drop).expect_err("refused"),
        client().unregister_policy(UnregisterPolicyRequest::default()).await.map(drop).expect_err("refused"),
        client().get_policy(GetPolicyRequest::default()).await.map(drop).expect_err("refused"),
        client().list_policies(ListPoliciesRequest::default()).await.map(drop).expect_err("refused"),
        client().watch_policies(WatchPoliciesRequest::default()).await.map(drop).expect_err("refused"),
        client().what_if_replay(WhatIfReplayRequest::default()).await.map(drop).expect_err("refused"),
        client().get_decision_receipt(GetDecisionReceiptRequest::default()).await.map(drop).expect_err("refused"),
    ];
    for status in statuses {
        assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    }
    let keys = client().get_receipt_keys(GetReceiptKeysRequest::default()).await.expect("open to all");
    assert_eq!(keys.into_inner().jwks_json, r#"{"keys":[]}"#);
    edge.shut_down().await;
}

#[tokio::test]
async fn a_start_by_the_standard_without_a_credential_hears_so() {
    let edge = Edge::start().await;
    let payload = SessionStartPayload {
        participants: vec!["alice".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "c1".into(),
        ttl_ms: 1000,
        ..Default::default()
    };
    let standard = Envelope {
        mode: DECISION.into(),
        payload: payload.encode_to_vec().into(),
        ..start("3f2504e0-4f89-41d3-9a0c-0305e82c3301")
    };
    edge.refuse(standard.clone(), "UNAUTHENTICATED").await;
    let ack = edge.send_as("alice", standard).await;
    assert!(ack.ok, "with its credential it is a start: {ack:?}");
    edge.shut_down().await;
}
