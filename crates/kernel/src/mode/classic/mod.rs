//! The modes of the classic profile. Their payloads are JSON or protobuf, told apart by the first byte.

pub mod convergence;
pub mod decision;
pub mod multi_round;

use macp_wire::payload::{self, ClassicPayload};
use macp_wire::v1::Envelope;

use crate::Rejection;
use crate::lengths::Bounded;

/// Decodes a mode message's payload and holds it to its lengths.
fn decode<P: ClassicPayload + Bounded>(envelope: &Envelope) -> Result<P, Rejection> {
    let payload: P = payload::decode(&envelope.payload)
        .map_err(|error| Rejection::invalid(format!("payload of {}: {error}", envelope.message_type)))?;
    payload.check_lengths()?;
    Ok(payload)
}
