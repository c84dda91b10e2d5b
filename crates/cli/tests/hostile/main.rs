//! Clients that do not read their replies or send nothing, against the real server: what they cost, and whom they keep
//! out.
//!
//! Each kind of reply is requested on many connections and not read, by strangers and by one caller. The most that the
//! server took meanwhile is read from the operating system; other callers go on, and the server does.
//!
//! `MACP_HOSTILE_CONNECTIONS` and `MACP_HOSTILE_REQUESTS` set how many connections and requests on each there are.

mod raw;
#[path = "../cli/support.rs"]
mod support;

use std::path::Path;
use std::time::Duration;

use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::*;
use macp_wire::v1::*;
use prost::Message as _;
use raw::{Call, Raw};
use support::{Server, command};
use tokio::net::TcpStream;

const MIB: u64 = 1024 * 1024;

/// What unread replies may cost in resident memory.
const STRANGERS_MAX: u64 = 128 * MIB;
const CALLER_MAX: u64 = 256 * MIB;

/// In all kinds together, strangers and callers: below what a server with a limit of 1 GiB has.
const ALL_MAX: u64 = 900 * MIB;

const CONNECTIONS_DEFAULT: u64 = 20;
const REQUESTS_DEFAULT: u64 = 300;

/// More than a page of a history or a listing holds.
const LARGE_SESSIONS: usize = 4;
const LISTED_SESSIONS: usize = 40;

const DECISION: &str = "decision";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{variable}: {error}")))
}

fn envelope(session_id: &str, message_id: &str, message_type: &str, payload: Vec<u8>) -> Call {
    let envelope = Envelope {
        macp_version: "1.0".to_owned(),
        mode: DECISION.to_owned(),
        message_type: message_type.to_owned(),
        message_id: message_id.to_owned(),
        session_id: session_id.to_owned(),
        sender: "alice".to_owned(),
        payload: payload.into(),
        ..Envelope::default()
    };
    let request = SendRequest { envelope: Some(envelope), signature: None };
    Call::grpc("/macp.v1.MACPRuntimeService/Send", &request)
}

/// Sends what must be accepted.
async fn accept(client: &Raw, call: &Call) {
    let reply = client.read(call, Some("alice")).await.expect("a reply");
    let ack = raw::message::<SendResponse>(&reply).ack.expect("an Ack");
    assert!(ack.ok, "{ack:?}");
}

/// Sessions whose pages, logs and listings are as large as replies get.
async fn prepare(client: &Raw) {
    let participants = |count: usize| (0..count).map(|index| format!("{index:0>240}")).chain(["alice".to_owned()]);
    let start = |count| SessionStartPayload { participants: participants(count).collect(), ..Default::default() };
    for session in 0..LARGE_SESSIONS {
        let id = format!("large-{session}");
        accept(client, &envelope(&id, "start", "SessionStart", start(0).encode_to_vec())).await;
        for index in 0..4 {
            let text = "x".repeat(900_000);
            let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{text}"}}"#);
            accept(client, &envelope(&id, &format!("p{index}"), "Proposal", payload.into_bytes())).await;
        }
    }
    for session in 0..LISTED_SESSIONS {
        let id = format!("listed-{session}");
        accept(client, &envelope(&id, "start", "SessionStart", start(400).encode_to_vec())).await;
    }
}

/// Every kind of reply that is long, or has no end.
fn kinds() -> Vec<Call> {
    let runtime = |method: &str| format!("/macp.v1.MACPRuntimeService/{method}");
    let history = |method: &str| format!("/macp.history.v1.HistoryService/{method}");
    let large = || "large-0".to_owned();
    let subscribe = StreamSessionRequest { subscribe_session_id: large(), ..StreamSessionRequest::default() };
    vec![
        Call::get("/metrics"),
        Call::grpc(&runtime("ListModes"), &ListModesRequest {}),
        Call::grpc(&runtime("ListSessions"), &ListSessionsRequest { page_size: 1_000, ..Default::default() }),
        Call::grpc(&runtime("GetSession"), &GetSessionRequest { session_id: "listed-0".to_owned() }),
        Call::grpc(&runtime("StreamSession"), &subscribe),
        Call::grpc(&runtime("WatchSessions"), &WatchSessionsRequest {}),
        Call::grpc(&runtime("WatchModeRegistry"), &WatchModeRegistryRequest {}),
        Call::grpc(&history("GetSessionLog"), &GetSessionLogRequest { session_id: large(), ..Default::default() }),
        Call::grpc(&history("ReplaySession"), &ReplaySessionRequest { session_id: large(), ..Default::default() }),
        Call::grpc(&history("ExportSession"), &ExportSessionRequest { session_id: large() }),
        Call::grpc("/grpc.health.v1.Health/Check", &()),
        Call::grpc("/grpc.health.v1.Health/Watch", &()),
    ]
}

