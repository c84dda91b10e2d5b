//! Pass-through: the mode of sessions whose mode an operator registered at run time. It knows which message types there
//! are and who may send them, and has no logic besides; a Commitment of the initiator ends the session.
//!
//! Structural-only, whatever the registered descriptor claims: replay vouches for who said what in which order. Inside
//! the determinism boundary: the roster, the descriptor bound at the start, the accepted envelopes, their order,
//! senders and payloads. Outside: time, and what a payload means.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use macp_wire::codes::Code;
use macp_wire::v1::Envelope;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{COMMITMENT, authorize_initiator, authorize_participant, commitment};
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::{Profile, Rejection, SESSION_START};

/// What no mode can be given for its own: messages that come from the runtime or start a session.
const RESERVED: [&str; 4] = [SESSION_START, "SessionCancel", "SessionSuspend", "SessionResume"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    last: Option<Fingerprint>,
}

/// Of the last payload, which itself is in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    length: usize,
    sha256: [u8; 32],
}

/// The outcome, in the member order clients know.
#[derive(Serialize)]
struct Resolution<'a> {
    action: &'a str,
    commitment_id: &'a str,
}

#[derive(Debug)]
pub enum PassThrough {}

impl Mode for PassThrough {
    type State = State;
    type Change = Fingerprint;

    /// Stands in for the descriptor every session of this kind brings along.
    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: "",
        aliases: &[],
        version: "",
        title: "Extension Mode",
        description: "Messages of a registered mode pass through; one commitment ends the session.",
        determinism: Determinism::StructuralOnly,
        participant_model: "declared",
        message_types: &[],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: false,
    };

    fn start(_start: &Start<'_>) -> Result<State, Rejection> {
        Ok(State::default())
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        if envelope.message_type == COMMITMENT {
            return authorize_initiator(view, envelope);
        }
        if view.roster.is_empty() {
            return Ok(());
        }
        authorize_participant(view, envelope)
    }

    fn judge(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<Response<Fingerprint>, Rejection> {
        let extension = view
            .extension
            .ok_or_else(|| Rejection::new(Code::ModeNotSupported, "the mode of the session is not registered"))?;
        let message_type = envelope.message_type.as_str();
        if RESERVED.contains(&message_type) || !extension.knows(message_type) {
            return Err(Rejection::invalid(format!("the mode of the session has no message type {message_type:?}")));
        }
        if message_type == COMMITMENT {
            return judge_commitment(view, envelope);
        }
        let sha256 = Sha256::digest(&envelope.payload).into();
        Ok(Response::Persist(Fingerprint { length: envelope.payload.len(), sha256 }))
    }

    fn apply(state: &mut State, change: Fingerprint) {
        state.last = Some(change);
    }

    fn describe(_view: &View<'_>, state: &State) -> serde_json::Value {
        let last = state.last.as_ref().map(|last| json!({"length": last.length, "sha256": hex::encode(last.sha256)}));
        json!({"last_payload": last})
    }
}

fn judge_commitment(view: &View<'_>, envelope: &Envelope) -> Result<Response<Fingerprint>, Rejection> {
    let payload = commitment::read(view, envelope)?;
    let resolution = Resolution { action: &payload.action, commitment_id: &payload.commitment_id };
    let resolution: Bytes = serde_json::to_vec(&resolution).expect("strings are valid JSON").into();
    Ok(Response::Resolve(resolution))
}
