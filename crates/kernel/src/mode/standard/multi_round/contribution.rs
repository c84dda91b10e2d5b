//! The two encodings of a contribution: protobuf, and the JSON of older clients.
//!
//! Some bytes are both. A protobuf message starts with a tag, which is a line feed to JSON, and a length, which at 13 or
//! 32 bytes is white space too and at 123 an opening brace; the rest is up to the value. What protobuf would write in
//! exactly these bytes is therefore protobuf; all else that reads as JSON is JSON.

use macp_wire::modes::multi_round::v1::ContributePayload;
use prost::Message;
use serde::Deserialize;

use crate::Rejection;

#[derive(Deserialize)]
struct Legacy {
    value: String,
}

/// The contributed value.
pub(super) fn read(payload: &[u8]) -> Result<String, Rejection> {
    if payload.is_empty() {
        return Err(Rejection::invalid("payload of Contribute: the payload is empty"));
    }
    let message = ContributePayload::decode(payload);
    match (read_json(payload), message) {
        (Some(_), Ok(message)) if message.encode_to_vec() == payload => Ok(message.value),
        (Some(value), _) | (None, Ok(ContributePayload { value })) => Ok(value),
        (None, Err(error)) => Err(Rejection::invalid(format!(
            "payload of Contribute: the payload is neither JSON with a string `value` nor valid protobuf: {error}"
        ))),
    }
}

fn read_json(payload: &[u8]) -> Option<String> {
    // A derived reader would also take the members as an array.
    if payload.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice::<Legacy>(payload).ok().map(|legacy| legacy.value)
}
