//! Replies that their clients do not read: bounded in memory, reset after a while, and nobody else's trouble.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use macp_wire::v1::{ListModesRequest, WatchRootsRequest};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tonic::codegen::http::{Request, StatusCode};

use crate::common::*;
use crate::http;

const MIB: usize = 1024 * 1024;

/// Bytes of one reply that such a client lets the server send: less than a page of metrics.
const WINDOW: u32 = 1_000;

/// A client of HTTP/2 that reads what it must, and no body unless a test does.
#[derive(Clone)]
struct Client(SendRequest<Bytes>);

impl Client {
    async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let mut builder = Builder::new();
        builder.initial_window_size(WINDOW);
        let (client, connection) = builder.handshake(stream).await.expect("a handshake");
        tokio::spawn(connection);
        Client(client)
    }

    async fn get(&self, path: &str) -> ResponseFuture {
        let request = Request::get(format!("http://server{path}")).body(()).expect("a request");
        let mut ready = self.0.clone().ready().await.expect("the connection is open");
        ready.send_request(request, true).expect("sent").0
    }

    async fn status(&self, path: &str) -> StatusCode {
        self.get(path).await.await.expect("a response").status()
    }
}

/// The number behind a metric.
async fn metric(edge: &Edge, line: &str) -> usize {
    let address = edge.server.metrics_addr().expect("a listener for metrics");
    let (head, page) = http::get(address, "/metrics").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let value = page.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_else(|| panic!("{line} in {page}"));
    value.trim().parse().expect("a number")
}

const OF_STRANGERS: &str = r#"macp_replies_unwritten_bytes{credential="none"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_reply_is_reset_although_its_connection_is_active() {
    let edge = Edge::with(|settings| settings.unread_reply_timeout = Duration::from_millis(300)).await;
    let client = Client::connect(edge.address()).await;
    let mut unread = client.get("/metrics").await.await.expect("the head").into_body();
    let reset = async {
        loop {
            match unread.data().await {
                // Not released, so that the window stays closed.
                Some(Ok(_data)) => assert_eq!(client.status("/healthz").await, StatusCode::OK),
                Some(Err(error)) => return error,
                None => panic!("the reply was sent whole"),
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, reset).await.expect("it is reset");
    assert!(error.is_reset(), "{error}");
    assert_eq!(client.status("/healthz").await, StatusCode::OK, "only the one reply");
    edge.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_do_not_read_are_bounded_together_and_keep_no_caller_waiting() {
    let edge = Edge::with(|settings| {
        settings.metrics_listen = Some(([127, 0, 0, 1], 0).into());
        settings.reply_bytes_max = 16 * MIB;
    })
    .await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        let client = Client::connect(edge.address()).await;
        for _ in 0..1_000 {
            unread.push(client.get("/metrics").await);
        }
        unread.push(client.get("/healthz").await);
        // Calls of a caller with a credential go on, on a connection of its own.
        let request = authorized("alice", ListModesRequest {});
        tokio::time::timeout(PATIENCE, edge.runtime.clone().list_modes(request))
            .await
            .expect("in time")
            .expect("modes");
    }
    let held = metric(&edge, OF_STRANGERS).await;
    assert!(held <= 5 * MIB, "{held} bytes: a quarter of all, and the calls that wait");
    drop(unread);
    let released = async {
        while metric(&edge, OF_STRANGERS).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, released).await.expect("nothing is left of replies that nobody waits for");
    edge.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_with_nothing_to_deliver_is_not_reset() {
    let timeout = Duration::from_millis(100);
    let edge = Edge::with(|settings| settings.unread_reply_timeout = timeout).await;
    let mut watch = edge.runtime.clone().watch_roots(WatchRootsRequest {}).await.expect("a watch").into_inner();
    next(&mut watch).await;
    // The watched connection is checked many times meanwhile.
    let quiet = tokio::time::timeout(10 * timeout, watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    edge.shut_down().await;
}

/// Pages of a history, messages of a stream and replies all wait for memory: never for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_subscribers_catch_up_within_a_small_bound() {
    const SUBSCRIBERS: usize = 60;
    let edge = Edge::with(|settings| {
        settings.metrics_listen = Some(([127, 0, 0, 1], 0).into());
        settings.reply_bytes_max = 16 * MIB;
    })
    .await;
    edge.accept(start("s")).await;
    for index in 0..6 {
        let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{}"}}"#, "x".repeat(500_000));
        edge.accept(envelope("s", &format!("p{index}"), "Proposal", payload)).await;
    }
    let reading = (0..SUBSCRIBERS).map(|_| {
        let runtime = edge.runtime.clone();
        tokio::spawn(async move {
            let requests = tokio_stream::iter([subscribe("s", 0)]);
            let mut stream = runtime.clone().stream_session(requests).await.expect("a stream").into_inner();
            for _ in 0..7 {
                delivered(next(&mut stream).await);
            }
            assert!(end(&mut stream).await.is_none());
        })
    });
    for read in reading.collect::<Vec<_>>() {
        let held = metric(&edge, OF_STRANGERS).await;
        assert!(held <= 8 * MIB, "{held} bytes");
        read.await.expect("every subscriber gets everything");
    }
    edge.shut_down().await;
}
