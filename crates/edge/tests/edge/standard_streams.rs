//! StreamSession under the standard profile.

use macp_wire::v1::stream_session_response::Response as Delivery;
use macp_wire::v1::*;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::common::*;
use crate::standard_common::*;

/// Both directions of one stream.
struct Stream {
    frames: mpsc::Sender<StreamSessionRequest>,
    deliveries: Streaming<StreamSessionResponse>,
}

impl Stream {
    async fn open(edge: &Edge, identity: &str) -> Stream {
        let (frames, receiver) = mpsc::channel(1024);
        let request = authorized(identity, ReceiverStream::new(receiver));
        let deliveries = body(edge.runtime.clone().stream_session(request).await).expect("a stream");
        Stream { frames, deliveries }
    }

    async fn subscribed(edge: &Edge, identity: &str, session_id: &str, after: u64) -> Stream {
        let stream = Stream::open(edge, identity).await;
        stream.send(subscribe(session_id, after)).await;
        stream
    }

    async fn send(&self, frame: StreamSessionRequest) {
        self.frames.send(frame).await.expect("the stream is open");
    }

    async fn publish(&self, envelope: Envelope) {
        self.send(frame(envelope)).await;
    }

    async fn envelope(&mut self) -> Envelope {
        delivered(next(&mut self.deliveries).await)
    }

    async fn envelopes(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.envelope().await.message_id);
        }
        ids
    }

    async fn error(&mut self) -> MacpError {
        match next(&mut self.deliveries).await.response {
            Some(Delivery::Error(error)) => error,
            other => panic!("{other:?} is no error"),
        }
    }

    /// Half-closes; the ids of what still came, once the stream has ended well.
    async fn close(self) -> Vec<String> {
        let Stream { frames, mut deliveries } = self;
        drop(frames);
        let mut ids = Vec::new();
        while let Some(delivery) = tokio::time::timeout(PATIENCE, deliveries.next()).await.expect("in time") {
            ids.push(delivered(delivery.expect("the stream ends OK")).message_id);
        }
        ids
    }

    /// The status that ends the stream, after whatever was delivered before it.
    async fn status(&mut self) -> Status {
        loop {
            match tokio::time::timeout(PATIENCE, self.deliveries.next()).await.expect("in time") {
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => panic!("the stream ended OK"),
            }
        }
    }

    async fn fails(mut self, grpc: Code, expected: &str) {
        let status = self.status().await;
        assert_eq!((status.code(), code(&status)), (grpc, expected), "{status:?}");
        assert!(!status.message().is_empty());
    }
}

