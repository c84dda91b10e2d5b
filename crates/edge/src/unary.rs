//! Calls of one message and one answer, straight on the transport.
//!
//! What is generated for a service holds for every kind of call, and takes a request apart as it takes a stream apart:
//! buffers, boxes and a state machine each way. For the call that nearly all calls are, this is all there is to it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use macp_wire::codes::Code;
use prost::Message;
use tonic::Status;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::http::{HeaderMap, HeaderValue, Method, Request, Response};

use crate::status;
use crate::streamed::Streamed;

/// What stands before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_PROTO: HeaderValue = HeaderValue::from_static("application/grpc+proto");
const OK: HeaderValue = HeaderValue::from_static("0");

/// Where a client says how its messages are compressed.
const ENCODING: &str = "grpc-encoding";

/// Whether a call is of the plain kind. All others take the way of the generated service, which knows how to answer what
/// it does not support.
pub(crate) fn is_plain<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind == GRPC || kind == GRPC_PROTO);
    is_grpc && request.method() == Method::POST && !headers.contains_key(ENCODING)
}

/// Receives the one message of a request, of at most so many bytes.
pub(crate) async fn receive<M, B>(body: B, bytes_max: usize) -> Result<M, Status>
where
    M: Message + Default,
    B: Body<Data = Bytes, Error = Status>,
{
    let mut body = pin!(body);
    let mut received = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            // Copied, because a piece of the payload that is kept would keep all that was read together with it.
            received.extend_from_slice(&data);
            check(&received, bytes_max)?;
        }
    }
    if received.len() < PREFIX_BYTES {
        return Err(status::invalid_request("the request holds no message"));
    }
    let length = length(&received);
    let mut message = received.freeze();
    message.advance(PREFIX_BYTES);
    if message.len() != length {
        return Err(status::invalid_request("the request is not one whole message"));
    }
    M::decode(message).map_err(|error| status::invalid_request(error.to_string()))
}

/// Finds as early as can be that a message is not one to be received.
fn check(received: &BytesMut, bytes_max: usize) -> Result<(), Status> {
    if received.len() < PREFIX_BYTES {
        return Ok(());
    }
    if received[0] != 0 {
        return Err(status::invalid_request("the message is compressed in a way that was not told"));
    }
    let length = length(received);
    if length > bytes_max {
        let text = format!("the message has {length} bytes, and {bytes_max} is the most that is taken");
        return Err(status::coded(Code::PayloadTooLarge, text));
    }
    if received.len() > PREFIX_BYTES + length {
        return Err(status::invalid_request("the request holds more than one message"));
    }
    Ok(())
}

fn length(received: &BytesMut) -> usize {
    let length = received[1..PREFIX_BYTES].try_into().expect("four bytes");
    usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX)
}

/// The answer to a call.
pub(crate) fn answer(message: &impl Message) -> Response<Answer> {
    let mut bytes = BytesMut::new();
    match put(message, &mut bytes) {
        Ok(()) => grpc(Answer::Message(bytes.freeze())),
        Err(status) => refuse(status),
    }
}

