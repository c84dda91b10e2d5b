//! StreamSession.

use std::collections::BTreeSet;

use macp_wire::v1::{Envelope, StreamSessionRequest, StreamSessionResponse};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use crate::common::*;

async fn open(edge: &Edge) -> (mpsc::Sender<StreamSessionRequest>, Streaming<StreamSessionResponse>) {
    let (sender, receiver) = mpsc::channel(1024);
    let response = edge.runtime.clone().stream_session(ReceiverStream::new(receiver)).await.expect("a stream");
    (sender, response.into_inner())
}

async fn all(edge: &Edge, frames: Vec<StreamSessionRequest>) -> Vec<Envelope> {
    let response = edge.runtime.clone().stream_session(tokio_stream::iter(frames)).await.expect("a stream");
    let answers: Vec<_> = response.into_inner().collect().await;
    answers.into_iter().map(|answer| delivered(answer.expect("an answer"))).collect()
}

fn json_of(envelope: &Envelope) -> Value {
    serde_json::from_slice(&envelope.payload).expect("JSON")
}

fn ids(envelopes: &[Envelope]) -> Vec<&str> {
    envelopes.iter().map(|envelope| envelope.message_id.as_str()).collect()
}

#[tokio::test]
async fn rpc_7_every_envelope_is_answered_in_order_by_one_envelope() {
    let edge = Edge::start().await;
    let frames = vec![
        frame(Envelope { mode: "decision".into(), ..start("s") }),
        frame(commitment("s", "early")),
        frame(proposal("s", "p")),
        frame(proposal("s", "p")),
        frame(vote("s", "v")),
        frame(commitment("s", "c")),
        frame(start("other")),
        frame(vote("nowhere", "v")),
    ];
    let answers = all(&edge, frames).await;
    let expected = ["ack-s-start", "err-early", "ack-p", "ack-p", "ack-v", "ack-c", "ack-other-start", "err-v"];
    assert_eq!(ids(&answers), expected);
    for answer in &answers {
        assert_eq!((answer.sender.as_str(), answer.macp_version.as_str()), ("_runtime", "1.0"));
    }
    assert_eq!((answers[0].message_type.as_str(), answers[0].mode.as_str()), ("Ack", "decision"));
    assert_eq!(json_of(&answers[0]), json!({"ok": true, "duplicate": false, "session_state": "Open"}));
    assert_eq!(answers[1].message_type, "Error");
    let error = json_of(&answers[1]);
    assert_eq!(error["code"], "INVALID_ENVELOPE");
    assert!(!error["message"].as_str().expect("a text").is_empty());
    assert_eq!(error.as_object().expect("an object").len(), 2);
    assert_eq!(json_of(&answers[3]), json!({"ok": true, "duplicate": true, "session_state": "Open"}));
    assert_eq!(json_of(&answers[5]), json!({"ok": true, "duplicate": false, "session_state": "Resolved"}));
    assert_eq!(
        (answers[6].session_id.as_str(), json_of(&answers[7])["code"].as_str()),
        ("other", Some("SESSION_NOT_FOUND"))
    );
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_the_order_of_arrival_is_the_order_of_history() {
    let edge = Edge::start().await;
    let mut frames = vec![frame(start("s"))];
    frames.extend((0..2_000).map(|index| frame(proposal("s", &format!("p{index}")))));
    let answers = all(&edge, frames).await;
    assert_eq!(answers.len(), 2_001);
    for (index, answer) in answers.iter().skip(1).enumerate() {
        assert_eq!(answer.message_id, format!("ack-p{index}"));
    }
    let history = all(&edge, vec![subscribe("s", 0)]).await;
    let expected: Vec<_> = (0..2_000).map(|index| format!("p{index}")).collect();
    assert_eq!(ids(&history)[1..], expected);
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_answers_come_while_the_stream_stays_open() {
    let edge = Edge::start().await;
    let (sender, mut answers) = open(&edge).await;
    for (index, sent) in [start("s"), proposal("s", "p"), vote("s", "v")].into_iter().enumerate() {
        sender.send(frame(sent)).await.expect("the stream is open");
        assert_eq!(delivered(next(&mut answers).await).message_type, "Ack", "{index}");
    }
    drop(sender);
    assert!(end(&mut answers).await.is_none());
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_signals_travel_on_a_stream_too() {
    let edge = Edge::start().await;
    let answers = all(&edge, vec![frame(envelope("", "sig", "Signal", ""))]).await;
    assert_eq!(json_of(&answers[0]), json!({"ok": true, "duplicate": false, "session_state": "Open"}));
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_a_frame_that_is_neither_or_both_ends_the_stream() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    edge.accept(start("t")).await;
    let both = StreamSessionRequest { envelope: Some(vote("s", "v")), ..subscribe("s", 0) };
    let cases = [
        (vec![StreamSessionRequest::default()], 0),
        (vec![both], 0),
        (vec![frame(proposal("s", "p")), StreamSessionRequest::default()], 1),
        (vec![frame(proposal("s", "q")), subscribe("s", 0)], 1),
    ];
    for (frames, answered) in cases {
        let (sender, mut answers) = open(&edge).await;
        for frame in frames.clone() {
            sender.send(frame).await.expect("the stream is open");
        }
        for _ in 0..answered {
            assert_eq!(delivered(next(&mut answers).await).message_type, "Ack");
        }
        let status = end(&mut answers).await.expect("a status");
        assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"), "{frames:?}");
    }
    for second in [subscribe("t", 0), frame(proposal("s", "x"))] {
        let (sender, mut answers) = open(&edge).await;
        sender.send(subscribe("s", 100)).await.expect("the stream is open");
        sender.send(second).await.expect("the stream is open");
        let status = end(&mut answers).await.expect("a status");
        assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"));
    }
    let (sender, mut answers) = open(&edge).await;
    drop(sender);
    assert!(end(&mut answers).await.is_none(), "nothing asked, nothing wrong");
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_a_subscriber_gets_history_and_then_what_happens() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    edge.accept(proposal("s", "p1")).await;
    edge.accept(proposal("s", "p2")).await;
    let (sender, mut deliveries) = open(&edge).await;
    sender.send(subscribe("s", 1)).await.expect("the stream is open");
    assert_eq!(delivered(next(&mut deliveries).await), proposal("s", "p1"));
    assert_eq!(delivered(next(&mut deliveries).await), proposal("s", "p2"));
    edge.accept(vote("s", "v")).await;
    assert_eq!(delivered(next(&mut deliveries).await), vote("s", "v"));

    sender.send(subscribe("s", 2)).await.expect("the stream is open");
    assert_eq!(delivered(next(&mut deliveries).await), proposal("s", "p2"), "a second frame replays again");
    assert_eq!(delivered(next(&mut deliveries).await), vote("s", "v"));
    edge.accept(commitment("s", "c")).await;
    assert_eq!(delivered(next(&mut deliveries).await), commitment("s", "c"), "each live envelope comes once");

    drop(sender);
    assert!(end(&mut deliveries).await.is_none(), "the stream does not end with the session but with the client");
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_a_client_that_half_closes_gets_what_is_there() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    for index in 0..700 {
        edge.accept(proposal("s", &format!("p{index}"))).await;
    }
    assert_eq!(all(&edge, vec![subscribe("s", 0)]).await.len(), 701);
    assert_eq!(all(&edge, vec![subscribe("s", 700)]).await.len(), 1);
    assert_eq!(all(&edge, vec![subscribe("s", 701)]).await.len(), 0);
    assert_eq!(all(&edge, vec![subscribe("s", u64::MAX)]).await.len(), 0);
    assert_eq!(all(&edge, vec![subscribe("s", 698), subscribe("s", 699)]).await.len(), 3 + 2);
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_a_credential_that_is_no_good_opens_no_stream() {
    let edge = Edge::start().await;
    let mut request = tonic::Request::new(tokio_stream::iter([frame(start("s"))]));
    request.metadata_mut().insert("authorization", "Bearer ".parse().expect("ASCII"));
    let status = edge.runtime.clone().stream_session(request).await.expect_err("refused");
    assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_an_unknown_session_cannot_be_subscribed_to() {
    let edge = Edge::start().await;
    let (sender, mut deliveries) = open(&edge).await;
    sender.send(subscribe("unknown", 0)).await.expect("the stream is open");
    let status = end(&mut deliveries).await.expect("a status");
    assert_eq!((status.code(), code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_who_reads_too_slowly_is_told_so() {
    let edge = Edge::with(|settings| settings.engine.subscriber_buffer = 4).await;
    edge.accept(start("s")).await;
    let (sender, mut deliveries) = open(&edge).await;
    sender.send(subscribe("s", 0)).await.expect("the stream is open");
    assert_eq!(delivered(next(&mut deliveries).await).message_type, "SessionStart");
    // Large envelopes fill the transport's windows, which a reader that pauses does not empty.
    for index in 0..120 {
        let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{}"}}"#, "x".repeat(200_000));
        edge.accept(envelope("s", &format!("p{index}"), "Proposal", payload)).await;
    }
    let status = loop {
        match tokio::time::timeout(PATIENCE, deliveries.next()).await.expect("in time").expect("not just an end") {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "STREAM_LAGGED"));
    edge.shut_down().await;
}

#[tokio::test]
async fn rpc_7_concurrent_streams_on_one_session_lose_and_repeat_nothing() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    let writers = (0..8).map(|writer| {
        let frames = (0..100).map(move |index| frame(proposal("s", &format!("w{writer}-{index}"))));
        let mut client = edge.runtime.clone();
        tokio::spawn(async move {
            let response = client.stream_session(tokio_stream::iter(frames)).await.expect("a stream");
            response.into_inner().collect::<Vec<_>>().await.len()
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut seen = Vec::new();
    while seen.len() < 801 {
        let (sender, mut deliveries) = open(&edge).await;
        sender.send(subscribe("s", seen.len() as u64)).await.expect("the stream is open");
        // Whoever falls behind goes on after what it has; the client counts.
        while seen.len() < 801 {
            match tokio::time::timeout(PATIENCE, deliveries.message()).await.expect("in time") {
                Ok(delivery) => seen.push(delivered(delivery.expect("the stream goes on")).message_id),
                Err(status) => {
                    assert_eq!(code(&status), "STREAM_LAGGED");
                    break;
                }
            }
        }
    }
    for writer in writers {
        assert_eq!(writer.await.expect("a writer"), 100);
    }
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 801);
    for writer in 0..8 {
        let prefix = format!("w{writer}-");
        let order: Vec<u32> = seen.iter().filter_map(|id| id.strip_prefix(&prefix)?.parse().ok()).collect();
        assert!(order.is_sorted(), "what one stream sends keeps its order");
    }
    edge.shut_down().await;
}
