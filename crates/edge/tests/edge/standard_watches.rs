//! The watches, with sessions and signals under the standard profile.

use macp_wire::v1::session_lifecycle_event::EventType;
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Streaming};

use crate::common::*;
use crate::standard_common::*;

async fn watch(edge: &Edge) -> Streaming<WatchSessionsResponse> {
    body(edge.runtime.clone().watch_sessions(authorized("alice", WatchSessionsRequest {})).await).expect("a watch")
}

async fn event(stream: &mut Streaming<WatchSessionsResponse>) -> (EventType, SessionMetadata, i64) {
    let event = next(stream).await.event.expect("an event");
    (event.event_type(), event.session.clone().expect("a session"), event.observed_at_unix_ms)
}

#[tokio::test]
async fn watch_sessions_begins_with_what_is_there() {
    let edge = Edge::start().await;
    edge.decide(&sid(2)).await;
    edge.decide(&sid(1)).await;
    edge.suspend_as("alice", &sid(2)).await.expect("suspended");
    edge.accept(start("classic")).await;
    let mut watch = watch(&edge).await;
    for (id, state) in [(sid(1), OPEN), (sid(2), SUSPENDED), ("classic".to_owned(), OPEN)] {
        let (kind, session, observed_at) = event(&mut watch).await;
        assert_eq!((kind, &session.session_id, session.state), (EventType::Created, &id, state));
        assert_eq!(observed_at, session.started_at_unix_ms);
    }
    edge.decide(&sid(3)).await;
    let (kind, session, _) = event(&mut watch).await;
    assert_eq!((kind, session.session_id), (EventType::Created, sid(3)), "then what happens");
    edge.shut_down().await;
}

#[tokio::test]
async fn watch_sessions_tells_every_turn_of_a_sessions_life() {
    let edge = Edge::start().await;
    edge.decide(&sid(9)).await;
    let mut watch = watch(&edge).await;
    // Told by the sync, which has read all there was: what begins from here on comes live, as it was at each turn.
    assert_eq!(event(&mut watch).await.1.session_id, sid(9));
    let before = now_ms();
    edge.decide(&sid(1)).await;
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    edge.resume_as("alice", &sid(1)).await.expect("resumed");
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    edge.accept_as("alice", commit(&sid(1), "c")).await;
    for (expected, state) in [
        (EventType::Created, OPEN),
        (EventType::Suspended, SUSPENDED),
        (EventType::Resumed, OPEN),
        (EventType::Resolved, RESOLVED),
    ] {
        let (kind, session, observed_at) = event(&mut watch).await;
        assert_eq!((kind, session.session_id, session.state), (expected, sid(1), state));
        assert!(observed_at >= before && observed_at <= now_ms());
    }
    edge.decide(&sid(2)).await;
    edge.cancel_as("alice", &sid(2)).await.expect("cancelled");
    edge.cancel_as("alice", &sid(2)).await.expect("cancelled before");
    let payload = SessionStartPayload { ttl_ms: 50, ..start_payload() };
    edge.accept_as("alice", std_start(&sid(3), DECISION, &payload)).await;
    for (expected, number, state) in [
        (EventType::Created, 2, OPEN),
        (EventType::Cancelled, 2, CANCELLED),
        (EventType::Created, 3, OPEN),
        (EventType::Expired, 3, EXPIRED),
    ] {
        let (kind, session, _) = event(&mut watch).await;
        assert_eq!((kind, session.session_id, session.state), (expected, sid(number), state));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_14_no_session_is_missed_or_told_twice_while_many_start() {
    let edge = Edge::start().await;
    let total = 300;
    let starting = {
        let runtime = edge.runtime.clone();
        tokio::spawn(async move {
            for number in 0..total {
                let envelope = std_start(&sid(number), DECISION, &start_payload());
                let request = authorized("alice", SendRequest { envelope: Some(envelope), signature: None });
                assert!(runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack").ok);
                if number % 3 == 0 {
                    let request = SuspendSessionRequest { session_id: sid(number), ..Default::default() };
                    runtime.clone().suspend_session(authorized("alice", request)).await.expect("suspended");
                }
            }
        })
    };
    while edge.session_as("alice", &sid(total / 4)).await.is_err() {
        tokio::task::yield_now().await;
    }
    let mut watch = watch(&edge).await;
    let mut seen = Vec::new();
    while seen.len() < total as usize {
        let (kind, session, _) = event(&mut watch).await;
        match kind {
            EventType::Created => seen.push(session.session_id),
            _ => assert!(kind == EventType::Suspended && seen.contains(&session.session_id), "{kind:?} {session:?}"),
        }
    }
    starting.await.expect("all started");
    edge.cancel_as("alice", &sid(1)).await.expect("cancelled");
    let ended = loop {
        let (kind, session, _) = event(&mut watch).await;
        if kind != EventType::Suspended {
            break (kind, session.session_id);
        }
    };
    assert_eq!(ended, (EventType::Cancelled, sid(1)), "nothing is left over");
    seen.sort_unstable();
    assert_eq!(seen, (0..total).map(sid).collect::<Vec<_>>());
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_15_watch_signals_passes_on_signals_and_progress_with_their_bound_sender() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let request = authorized("carol", WatchSignalsRequest {});
    let mut watch = body(edge.runtime.clone().watch_signals(request).await).expect("a watch");
    let payload = SignalPayload { signal_type: "ping".into(), confidence: 0.5, ..Default::default() };
    let signal = Envelope { sender: String::new(), ..envelope("", "s1", "Signal", payload.encode_to_vec()) };
    edge.accept_as("alice", signal.clone()).await;
    edge.accept_as("alice", signal.clone()).await;
    edge.refuse_as("alice", Envelope { session_id: sid(1), ..signal.clone() }, "INVALID_ENVELOPE").await;
    let progress = ProgressPayload { progress_token: "t".into(), progress: 0.5, ..Default::default() };
    let progress = message(&sid(1), DECISION, "p1", "Progress", &progress);
    edge.accept_as("bob", progress.clone()).await;
    for expected in [
        Envelope { sender: "alice".into(), ..signal.clone() },
        Envelope { sender: "alice".into(), ..signal },
        Envelope { sender: "bob".into(), ..progress },
    ] {
        let response = next(&mut watch).await;
        assert_eq!(response.envelope, Some(expected));
        assert!(!response.sender_authenticated, "local development believes and does not authenticate");
    }
    for status in [
        edge.runtime.clone().watch_signals(ill_authorized(WatchSignalsRequest {})).await.map(drop),
        edge.runtime.clone().watch_sessions(ill_authorized(WatchSessionsRequest {})).await.map(drop),
        edge.runtime.clone().watch_policies(ill_authorized(WatchPoliciesRequest {})).await.map(drop),
    ] {
        refused(status, Code::Unauthenticated, "UNAUTHENTICATED");
    }
    edge.shut_down().await;
}
