//! Corners of the rules that are easily cut: ends that must stay ends, the order of a stream's checks, ids of any
//! length, and who may listen.

use std::time::Duration;

use macp_wire::v1::stream_session_response::Response as Delivery;
use macp_wire::v1::*;
use tokio_stream::StreamExt;
use tonic::{Code, Status, Streaming};

use crate::common::*;
use crate::standard_common::*;

#[tokio::test]
async fn std_core_29_a_session_suspended_beyond_its_cap_expires() {
    let edge = Edge::start().await;
    let payload = SessionStartPayload { max_suspend_ms: 40, ..start_payload() };
    edge.accept_as("alice", std_start(&sid(1), DECISION, &payload)).await;
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    tokio::time::sleep(Duration::from_millis(60)).await;
    let ack = edge.resume_as("alice", &sid(1)).await.expect("in band");
    assert_eq!((ack.ok, ack_code(&ack), ack.session_state), (false, "SESSION_NOT_OPEN", EXPIRED));
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, EXPIRED);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_30_a_session_cancelled_while_suspended_stays_cancelled() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    assert_eq!(edge.cancel_as("alice", &sid(1)).await.expect("cancelled").session_state, CANCELLED);
    let ack = edge.resume_as("alice", &sid(1)).await.expect("in band");
    assert_eq!((ack.ok, ack_code(&ack), ack.session_state), (false, "SESSION_NOT_OPEN", CANCELLED));
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, CANCELLED);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_28_the_1025th_resume_expires_the_session() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    for _ in 0..1024 {
        assert_eq!(edge.suspend_as("alice", &sid(1)).await.expect("suspended").session_state, SUSPENDED);
        assert_eq!(edge.resume_as("alice", &sid(1)).await.expect("resumed").session_state, OPEN);
    }
    assert_eq!(edge.suspend_as("alice", &sid(1)).await.expect("suspended").session_state, SUSPENDED);
    let ack = tokio::time::timeout(PATIENCE, edge.resume_as("alice", &sid(1))).await.expect("in time");
    let ack = ack.expect("in band");
    assert_eq!((ack.ok, ack_code(&ack), ack.session_state), (false, "SESSION_NOT_OPEN", EXPIRED));
    edge.shut_down().await;
}

/// What a stream gets for some frames: the ids delivered, `!CODE` for inline errors, and how it ended.
async fn exchange(edge: &Edge, identity: &str, frames: Vec<StreamSessionRequest>) -> (Vec<String>, Option<Status>) {
    // Frames come slowly enough that each is settled before the next.
    let frames = tokio_stream::iter(frames).then(|frame| async move {
        tokio::time::sleep(Duration::from_millis(150)).await;
        frame
    });
    let request = authorized(identity, frames);
    let mut stream: Streaming<_> = body(edge.runtime.clone().stream_session(request).await).expect("a stream");
    let mut heard = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("in time") {
            None => return (heard, None),
            Some(Err(status)) => return (heard, Some(status)),
            Some(Ok(StreamSessionResponse { response: Some(Delivery::Envelope(envelope)) })) => {
                heard.push(envelope.message_id);
            }
            Some(Ok(StreamSessionResponse { response: Some(Delivery::Error(error)) })) => {
                heard.push(format!("!{}", error.code));
            }
            Some(Ok(other)) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn std_strm_4_the_shape_of_an_envelope_comes_before_the_session_it_names() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.decide(&sid(2)).await;
    let p = || propose(&sid(1), "p");
    let version = |envelope: Envelope| Envelope { macp_version: "2.0".into(), ..envelope };
    for (number, (envelope, code)) in [
        (version(Envelope { mode: "macp.mode.task.v1".into(), ..p() }), "!UNSUPPORTED_PROTOCOL_VERSION"),
        (version(Envelope { session_id: sid(2), ..p() }), "!UNSUPPORTED_PROTOCOL_VERSION"),
        (version(Envelope { session_id: String::new(), ..p() }), "!UNSUPPORTED_PROTOCOL_VERSION"),
        (Envelope { message_id: String::new(), mode: "macp.mode.task.v1".into(), ..p() }, "!INVALID_ENVELOPE"),
    ]
    .into_iter()
    .enumerate()
    {
        let (heard, ended) = exchange(&edge, "alice", vec![subscribe(&sid(1), 1), frame(envelope)]).await;
        assert_eq!((heard, ended.map(|status| status.code())), (vec![code.to_owned()], None), "{number}");
    }
}

#[tokio::test]
async fn std_strm_4_the_sender_comes_before_the_mode() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let both = Envelope { sender: "bob".into(), mode: "macp.mode.task.v1".into(), ..propose(&sid(1), "p") };
    let (_, ended) = exchange(&edge, "alice", vec![frame(both)]).await;
    assert_eq!(code(&ended.expect("ended")), "UNAUTHENTICATED");
}

