//! How an entry becomes the bytes that are stored and hashed.
//!
//! A record is one framed entry: a version byte, then the protobuf encoding of the entry. The chain hash covers the
//! whole frame, so the version cannot be changed unnoticed either. Stored bytes are never encoded again: hashes
//! are always taken over the bytes as they were written.

use bytes::{BufMut, Bytes, BytesMut};
use macp_wire::history::v1::Entry;
use prost::Message;

use crate::chain::{self, HISTORY_LABEL, Hash};

/// The only frame version there is.
pub const FRAME_VERSION: u8 = 1;

/// One framed entry with its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Position among all entries of the session, from 1.
    pub sequence: u64,
    /// The frame: version byte and encoded entry.
    pub bytes: Bytes,
    /// Chain hash of this record.
    pub hash: Hash,
}

/// Bytes that are not a frame this program can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the record is empty")]
    Empty,
    #[error(
        "the record has frame version {found}, this program reads version {FRAME_VERSION}: \
         it was written by a newer program, use that one"
    )]
    Version { found: u8 },
    #[error("the record holds no entry that can be decoded")]
    Undecodable(#[from] prost::DecodeError),
}

/// Frames `entry` and links it to the record before it.
#[must_use]
pub fn seal(previous: Option<&Hash>, entry: &Entry) -> Record {
    let mut frame = BytesMut::with_capacity(1 + entry.encoded_len());
    frame.put_u8(FRAME_VERSION);
    entry.encode(&mut frame).expect("the buffer grows as needed");
    let bytes = frame.freeze();
    let hash = chain::link(HISTORY_LABEL, previous, &bytes);
    Record { sequence: entry.sequence, bytes, hash }
}

/// The entry in a frame.
pub fn open(bytes: &[u8]) -> Result<Entry, FrameError> {
    match bytes.split_first() {
        None => Err(FrameError::Empty),
        Some((&FRAME_VERSION, encoded)) => Ok(Entry::decode(encoded)?),
        Some((&found, _)) => Err(FrameError::Version { found }),
    }
}
