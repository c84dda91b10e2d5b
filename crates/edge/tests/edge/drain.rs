//! Going down: what is in flight ends well, what has no end is told, new callers are turned away.

use std::sync::Arc;
use std::time::Duration;

use macp_ledger::SqliteStore;
use macp_wire::v1::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::common::*;

#[tokio::test]
async fn a_drain_ends_watches_and_streams_with_unavailable_after_their_answers() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    let mut client = edge.runtime.clone();
    let mut sessions = client.watch_sessions(WatchSessionsRequest {}).await.expect("a watch").into_inner();
    let mut signals = client.watch_signals(WatchSignalsRequest {}).await.expect("a watch").into_inner();
    assert!(next(&mut sessions).await.event.is_some());
    let (subscriber, frames) = mpsc::channel(8);
    subscriber.send(subscribe("s", 0)).await.expect("open");
    let mut deliveries = client.stream_session(ReceiverStream::new(frames)).await.expect("a stream").into_inner();
    assert_eq!(delivered(next(&mut deliveries).await).message_type, "SessionStart");
    let (writer, frames) = mpsc::channel(8);
    writer.send(frame(proposal("s", "p"))).await.expect("open");
    let mut answers = client.stream_session(ReceiverStream::new(frames)).await.expect("a stream").into_inner();
    assert_eq!(delivered(next(&mut answers).await).message_type, "Ack");
    assert_eq!(delivered(next(&mut deliveries).await).message_type, "Proposal");

    edge.server.shut_down().await.expect("a clean shutdown");
    for status in [
        end(&mut sessions).await.expect("a status"),
        end(&mut signals).await.expect("a status"),
        end(&mut deliveries).await.expect("a status"),
        end(&mut answers).await.expect("a status"),
    ] {
        assert_eq!((status.code(), code(&status)), (Code::Unavailable, "INTERNAL_ERROR"));
    }
    assert!(client.list_modes(ListModesRequest {}).await.is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_or_during_a_drain_is_there_afterwards() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    edge.accept(start("s")).await;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let mut client = edge.runtime.clone();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for index in 0.. {
                    let envelope = proposal("s", &format!("w{writer}-{index}"));
                    let request = SendRequest { envelope: Some(envelope), signature: None };
                    match client.send(request).await.map(|response| response.into_inner().ack.expect("an Ack")) {
                        Ok(ack) if ack.ok => acknowledged.push(ack.message_id),
                        _ => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    while edge.session("s").await.expect("a session").participant_activity.iter().map(|a| a.message_count).sum::<u32>()
        < 50
    {
        tokio::task::yield_now().await;
    }
    edge.server.shut_down().await.expect("a clean shutdown");
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.expect("a writer"));
    }
    assert!(acknowledged.len() >= 50);

    let edge = Edge::on(store(), |_| ()).await;
    for message_id in &acknowledged {
        assert!(edge.send(proposal("s", message_id)).await.duplicate, "{message_id} is lost");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn who_watches_the_health_is_warned_and_holds_nothing_up() {
    let edge = Edge::with(|settings| settings.drain_timeout = PATIENCE * 2).await;
    let request = HealthCheckRequest { service: "macp.v1.MACPRuntimeService".into() };
    let mut watch = HealthClient::new(edge.channel.clone()).watch(request).await.expect("a watch").into_inner();
    assert_eq!(next(&mut watch).await.status(), ServingStatus::Serving);
    let shutting_down = edge.server.shut_down();
    tokio::time::timeout(PATIENCE, shutting_down).await.expect("in time").expect("a clean shutdown");
    assert_eq!(next(&mut watch).await.status(), ServingStatus::NotServing);
    assert!(end(&mut watch).await.is_none());
}

#[tokio::test]
async fn a_connection_that_does_nothing_does_not_hold_up_a_drain() {
    let edge = Edge::start().await;
    let _silent = tokio::net::TcpStream::connect(edge.address()).await.expect("the server listens");
    let shutting_down = edge.server.shut_down();
    tokio::time::timeout(PATIENCE, shutting_down).await.expect("in time").expect("a clean shutdown");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_after_the_timeout() {
    let edge = Edge::with(|settings| settings.drain_timeout = Duration::from_millis(300)).await;
    edge.accept(start("s")).await;
    for index in 0..40 {
        let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{}"}}"#, "x".repeat(1_000_000));
        edge.accept(envelope("s", &format!("p{index}"), "Proposal", payload)).await;
    }
    let export = macp_wire::history::v1::ExportSessionRequest { session_id: "s".into() };
    let _unread = edge.history.clone().export_session(export).await.expect("an export");
    let shutting_down = edge.server.shut_down();
    tokio::time::timeout(PATIENCE, shutting_down).await.expect("in time").expect("a clean shutdown");
}