#[tokio::test]
async fn std_strm_4_a_duplicate_to_a_session_that_is_not_open_ends_the_stream() {
    let edge = Edge::start().await;
    edge.resolve(&sid(1)).await;
    let (heard, ended) = exchange(&edge, "alice", vec![frame(propose(&sid(1), "p"))]).await;
    let ended = ended.unwrap_or_else(|| panic!("it ended OK: {heard:?}"));
    assert_eq!((ended.code(), code(&ended)), (Code::FailedPrecondition, "SESSION_NOT_OPEN"));
}

#[tokio::test]
async fn a_start_that_names_another_mode_at_first_does_not_bind_the_stream_to_it() {
    let edge = Edge::start().await;
    let wrong = std_start(&sid(1), "ext.unheard.of", &start_payload());
    let right = std_start(&sid(1), DECISION, &start_payload());
    let frames = vec![frame(wrong), frame(right), frame(propose(&sid(1), "p"))];
    let (heard, ended) = exchange(&edge, "alice", frames).await;
    assert_eq!(heard, ["!MODE_NOT_SUPPORTED".to_owned(), format!("{}-start", sid(1)), "p".into()], "{ended:?}");
    assert!(ended.is_none());
}

#[tokio::test]
async fn std_rpc_4_an_outsider_does_not_hear_a_session_by_sending_to_it() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let frames = tokio_stream::iter([frame(propose(&sid(1), "x"))]).chain(tokio_stream::pending());
    let request = authorized("mallory", frames);
    let mut stream = body(edge.runtime.clone().stream_session(request).await).expect("a stream");
    let Some(Delivery::Error(error)) = next(&mut stream).await.response else { panic!("no error") };
    assert_eq!(error.code, "FORBIDDEN");
    edge.accept_as("bob", propose(&sid(1), "secret")).await;
    let overheard = tokio::time::timeout(Duration::from_millis(500), stream.next()).await;
    assert!(overheard.is_err(), "{overheard:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_2_cancelling_a_standard_session_without_a_credential_is_a_status() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let request = CancelSessionRequest { session_id: sid(1), reason: String::new() };
    refused(edge.runtime.clone().cancel_session(request).await, Code::Unauthenticated, "UNAUTHENTICATED");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_8_an_id_of_any_length_is_an_invalid_or_unknown_session_id() {
    let edge = Edge::start().await;
    let long = "a".repeat(300);
    edge.refuse_as("alice", std_start(&long, DECISION, &start_payload()), "INVALID_SESSION_ID").await;
    edge.refuse_as("alice", propose(&long, "p"), "SESSION_NOT_FOUND").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_10_a_mode_of_any_length_is_an_unsupported_mode() {
    let edge = Edge::start().await;
    let start = std_start(&sid(1), &format!("ext.{}", "a".repeat(300)), &start_payload());
    edge.refuse_as("alice", start, "MODE_NOT_SUPPORTED").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_core_4_any_message_id_is_legal() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let payload = macp_wire::modes::decision::v1::ProposalPayload {
        proposal_id: "p".into(),
        option: "x".into(),
        ..Default::default()
    };
    edge.accept_as("bob", decision(&sid(1), &"m".repeat(300), "Proposal", &payload)).await;
    edge.shut_down().await;
}

/// STD-STRM-7: at or beyond the newest ordinal replays nothing and goes live, also when pauses made the history longer
/// than the count of its envelopes.
#[tokio::test]
async fn std_strm_7_beyond_the_newest_ordinal_means_live_across_pauses_too() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    for _ in 0..3 {
        edge.suspend_as("alice", &sid(1)).await.expect("suspended");
        edge.resume_as("alice", &sid(1)).await.expect("resumed");
    }
    // One envelope, seven entries.
    let (heard, ended) = exchange(&edge, "alice", vec![subscribe(&sid(1), 5), frame(propose(&sid(1), "p"))]).await;
    assert!(ended.is_none());
    assert_eq!(heard, ["p"]);
    edge.shut_down().await;
}

/// Two clients that read all the time are not slow, however fast they write.
#[tokio::test]
async fn std_strm_10_a_burst_of_ones_own_is_no_lag() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    let write = async |who: &'static str| {
        let frames: Vec<_> = (0..150).map(|number| frame(propose(&sid(1), &format!("{who}-{number}")))).collect();
        let request = authorized(who, tokio_stream::iter(frames));
        let mut echoes = body(edge.runtime.clone().stream_session(request).await).expect("a stream");
        let mut own = 0;
        while let Some(echo) = echoes.message().await.expect("no refusal") {
            own += usize::from(delivered(echo).sender == who);
        }
        own
    };
    assert_eq!(tokio::join!(write("alice"), write("bob")), (150, 150));
    edge.shut_down().await;
}
