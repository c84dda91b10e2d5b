//! The modes of the standard profile. Their payloads are protobuf; one Commitment, and nothing else, ends a session.
//!
//! A mode keeps what its rules ask for: identifiers, counts and choices, with participants as places in the roster.
//! Free text and attached bytes (options, reasons, rationales, summaries, details, inputs, outputs, contexts) are in the
//! history and not kept a second time, so `describe` has the public member names but leaves those members out.

mod commitment;
pub mod decision;
pub mod extension;
pub mod handoff;
#[cfg(test)]
mod harness;
pub mod multi_round;
pub mod proposal;
pub mod quorum;
pub mod task;

use macp_wire::v1::Envelope;
use prost::Message;

use crate::lengths::Bounded;
use crate::mode::View;
use crate::{Rejection, Roster};

/// The message type that ends a session.
const COMMITMENT: &str = "Commitment";

/// Place of a participant in the roster. A roster is bounded far below what this holds.
type Place = u16;

/// Reads the payload of a mode message and holds it to its lengths. Attached bytes are shared with the envelope, not copied.
fn decode<P: Message + Default + Bounded>(envelope: &Envelope) -> Result<P, Rejection> {
    let payload = P::decode(envelope.payload.clone()).map_err(|error| {
        Rejection::invalid(format!("payload of {}: the payload is not valid protobuf: {error}", envelope.message_type))
    })?;
    payload.check_lengths()?;
    Ok(payload)
}

fn find_place(roster: &Roster, name: &str) -> Option<Place> {
    roster.index_of(name).map(|at| Place::try_from(at).expect("a roster is bounded far below 65,536 names"))
}

/// The sender's place in the roster; whoever has none may not send this.
fn sender_place(view: &View<'_>, envelope: &Envelope) -> Result<Place, Rejection> {
    find_place(view.roster, &envelope.sender).ok_or_else(|| {
        Rejection::forbidden(format!(
            "{:?} is no participant, who alone may send {}",
            envelope.sender, envelope.message_type
        ))
    })
}

fn authorize_participant(view: &View<'_>, envelope: &Envelope) -> Result<(), Rejection> {
    sender_place(view, envelope).map(|_| ())
}

fn authorize_initiator(view: &View<'_>, envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.sender == view.initiator {
        return Ok(());
    }
    Err(Rejection::forbidden(format!("only the initiator of the session may send {}", envelope.message_type)))
}

/// Also what a client hears that sends a message type of the runtime, such as SessionCancel.
fn unknown_type(mode: &str, envelope: &Envelope) -> Rejection {
    Rejection::invalid(format!("the {mode} mode has no message type {:?}", envelope.message_type))
}

/// Names by place.
fn names<'a>(view: &View<'a>) -> Vec<&'a str> {
    view.roster.iter().collect()
}

fn check_not_blank(field: &str, value: &str) -> Result<(), Rejection> {
    if value.trim().is_empty() {
        return Err(Rejection::invalid(format!("{field} is blank")));
    }
    Ok(())
}

fn check_not_empty(field: &str, value: &str) -> Result<(), Rejection> {
    if value.is_empty() {
        return Err(Rejection::invalid(format!("{field} is empty")));
    }
    Ok(())
}

/// A payload may repeat its sender, but not name anyone else.
fn check_own_name(field: &str, value: &str, envelope: &Envelope) -> Result<(), Rejection> {
    if value.is_empty() || value == envelope.sender {
        return Ok(());
    }
    Err(Rejection::invalid(format!("{field} is neither empty nor the sender of the message")))
}
