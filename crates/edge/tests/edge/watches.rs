//! The watches, and what time does.

use macp_edge::Reloadable;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::session_lifecycle_event::EventType;
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Streaming};

use crate::common::*;

async fn watch_sessions(edge: &Edge) -> Streaming<WatchSessionsResponse> {
    edge.runtime.clone().watch_sessions(WatchSessionsRequest {}).await.expect("a watch").into_inner()
}

async fn watch_signals(edge: &Edge) -> Streaming<WatchSignalsResponse> {
    edge.runtime.clone().watch_signals(WatchSignalsRequest {}).await.expect("a watch").into_inner()
}

async fn lifecycle(stream: &mut Streaming<WatchSessionsResponse>) -> (EventType, String, i32, i64) {
    let event = next(stream).await.event.expect("an event");
    let session = event.session.clone().expect("a session");
    (event.event_type(), session.session_id, session.state, event.observed_at_unix_ms)
}

#[tokio::test]
async fn rpc_8_watch_roots_tells_at_once_and_at_every_change() {
    let edge = Edge::start().await;
    let before = now_ms();
    let mut watch = edge.runtime.clone().watch_roots(WatchRootsRequest {}).await.expect("a watch").into_inner();
    assert!(next(&mut watch).await.change.expect("a change").observed_at_unix_ms >= before);

    let roots = |names: &[&str]| Reloadable {
        roots: names.iter().map(|name| Root { uri: format!("file:///{name}"), name: (*name).into() }).collect(),
        ..Reloadable::default()
    };
    edge.server.reload(roots(&["a"]));
    edge.server.reload(roots(&["a"]));
    edge.server.reload(roots(&["a", "b"]));
    for _ in 0..2 {
        assert!(next(&mut watch).await.change.is_some());
    }
    let listed = edge.runtime.clone().list_roots(ListRootsRequest {}).await.expect("roots").into_inner().roots;
    assert_eq!(listed, roots(&["a", "b"]).roots);
    edge.server.reload(roots(&["a", "b"]));
    edge.server.shut_down().await.expect("a clean shutdown");
    let status = end(&mut watch).await.expect("a status");
    assert_eq!(status.code(), Code::Unavailable, "the same roots are no change");
}

#[tokio::test]
async fn rpc_8_watch_mode_registry_tells_once_and_stays_open() {
    let edge = Edge::start().await;
    let request = WatchModeRegistryRequest {};
    let mut watch = edge.runtime.clone().watch_mode_registry(request).await.expect("a watch").into_inner();
    let change = next(&mut watch).await.change.expect("a change");
    assert_eq!(change.registry, "modes");
    assert!(change.observed_at_unix_ms > 0);
    edge.server.shut_down().await.expect("a clean shutdown");
    assert_eq!(end(&mut watch).await.expect("a status").code(), Code::Unavailable);
}

#[tokio::test]
async fn adm_6_signals_reach_watchers_and_touch_no_session() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    let mut watch = watch_signals(&edge).await;
    let bytes = Envelope { sender: String::new(), ..envelope("s", "sig1", "Signal", vec![0xff, 0x00]) };
    let ack = edge.accept(bytes.clone()).await;
    assert_eq!(ack.session_state, OPEN);
    edge.refuse(envelope("", "", "Signal", ""), "INVALID_ENVELOPE").await;
    edge.accept(envelope("", "sig1", "Signal", "")).await;
    let progress = ProgressPayload { progress_token: "t".into(), progress: 0.5, ..Default::default() };
    let progress = Envelope { mode: "decision".into(), ..envelope("s", "pr", "Progress", progress.encode_to_vec()) };
    edge.accept(progress.clone()).await;
    let standard = SignalPayload { signal_type: "ping".into(), ..Default::default() };
    let standard = Envelope { sender: String::new(), ..envelope("", "sig2", "Signal", standard.encode_to_vec()) };
    assert!(edge.send_as("bob", standard).await.ok);
    let about_a_session = edge.send_as("bob", Envelope { sender: String::new(), ..bytes.clone() }).await;
    assert_eq!(about_a_session.error.expect("refused").code, "INVALID_ENVELOPE");

    let mut seen = Vec::new();
    for _ in 0..4 {
        let response = next(&mut watch).await;
        assert!(!response.sender_authenticated, "local development believes and does not authenticate");
        seen.push(response.envelope.expect("an envelope"));
    }
    assert_eq!(seen[0], bytes);
    assert_eq!((seen[1].message_id.as_str(), seen[2].clone()), ("sig1", progress));
    assert_eq!((seen[3].message_id.as_str(), seen[3].sender.as_str()), ("sig2", "bob"));

    let log = macp_wire::history::v1::GetSessionLogRequest { session_id: "s".into(), ..Default::default() };
    let log = edge.history.clone().get_session_log(log).await.expect("a log").into_inner();
    assert_eq!(log.entries.len(), 1, "no signal is history");
    edge.shut_down().await;
}

