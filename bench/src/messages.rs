//! Envelopes of classic sessions.

use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::Envelope;
use prost::Message;

/// An hour: no session of a benchmark may expire under it.
const TTL_MS: i64 = 3_600_000;

pub fn start(session: &str, participants: &[&str]) -> Envelope {
    let payload = SessionStartPayload {
        intent: "decide on the rollout".into(),
        participants: participants.iter().map(|name| (*name).to_owned()).collect(),
        configuration_version: "bench-1".into(),
        ttl_ms: TTL_MS,
        ..SessionStartPayload::default()
    };
    let mut envelope = message(session, "SessionStart", "start", participants[0], "");
    envelope.payload = payload.encode_to_vec().into();
    envelope
}

pub fn message(session: &str, message_type: &str, message_id: &str, sender: &str, json: &str) -> Envelope {
    Envelope {
        macp_version: "1.0".into(),
        mode: "decision".into(),
        message_type: message_type.into(),
        message_id: message_id.into(),
        session_id: session.into(),
        sender: sender.into(),
        timestamp_unix_ms: 0,
        payload: json.as_bytes().to_vec().into(),
    }
}
