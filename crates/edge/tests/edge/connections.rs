//! How many connections there may be, and which are closed when they run short.

use macp_wire::v1::{ListModesRequest, WatchModeRegistryRequest};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::common::*;
use crate::http;
use crate::security_common::*;

/// A connection on which a valid credential was presented.
async fn identified(edge: &Edge, token: &str) -> Channel {
    let channel = connect(edge.address()).await;
    call(&channel, token).await.expect("a reply");
    channel
}

async fn call(channel: &Channel, token: &str) -> Result<(), tonic::Status> {
    let request = authorized(token, ListModesRequest {});
    macp_rpc::runtime::Client::new(channel.clone()).list_modes(request).await.map(drop)
}

#[tokio::test]
async fn callers_with_a_credential_fill_all_connections_and_the_next_is_refused() {
    let edge = Edge::with(|settings| settings.connections_max = 2).await;
    call(&edge.channel, "alice").await.expect("a reply");
    let second = identified(&edge, "bob").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", edge.address())).expect("an address");
    let third = async || match endpoint.connect().await {
        Ok(channel) => call(&channel, "cleo").await.is_ok(),
        Err(_refused) => false,
    };
    assert!(!third().await, "there are two already");
    call(&edge.channel, "alice").await.expect("the first goes on");
    drop(second);
    let one_left = async {
        while !third().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, one_left).await.expect("a connection ends");
    edge.shut_down().await;
}

#[tokio::test]
async fn idle_connections_without_a_credential_are_closed_for_new_ones_oldest_first() {
    let edge = Edge::with(|settings| settings.connections_max = 8).await;
    call(&edge.channel, "alice").await.expect("a reply");
    let mut idle = Vec::new();
    for _ in 0..7 {
        idle.push(TcpStream::connect(edge.address()).await.expect("the server listens"));
    }
    let bob = tokio::time::timeout(PATIENCE, identified(&edge, "bob")).await.expect("one makes room");
    let oldest = tokio::time::timeout(PATIENCE, idle[0].read(&mut [0; 100])).await.expect("the oldest is closed");
    assert_eq!(oldest.unwrap_or(0), 0);
    call(&edge.channel, "alice").await.expect("a connection with a credential stays");
    call(&bob, "bob").await.expect("so does the new one");
    edge.shut_down().await;
}

#[tokio::test]
async fn a_watch_without_a_credential_does_not_keep_its_connection() {
    let edge = Edge::with(|settings| settings.connections_max = 1).await;
    let watching = edge.runtime.clone().watch_mode_registry(WatchModeRegistryRequest {}).await.expect("a watch");
    let mut watch = watching.into_inner();
    next(&mut watch).await;
    tokio::time::timeout(PATIENCE, identified(&edge, "bob")).await.expect("the watch makes room");
    let ended = tokio::time::timeout(PATIENCE, tokio_stream::StreamExt::next(&mut watch)).await.expect("an end");
    assert!(!matches!(ended, Some(Ok(_))), "{ended:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn the_metrics_are_for_observers_or_on_a_listener_of_their_own() {
    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.metrics_listen = Some(([127, 0, 0, 1], 0).into());
    })
    .await;
    let status = async |header: &str| {
        let (head, body) = http::ask(edge.address(), "GET", "/metrics", header, &[]).await;
        (head.split(' ').nth(1).map(str::to_owned), body)
    };
    let bearer = |sender: &str| format!("authorization: Bearer {}", token_of(sender));
    let (refused, body) = status("accept: */*").await;
    assert_eq!(refused.as_deref(), Some("401"));
    assert!(body.contains("observer") && !body.contains("macp_build"), "{body}");
    assert_eq!(status("authorization: Bearer wrong").await.0.as_deref(), Some("401"));
    assert_eq!(status(&bearer("alice")).await.0.as_deref(), Some("403"));
    let (allowed, page) = status(&bearer("olga")).await;
    assert_eq!(allowed.as_deref(), Some("200"));
    assert!(page.contains("macp_build_info"), "{page}");
    let separate = edge.server.metrics_addr().expect("a listener of its own");
    assert!(http::get(separate, "/metrics").await.1.contains("macp_build_info"));
    assert!(http::get(separate, "/healthz").await.0.starts_with("http/1.1 200"));
    assert!(http::get(separate, "/macp.v1.MACPRuntimeService/ListModes").await.0.starts_with("http/1.1 404"));
    edge.shut_down().await;
}
