//! A stream of answers, straight on the transport.
//!
//! A message to a session with a hundred subscribers leaves a hundred times, so what stands between a delivery and the
//! transport counts a hundred times. What is generated for a service has a box, an encoder with buffers of its own and
//! a state machine there, for streams of every kind. These come from a producer in the same task, which has run as far
//! as it can once it was asked: what it has made until then leaves together, and it is not asked again.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use macp_rpc::StreamFrame;
use tokio_stream::Stream as _;
use tonic::Status;
use tonic::codegen::http::{HeaderMap, Response};

use crate::attached::Attached;
use crate::unary::{self, Answer};

/// What is gathered before it is passed on.
const GATHERED_BYTES: usize = 32 * 1_024;

/// The body of an answer that is a stream.
#[derive(Debug)]
pub(crate) struct Streamed {
    messages: Attached<StreamFrame>,
    is_over: bool,
}

/// The answer to a call.
pub(crate) fn answer(messages: Attached<StreamFrame>) -> Response<Answer> {
    unary::grpc(Answer::Stream(Box::new(Streamed { messages, is_over: false })))
}

impl Streamed {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.messages).poll_next(cx)) {
            Some(Ok(message)) => self.gather(&message).map(Frame::data),
            Some(Err(status)) => Err(status),
            None => return Poll::Ready(Some(Ok(self.end(&Status::ok(""))))),
        };
        let frame = frame.unwrap_or_else(|status| self.end(&status));
        Poll::Ready(Some(Ok(frame)))
    }

    /// This message, and those that have been made after it.
    fn gather(&self, message: &StreamFrame) -> Result<Bytes, Status> {
        let mut bytes = BytesMut::new();
        unary::put(message, &mut bytes)?;
        while bytes.len() < GATHERED_BYTES
            && let Some(message) = self.messages.made()
        {
            unary::put(&message, &mut bytes)?;
        }
        Ok(bytes.freeze())
    }

    /// The last words.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.is_over = true;
        let mut trailers = HeaderMap::new();
        if let Err(unsendable) = status.add_header(&mut trailers) {
            tracing::error!(%unsendable, "a stream ended with a status that cannot be sent");
        }
        Frame::trailers(trailers)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use prost::Message as _;
    use tonic::Code;

    use super::*;
    use crate::attached::attach;

    fn envelope(size: usize) -> StreamFrame {
        StreamFrame::Envelope(vec![7; size].into())
    }

    async fn next(stream: &mut Streamed) -> Option<Frame<Bytes>> {
        poll_fn(|cx| stream.poll_frame(cx)).await.map(|frame| frame.expect("no error"))
    }

    /// Lengths of the messages in a frame.
    fn messages(frame: Frame<Bytes>) -> Vec<usize> {
        let mut data: &[u8] = &frame.into_data().expect("data");
        let mut lengths = Vec::new();
        while let Some((prefix, rest)) = data.split_at_checked(5) {
            assert_eq!(prefix[0], 0, "not compressed");
            let length = u32::from_be_bytes(prefix[1..].try_into().expect("four bytes")) as usize;
            lengths.push(length);
            data = &rest[length..];
        }
        lengths
    }

    fn streamed(messages: Attached<StreamFrame>) -> Streamed {
        Streamed { messages, is_over: false }
    }

    #[tokio::test]
    async fn what_was_made_together_leaves_together_and_a_status_comes_last() {
        let mut stream = streamed(attach(0, |outlet| async move {
            outlet.send(envelope(1)).await;
            outlet.send(envelope(2)).await;
            tokio::task::yield_now().await;
            outlet.send(envelope(3)).await;
            Err(Status::aborted("enough"))
        }));
        let length = |size| envelope(size).encoded_len();
        assert_eq!(messages(next(&mut stream).await.expect("data")), [length(1), length(2)]);
        assert_eq!(messages(next(&mut stream).await.expect("data")), [length(3)]);
        assert!(!stream.is_over());
        let trailers = next(&mut stream).await.and_then(|frame| frame.into_trailers().ok()).expect("trailers");
        let status = Status::from_header_map(&trailers).expect("a status");
        assert_eq!((status.code(), status.message()), (Code::Aborted, "enough"));
        assert!(stream.is_over() && next(&mut stream).await.is_none());
    }

    #[tokio::test]
    async fn a_stream_that_went_well_says_so() {
        let mut stream = streamed(attach(0, |_outlet| async { Ok(()) }));
        let trailers = next(&mut stream).await.and_then(|frame| frame.into_trailers().ok()).expect("trailers");
        assert_eq!(Status::from_header_map(&trailers).expect("a status").code(), Code::Ok);
    }

    #[tokio::test]
    async fn large_messages_are_not_gathered_without_bound() {
        let mut stream = streamed(attach(0, |outlet| async move {
            for _ in 0..3 {
                outlet.send(envelope(GATHERED_BYTES - 1_000)).await;
            }
            Ok(())
        }));
        assert_eq!(messages(next(&mut stream).await.expect("data")).len(), 2);
        assert_eq!(messages(next(&mut stream).await.expect("data")).len(), 1);
    }
}