/// A value of `/proc/PID/status`, in bytes.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
    let kilobytes = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().expect("a number") * 1024
}

/// Forgets the most memory that the process had so far.
fn reset_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process is ours");
}

/// Waits until the server makes no more replies: what is not read fills its share, or is all there is.
async fn settled(metrics: &str) -> u64 {
    let mut before = None;
    for _ in 0..600 {
        let client = Raw::connect(metrics, 1 << 20).await;
        let page = client.read(&Call::get("/metrics"), None).await.expect("the metrics");
        let page = String::from_utf8(page).expect("text");
        let held = page.lines().filter(|line| line.starts_with("macp_replies_unwritten_bytes{"));
        let held: u64 = held.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).expect(line)).sum();
        if before == Some(held) {
            return held;
        }
        before = Some(held);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("the server goes on making replies that are not read");
}

fn serve(data: &Path) -> Server {
    let mut command = command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--data"]).arg(data);
    Server::with(&mut command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_replies_cost_a_bounded_amount_of_memory() {
    let connections = number("MACP_HOSTILE_CONNECTIONS", CONNECTIONS_DEFAULT);
    let requests = number("MACP_HOSTILE_REQUESTS", REQUESTS_DEFAULT);
    let data = tempfile::tempdir().expect("a directory");
    let mut server = serve(data.path());
    let line = server.start.iter().find(|line| line["message"] == "serving metrics").expect("a line in the log");
    let metrics = line["address"].as_str().expect("an address").to_owned();
    let alice = Raw::connect(&server.address, 1 << 22).await;
    prepare(&alice).await;
    let mut report = Vec::new();
    for credential in [None, Some("mallory")] {
        let max = if credential.is_none() { STRANGERS_MAX } else { CALLER_MAX };
        for call in kinds() {
            reset_peak(server.pid());
            let before = memory(server.pid(), "VmRSS");
            let mut unread = Vec::new();
            for _ in 0..connections {
                let client = Raw::connect(&server.address, 0).await;
                for _ in 0..requests {
                    unread.extend(client.call(&call, credential).await);
                }
            }
            assert!(!unread.is_empty(), "{call:?} was requested");
            let held = settled(&metrics).await;
            let rss = memory(server.pid(), "VmHWM");
            let cost = rss.saturating_sub(before);
            report.push(format!(
                "{:?} {}: {} MiB held, {} MiB resident",
                credential,
                call.path,
                held / MIB,
                cost / MIB
            ));
            println!("{}", report.last().expect("just pushed"));
            // Another caller is served meanwhile.
            let id = format!("meanwhile-{}", report.len());
            let start = SessionStartPayload::default().encode_to_vec();
            let start = envelope(&id, "start", "SessionStart", start);
            tokio::time::timeout(support::PATIENCE, accept(&alice, &start)).await.expect("other callers go on");
            assert!(cost <= max, "{report:#?}");
            assert!(rss <= ALL_MAX, "{report:#?}");
        }
    }
    assert!(server.is_alive());
}

/// Idle connections, and watches without a credential, keep no caller out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_keep_no_caller_out() {
    const CONNECTIONS_MAX: usize = 64;
    const CALLS: usize = 14;
    let connections_max = CONNECTIONS_MAX.to_string();
    let mut command = command();
    command.args(["serve", "--memory", "--listen", "127.0.0.1:0", "--max-connections", &connections_max]);
    let mut server = Server::with(&mut command);
    let watch = Call::grpc("/macp.v1.MACPRuntimeService/WatchRoots", &WatchRootsRequest {});
    let mut idle = Vec::new();
    let mut watching = Vec::new();
    for number in 0..CALLS {
        for _ in 0..CONNECTIONS_MAX {
            // Refused ones are closed by the server.
            idle.extend(TcpStream::connect(&server.address).await);
            let stranger = Raw::try_connect(&server.address, 0).await;
            if let Some(stranger) = stranger {
                watching.push((stranger.call(&watch, None).await, stranger));
            }
        }
        let id = format!("s-{number}");
        let start = envelope(&id, "start", "SessionStart", SessionStartPayload::default().encode_to_vec());
        let calling = async {
            let caller = Raw::try_connect(&server.address, 1 << 16).await?;
            caller.read(&start, Some("alice")).await
        };
        let reply = tokio::time::timeout(support::PATIENCE, calling).await.expect("in time");
        let reply = reply.unwrap_or_else(|| panic!("call {number} was kept out"));
        assert!(raw::message::<SendResponse>(&reply).ack.expect("an Ack").ok);
    }
    assert!(server.is_alive());
}
