//! Envelopes of both profiles, and the requests that carry them.

use macp_wire::v1::{Envelope, SendRequest};
use macp_wire::{classic, v1};
use prost::Message;
use tonic::Request;

/// An hour: no session of a benchmark may expire under it.
const TTL_MS: i64 = 3_600_000;

/// Which rules the sessions live under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    Classic,
    Standard,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Profile::Classic => "classic",
            Profile::Standard => "standard",
        }
    }

    pub fn start(self, session: &str, participants: &[&str]) -> Envelope {
        let intent = "decide on the rollout".to_owned();
        let names = participants.iter().map(|name| (*name).to_owned()).collect();
        let configuration_version = "bench-1".to_owned();
        let payload = match self {
            Profile::Classic => classic::v1::SessionStartPayload {
                intent,
                participants: names,
                configuration_version,
                ttl_ms: TTL_MS,
                ..Default::default()
            }
            .encode_to_vec(),
            Profile::Standard => v1::SessionStartPayload {
                intent,
                participants: names,
                mode_version: "1.0.0".to_owned(),
                configuration_version,
                ttl_ms: TTL_MS,
                ..Default::default()
            }
            .encode_to_vec(),
        };
        self.message(session, "SessionStart", "start", participants[0], payload)
    }

    pub fn message(
        self,
        session: &str,
        message_type: &str,
        message_id: &str,
        sender: &str,
        payload: impl Into<Vec<u8>>,
    ) -> Envelope {
        let mode = match self {
            Profile::Classic => "decision",
            Profile::Standard => "macp.mode.decision.v1",
        };
        Envelope {
            macp_version: "1.0".into(),
            mode: mode.into(),
            message_type: message_type.into(),
            message_id: message_id.into(),
            session_id: session.into(),
            sender: sender.into(),
            timestamp_unix_ms: 0,
            payload: payload.into().into(),
        }
    }

    /// With the credential a standard session needs; in local development it is the sender's name.
    pub fn request(self, envelope: Envelope) -> anyhow::Result<Request<SendRequest>> {
        let credential = format!("Bearer {}", envelope.sender);
        let mut request = Request::new(SendRequest { envelope: Some(envelope), signature: None });
        if self == Profile::Standard {
            request.metadata_mut().insert("authorization", credential.parse()?);
        }
        Ok(request)
    }
}
