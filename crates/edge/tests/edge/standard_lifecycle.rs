//! GetSession, and CancelSession, SuspendSession and ResumeSession with those who may call them.

use std::time::Duration;

use macp_wire::history::v1::{GetSessionLogRequest, entry};
use macp_wire::v1::*;
use tonic::Code;

use crate::common::*;
use crate::standard_common::*;

#[tokio::test]
async fn std_rpc_9_get_session_tells_what_the_session_is_bound_to() {
    let edge = Edge::start().await;
    let payload = SessionStartPayload {
        participants: vec!["zoe".into(), "bob".into()],
        context_id: "ctx-7".into(),
        extensions: [("b.ext".to_owned(), "secret".into()), ("a.ext".to_owned(), "secret".into())].into(),
        roots: vec![Root { uri: "file:///srv".into(), name: "srv".into() }],
        ..start_payload()
    };
    let base = now_ms() - 10_000;
    let start = Envelope { timestamp_unix_ms: base, ..std_start(&sid(1), DECISION, &payload) };
    let started = edge.accept_as("alice", start).await;
    let session = edge.session_as("alice", &sid(1)).await.expect("a session");
    assert_eq!((session.session_id.as_str(), session.mode.as_str(), session.state), (sid(1).as_str(), DECISION, OPEN));
    assert_eq!(session.started_at_unix_ms, started.accepted_at_unix_ms, "STD-CORE-24");
    assert_eq!(session.expires_at_unix_ms, base + 60_000, "STD-CORE-24");
    assert_eq!((session.mode_version.as_str(), session.configuration_version.as_str()), ("1.0.0", "c1"));
    assert_eq!(session.policy_version, "policy.default", "STD-CORE-13: none named is the default");
    assert_eq!(session.participants, ["zoe", "bob"], "in the given order");
    assert_eq!((session.initiator.as_str(), session.context_id.as_str()), ("alice", "ctx-7"));
    assert_eq!(session.extension_keys, ["a.ext", "b.ext"]);
    assert!(session.participant_activity.is_empty(), "STD-CORE-14: the start does not count");

    edge.accept_as("zoe", propose(&sid(1), "p1")).await;
    edge.accept_as("bob", propose(&sid(1), "p2")).await;
    let last = edge.accept_as("zoe", cast(&sid(1), "v", "p2", "APPROVE")).await;
    edge.refuse_as("bob", propose(&sid(1), "p3"), "INVALID_ENVELOPE").await;
    let mut activity = edge.session_as("bob", &sid(1)).await.expect("a participant reads").participant_activity;
    activity.sort_by(|a, b| a.participant_id.cmp(&b.participant_id));
    let counts: Vec<_> = activity.iter().map(|one| (one.participant_id.as_str(), one.message_count)).collect();
    assert_eq!(counts, [("bob", 1), ("zoe", 2)]);
    assert_eq!(activity[1].last_message_at_unix_ms, last.accepted_at_unix_ms);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_4_unknown_comes_before_forbidden() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    for id in ["", "unknown", &sid(2), "../x", &"x".repeat(10_000)] {
        refused(edge.session_as("mallory", id).await, Code::NotFound, "SESSION_NOT_FOUND");
        refused(edge.cancel_as("mallory", id).await, Code::NotFound, "SESSION_NOT_FOUND");
        refused(edge.suspend_as("mallory", id).await, Code::NotFound, "SESSION_NOT_FOUND");
        refused(edge.resume_as("mallory", id).await, Code::NotFound, "SESSION_NOT_FOUND");
    }
    refused(edge.session_as("mallory", &sid(1)).await, Code::PermissionDenied, "FORBIDDEN");
    refused(edge.session(&sid(1)).await, Code::Unauthenticated, "UNAUTHENTICATED");
    let request = ill_authorized(GetSessionRequest { session_id: sid(1) });
    refused(edge.runtime.clone().get_session(request).await, Code::Unauthenticated, "UNAUTHENTICATED");

    let log = GetSessionLogRequest { session_id: sid(1), ..Default::default() };
    let mut history = edge.history.clone();
    refused(history.get_session_log(log.clone()).await, Code::Unauthenticated, "UNAUTHENTICATED");
    let answer = history.get_session_log(authorized("mallory", log.clone())).await;
    refused(answer, Code::PermissionDenied, "FORBIDDEN");
    assert_eq!(body(history.get_session_log(authorized("bob", log)).await).expect("a log").entries.len(), 1);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_27_28_a_pause_moves_the_deadline_by_its_length() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let before = edge.session_as("alice", &sid(1)).await.expect("a session").expires_at_unix_ms;
    let suspended = edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    assert!(suspended.ok && !suspended.duplicate && suspended.error.is_none());
    assert_eq!((suspended.message_id.as_str(), suspended.session_id), ("", sid(1)));
    assert_eq!(suspended.session_state, SUSPENDED);
    let session = edge.session_as("alice", &sid(1)).await.expect("a session");
    assert_eq!((session.state, session.expires_at_unix_ms), (SUSPENDED, before), "unchanged while suspended");
    let again = edge.suspend_as("alice", &sid(1)).await.expect("an Ack");
    assert_eq!((again.ok, ack_code(&again)), (false, "SESSION_NOT_OPEN"));

    tokio::time::sleep(Duration::from_millis(30)).await;
    let resumed = edge.resume_as("alice", &sid(1)).await.expect("resumed");
    assert!(resumed.ok, "{resumed:?}");
    assert_eq!((resumed.message_id.as_str(), resumed.session_state), ("", OPEN));
    let pause = resumed.accepted_at_unix_ms - suspended.accepted_at_unix_ms;
    let session = edge.session_as("alice", &sid(1)).await.expect("a session");
    assert!(pause >= 30);
    assert_eq!((session.state, session.expires_at_unix_ms), (OPEN, before + pause));
    let again = edge.resume_as("alice", &sid(1)).await.expect("an Ack");
    assert_eq!((again.ok, ack_code(&again)), (false, "SESSION_NOT_OPEN"));
    edge.accept_as("bob", propose(&sid(1), "p")).await;

    let log = GetSessionLogRequest { session_id: sid(1), ..Default::default() };
    let log = body(edge.history.clone().get_session_log(authorized("alice", log)).await).expect("a log");
    let entries: Vec<_> = log.entries.iter().map(|record| record.entry.as_ref().expect("an entry")).collect();
    let Some(entry::Input::SessionSuspend(suspend)) = &entries[1].input else { panic!("{:?}", entries[1]) };
    assert_eq!((suspend.reason.as_str(), suspend.suspended_by.as_str()), ("a break", "alice"));
    let Some(entry::Input::SessionResume(resume)) = &entries[2].input else { panic!("{:?}", entries[2]) };
    assert_eq!((resume.reason.as_str(), resume.resumed_by.as_str()), ("back", "alice"));
    assert_eq!(resume.banked_ms, before - suspended.accepted_at_unix_ms);
    let ordinals: Vec<_> = entries.iter().map(|entry| entry.ordinal).collect();
    assert_eq!(ordinals, [1, 0, 0, 2], "STD-CORE-37: bookkeeping takes no ordinal");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_30_cancel_ends_a_session_and_changes_nothing_that_ended() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.resolve(&sid(2)).await;
    for (number, state) in [(1, CANCELLED), (2, RESOLVED)] {
        for _ in 0..2 {
            let ack = edge.cancel_as("alice", &sid(number)).await.expect("an Ack");
            assert!(ack.ok && ack.error.is_none(), "{ack:?}");
            assert_eq!((ack.message_id.as_str(), ack.session_id, ack.session_state), ("", sid(number), state));
        }
        let ack = edge.suspend_as("alice", &sid(number)).await.expect("in band");
        assert_eq!((ack.ok, ack_code(&ack), ack.session_state), (false, "SESSION_NOT_OPEN", state));
        let ack = edge.resume_as("alice", &sid(number)).await.expect("in band");
        assert_eq!((ack.ok, ack_code(&ack), ack.session_state), (false, "SESSION_NOT_OPEN", state));
    }
    let log = GetSessionLogRequest { session_id: sid(1), ..Default::default() };
    let log = body(edge.history.clone().get_session_log(authorized("alice", log)).await).expect("a log");
    assert_eq!(log.entries.len(), 2);
    let Some(entry::Input::SessionCancel(cancel)) = &log.entries[1].entry.as_ref().expect("an entry").input else {
        panic!("{:?}", log.entries[1])
    };
    assert_eq!((cancel.reason.as_str(), cancel.cancelled_by.as_str()), ("because", "alice"));
    edge.shut_down().await;
}

