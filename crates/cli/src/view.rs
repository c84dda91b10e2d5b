//! Sessions, entries and decisions as people and programs read them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use macp_conformance::type_of;
use macp_kernel::State;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::{Entry, ReplayStep, entry};
use macp_wire::v1::{self, Ack, Envelope, SessionMetadata, SessionState};
use prost::Message;
use serde_json::{Value, json};

use crate::output::Paint;
use crate::table::Cell;
use crate::text::{clean, cut};

/// Characters of a payload shown in a table.
const DETAIL_CHARACTERS_MAX: usize = 72;

pub(crate) fn state_name(state: SessionState) -> &'static str {
    match state {
        SessionState::Unspecified => "Unknown",
        SessionState::Open => "Open",
        SessionState::Resolved => "Resolved",
        SessionState::Expired => "Expired",
        SessionState::Suspended => "Suspended",
        SessionState::Cancelled => "Cancelled",
    }
}

pub(crate) fn state_cell(state: SessionState) -> Cell {
    let paint = match state {
        SessionState::Open => Paint::Name,
        SessionState::Resolved => Paint::Good,
        SessionState::Expired | SessionState::Cancelled => Paint::Warn,
        SessionState::Suspended | SessionState::Unspecified => Paint::Faint,
    };
    Cell::painted(paint, state_name(state))
}

/// What a session is bound to and where it stands.
pub(crate) fn session_json(session: &SessionMetadata) -> Value {
    let activity: Vec<Value> = session
        .participant_activity
        .iter()
        .map(|it| {
            json!({
                "participant": it.participant_id,
                "messages": it.message_count,
                "last_message_at_unix_ms": it.last_message_at_unix_ms,
            })
        })
        .collect();
    json!({
        "session_id": session.session_id,
        "mode": session.mode,
        "state": state_name(session.state()),
        "initiator": session.initiator,
        "participants": session.participants,
        "started_at_unix_ms": session.started_at_unix_ms,
        "expires_at_unix_ms": session.expires_at_unix_ms,
        "mode_version": session.mode_version,
        "configuration_version": session.configuration_version,
        "policy_version": session.policy_version,
        "context_id": session.context_id,
        "extension_keys": session.extension_keys,
        "participant_activity": activity,
    })
}

/// What a server answered to an envelope.
pub(crate) fn ack_json(ack: &Ack) -> Value {
    let mut value = json!({
        "ok": ack.ok,
        "duplicate": ack.duplicate,
        "session_id": ack.session_id,
        "message_id": ack.message_id,
        "accepted_at_unix_ms": ack.accepted_at_unix_ms,
        "state": state_name(ack.session_state()),
    });
    if let Some(error) = &ack.error {
        value["error"] = json!({ "code": error.code, "message": error.message });
    }
    value
}

/// One entry of a history, whole.
pub(crate) fn entry_json(entry: &Entry, hash: &[u8]) -> Value {
    let (message_type, message_id, sender) = headline(entry);
    let mut value = json!({
        "sequence": entry.sequence,
        "ordinal": entry.ordinal,
        "accepted_at_unix_ms": entry.accepted_at_unix_ms,
        "type": message_type,
        "message_id": message_id,
        "sender": sender,
        "identity": entry.identity,
        "hash": hex::encode(hash),
    });
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => put_payload(&mut value, envelope),
        Some(entry::Input::TtlExpired(expired)) => value["deadline_unix_ms"] = json!(expired.deadline_unix_ms),
        Some(entry::Input::SessionCancel(cancel)) => value["reason"] = json!(cancel.reason),
        Some(entry::Input::SessionSuspend(suspend)) => value["reason"] = json!(suspend.reason),
        Some(entry::Input::SessionResume(resume)) => {
            value["reason"] = json!(resume.reason);
            value["banked_ms"] = json!(resume.banked_ms);
        }
        None => {}
    }
    if let Some(recorded) = &entry.signature {
        let signature = recorded.signature.clone().unwrap_or_default();
        value["signature"] = json!({
            "key_id": signature.key_id,
            "signature": BASE64_STANDARD.encode(&signature.signature),
            "verified": !recorded.public_key.is_empty(),
        });
    }
    if let Some(binding) = &entry.binding {
        value["binding"] = json!({
            "profile": binding.profile().as_str_name(),
            "protocol_version": binding.protocol_version,
            "schema_major": binding.schema_major,
            "semantics_revision": binding.semantics_revision,
            "mode": binding.mode,
            "mode_version": binding.mode_version,
            "configuration_version": binding.configuration_version,
            "policy_version": binding.policy_version,
            "initiator": binding.initiator,
            "participants": binding.participants,
            "deadline_unix_ms": binding.deadline_unix_ms,
            "ttl_ms": binding.ttl_ms,
            "intent": binding.intent,
            "context": text_or_base64(&binding.context),
            "entries_max": binding.entries_max,
            "bytes_max": binding.bytes_max,
        });
    }
    if let Some(terminal) = &entry.terminal {
        value["terminal"] = json!({
            "state": state_name(terminal.state()),
            "resolution_sha256": hex::encode(&terminal.resolution_sha256),
            "history_hash": hex::encode(&terminal.history_hash),
        });
    }
    value
}

