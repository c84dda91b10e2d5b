//! Bounds the bytes of requests that are being received.
//!
//! Bytes count from their arrival: those of a unary call until the request is whole, which is when they belong to its
//! handler, those of a stream until the message they belong to is whole. Every message must become whole in time.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use macp_wire::codes::Code;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::codegen::StdError;

use crate::replies::{Budgets, Charge};
use crate::status;

/// Bytes of requests being received at once: hundreds of the largest payloads of the default limit.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Requests of the largest size that can be received at once at least, whatever that size is set to.
const LARGEST_AT_ONCE: usize = 16;

/// Bytes of a unary request that what counts for its call covers: most requests are shorter.
const COVERED_BYTES: usize = 2 * 1024;

/// Returns how many bytes of requests may be received at once, for requests of at most this size.
pub(crate) fn bytes_max(request_bytes_max: usize) -> usize {
    BYTES_MAX.max(request_bytes_max.saturating_mul(LARGEST_AT_ONCE))
}

/// A body whose bytes count.
#[derive(Debug)]
pub(crate) struct Received<B> {
    body: B,
    bytes: Option<Counting>,
}

#[derive(Debug)]
enum Counting {
    Unary { charge: Charge, covered: usize },
    Stream { message: MessageBytes, timeout: Duration, deadline: Pin<Box<Sleep>> },
}

impl<B> Received<B> {
    /// Counts the bytes until the body is dropped.
    pub(crate) fn unary(body: B, memory: &Arc<Budgets>) -> Self {
        Received { body, bytes: Some(Counting::Unary { charge: memory.charge(0), covered: COVERED_BYTES }) }
    }

    /// Counts the bytes of each message, which must become whole within the timeout.
    pub(crate) fn stream(body: B, message: MessageBytes, timeout: Duration) -> Self {
        let deadline = Box::pin(tokio::time::sleep(Duration::ZERO));
        Received { body, bytes: Some(Counting::Stream { message, timeout, deadline }) }
    }

    /// Counts nothing: the handler bounds what it reads.
    pub(crate) fn uncounted(body: B) -> Self {
        Received { body, bytes: None }
    }
}

/// The bytes of the message of a stream that is being received.
#[derive(Clone, Debug)]
pub(crate) struct MessageBytes(Arc<Mutex<Message>>);

#[derive(Debug)]
struct Message {
    charge: Charge,
    begun: Option<Instant>,
}

impl MessageBytes {
    pub(crate) fn new(memory: &Arc<Budgets>) -> Self {
        MessageBytes(Arc::new(Mutex::new(Message { charge: memory.charge(0), begun: None })))
    }

    /// Releases the bytes: the message is whole.
    pub(crate) fn release(&self) {
        let mut message = self.lock();
        message.charge.set(0);
        message.begun = None;
    }

    /// Never contended: one task reads the body and the messages in it.
    fn lock(&self) -> MutexGuard<'_, Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counting {
    /// Counts what arrived; false if there is no room for it.
    fn add(&mut self, bytes: usize) -> bool {
        match self {
            Counting::Unary { charge, covered } => {
                let beyond = bytes.saturating_sub(*covered);
                *covered = covered.saturating_sub(bytes);
                beyond == 0 || charge.try_add(beyond)
            }
            Counting::Stream { message, timeout, deadline } => {
                let mut message = message.lock();
                if message.begun.is_none() {
                    let now = Instant::now();
                    message.begun = Some(now);
                    deadline.as_mut().reset(now + *timeout);
                }
                message.charge.try_add(bytes)
            }
        }
    }

    /// Ready when a message has begun and did not become whole in time.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Counting::Stream { message, deadline, .. } if message.lock().begun.is_some() => deadline.as_mut().poll(cx),
            _ => Poll::Pending,
        }
    }
}

impl<B> Body for Received<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            if let Some(counting) = &mut this.bytes {
                ready!(counting.poll_late(cx));
                return Poll::Ready(Some(Err(status::too_late())));
            }
            return Poll::Pending;
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(error.into())))),
            None => return Poll::Ready(None),
        };
        let arrived = frame.data_ref().map_or(0, Bytes::len);
        if this.bytes.as_mut().is_some_and(|counting| !counting.add(arrived)) {
            let message = "too many bytes of requests are being received; retry later";
            return Poll::Ready(Some(Err(status::coded(Code::RateLimited, message))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;
    use crate::replies::CallMemory;

    const MIB: usize = 1024 * 1024;

    /// A body of these frames, and then of nothing for ever.
    struct Frames(VecDeque<Bytes>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.pop_front() {
                Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                None => Poll::Pending,
            }
        }
    }

    fn frames(sizes: &[usize]) -> Frames {
        Frames(sizes.iter().map(|size| vec![0; *size].into()).collect())
    }

    async fn read(body: &mut Received<Frames>) -> Result<usize, Status> {
        let mut body = pin!(body);
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await.expect("a frame");
        frame.map(|frame| frame.data_ref().map_or(0, Bytes::len))
    }

    fn refusal(read: Result<usize, Status>) -> String {
        let status = read.expect_err("too much at once");
        status.metadata().get(status::ERROR_CODE).expect("a code").to_str().expect("ASCII").to_owned()
    }

    /// Callers without a credential have a quarter of the bytes.
    fn memory() -> Arc<CallMemory> {
        Arc::new(CallMemory::new(16 * MIB, 16 * MIB))
    }

    #[tokio::test]
    async fn what_all_requests_hold_together_is_bounded() {
        let memory = memory();
        let of_stranger = || Arc::clone(&memory.connection().of_caller(None).requests);
        let mut bodies: Vec<_> = (0..4).map(|_| Received::unary(frames(&[MIB]), &of_stranger())).collect();
        for body in &mut bodies {
            assert_eq!(read(body).await.expect("it fits"), MIB);
        }
        let mut one_more = Received::unary(frames(&[MIB]), &of_stranger());
        assert_eq!(refusal(read(&mut one_more).await), "RATE_LIMITED");
        let mut alice = Received::unary(frames(&[MIB]), &memory.connection().of_caller(Some("alice")).requests);
        assert_eq!(read(&mut alice).await.expect("a caller with a credential has a part of its own"), MIB);
        bodies.pop();
        let mut next = Received::unary(frames(&[MIB]), &of_stranger());
        assert_eq!(read(&mut next).await.expect("what was received counts no longer"), MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_of_a_stream_counts_until_it_is_whole_and_must_be_whole_in_time() {
        let memory = memory();
        let connection = memory.connection();
        let message = MessageBytes::new(&connection.of_caller(None).requests);
        let timeout = Duration::from_secs(30);
        let mut body = Received::stream(frames(&[MIB, MIB, 100]), message.clone(), timeout);
        assert_eq!(read(&mut body).await.expect("it fits"), MIB);
        message.release();
        assert_eq!(read(&mut body).await.expect("the first message is whole"), MIB);
        message.release();
        let quiet = tokio::time::timeout(10 * timeout, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
        assert!(quiet.expect("the begin of a message").is_some());
        let began = Instant::now();
        let status = read(&mut body).await.expect_err("the rest never comes");
        assert_eq!((status.code(), began.elapsed()), (tonic::Code::DeadlineExceeded, timeout));
        message.release();
        let quiet = tokio::time::timeout(10 * timeout, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
        quiet.expect_err("between messages a stream may be quiet");
    }

    #[test]
    fn a_large_limit_on_payloads_raises_the_bound() {
        assert_eq!(bytes_max(1), BYTES_MAX);
        assert_eq!(bytes_max(1 << 30), LARGEST_AT_ONCE << 30);
    }
}
