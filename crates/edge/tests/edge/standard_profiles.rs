//! Classic and standard sessions side by side on one server, and requests that name nothing with a profile.

use macp_wire::v1::*;
use tonic::Code;

use crate::common::*;
use crate::standard_common::*;

#[tokio::test]
async fn both_profiles_live_side_by_side() {
    let edge = Edge::start().await;
    edge.accept(start("classic")).await;
    edge.decide(&sid(1)).await;
    edge.accept(proposal("classic", "p")).await;
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    // Classic rules: JSON payloads, any sender, a commitment needs a vote; standard rules: none of that.
    edge.refuse(commitment("classic", "c"), "INVALID_ENVELOPE").await;
    edge.refuse_as("mallory", propose(&sid(1), "q"), "FORBIDDEN").await;
    edge.accept(vote("classic", "v")).await;
    assert_eq!(edge.accept_as("alice", commit(&sid(1), "c")).await.session_state, RESOLVED);
    assert_eq!(edge.accept(commitment("classic", "c")).await.session_state, RESOLVED);

    let page = body(edge.runtime.clone().list_sessions(authorized("alice", ListSessionsRequest::default())).await);
    let listed: Vec<_> = page.expect("a page").sessions.into_iter().map(|session| session.session_id).collect();
    assert_eq!(listed, [sid(1), "classic".to_owned()]);
    assert_eq!(edge.session("classic").await.expect("open to all in local development").policy_version, "");
    edge.shut_down().await;
}

#[tokio::test]
async fn the_start_chooses_the_profile() {
    let edge = Edge::start().await;
    // Empty, `decision`, `multi_round` and the classic multi-round are classic, with or without a credential.
    for (number, mode) in ["", "decision"].into_iter().enumerate() {
        let id = format!("c{number}");
        edge.accept(Envelope { mode: mode.into(), ..start(&id) }).await;
        let id = format!("d{number}");
        edge.accept_as("alice", Envelope { mode: mode.into(), sender: String::new(), ..start(&id) }).await;
        assert_eq!(edge.session(&id).await.expect("classic").mode, DECISION);
    }
    // The full name without a credential is classic; with one it never is, whatever is left out.
    edge.accept(Envelope { mode: DECISION.into(), ..start("full") }).await;
    let short = Envelope { mode: DECISION.into(), ..start("full-too") };
    edge.refuse_as("alice", short, "INVALID_SESSION_ID").await;
    let bare = Envelope { mode: DECISION.into(), sender: String::new(), ..start(&sid(1)) };
    edge.refuse_as("alice", bare, "INVALID_ENVELOPE").await;
    // A standard client that forgot its credential hears so.
    let forgotten = Envelope { sender: "alice".into(), ..std_start(&sid(1), DECISION, &start_payload()) };
    edge.refuse(forgotten, "UNAUTHENTICATED").await;
    for mode in ["macp.mode.task.v1", "macp.mode.quorum.v1", "ext.multi_round.v1"] {
        let forgotten = Envelope { sender: "alice".into(), ..std_start(&sid(1), mode, &start_payload()) };
        edge.refuse(forgotten, "UNAUTHENTICATED").await;
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn a_classic_start_that_names_a_policy_is_refused() {
    let edge = Edge::start().await;
    edge.register_policy(policy("p.mine", "*", "{}")).await;
    for policy_version in ["p.mine", "policy.std.majority", "policy.default"] {
        let payload =
            macp_wire::classic::v1::SessionStartPayload { policy_version: policy_version.into(), ..Default::default() };
        edge.refuse(start_with("governed", payload), "INVALID_ENVELOPE").await;
    }
    let payload = macp_wire::classic::v1::SessionStartPayload { policy_version: "v7".into(), ..Default::default() };
    edge.accept(start_with("governed", payload)).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn a_second_start_is_answered_by_the_rules_of_its_own_profile() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let classic = Envelope { message_id: "other".into(), mode: "decision".into(), ..start(&sid(1)) };
    edge.refuse(classic, "INVALID_ENVELOPE").await;
    edge.accept(start("abcdefghijklmnopqrstuv")).await;
    let standard = std_start("abcdefghijklmnopqrstuv", DECISION, &start_payload());
    edge.refuse_as("alice", Envelope { message_id: "other".into(), ..standard.clone() }, "SESSION_ALREADY_EXISTS")
        .await;
    edge.duplicate_as("alice", standard).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn what_names_nothing_is_answered_by_whether_a_credential_came_with_it() {
    let edge = Edge::start().await;
    edge.refuse(vote("nowhere", "v"), "SESSION_NOT_FOUND").await;
    edge.refuse_as("alice", propose("nowhere", "v"), "SESSION_NOT_FOUND").await;
    // Only the standard asks for a mode before it looks for the session.
    edge.refuse_as("alice", vote("nowhere", "v"), "INVALID_ENVELOPE").await;
    edge.refuse(Envelope { mode: "unheard.of".into(), ..start("s") }, "MODE_NOT_SUPPORTED").await;
    edge.refuse_as("alice", std_start(&sid(1), "unheard.of", &start_payload()), "MODE_NOT_SUPPORTED").await;
    edge.refuse_as("alice", std_start("s", "unheard.of", &start_payload()), "INVALID_SESSION_ID").await;
    let request = CancelSessionRequest { session_id: "nowhere".into(), reason: String::new() };
    let ack = body(edge.runtime.clone().cancel_session(request).await).expect("in band").ack.expect("an Ack");
    assert_eq!(ack_code(&ack), "SESSION_NOT_FOUND");
    refused(edge.cancel_as("alice", "nowhere").await, Code::NotFound, "SESSION_NOT_FOUND");
    edge.shut_down().await;
}

#[tokio::test]
async fn a_standard_session_takes_nothing_without_a_credential() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    for sender in ["", "alice"] {
        edge.refuse(Envelope { sender: sender.into(), ..propose(&sid(1), "p") }, "UNAUTHENTICATED").await;
    }
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, OPEN);
    edge.shut_down().await;
}

#[tokio::test]
async fn classic_sessions_are_neither_suspended_nor_given_receipts() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    let ack = edge.suspend_as("alice", "s").await.expect("in band");
    assert_eq!((ack.ok, ack_code(&ack)), (false, "INVALID_REQUEST"));
    edge.accept(envelope("s", "r", "Message", "resolve")).await;
    let request = GetDecisionReceiptRequest { session_id: "s".into() };
    let answer = edge.runtime.clone().get_decision_receipt(authorized("alice", request)).await;
    refused(answer, Code::FailedPrecondition, "RECEIPT_UNAVAILABLE");
    edge.shut_down().await;
}

