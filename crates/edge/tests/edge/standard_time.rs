//! What time does to standard sessions, and who wins when many come at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use macp_ledger::SqliteStore;
use macp_wire::modes::handoff::v1::{HandoffAcceptPayload, HandoffDeclinePayload, HandoffOfferPayload};
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Streaming};

use crate::common::*;
use crate::standard_common::*;

const HANDOFF: &str = "macp.mode.handoff.v1";

fn handoff(session_id: &str, message_id: &str, message_type: &str, payload: &impl Message) -> Envelope {
    message(session_id, HANDOFF, message_id, message_type, payload)
}

fn offer(session_id: &str) -> Envelope {
    let payload =
        HandoffOfferPayload { handoff_id: "h".into(), target_participant: "bob".into(), ..Default::default() };
    handoff(session_id, "offer", "HandoffOffer", &payload)
}

/// A handoff whose offers are accepted by silence.
async fn start_handoff(edge: &Edge, session_id: &str, timeout_ms: i64) {
    let id = format!("silence.{timeout_ms}");
    let rules = format!(r#"{{"acceptance":{{"implicit_accept_timeout_ms":{timeout_ms}}}}}"#);
    edge.register_policy(policy(&id, HANDOFF, &rules)).await;
    let payload = SessionStartPayload { policy_version: id, ..start_payload() };
    edge.accept_as("alice", std_start(session_id, HANDOFF, &payload)).await;
}

async fn subscribed(edge: &Edge, session_id: &str, after: u64) -> Streaming<StreamSessionResponse> {
    // The request stays open: a half-closed stream would end.
    let frames =
        tokio_stream::StreamExt::chain(tokio_stream::iter([subscribe(session_id, after)]), tokio_stream::pending());
    body(edge.runtime.clone().stream_session(authorized("alice", frames)).await).expect("a stream")
}

#[tokio::test]
async fn std_hand_14_the_timer_accepts_an_offer_and_subscribers_hear_of_it() {
    let edge = Edge::start().await;
    start_handoff(&edge, &sid(1), 300).await;
    let mut stream = subscribed(&edge, &sid(1), 1).await;
    let offered = edge.accept_as("alice", offer(&sid(1))).await;
    assert_eq!(delivered(next(&mut stream).await).message_id, "offer");
    let accept = delivered(next(&mut stream).await);
    // STD-HAND-11, STD-HAND-12: dated to the moment time was up.
    let due = offered.accepted_at_unix_ms + 300;
    assert!(now_ms() >= due);
    assert_eq!((accept.message_type.as_str(), accept.message_id.as_str()), ("HandoffAccept", "implicit-accept:h"));
    assert_eq!((accept.macp_version.as_str(), accept.mode.as_str(), accept.session_id), ("1.0", HANDOFF, sid(1)));
    assert_eq!((accept.sender.as_str(), accept.timestamp_unix_ms), ("bob", due));
    let payload = HandoffAcceptPayload {
        handoff_id: "h".into(),
        accepted_by: "bob".into(),
        reason: "implicit accept (timeout)".into(),
        implicit: true,
    };
    assert_eq!(accept.payload, payload.encode_to_vec());
    // It has an ordinal, and gives nobody activity.
    let mut again = subscribed(&edge, &sid(1), 2).await;
    assert_eq!(delivered(next(&mut again).await).message_id, "implicit-accept:h");
    let activity = edge.session_as("bob", &sid(1)).await.expect("a session").participant_activity;
    assert_eq!(activity.iter().map(|one| one.participant_id.as_str()).collect::<Vec<_>>(), ["alice"]);
    // STD-HAND-15: too late to decline, and the way to commit is free.
    let decline = HandoffDeclinePayload { handoff_id: "h".into(), ..Default::default() };
    edge.refuse_as("bob", handoff(&sid(1), "d", "HandoffDecline", &decline), "INVALID_ENVELOPE").await;
    let payload = CommitmentPayload { action: "handoff.accepted".into(), ..commitment_payload() };
    edge.accept_as("alice", handoff(&sid(1), "c", "Commitment", &payload)).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_hand_10_what_only_the_runtime_may_say_is_refused() {
    let edge = Edge::start().await;
    edge.accept_as("alice", std_start(&sid(1), HANDOFF, &start_payload())).await;
    edge.accept_as("alice", offer(&sid(1))).await;
    let accept = HandoffAcceptPayload { handoff_id: "h".into(), implicit: true, ..Default::default() };
    edge.refuse_as("mallory", handoff(&sid(1), "implicit-accept:h", "HandoffAccept", &accept), "FORBIDDEN").await;
    edge.refuse_as("bob", handoff(&sid(1), "a", "HandoffAccept", &accept), "INVALID_ENVELOPE").await;
    let accept = HandoffAcceptPayload { implicit: false, ..accept };
    edge.refuse_as("bob", handoff(&sid(1), "implicit-accept:h", "HandoffAccept", &accept), "INVALID_ENVELOPE").await;
    edge.accept_as("bob", handoff(&sid(1), "a", "HandoffAccept", &accept)).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_hand_9_a_pause_does_not_count_and_an_offer_waits_through_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    start_handoff(&edge, &sid(1), 400).await;
    let offered = edge.accept_as("alice", offer(&sid(1))).await;
    let suspended = edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    edge.shut_down().await;

    let edge = Edge::on(store(), |_| ()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let resumed = edge.resume_as("alice", &sid(1)).await.expect("resumed");
    assert_eq!(resumed.session_state, OPEN, "{resumed:?}");
    let pause = resumed.accepted_at_unix_ms - suspended.accepted_at_unix_ms;
    let mut stream = subscribed(&edge, &sid(1), 2).await;
    let accept = delivered(next(&mut stream).await);
    assert_eq!(accept.message_id, "implicit-accept:h");
    assert_eq!(accept.timestamp_unix_ms, offered.accepted_at_unix_ms + 400 + pause);
    edge.shut_down().await;
}

#[tokio::test]
async fn life_5_the_timer_expires_sessions_and_reads_notice_at_once() {
    let edge = Edge::start().await;
    let past = Envelope { timestamp_unix_ms: now_ms() - 120_000, ..std_start(&sid(1), DECISION, &start_payload()) };
    // STD-CORE-24: accepted open, expired at the next touch.
    assert_eq!(edge.accept_as("alice", past).await.session_state, OPEN);
    let ack = edge.refuse_as("bob", propose(&sid(1), "p"), "SESSION_NOT_OPEN").await;
    assert_eq!(ack.session_state, EXPIRED);
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, EXPIRED);
    let ack = edge.cancel_as("alice", &sid(1)).await.expect("an Ack");
    assert_eq!((ack.ok, ack.session_state), (true, EXPIRED), "STD-CORE-30");
    let future = Envelope { timestamp_unix_ms: now_ms() + 3_600_000, ..std_start(&sid(2), DECISION, &start_payload()) };
    let ack = edge.refuse_as("alice", future, "INVALID_ENVELOPE").await;
    assert!(ack.error.expect("an error").message.contains("skew"), "names the skew");

    let brief = SessionStartPayload { ttl_ms: 1, ..start_payload() };
    edge.accept_as("alice", std_start(&sid(3), DECISION, &brief)).await;
    let listed = async || {
        let request = authorized("alice", ListSessionsRequest::default());
        let sessions = body(edge.runtime.clone().list_sessions(request).await).expect("a page").sessions;
        sessions.into_iter().find(|session| session.session_id == sid(3)).expect("listed").state
    };
    let waited = async {
        // A listing is no touch, so only the timer can have done it.
        while listed().await != EXPIRED {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.expect("the timer expires it");
    edge.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_2_of_a_hundred_commitments_one_wins() {
    let edge = Edge::start().await;
    edge.register_policy(policy("any", "*", r#"{"commitment":{"authority":"any_participant"}}"#)).await;
    let participants: Vec<_> = (0..100).map(|number| format!("p{number}")).collect();
    let payload = SessionStartPayload { participants, policy_version: "any".into(), ..start_payload() };
    edge.accept_as("alice", std_start(&sid(1), DECISION, &payload)).await;
    edge.accept_as("p0", propose(&sid(1), "p")).await;
    let racers: Vec<_> = (0..100)
        .map(|number| {
            let mut client = edge.runtime.clone();
            let payload = CommitmentPayload { commitment_id: format!("c{number}"), ..commitment_payload() };
            let envelope = decision(&sid(1), &format!("c{number}"), "Commitment", &payload);
            let request = authorized(&format!("p{number}"), SendRequest { envelope: Some(envelope), signature: None });
            tokio::spawn(async move { client.send(request).await.expect("an Ack").into_inner().ack.expect("an Ack") })
        })
        .collect();
    let mut verdicts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for racer in racers {
        let ack = racer.await.expect("no panic");
        assert_eq!(ack.session_state, RESOLVED, "{ack:?}");
        verdicts.entry(ack_code(&ack).to_owned()).or_default().push(ack.message_id);
    }
    let winners = verdicts.remove("").expect("a winner");
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(verdicts.remove("SESSION_NOT_OPEN").map(|losers| losers.len()), Some(99));
    assert!(verdicts.is_empty(), "{verdicts:?}");

    let frames = tokio_stream::iter([subscribe(&sid(1), 0)]);
    let mut stream = body(edge.runtime.clone().stream_session(authorized("alice", frames)).await).expect("a stream");
    let mut history = Vec::new();
    while let Some(delivery) = stream.message().await.expect("ends OK") {
        history.push(delivered(delivery).message_id);
    }
    assert_eq!(history, [format!("{}-start", sid(1)), "p".into(), winners[0].clone()]);
    let request = authorized("alice", GetDecisionReceiptRequest { session_id: sid(1) });
    let receipt = body(edge.runtime.clone().get_decision_receipt(request).await).expect("a receipt").receipt_json;
    let receipt: serde_json::Value = serde_json::from_str(&receipt).expect("JSON");
    assert_eq!(receipt["commitment"]["commitment_id"], winners[0], "the receipt tells of the winner");
    edge.shut_down().await;
}

#[tokio::test]
async fn rec_2_everything_is_there_again_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    edge.decide(&sid(1)).await;
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    edge.resolve(&sid(2)).await;
    let before = [
        edge.session_as("bob", &sid(1)).await.expect("a session"),
        edge.session_as("bob", &sid(2)).await.expect("a session"),
    ];
    edge.shut_down().await;

    let edge = Edge::on(store(), |_| ()).await;
    for (number, session) in [1, 2].into_iter().zip(before) {
        assert_eq!(edge.session_as("bob", &sid(number)).await.expect("a session"), session);
    }
    edge.duplicate_as("alice", std_start(&sid(1), DECISION, &start_payload())).await;
    edge.duplicate_as("bob", propose(&sid(1), "p")).await;
    edge.refuse_as("bob", propose(&sid(1), "q"), "SESSION_NOT_OPEN").await;
    edge.resume_as("alice", &sid(1)).await.expect("resumed");
    assert_eq!(edge.accept_as("alice", commit(&sid(1), "c")).await.session_state, RESOLVED);
    edge.duplicate_as("alice", commit(&sid(2), "c")).await;
    refused(edge.session_as("mallory", &sid(2)).await, Code::PermissionDenied, "FORBIDDEN");
    edge.shut_down().await;
}
