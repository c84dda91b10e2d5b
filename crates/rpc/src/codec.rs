//! Protobuf on the wire, with buffers of the size of our messages.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Reserved for a message before anything is known of it; most are smaller, and larger ones have their buffers grow.
/// The default of eight times as much is more than the allocator hands out cheaply, for each request and each answer.
const BUFFER_BYTES: usize = 1_024;

/// What is gathered of a stream before it is passed on.
const GATHERED_BYTES: usize = 32 * 1_024;

/// The codec of all services here. It reads `U` and writes `T`.
#[derive(Debug)]
pub struct ProtobufCodec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for ProtobufCodec<T, U> {
    fn default() -> Self {
        Self { messages: PhantomData }
    }
}

impl<T, U> Codec for ProtobufCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        decoder()
    }
}

/// Reads `U` in the way of all services here.
pub fn decoder<U>() -> ProstDecoder<U> {
    ProstDecoder::new(BufferSettings::new(BUFFER_BYTES, GATHERED_BYTES))
}
