//! A server to try things on, and the envelopes to try them with.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use macp_edge::{Server, Settings};
use macp_ledger::{MemoryStore, Store};
use macp_rpc::{history, runtime};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::{
    Ack, Envelope, SendRequest, SessionMetadata, StreamSessionRequest, StreamSessionResponse, stream_session_response,
};
use prost::Message;
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Nothing here takes long; waiting this long means it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const DECISION: &str = "macp.mode.decision.v1";
pub(crate) const UNSPECIFIED: i32 = 0;
pub(crate) const OPEN: i32 = 1;
pub(crate) const RESOLVED: i32 = 2;
pub(crate) const EXPIRED: i32 = 3;

/// A server and a connection to it.
pub(crate) struct Edge {
    pub(crate) server: Server,
    pub(crate) channel: Channel,
    pub(crate) runtime: runtime::Client<Channel>,
    pub(crate) history: history::Client<Channel>,
}

impl Edge {
    pub(crate) async fn start() -> Edge {
        Edge::with(|_| ()).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut Settings)) -> Edge {
        Edge::on(Arc::new(MemoryStore::new()), adjust).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, adjust: impl FnOnce(&mut Settings)) -> Edge {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let mut settings = Settings { listen, state_patience: PATIENCE, ..Settings::default() };
        adjust(&mut settings);
        let server = Server::start(settings, store).await.expect("the server starts");
        let channel = connect(server.local_addr()).await;
        let runtime = runtime::Client::new(channel.clone());
        let history = history::Client::new(channel.clone());
        Edge { server, channel, runtime, history }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub(crate) async fn send(&self, envelope: Envelope) -> Ack {
        send(&self.runtime, envelope).await
    }

    pub(crate) async fn send_as(&self, identity: &str, envelope: Envelope) -> Ack {
        let request = authorized(identity, SendRequest { envelope: Some(envelope), signature: None });
        let response = self.runtime.clone().send(request).await.expect("an Ack and not a status");
        response.into_inner().ack.expect("an Ack")
    }

    /// Sends what must be accepted.
    pub(crate) async fn accept(&self, envelope: Envelope) -> Ack {
        let ack = self.send(envelope).await;
        assert!(ack.ok && !ack.duplicate, "{ack:?}");
        ack
    }

    /// Sends what must be refused, with its code.
    pub(crate) async fn refuse(&self, envelope: Envelope, code: &str) -> Ack {
        let ack = self.send(envelope).await;
        assert!(!ack.ok, "{ack:?}");
        assert_eq!(ack.error.as_ref().map(|error| error.code.as_str()), Some(code), "{ack:?}");
        ack
    }

    pub(crate) async fn session(&self, session_id: &str) -> Result<SessionMetadata, Status> {
        let request = macp_wire::v1::GetSessionRequest { session_id: session_id.to_owned() };
        let response = self.runtime.clone().get_session(request).await?;
        Ok(response.into_inner().metadata.expect("metadata"))
    }

    pub(crate) async fn shut_down(self) {
        drop((self.runtime, self.history, self.channel));
        self.server.shut_down().await.expect("a clean shutdown");
    }
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("the server listens")
}

pub(crate) async fn send(client: &runtime::Client<Channel>, envelope: Envelope) -> Ack {
    let request = SendRequest { envelope: Some(envelope), signature: None };
    let response = client.clone().send(request).await.expect("an Ack and not a status");
    response.into_inner().ack.expect("an Ack")
}

pub(crate) fn authorized<T>(identity: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {identity}").parse().expect("ASCII"));
    request
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}

pub(crate) fn envelope(
    session_id: &str,
    message_id: &str,
    message_type: &str,
    payload: impl Into<Vec<u8>>,
) -> Envelope {
    Envelope {
        macp_version: "1.0".to_owned(),
        mode: String::new(),
        message_type: message_type.to_owned(),
        message_id: message_id.to_owned(),
        session_id: session_id.to_owned(),
        sender: "alice".to_owned(),
        timestamp_unix_ms: 0,
        payload: payload.into().into(),
    }
}

pub(crate) fn start(session_id: &str) -> Envelope {
    start_with(session_id, SessionStartPayload { intent: "to decide".to_owned(), ..Default::default() })
}

pub(crate) fn start_with(session_id: &str, payload: SessionStartPayload) -> Envelope {
    envelope(session_id, &format!("{session_id}-start"), "SessionStart", payload.encode_to_vec())
}

pub(crate) fn proposal(session_id: &str, message_id: &str) -> Envelope {
    envelope(session_id, message_id, "Proposal", format!(r#"{{"proposal_id":"{message_id}","option":"x"}}"#))
}

pub(crate) fn vote(session_id: &str, message_id: &str) -> Envelope {
    envelope(session_id, message_id, "Vote", r#"{"proposal_id":"p","vote":"approve"}"#)
}

pub(crate) fn commitment(session_id: &str, message_id: &str) -> Envelope {
    envelope(session_id, message_id, "Commitment", r#"{"commitment_id":"c","action":"go"}"#)
}

/// The code of the registry a status carries.
pub(crate) fn code(status: &Status) -> &str {
    status.metadata().get("macp-error-code").expect("a status carries a code").to_str().expect("ASCII")
}

/// The next message of a stream, which must come.
pub(crate) async fn next<T>(stream: &mut Streaming<T>) -> T {
    let message = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a message in time");
    message.expect("the stream goes on").expect("a message and not a status")
}

/// How a stream ends: none for OK.
pub(crate) async fn end<T: std::fmt::Debug>(stream: &mut Streaming<T>) -> Option<Status> {
    match tokio::time::timeout(PATIENCE, stream.next()).await.expect("an end in time") {
        None => None,
        Some(Err(status)) => Some(status),
        Some(Ok(message)) => panic!("{message:?} instead of the end"),
    }
}

pub(crate) fn frame(envelope: Envelope) -> StreamSessionRequest {
    StreamSessionRequest { envelope: Some(envelope), ..Default::default() }
}

pub(crate) fn subscribe(session_id: &str, after_sequence: u64) -> StreamSessionRequest {
    StreamSessionRequest { subscribe_session_id: session_id.to_owned(), after_sequence, ..Default::default() }
}

pub(crate) fn delivered(response: StreamSessionResponse) -> Envelope {
    match response.response {
        Some(stream_session_response::Response::Envelope(envelope)) => envelope,
        other => panic!("{other:?} is no envelope"),
    }
}
