//! The modes of the classic profile. Their payloads are JSON or protobuf, told apart by the first byte.

pub mod convergence;
pub mod decision;
pub mod multi_round;

use macp_wire::payload::{self, ClassicPayload};
use macp_wire::v1::Envelope;

use crate::Rejection;

/// Decodes a mode message's payload.
fn decode<P: ClassicPayload>(envelope: &Envelope) -> Result<P, Rejection> {
    payload::decode(&envelope.payload)
        .map_err(|error| Rejection::invalid(format!("payload of {}: {error}", envelope.message_type)))
}