#[tokio::test]
async fn a_server_of_one_profile_refuses_the_other() {
    let edge = Edge::with(|settings| settings.engine.limits.profile = macp_kernel::ProfileSetting::Standard).await;
    edge.refuse(start("s"), "INVALID_ENVELOPE").await;
    edge.refuse(Envelope { mode: "decision".into(), ..start("s") }, "MODE_NOT_SUPPORTED").await;
    edge.refuse(Envelope { mode: "macp.mode.multi_round.v1".into(), ..start("s") }, "MODE_NOT_SUPPORTED").await;
    edge.decide(&sid(1)).await;
    let modes = body(edge.runtime.clone().list_modes(ListModesRequest {}).await).expect("modes").modes;
    assert_eq!(modes.len(), 5);
    edge.shut_down().await;

    let edge = Edge::with(|settings| settings.engine.limits.profile = macp_kernel::ProfileSetting::Classic).await;
    edge.accept_as("alice", Envelope { mode: DECISION.into(), sender: String::new(), ..start("s") }).await;
    let task = std_start(&sid(1), "macp.mode.task.v1", &start_payload());
    edge.refuse_as("alice", task, "MODE_NOT_SUPPORTED").await;
    let modes = body(edge.runtime.clone().list_modes(ListModesRequest {}).await).expect("modes").modes;
    let names: Vec<_> = modes.iter().map(|mode| mode.mode.as_str()).collect();
    assert_eq!(names, [DECISION, "macp.mode.multi_round.v1"]);
    let request = InitializeRequest { supported_protocol_versions: vec!["1.0".into()], ..InitializeRequest::default() };
    let offered = body(edge.runtime.clone().initialize(request).await).expect("a greeting").capabilities.expect("some");
    assert!(!offered.policy_registry.expect("told").register_policy);
    assert!(offered.experimental.expect("told").features.is_empty());
    let mode = RegisterExtModeRequest { mode_descriptor: Some(ModeDescriptor::default()) };
    let status = edge.runtime.clone().register_ext_mode(authorized("alice", mode)).await.expect_err("for no session");
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    edge.shut_down().await;
}
