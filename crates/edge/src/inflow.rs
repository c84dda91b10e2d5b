//! Bounds the bytes of requests that are being received.
//!
//! A request is decoded before anyone knows who sent it, so what many of them hold meanwhile is bounded for all
//! together. Bytes count from their arrival until the request is whole, which is when they belong to its handler.
//! Streams are not counted: each holds one message at a time, and whoever opens one is known by then; those of
//! reflection, which anyone may open, take short messages only.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use macp_wire::codes::Code;
use tonic::Status;
use tonic::codegen::StdError;
use tonic::codegen::http::Request;
use tower::Service;

use crate::status;

/// Bytes of requests being received at once: hundreds of the largest payloads of the default limit.
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Requests of the largest size that can be received at once at least, whatever that size is set to.
const LARGEST_AT_ONCE: u64 = 16;

/// Calls whose request is a stream.
const STREAMS: [&str; 4] = [
    "/macp.v1.MACPRuntimeService/StreamSession",
    "/macp.plan.v1.PlanService/ImportRun",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// What is being received.
#[derive(Debug)]
pub(crate) struct Inflow {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Inflow {
    /// For requests of at most this size.
    pub(crate) fn new(request_bytes_max: usize) -> Arc<Self> {
        let largest = u64::try_from(request_bytes_max).unwrap_or(u64::MAX);
        let bytes_max = BYTES_MAX.max(largest.saturating_mul(LARGEST_AT_ONCE));
        Arc::new(Inflow { bytes: AtomicU64::new(0), bytes_max })
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub(crate) struct Counting<S> {
    inner: S,
    inflow: Arc<Inflow>,
}

impl<S> Counting<S> {
    pub(crate) fn new(inner: S, inflow: Arc<Inflow>) -> Self {
        Counting { inner, inflow }
    }
}

impl<B, S: Service<Request<Counted<B>>>> Service<Request<B>> for Counting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let counts = !STREAMS.contains(&request.uri().path());
        let inflow = counts.then(|| Arc::clone(&self.inflow));
        self.inner.call(request.map(|body| Counted { body, inflow, bytes: 0 }))
    }
}

/// A body whose bytes count until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<B> {
    body: B,
    /// `None` if they do not count.
    inflow: Option<Arc<Inflow>>,
    bytes: u64,
}

impl<B> Body for Counted<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(error.into())))),
            None => return Poll::Ready(None),
        };
        let arrived = frame.data_ref().map_or(0, |data| data.len() as u64);
        if !self.fits(arrived) {
            let message = "too much is being received at once; retry later";
            return Poll::Ready(Some(Err(status::coded(Code::RateLimited, message))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl<B> Counted<B> {
    pub(crate) fn new(body: B, inflow: Arc<Inflow>) -> Self {
        Counted { body, inflow: Some(inflow), bytes: 0 }
    }

    /// Counts what arrived, and says whether there is room for it.
    fn fits(&mut self, arrived: u64) -> bool {
        let Some(inflow) = &self.inflow else {
            return true;
        };
        self.bytes += arrived;
        let before = inflow.bytes.fetch_add(arrived, Ordering::Relaxed);
        before.saturating_add(arrived) <= inflow.bytes_max
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        if let Some(inflow) = &self.inflow {
            inflow.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::pin::pin;

    use tower::service_fn;

    use super::*;

    /// A body of one frame.
    struct Whole(Option<Bytes>);

    impl Body for Whole {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
        }
    }

    /// What the handler gets to read.
    async fn arriving(inflow: &Arc<Inflow>, path: &str, bytes: usize) -> Counted<Whole> {
        let handler = service_fn(async |request: Request<Counted<Whole>>| Ok::<_, Infallible>(request.into_body()));
        let mut service = Counting::new(handler, Arc::clone(inflow));
        let body = Whole(Some(vec![0; bytes].into()));
        let request = Request::builder().uri(path).body(body).expect("a request");
        let Ok(body) = service.call(request).await;
        body
    }

    async fn read(body: &mut Counted<Whole>) -> Option<Result<usize, String>> {
        let mut body = pin!(body);
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.data_ref().map_or(0, Bytes::len)).map_err(|status| status.message().to_owned()))
    }

    #[tokio::test]
    async fn what_all_requests_hold_together_is_bounded() {
        let inflow = Arc::new(Inflow { bytes: AtomicU64::new(0), bytes_max: 100 });
        let mut first = arriving(&inflow, "/service/Call", 60).await;
        let mut second = arriving(&inflow, "/service/Call", 60).await;
        assert_eq!(read(&mut first).await, Some(Ok(60)));
        let refused = read(&mut second).await.expect("a frame").expect_err("too much at once");
        assert!(refused.contains("at once"), "{refused}");
        drop((first, second));
        let mut third = arriving(&inflow, "/service/Call", 100).await;
        assert_eq!(read(&mut third).await, Some(Ok(100)), "what was received counts no longer");
        let mut stream = arriving(&inflow, STREAMS[0], 1_000).await;
        assert_eq!(read(&mut stream).await, Some(Ok(1_000)), "a stream is not counted");
    }

    #[test]
    fn a_large_limit_on_payloads_raises_the_bound() {
        assert_eq!(Inflow::new(1).bytes_max, BYTES_MAX);
        assert_eq!(Inflow::new(1 << 30).bytes_max, LARGEST_AT_ONCE << 30);
    }
}