/// An accepted envelope as a follower of a session sees it.
pub(crate) fn envelope_json(position: u64, envelope: &Envelope) -> Value {
    let mut value = json!({
        "ordinal": position,
        "type": envelope.message_type,
        "message_id": envelope.message_id,
        "sender": envelope.sender,
        "timestamp_unix_ms": envelope.timestamp_unix_ms,
    });
    put_payload(&mut value, envelope);
    value
}

/// Type, message id and sender of an entry.
pub(crate) fn headline(entry: &Entry) -> (&str, &str, &str) {
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => (&envelope.message_type, &envelope.message_id, &envelope.sender),
        Some(entry::Input::TtlExpired(_)) => ("TtlExpired", "", ""),
        Some(entry::Input::SessionCancel(cancel)) => ("SessionCancel", "", &cancel.cancelled_by),
        Some(entry::Input::SessionSuspend(suspend)) => ("SessionSuspend", "", &suspend.suspended_by),
        Some(entry::Input::SessionResume(resume)) => ("SessionResume", "", &resume.resumed_by),
        None => ("", "", ""),
    }
}

/// What an entry says, in a few words.
pub(crate) fn detail(entry: &Entry) -> String {
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => envelope_detail(envelope),
        Some(entry::Input::TtlExpired(_)) => "the deadline passed".to_owned(),
        Some(entry::Input::SessionCancel(cancel)) => cut(&clean(&cancel.reason), DETAIL_CHARACTERS_MAX),
        Some(entry::Input::SessionSuspend(suspend)) => cut(&clean(&suspend.reason), DETAIL_CHARACTERS_MAX),
        Some(entry::Input::SessionResume(resume)) => cut(&clean(&resume.reason), DETAIL_CHARACTERS_MAX),
        None => String::new(),
    }
}

pub(crate) fn envelope_detail(envelope: &Envelope) -> String {
    let text = match payload_json(envelope) {
        Some(Value::Object(members)) => {
            let said = members.iter().filter(|(_, value)| !is_empty(value));
            said.map(|(name, value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            })
            .collect::<Vec<_>>()
            .join(" ")
        }
        Some(other) => other.to_string(),
        None if envelope.payload.is_empty() => String::new(),
        None => match std::str::from_utf8(&envelope.payload) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("{} bytes", envelope.payload.len()),
        },
    };
    cut(&clean(&text), DETAIL_CHARACTERS_MAX)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// A payload as JSON, where it is one or stands for one.
fn payload_json(envelope: &Envelope) -> Option<Value> {
    if envelope.payload.first() == Some(&b'{') {
        return serde_json::from_slice(&envelope.payload).ok();
    }
    if envelope.message_type == "SessionStart" && !is_standard_start(envelope) {
        let start = SessionStartPayload::decode(envelope.payload.clone()).ok()?;
        return Some(json!({
            "intent": start.intent,
            "participants": start.participants,
            "mode_version": start.mode_version,
            "configuration_version": start.configuration_version,
            "policy_version": start.policy_version,
            "ttl_ms": start.ttl_ms,
            "context": text_or_base64(&start.context),
        }));
    }
    if envelope.payload.is_empty() {
        return None;
    }
    macp_conformance::decode(&type_of(&envelope.mode, &envelope.message_type), &envelope.payload).ok()
}

/// The two forms of the payload differ in what few starts have; a start that names a full mode and both versions is
/// one by today's standard.
fn is_standard_start(envelope: &Envelope) -> bool {
    let versions = v1::SessionStartPayload::decode(envelope.payload.clone())
        .is_ok_and(|start| !start.mode_version.is_empty() && !start.configuration_version.is_empty());
    versions && envelope.mode.contains('.')
}

fn put_payload(value: &mut Value, envelope: &Envelope) {
    match payload_json(envelope) {
        Some(payload) => value["payload"] = payload,
        None => value["payload_base64"] = json!(BASE64_STANDARD.encode(&envelope.payload)),
    }
}

/// Bytes as JSON: themselves if they are JSON, text if they are text, otherwise base64.
pub(crate) fn text_or_base64(bytes: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return value;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

/// One decision taken again, wherever that was done.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) sequence: u64,
    pub(crate) ordinal: u64,
    pub(crate) accepted_at_ms: i64,
    pub(crate) message_type: String,
    pub(crate) message_id: String,
    pub(crate) sender: String,
    pub(crate) state: SessionState,
}

impl Decision {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "sequence": self.sequence,
            "ordinal": self.ordinal,
            "accepted_at_unix_ms": self.accepted_at_ms,
            "type": self.message_type,
            "message_id": self.message_id,
            "sender": self.sender,
            "state": state_name(self.state),
        })
    }
}

impl From<&macp_kernel::replay::Step> for Decision {
    fn from(step: &macp_kernel::replay::Step) -> Self {
        Decision {
            sequence: step.sequence,
            ordinal: step.ordinal,
            accepted_at_ms: step.accepted_at_ms,
            message_type: step.message_type.clone(),
            message_id: step.message_id.clone(),
            sender: step.sender.clone(),
            state: State::to_wire(step.state),
        }
    }
}

impl From<ReplayStep> for Decision {
    fn from(step: ReplayStep) -> Self {
        Decision {
            sequence: step.sequence,
            ordinal: step.ordinal,
            accepted_at_ms: step.accepted_at_unix_ms,
            state: step.state(),
            message_type: step.message_type,
            message_id: step.message_id,
            sender: step.sender,
        }
    }
}