/// STD-RPC-10: the initiator, and whoever the policy lets commit.
#[tokio::test]
async fn std_rpc_10_who_may_commit_may_cancel_suspend_and_resume() {
    let edge = Edge::start().await;
    edge.register_policy(policy("p.any", "*", r#"{"commitment":{"authority":"any_participant"}}"#)).await;
    let rules = r#"{"commitment":{"authority":"designated_role","designated_roles":["carol"]}}"#;
    edge.register_policy(policy("p.role", "*", rules)).await;
    let cases = [
        ("", &["alice"][..], &["bob", "carol", "mallory"][..]),
        ("p.any", &["alice", "bob"], &["carol", "mallory"]),
        ("p.role", &["alice", "carol"], &["bob", "mallory"]),
    ];
    let mut number = 0;
    for (policy_version, allowed, forbidden) in cases {
        for who in allowed {
            number += 1;
            let payload = SessionStartPayload { policy_version: policy_version.into(), ..start_payload() };
            edge.accept_as("alice", std_start(&sid(number), DECISION, &payload)).await;
            for other in forbidden {
                refused(edge.suspend_as(other, &sid(number)).await, Code::PermissionDenied, "FORBIDDEN");
                refused(edge.resume_as(other, &sid(number)).await, Code::PermissionDenied, "FORBIDDEN");
                refused(edge.cancel_as(other, &sid(number)).await, Code::PermissionDenied, "FORBIDDEN");
            }
            assert_eq!(edge.suspend_as(who, &sid(number)).await.expect("allowed").session_state, SUSPENDED);
            assert_eq!(edge.resume_as(who, &sid(number)).await.expect("allowed").session_state, OPEN);
            assert_eq!(edge.cancel_as(who, &sid(number)).await.expect("allowed").session_state, CANCELLED);
            for other in forbidden {
                refused(edge.cancel_as(other, &sid(number)).await, Code::PermissionDenied, "FORBIDDEN");
            }
        }
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn a_reason_that_is_too_long_is_refused_and_nothing_happens() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let reason = "x".repeat(2_000_000);
    let request = SuspendSessionRequest { session_id: sid(1), reason: reason.clone() };
    let ack = body(edge.runtime.clone().suspend_session(authorized("alice", request)).await).expect("in band").ack;
    assert_eq!(ack_code(&ack.expect("an Ack")), "INVALID_ENVELOPE");
    let request = CancelSessionRequest { session_id: sid(1), reason };
    let ack = body(edge.runtime.clone().cancel_session(authorized("alice", request)).await).expect("in band").ack;
    assert_eq!(ack_code(&ack.expect("an Ack")), "INVALID_ENVELOPE");
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, OPEN);
    edge.shut_down().await;
}