#[tokio::test]
async fn watch_sessions_tells_of_open_sessions_first_and_then_of_what_happens() {
    let edge = Edge::start().await;
    for id in ["b", "a", "ended"] {
        edge.accept(start(id)).await;
    }
    edge.accept(envelope("ended", "r", "Message", "resolve")).await;
    let mut watch = watch_sessions(&edge).await;
    for expected in ["a", "b"] {
        let (event, id, state, observed_at) = lifecycle(&mut watch).await;
        assert_eq!((event, id.as_str(), state), (EventType::Created, expected, OPEN));
        assert_eq!(observed_at, edge.session(expected).await.expect("a session").started_at_unix_ms);
    }
    edge.accept(start("c")).await;
    edge.accept(envelope("b", "r", "Message", "resolve")).await;
    let cancel = CancelSessionRequest { session_id: "a".into(), reason: String::new() };
    edge.runtime.clone().cancel_session(cancel).await.expect("cancelled");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (event, id, state, _) = lifecycle(&mut watch).await;
        seen.push((id, event, state));
    }
    // Sessions are independent, so their events may come in any order.
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("a".to_owned(), EventType::Expired, EXPIRED),
        ("b".to_owned(), EventType::Resolved, RESOLVED),
        ("c".to_owned(), EventType::Created, OPEN),
    ];
    assert_eq!(seen, expected);
    edge.shut_down().await;
}

#[tokio::test]
async fn watch_sessions_tells_of_every_session_exactly_once_while_they_are_being_created() {
    let edge = Edge::start().await;
    let client = edge.runtime.clone();
    let creating = tokio::spawn(async move {
        for index in 0..600 {
            assert!(send(&client, start(&format!("s{index:04}"))).await.ok);
        }
    });
    // Wait until some exist, so that both the sync and the live feed have something to tell.
    while edge.session("s0100").await.is_err() {
        tokio::task::yield_now().await;
    }
    let mut watch = watch_sessions(&edge).await;
    let mut seen = Vec::new();
    while seen.len() < 600 {
        let (event, id, ..) = lifecycle(&mut watch).await;
        assert_eq!(event, EventType::Created);
        seen.push(id);
    }
    creating.await.expect("all are created");
    seen.sort_unstable();
    let expected: Vec<_> = (0..600).map(|index| format!("s{index:04}")).collect();
    assert_eq!(seen, expected);
    edge.shut_down().await;
}

#[tokio::test]
async fn life_5_a_watcher_learns_of_an_expiry_nobody_touched() {
    let edge = Edge::start().await;
    let mut watch = watch_sessions(&edge).await;
    edge.accept(start_with("s", SessionStartPayload { ttl_ms: 1, ..Default::default() })).await;
    let (event, id, ..) = lifecycle(&mut watch).await;
    assert_eq!((event, id.as_str()), (EventType::Created, "s"));
    let (event, id, state, _) = lifecycle(&mut watch).await;
    assert_eq!((event, id.as_str(), state), (EventType::Expired, "s", EXPIRED));
    edge.shut_down().await;
}

#[tokio::test]
async fn life_4_a_start_from_the_past_is_accepted_and_expires_at_the_next_touch() {
    let edge = Edge::start().await;
    let past = Envelope { timestamp_unix_ms: 1_000, ..start("s") };
    let ack = edge.accept(past).await;
    assert_eq!(ack.session_state, OPEN);
    assert_eq!(edge.session("s").await.expect("a session").state, EXPIRED);
    let ack = edge.refuse(vote("s", "v"), "SESSION_NOT_OPEN").await;
    let text = ack.error.expect("an error").message;
    assert!(text.contains("61000") && text.contains("1000"), "{text}");
    edge.shut_down().await;
}

#[tokio::test]
async fn a_watcher_that_falls_behind_is_told_so() {
    let edge = Edge::with(|settings| settings.engine.watcher_buffer = 4).await;
    let mut watch = watch_signals(&edge).await;
    let mut sent = 0;
    let status = 'lagged: loop {
        for _ in 0..100 {
            edge.accept(envelope("", &format!("sig{sent}"), "Signal", vec![b'x'; 200_000])).await;
            sent += 1;
        }
        // The reader has been away while those were sent; what waits for it is bounded.
        for _ in 0..100 {
            match tokio::time::timeout(PATIENCE, watch.message()).await.expect("in time") {
                Ok(message) => assert!(message.is_some(), "not just an end"),
                Err(status) => break 'lagged status,
            }
        }
    };
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "STREAM_LAGGED"));
    edge.shut_down().await;
}