/// Puts a message behind those that are there.
pub(crate) fn put(message: &impl Message, bytes: &mut BytesMut) -> Result<(), Status> {
    let length = message.encoded_len();
    let prefix = u32::try_from(length).map_err(|_too_long| status::internal("the answer is too long"))?;
    bytes.reserve(PREFIX_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(prefix);
    message.encode_raw(bytes);
    Ok(())
}

/// An answer that begins.
pub(crate) fn grpc(answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// A status instead of an answer.
pub(crate) fn refuse(status: Status) -> Response<Answer> {
    status.into_http()
}

/// The body of an answer.
#[derive(Debug, Default)]
pub(crate) enum Answer {
    Message(Bytes),
    Trailers,
    #[default]
    Ended,
    Stream(Box<Streamed>),
    /// What the generated services answer.
    Generated(tonic::body::Body),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match &mut *self {
            Answer::Stream(stream) => return stream.poll_frame(cx),
            Answer::Generated(body) => return Pin::new(body).poll_frame(cx),
            Answer::Message(message) => {
                let message = std::mem::take(message);
                *self = Answer::Trailers;
                Frame::data(message)
            }
            Answer::Trailers => {
                *self = Answer::Ended;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, OK);
                Frame::trailers(trailers)
            }
            Answer::Ended => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Stream(stream) => stream.is_over(),
            Answer::Generated(body) => body.is_end_stream(),
            Answer::Ended => true,
            Answer::Message(_) | Answer::Trailers => false,
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Answer::Generated(body) => body.size_hint(),
            // An exact size would be told in a header, which answers of gRPC do not have.
            Answer::Message(_) | Answer::Trailers | Answer::Ended | Answer::Stream(_) => http_body::SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use macp_wire::v1::{GetSessionRequest, GetSessionResponse};
    use tonic::Code as Grpc;

    use super::*;

    /// A body that comes in pieces.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).expect("a short message");
        [&[0][..], &length.to_be_bytes(), message].concat()
    }

    async fn received(bytes: &[u8], piece: usize) -> Result<String, (Grpc, String)> {
        let pieces = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
        let request: Result<GetSessionRequest, Status> = receive(Pieces(pieces), 100).await;
        request.map(|request| request.session_id).map_err(|status| {
            let code = status.metadata().get(status::ERROR_CODE).expect("a code").to_str().expect("ASCII");
            (status.code(), code.to_owned())
        })
    }

    #[tokio::test]
    async fn a_message_may_come_in_pieces() {
        let request = GetSessionRequest { session_id: "lunch".to_owned() };
        let bytes = framed(&request.encode_to_vec());
        for piece in [1, 3, PREFIX_BYTES, 7, bytes.len()] {
            assert_eq!(received(&bytes, piece).await.as_deref(), Ok("lunch"), "in pieces of {piece}");
        }
        assert_eq!(received(&framed(&[]), 100).await.as_deref(), Ok(""), "a message may be empty");
    }

    #[tokio::test]
    async fn what_is_not_one_message_is_refused() {
        let whole = framed(&GetSessionRequest { session_id: "lunch".to_owned() }.encode_to_vec());
        let invalid = Err((Grpc::InvalidArgument, "INVALID_REQUEST".to_owned()));
        let too_long = Err((Grpc::ResourceExhausted, "PAYLOAD_TOO_LARGE".to_owned()));
        let mut compressed = whole.clone();
        compressed[0] = 1;
        for (what, bytes, expected) in [
            ("nothing", Vec::new(), &invalid),
            ("half a prefix", whole[..3].to_vec(), &invalid),
            ("half a message", whole[..whole.len() - 1].to_vec(), &invalid),
            ("two messages", [&whole[..], &whole].concat(), &invalid),
            ("a compressed message", compressed, &invalid),
            ("no message of this kind", framed(&[0xff; 3]), &invalid),
            ("a message that is too long", framed(&[0; 101]), &too_long),
            ("the announcement of one", vec![0, 0xff, 0xff, 0xff, 0xff], &too_long),
        ] {
            for piece in [1, 1_000] {
                assert_eq!(&received(&bytes, piece).await, expected, "{what} in pieces of {piece}");
            }
        }
    }

    #[tokio::test]
    async fn an_answer_is_a_message_and_a_good_word() {
        let response = answer(&GetSessionResponse::default());
        assert_eq!(response.headers()[CONTENT_TYPE], GRPC);
        let mut body = pin!(response.into_body());
        assert_eq!(body.size_hint().exact(), None, "no length is told in a header");
        let mut next = async || poll_fn(|cx| body.as_mut().poll_frame(cx)).await.map(|frame| frame.expect("no error"));
        let data = next().await.and_then(|frame| frame.into_data().ok());
        assert_eq!(data.as_deref(), Some(&[0, 0, 0, 0, 0][..]));
        let trailers = next().await.and_then(|frame| frame.into_trailers().ok()).expect("trailers");
        assert_eq!(trailers[Status::GRPC_STATUS], OK);
        assert!(next().await.is_none());
        assert!(body.is_end_stream());
    }

    #[test]
    fn odd_calls_are_left_to_the_generated_service() {
        let request = |method: &str, headers: &[(&str, &str)]| {
            let mut builder = Request::builder().method(method);
            for (name, value) in headers {
                builder = builder.header(*name, *value);
            }
            is_plain(&builder.body(()).expect("a request"))
        };
        assert!(request("POST", &[("content-type", "application/grpc")]));
        assert!(request("POST", &[("content-type", "application/grpc+proto")]));
        assert!(!request("POST", &[("content-type", "application/grpc"), ("grpc-encoding", "gzip")]));
        assert!(!request("GET", &[("content-type", "application/grpc")]));
        assert!(!request("POST", &[("content-type", "application/grpc-web")]));
        assert!(!request("POST", &[("content-type", "application/json")]));
        assert!(!request("POST", &[]));
    }
}
