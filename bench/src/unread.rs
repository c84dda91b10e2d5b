//! What callers that do not read their replies cost other callers: the slowest hundredth of their Sends, against that
//! while the same replies are read.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use hdrhistogram::Histogram;
use macp_rpc::runtime::Client;
use macp_wire::v1::ListSessionsRequest;
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::codegen::http::Request;
use tonic::transport::Channel;

use crate::child::Process;
use crate::decision;
use crate::messages::Profile;
use crate::report::{Report, median};

/// Connections of the caller that lists sessions, and its requests on each.
const CONNECTIONS: usize = 20;
const REQUESTS: usize = 50;

/// Sessions on each page.
const SESSIONS: usize = 1_000;

const PROFILE: Profile = Profile::Standard;
const SESSION: &str = "unread-session-of-the-bench";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Reads,
    /// Lets the server send nothing of a reply.
    Blocks,
}

pub async fn run(report: &mut Report, slice: Duration, rounds: usize) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Process::real(data.path(), 100_000)?;
    let client = server.client().await?;
    let starts = (0..SESSIONS).map(|index| format!("listed-session-of-the-bench-{index:04}"));
    for session in starts.chain([SESSION.to_owned()]) {
        let start = PROFILE.start(&session, &["alice", "bob", "mallory"]);
        client.clone().send(PROFILE.request(start)?).await?;
    }
    let proposal = PROFILE.message(SESSION, "Proposal", "p1", "alice", decision::proposal(PROFILE, "p1"));
    client.clone().send(PROFILE.request(proposal)?).await?;

    let mut ratios = Vec::new();
    let mut detail = String::new();
    for round in 0..rounds {
        let read = slowest(&server, &client, Reader::Reads, slice, round).await?;
        let unread = slowest(&server, &client, Reader::Blocks, slice, round).await?;
        ratios.push(unread.as_secs_f64() / read.as_secs_f64());
        detail = format!("last round: p99 {unread:.1?} with unread lists, {read:.1?} with the same lists read");
    }
    report.at_most("p99 of Sends under unread lists, against read ones", median(ratios), 3.0, detail);
    Ok(())
}

/// The slowest hundredth of Sends while another caller lists sessions.
async fn slowest(
    server: &Process,
    client: &Client<Channel>,
    reader: Reader,
    slice: Duration,
    round: usize,
) -> anyhow::Result<Duration> {
    let mut listing = JoinSet::new();
    for _ in 0..CONNECTIONS {
        listing.spawn(list(server.address, reader));
    }
    let mut took = Histogram::<u64>::new(3)?;
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < slice {
        let id = format!("{reader:?}-{round}-{count}");
        let evaluation = PROFILE.message(SESSION, "Evaluation", &id, "bob", decision::evaluation(PROFILE, "p1"));
        let sent = Instant::now();
        let ack = client.clone().send(PROFILE.request(evaluation)?).await?.into_inner().ack;
        took.record(u64::try_from(sent.elapsed().as_nanos())?)?;
        if !ack.context("a response carries an Ack")?.ok {
            bail!("an evaluation was refused");
        }
        count += 1;
    }
    if let Some(ended) = listing.try_join_next() {
        ended??;
        bail!("a list ended early");
    }
    Ok(Duration::from_nanos(took.value_at_quantile(0.99)))
}

/// Lists sessions on one connection until it is dropped.
async fn list(address: SocketAddr, reader: Reader) -> anyhow::Result<()> {
    let window = match reader {
        Reader::Reads => 1 << 22,
        Reader::Blocks => 0,
    };
    let mut builder = Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 24);
    let (client, connection) = builder.handshake(TcpStream::connect(address).await?).await?;
    let mut requests = JoinSet::new();
    requests.spawn(async move { Ok(connection.await?) });
    for _ in 0..REQUESTS {
        requests.spawn(request(client.clone()));
    }
    while let Some(ended) = requests.join_next().await {
        ended??;
    }
    Ok(())
}

/// Requests one page after the other.
async fn request(client: SendRequest<Bytes>) -> anyhow::Result<()> {
    let message = ListSessionsRequest { page_size: SESSIONS as i32, ..Default::default() }.encode_to_vec();
    let length = u32::try_from(message.len())?.to_be_bytes();
    let body = Bytes::from([&[0][..], &length, &message].concat());
    loop {
        let request = Request::post("http://server/macp.v1.MACPRuntimeService/ListSessions")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", "Bearer mallory")
            .body(())?;
        let (response, mut sending) = client.clone().ready().await?.send_request(request, false)?;
        sending.send_data(body.clone(), true)?;
        // A reply that was reset because it was not read is requested again.
        let Ok(response) = response.await else { continue };
        let mut reply = response.into_body();
        while let Some(Ok(data)) = reply.data().await {
            reply.flow_control().release_capacity(data.len())?;
        }
    }
}
