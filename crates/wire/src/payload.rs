//! The two encodings of classic mode payloads, told apart by the first byte.
//!
//! A payload that starts with `{` is JSON and nothing else; any other, also an empty one, is protobuf. The choice is
//! never revised after a failure, so the same bytes always mean the same thing. (No protobuf encoding of these
//! messages starts with `{`: that byte would be a group at field 15, which none of them has.)
//!
//! JSON is read strictly where a mistake could change the meaning and leniently where it cannot: absent fields take
//! their defaults and unknown ones are ignored, but a field of another type, `null`, a key given twice at any depth or
//! text after the object is an error.

mod json;
mod messages;

use std::fmt;

use prost::Message;

/// Why a payload could not be read or written. The text never repeats what the payload holds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the payload is not valid JSON: {0}")]
    Json(#[source] serde_json::Error),
    #[error("the payload is not valid protobuf: {0}")]
    Protobuf(#[source] prost::DecodeError),
    #[error("`{field}` must be {expected}")]
    WrongType { field: &'static str, expected: &'static str },
    #[error("`{field}` is missing")]
    Missing { field: &'static str },
    #[error("`{field}` is not valid base64")]
    Base64 { field: &'static str, source: base64::DecodeError },
    #[error("`{field}` is not a finite number, which JSON cannot express")]
    NotFinite { field: &'static str },
}

/// A mode payload that classic sessions take in either encoding.
pub trait ClassicPayload: Message + Default + PartialEq + fmt::Debug {
    /// Reads the JSON form alone.
    fn from_json(bytes: &[u8]) -> Result<Self, Error>;

    /// Writes the JSON form, with every field present that is not a message.
    fn to_json(&self) -> Result<Vec<u8>, Error>;
}

/// Reads a payload in the encoding its first byte announces.
pub fn decode<P: ClassicPayload>(bytes: &[u8]) -> Result<P, Error> {
    match bytes.first() {
        Some(b'{') => P::from_json(bytes),
        _ => P::decode(bytes).map_err(Error::Protobuf),
    }
}

/// Writes a payload as JSON. Only a number that is not finite can make this fail.
pub fn encode_json<P: ClassicPayload>(payload: &P) -> Result<Vec<u8>, Error> {
    payload.to_json()
}
