//! LIFE-4 as an operator sees it. A process of its own, because whether a line is logged is decided process-wide.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use macp_edge::{Server, Settings};
use macp_ledger::MemoryStore;
use macp_rpc::runtime::Client;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::{Ack, Envelope, SendRequest};
use prost::Message;
use tonic::transport::{Channel, Endpoint};

/// A log that is kept in memory.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A start whose timestamp lies some time back.
async fn start(client: &mut Client<Channel>, session_id: &str, age_ms: i64, ttl_ms: i64) -> Ack {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let envelope = Envelope {
        macp_version: "1.0".to_owned(),
        message_type: "SessionStart".to_owned(),
        message_id: "m".to_owned(),
        session_id: session_id.to_owned(),
        sender: "alice".to_owned(),
        timestamp_unix_ms: i64::try_from(now_ms).expect("before the year 292 million") - age_ms,
        payload: SessionStartPayload { ttl_ms, ..Default::default() }.encode_to_vec().into(),
        ..Envelope::default()
    };
    let request = SendRequest { envelope: Some(envelope), signature: None };
    client.send(request).await.expect("an Ack").into_inner().ack.expect("an Ack")
}

#[tokio::test]
async fn life_4_a_start_already_past_its_deadline_logs_a_warning() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let settings = Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Settings::default() };
    let server = Server::start(settings, Arc::new(MemoryStore::new())).await.expect("the server starts");
    let endpoint = Endpoint::from_shared(format!("http://{}", server.local_addr())).expect("an address");
    let mut client = Client::new(endpoint.connect().await.expect("the server listens"));

    assert!(start(&mut client, "in-time", 1_000, 0).await.ok);
    assert!(start(&mut client, "too-late", 61_000, 0).await.ok, "it is accepted all the same");
    assert!(start(&mut client, "too-short", 1_000, 500).await.ok);
    assert!(start(&mut client, "too-late", 100_000, 0).await.duplicate);
    server.shut_down().await.expect("a clean shutdown");

    let text = String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("text");
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("past its deadline")).collect();
    assert_eq!(warnings.len(), 2, "{text}");
    assert!(warnings[0].contains("WARN") && warnings[0].contains("too-late"), "{text}");
    assert!(warnings[1].contains("too-short"), "{text}");
}