#[tokio::test]
async fn std_strm_1_a_stream_needs_a_credential_that_is_good() {
    let edge = Edge::start().await;
    let frames = tokio_stream::iter([subscribe(&sid(1), 0)]);
    let answer = edge.runtime.clone().stream_session(ill_authorized(frames)).await;
    refused(answer.map(drop), Code::Unauthenticated, "UNAUTHENTICATED");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_5_what_is_accepted_comes_back_and_nothing_is_acknowledged() {
    let edge = Edge::start().await;
    let mut alice = Stream::open(&edge, "alice").await;
    let start = std_start(&sid(1), DECISION, &start_payload());
    alice.publish(start.clone()).await;
    assert_eq!(alice.envelope().await, Envelope { sender: "alice".into(), ..start.clone() }, "STD-STRM-9");
    let first = Envelope { timestamp_unix_ms: 12_345, ..propose(&sid(1), "p1") };
    alice.publish(first.clone()).await;
    assert_eq!(alice.envelope().await, Envelope { sender: "alice".into(), ..first.clone() });

    // STD-STRM-6: whoever joins by sending gets no history; both get everything from then on, in one order.
    let mut bob = Stream::open(&edge, "bob").await;
    bob.publish(propose(&sid(1), "p2")).await;
    assert_eq!((bob.envelope().await.message_id, alice.envelope().await.message_id), ("p2".into(), "p2".into()));
    // Duplicates produce nothing, of a start too.
    bob.publish(propose(&sid(1), "p2")).await;
    bob.publish(start).await;
    bob.publish(cast(&sid(1), "v", "p1", "APPROVE")).await;
    alice.publish(first).await;
    assert_eq!((bob.envelope().await.sender, alice.envelope().await.message_id), ("bob".into(), "v".into()));
    // STD-STRM-11: the stream outlives the session.
    alice.publish(commit(&sid(1), "c")).await;
    assert_eq!((alice.envelope().await.message_id, bob.envelope().await.message_id), ("c".into(), "c".into()));
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, RESOLVED);
    assert!(alice.close().await.is_empty());
    assert!(bob.close().await.is_empty());
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_3_most_refusals_are_told_inline_and_the_stream_goes_on() {
    let edge = Edge::start().await;
    let mut unbound = Stream::open(&edge, "alice").await;
    unbound.publish(propose(&sid(9), "p")).await;
    let error = unbound.error().await;
    assert_eq!((error.code.as_str(), error.message_id.as_str()), ("SESSION_NOT_FOUND", "p"));
    assert_eq!(error.session_id, "", "nothing is bound");
    unbound.publish(std_start(&sid(9), DECISION, &start_payload())).await;
    assert_eq!(unbound.envelope().await.message_type, "SessionStart", "the stream goes on");

    let payload = SessionStartPayload { policy_version: "policy.std.majority".into(), ..start_payload() };
    edge.accept_as("alice", std_start(&sid(1), DECISION, &payload)).await;
    let mut bob = Stream::subscribed(&edge, "bob", &sid(1), 1).await;
    let malformed = Envelope { payload: vec![0xff].into(), ..propose(&sid(1), "m") };
    for (envelope, code) in [
        (Envelope { macp_version: "2.0".into(), ..propose(&sid(1), "m") }, "UNSUPPORTED_PROTOCOL_VERSION"),
        (malformed, "INVALID_ENVELOPE"),
        (commit(&sid(1), "m"), "FORBIDDEN"),
        (decision(&sid(1), "m", "Gossip", &()), "FORBIDDEN"),
        (decision(&sid(1), "m", "Signal", &()), "INVALID_ENVELOPE"),
    ] {
        bob.publish(envelope).await;
        let error = bob.error().await;
        assert_eq!((error.code.as_str(), error.session_id, error.message_id.as_str()), (code, sid(1), "m"));
        assert!(!error.message.is_empty());
    }
    bob.publish(propose(&sid(1), "m")).await;
    assert_eq!(bob.envelope().await.message_id, "m", "the refused id was free");

    let mut alice = Stream::open(&edge, "alice").await;
    alice.publish(commit(&sid(1), "c")).await;
    let error = alice.error().await;
    assert_eq!((error.code.as_str(), error.message_id.as_str()), ("POLICY_DENIED", "c"));
    let details: serde_json::Value = serde_json::from_slice(&error.details).expect("JSON");
    assert_eq!(
        details["denials"].as_array().expect("a list").len(),
        details["reasons"].as_array().expect("a list").len()
    );
    let unknown = SessionStartPayload { policy_version: "policy.unheard-of".into(), ..start_payload() };
    let mut carol = Stream::open(&edge, "carol").await;
    carol.publish(std_start(&sid(2), DECISION, &unknown)).await;
    assert_eq!(carol.error().await.code, "UNKNOWN_POLICY_VERSION");
    carol.publish(std_start(&sid(2), DECISION, &start_payload())).await;
    assert_eq!(carol.envelope().await.message_type, "SessionStart");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_3_some_refusals_end_the_stream() {
    let edge = Edge::start().await;
    edge.register_policy(policy("p.tasks", "macp.mode.task.v1", "{}")).await;
    edge.decide(&sid(1)).await;
    edge.resolve(&sid(2)).await;
    let start = |id: &str, payload: &SessionStartPayload| std_start(id, DECISION, payload);
    let tasks = SessionStartPayload { policy_version: "p.tasks".into(), ..start_payload() };
    let second = Envelope { message_id: "second".into(), ..start(&sid(1), &start_payload()) };
    let oversized = Envelope { payload: vec![0; 1_048_577].into(), ..propose(&sid(1), "p") };
    for (envelope, grpc, code) in [
        (start("s1", &start_payload()), Code::InvalidArgument, "INVALID_SESSION_ID"),
        (start(&sid(3), &tasks), Code::InvalidArgument, "INVALID_POLICY_DEFINITION"),
        (second, Code::AlreadyExists, "SESSION_ALREADY_EXISTS"),
        (oversized, Code::ResourceExhausted, "PAYLOAD_TOO_LARGE"),
        (Envelope { sender: "bob".into(), ..propose(&sid(1), "p") }, Code::Unauthenticated, "UNAUTHENTICATED"),
        (
            Envelope { mode: "macp.mode.task.v1".into(), ..propose(&sid(1), "p") },
            Code::InvalidArgument,
            "INVALID_ENVELOPE",
        ),
        (propose(&sid(2), "late"), Code::FailedPrecondition, "SESSION_NOT_OPEN"),
        // Signals and ambient Progress name no session.
        (
            Envelope { sender: String::new(), ..envelope("", "s", "Signal", "") },
            Code::InvalidArgument,
            "INVALID_ENVELOPE",
        ),
        (
            Envelope { sender: String::new(), ..envelope("", "s", "Progress", "") },
            Code::InvalidArgument,
            "INVALID_ENVELOPE",
        ),
    ] {
        let stream = Stream::open(&edge, "alice").await;
        stream.publish(envelope).await;
        stream.fails(grpc, code).await;
    }
    let accepted = edge.session_as("alice", &sid(1)).await.expect("a session").participant_activity;
    assert!(accepted.is_empty(), "nothing of it was accepted");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_3_a_rate_that_is_used_up_ends_the_stream() {
    let edge = Edge::with(|settings| settings.message_limit_per_minute = Some(3)).await;
    edge.decide(&sid(1)).await;
    let mut stream = Stream::open(&edge, "bob").await;
    for id in ["p1", "p2", "p3", "p4"] {
        stream.publish(propose(&sid(1), id)).await;
    }
    assert_eq!(stream.status().await.code(), Code::ResourceExhausted);
    let counts = edge.session_as("bob", &sid(1)).await.expect("a session").participant_activity;
    assert_eq!(counts[0].message_count, 3);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_2_a_frame_is_one_thing_and_a_stream_is_for_one_session() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.decide(&sid(2)).await;
    let both = || StreamSessionRequest { envelope: Some(propose(&sid(1), "x")), ..subscribe(&sid(1), 0) };
    let firsts = [subscribe(&sid(1), 0), frame(propose(&sid(1), "p"))];
    for first in firsts {
        for second in [
            StreamSessionRequest::default(),
            StreamSessionRequest { after_sequence: 1, ..Default::default() },
            both(),
            subscribe(&sid(2), 0),
            subscribe("unknown", 0),
            frame(propose(&sid(2), "x")),
            frame(std_start(&sid(3), DECISION, &start_payload())),
        ] {
            let stream = Stream::open(&edge, "alice").await;
            stream.send(first.clone()).await;
            stream.send(second).await;
            stream.fails(Code::InvalidArgument, "INVALID_ENVELOPE").await;
        }
    }
    for only in [StreamSessionRequest::default(), both()] {
        let stream = Stream::open(&edge, "alice").await;
        stream.send(only).await;
        stream.fails(Code::InvalidArgument, "INVALID_ENVELOPE").await;
    }
    assert!(Stream::open(&edge, "alice").await.close().await.is_empty(), "nothing asked, nothing wrong");
    refused(edge.session_as("alice", &sid(3)).await, Code::NotFound, "SESSION_NOT_FOUND");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_1_without_a_credential_a_standard_session_is_not_to_be_had() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let named = Envelope { sender: "bob".into(), ..propose(&sid(1), "p1") };
    for first in [subscribe(&sid(1), 0), frame(named)] {
        let (frames, receiver) = mpsc::channel(1);
        let deliveries = body(edge.runtime.clone().stream_session(ReceiverStream::new(receiver)).await);
        let mut stream = Stream { frames, deliveries: deliveries.expect("a stream") };
        stream.send(first).await;
        let status = stream.status().await;
        assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
        assert!(status.message().contains("needs a credential"), "{}", status.message());
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_7_a_subscriber_gets_history_and_then_what_happens() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.accept_as("bob", propose(&sid(1), "p1")).await;
    edge.accept_as("bob", propose(&sid(1), "p2")).await;
    let start_id = format!("{}-start", sid(1));

    let mut stream = Stream::subscribed(&edge, "alice", &sid(1), 0).await;
    assert_eq!(stream.envelopes(3).await, [start_id.as_str(), "p1", "p2"]);
    edge.accept_as("bob", propose(&sid(1), "p3")).await;
    assert_eq!(stream.envelopes(1).await, ["p3"]);
    // It may publish too.
    stream.publish(propose(&sid(1), "p4")).await;
    assert_eq!(stream.envelopes(1).await, ["p4"]);
    // A second subscribe replays from its own place.
    stream.send(subscribe(&sid(1), 3)).await;
    assert_eq!(stream.envelopes(2).await, ["p3", "p4"]);
    stream.send(subscribe(&sid(1), 5)).await;
    // On the same stream, because only there one comes after the other.
    stream.publish(propose(&sid(1), "p5")).await;
    assert_eq!(stream.envelopes(1).await, ["p5"], "each live envelope comes once");
    assert!(stream.close().await.is_empty());

    for (after, expected) in [(0, 6), (1, 5), (5, 1), (6, 0), (7, 0), (u64::MAX, 0)] {
        let stream = Stream::subscribed(&edge, "bob", &sid(1), after).await;
        assert_eq!(stream.close().await.len(), expected, "after {after}");
    }
    let mut live = Stream::subscribed(&edge, "bob", &sid(1), 1_000).await;
    // It has joined when its own envelope comes back.
    live.publish(propose(&sid(1), "p6")).await;
    assert_eq!(live.envelopes(1).await, ["p6"], "beyond the end means live");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_7_unknown_ends_the_stream_and_forbidden_does_not() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    for id in ["unknown", &sid(9), "../x", &"x".repeat(10_000)] {
        let stream = Stream::subscribed(&edge, "mallory", id, 0).await;
        stream.fails(Code::NotFound, "SESSION_NOT_FOUND").await;
    }
    let mut mallory = Stream::subscribed(&edge, "mallory", &sid(1), 0).await;
    for _ in 0..2 {
        let error = mallory.error().await;
        assert_eq!((error.code.as_str(), error.session_id.as_str(), error.message_id.as_str()), ("FORBIDDEN", "", ""));
        mallory.send(subscribe(&sid(1), 0)).await;
    }
    mallory.error().await;
    // Bound to nothing, it may still do what it may.
    mallory.publish(std_start(&sid(2), DECISION, &start_payload())).await;
    assert_eq!(mallory.envelope().await.sender, "mallory");
    assert!(mallory.close().await.is_empty());
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_7_counting_what_was_received_resumes_without_loss_or_repeat_across_pauses() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let mut expected = vec![format!("{}-start", sid(1))];
    for round in 0..6 {
        for number in 0..2 {
            let id = format!("p{round}-{number}");
            edge.accept_as("bob", propose(&sid(1), &id)).await;
            expected.push(id);
        }
        // Bookkeeping takes no place in the count (STD-CORE-37).
        edge.suspend_as("alice", &sid(1)).await.expect("suspended");
        edge.resume_as("alice", &sid(1)).await.expect("resumed");
    }
    for received in 0..=expected.len() {
        let stream = Stream::subscribed(&edge, "alice", &sid(1), received as u64).await;
        assert_eq!(stream.close().await, expected[received..], "after {received}");
    }
    // Live, across a pause, and resumed again.
    let mut stream = Stream::subscribed(&edge, "alice", &sid(1), expected.len() as u64).await;
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    edge.resume_as("alice", &sid(1)).await.expect("resumed");
    edge.accept_as("bob", propose(&sid(1), "last")).await;
    assert_eq!(stream.envelopes(1).await, ["last"]);
    assert!(stream.close().await.is_empty());
    let stream = Stream::subscribed(&edge, "alice", &sid(1), expected.len() as u64).await;
    assert_eq!(stream.close().await, ["last"]);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_8_subscribers_that_come_and_go_under_load_lose_and_repeat_nothing() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    // Each waits for its own now and then, as nobody should run ahead of the buffer of a subscriber.
    let write = async |who: &str| {
        let (mut stream, mut own) = (Stream::open(&edge, who).await, Vec::new());
        for number in 0..150 {
            stream.publish(propose(&sid(1), &format!("{who}-{number}"))).await;
            while number % 25 == 24 && own.len() <= number {
                let echo = stream.envelope().await;
                own.extend((echo.sender == who).then_some(echo.message_id));
            }
        }
        own
    };
    let read = async {
        let mut seen = Vec::new();
        while seen.len() < 301 {
            let mut stream = Stream::subscribed(&edge, "bob", &sid(1), seen.len() as u64).await;
            let count = (301 - seen.len()).min(37);
            seen.extend(stream.envelopes(count).await);
        }
        seen
    };
    let (alice, bob, seen) = tokio::join!(write("alice"), write("bob"), read);
    for (own, who) in [(alice, "alice"), (bob, "bob")] {
        let expected: Vec<_> = (0..150).map(|number| format!("{who}-{number}")).collect();
        assert_eq!(own, expected, "all of its own came back, in order");
        let prefix = format!("{who}-");
        let order: Vec<_> = seen.iter().filter(|id| id.starts_with(&prefix)).cloned().collect();
        assert_eq!(order, expected, "and to whoever subscribed");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_11_a_half_closed_stream_still_gets_all_of_its_own() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let expected: Vec<_> = (0..100).map(|number| format!("p{number}")).collect();
    let stream = Stream::open(&edge, "bob").await;
    for id in &expected {
        stream.publish(propose(&sid(1), id)).await;
    }
    assert_eq!(stream.close().await, expected);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_strm_10_who_reads_too_slowly_is_told_so() {
    let edge = Edge::with(|settings| settings.engine.subscriber_buffer = 4).await;
    edge.decide(&sid(1)).await;
    let mut stream = Stream::subscribed(&edge, "alice", &sid(1), 0).await;
    stream.envelope().await;
    let payload = |number: u32| macp_wire::modes::decision::v1::ProposalPayload {
        proposal_id: format!("p{number}"),
        option: "x".into(),
        supporting_data: vec![0; 200_000].into(),
        ..Default::default()
    };
    for number in 0..120 {
        edge.accept_as("bob", decision(&sid(1), &format!("p{number}"), "Proposal", &payload(number))).await;
    }
    let status = stream.status().await;
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "STREAM_LAGGED"));
    edge.shut_down().await;
}

#[tokio::test]
async fn streams_of_both_profiles_live_side_by_side() {
    let edge = Edge::start().await;
    let mut standard = Stream::open(&edge, "alice").await;
    standard.publish(std_start(&sid(1), DECISION, &start_payload())).await;
    assert_eq!(standard.envelope().await.message_type, "SessionStart");
    // With a credential too, a classic start makes a classic stream, which may carry several sessions.
    let mut classic = Stream::open(&edge, "alice").await;
    for id in ["s", "t"] {
        classic.publish(Envelope { mode: "decision".into(), sender: String::new(), ..start(id) }).await;
        let answer = classic.envelope().await;
        assert_eq!((answer.message_type.as_str(), answer.sender.as_str()), ("Ack", "_runtime"));
    }
    // The session that is named decides, not the caller.
    let mut subscriber = Stream::subscribed(&edge, "alice", "s", 0).await;
    assert_eq!(subscriber.envelope().await.message_id, "s-start");
    let frames = tokio_stream::iter([subscribe("t", 0)]);
    let mut anonymous = body(edge.runtime.clone().stream_session(frames).await).expect("a stream");
    assert_eq!(delivered(next(&mut anonymous).await).message_id, "t-start");
    assert!(end(&mut anonymous).await.is_none());
    edge.shut_down().await;
}

#[tokio::test]
async fn a_drain_ends_streams_with_a_status() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let mut stream = Stream::subscribed(&edge, "alice", &sid(1), 0).await;
    stream.envelope().await;
    let Edge { server, .. } = edge;
    server.shut_down().await.expect("a clean shutdown");
    assert_eq!(stream.status().await.code(), Code::Unavailable);
}

/// Who may not read a session hears no more of it, but must name its mode like everybody else.
#[tokio::test]
async fn std_strm_4_the_mode_must_be_the_sessions_also_for_those_who_may_not_read_it() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let stream = Stream::open(&edge, "carol").await;
    stream.publish(Envelope { mode: "macp.mode.task.v1".into(), ..propose(&sid(1), "p") }).await;
    stream.fails(Code::InvalidArgument, "INVALID_ENVELOPE").await;
    edge.shut_down().await;
}

/// Progress is passed on to watchers: it is not part of the session, and nothing comes back.
#[tokio::test]
async fn std_strm_5_progress_does_not_come_back_on_a_stream() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let progress = ProgressPayload { progress_token: "t".into(), progress: 0.5, ..Default::default() };
    let mut stream = Stream::open(&edge, "carol").await;
    stream.publish(message(&sid(1), DECISION, "progress", "Progress", &progress)).await;
    stream.publish(propose(&sid(1), "p")).await;
    assert_eq!(stream.error().await.message_id, "p", "and nothing before it");
    edge.shut_down().await;
}

/// What a stream refuses by itself is counted and traced like every other refusal.
#[tokio::test]
async fn refusals_of_a_stream_are_counted_and_traced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let edge = Edge::with(|settings| settings.audit = Some(macp_edge::AuditSettings::new(&path))).await;
    edge.decide(&sid(1)).await;
    let mut stream = Stream::open(&edge, "alice").await;
    stream.publish(Envelope { message_id: String::new(), ..propose(&sid(1), "p") }).await;
    assert_eq!(stream.error().await.code, "INVALID_ENVELOPE");
    stream.publish(Envelope { sender: "bob".into(), ..propose(&sid(1), "p") }).await;
    stream.fails(Code::Unauthenticated, "UNAUTHENTICATED").await;
    let (_, page) = crate::http::get(edge.address(), "/metrics").await;
    for code in ["INVALID_ENVELOPE", "UNAUTHENTICATED"] {
        let line = format!("macp_messages_rejected_total{{code=\"{code}\"}} 1");
        assert!(page.lines().any(|found| found == line), "{line} is not in:\n{page}");
    }
    edge.shut_down().await;
    let report = macp_archive::replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!((report.events, report.operational, report.different), (3, 2, 0), "{report:?}");
}
