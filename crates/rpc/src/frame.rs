//! What a server sends on `StreamSession`.

use bytes::{Buf, BufMut, Bytes};
use macp_wire::v1::StreamSessionResponse;
use macp_wire::v1::stream_session_response::Response;
use prost::encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use prost::{DecodeError, Message};

/// Number of the envelope in a `StreamSessionResponse`.
const ENVELOPE: u32 = 1;

/// A `StreamSessionResponse`, in the same bytes. An envelope goes to every subscriber of its session, so it may come
/// encoded, once for all of them.
#[derive(Clone, Debug)]
pub enum StreamFrame {
    /// Few frames are of this kind, and all are moved from hand to hand.
    Response(Box<StreamSessionResponse>),
    /// The encoding of an envelope.
    Envelope(Bytes),
}

impl From<Response> for StreamFrame {
    fn from(response: Response) -> Self {
        Self::Response(Box::new(StreamSessionResponse { response: Some(response) }))
    }
}

impl Default for StreamFrame {
    fn default() -> Self {
        Self::Response(Box::default())
    }
}

impl Message for StreamFrame {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Response(response) => response.encode_raw(buffer),
            Self::Envelope(envelope) => {
                encode_key(ENVELOPE, WireType::LengthDelimited, buffer);
                encode_varint(envelope.len() as u64, buffer);
                buffer.put_slice(envelope);
            }
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Response(response) => response.encoded_len(),
            Self::Envelope(envelope) => key_len(ENVELOPE) + encoded_len_varint(envelope.len() as u64) + envelope.len(),
        }
    }

    /// Reading gives the message: an encoded envelope is only ever made by whoever sends it.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if let Self::Envelope(_) = self {
            *self = Self::Response(Box::new(StreamSessionResponse::decode(self.encode_to_vec().as_slice())?));
        }
        match self {
            Self::Response(response) => response.merge_field(tag, wire_type, buffer, context),
            Self::Envelope(_) => unreachable!("replaced above"),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use macp_wire::v1::{Envelope, MacpError};

    use super::*;

    #[test]
    fn a_frame_has_the_bytes_of_the_message_it_stands_for() {
        for size in [0, 1, 100, 127, 128, 20_000] {
            let envelope = Envelope { payload: vec![7; size].into(), ..Envelope::default() };
            let encoded = StreamFrame::Envelope(envelope.encode_to_vec().into());
            let message = StreamSessionResponse { response: Some(Response::Envelope(envelope)) };
            assert_eq!(encoded.encode_to_vec(), message.encode_to_vec());
            assert_eq!(encoded.encoded_len(), message.encoded_len());
            let read = StreamFrame::decode(encoded.encode_to_vec().as_slice()).expect("a response");
            assert!(matches!(read, StreamFrame::Response(read) if *read == message));
        }
    }

    #[test]
    fn what_is_merged_into_an_encoded_envelope_replaces_it() {
        let error = StreamFrame::from(Response::Error(MacpError { code: "X".to_owned(), ..MacpError::default() }));
        let mut frame = StreamFrame::Envelope(Bytes::new());
        frame.merge(error.encode_to_vec().as_slice()).expect("a response");
        assert_eq!(frame.encode_to_vec(), error.encode_to_vec());
    }
}
