//! Stands before every handler: a panic in one request becomes its answer, and refusals the transport makes on its
//! own get a code of the registry.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use macp_wire::codes::Code;
use pin_project_lite::pin_project;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code as Grpc, Status};
use tower::Service;

use crate::status;

/// A future that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

pin_project! {
    /// Runs a future to its end, or to its panic.
    #[derive(Debug)]
    pub(crate) struct Caught<F> {
        #[pin]
        future: F,
    }
}

/// The state behind the future is never looked at again after a panic, so nothing broken can be seen.
pub(crate) fn caught<F: Future>(future: F) -> Caught<F> {
    Caught { future }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            // The panic hook has told where it was.
            Err(_payload) => Poll::Ready(Err(Panicked)),
        }
    }
}

/// A service behind the guard.
#[derive(Clone, Debug)]
pub(crate) struct Guard<S> {
    inner: S,
}

impl<S> Guard<S> {
    pub(crate) fn new(inner: S) -> Self {
        Guard { inner }
    }
}

impl<B, S> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Guarded<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Guarded { future: caught(self.inner.call(request)) }
    }
}

pin_project! {
    #[derive(Debug)]
    pub(crate) struct Guarded<F> {
        #[pin]
        future: Caught<F>,
    }
}

impl<F> Future for Guarded<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().future.poll(cx).map(|result| match result {
            Ok(Ok(response)) => Ok(explained(response)),
            Ok(Err(never)) => match never {},
            Err(Panicked) => Ok(status::panicked().into_http()),
        })
    }
}

/// A request that could not be decoded, or was too long to be, never reached a handler. The transport calls it an
/// internal error and a value out of range; it is the client's request that is wrong.
fn explained(response: Response<Body>) -> Response<Body> {
    let Some(refusal) = refusal(response.headers()) else {
        return response;
    };
    let text = Status::from_header_map(response.headers()).map(|status| status.message().to_owned());
    status::coded(refusal, text.unwrap_or_default()).into_http()
}

/// All statuses made here carry a code, so one without comes from the transport.
fn refusal(headers: &HeaderMap) -> Option<Code> {
    let number = headers.get(Status::GRPC_STATUS)?;
    if headers.contains_key(status::ERROR_CODE) {
        return None;
    }
    match Grpc::from_bytes(number.as_bytes()) {
        Grpc::Internal => Some(Code::InvalidRequest),
        Grpc::OutOfRange => Some(Code::PayloadTooLarge),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn guarded(answer: impl Future<Output = Response<Body>> + 'static) -> Status {
        let guarded = Guarded { future: caught(async { Ok(answer.await) }) };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let Ok(response) = runtime.block_on(guarded);
        Status::from_header_map(response.headers()).expect("a status")
    }

    fn code(status: &Status) -> Option<&str> {
        status.metadata().get(status::ERROR_CODE).map(|code| code.to_str().expect("ASCII"))
    }

    #[test]
    fn a_panic_is_an_answer() {
        let status = guarded(async { panic!("a bug") });
        assert_eq!((status.code(), code(&status)), (Grpc::Internal, Some("INTERNAL_ERROR")));
        let status = guarded(async {
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::<()>::Ready(())
            })
            .await;
            panic!("a bug after a while")
        });
        assert_eq!(status.code(), Grpc::Internal);
    }

    #[test]
    fn refusals_of_the_transport_get_a_code() {
        let status = guarded(async { Status::internal("failed to decode").into_http() });
        assert_eq!((status.code(), code(&status)), (Grpc::InvalidArgument, Some("INVALID_REQUEST")));
        assert_eq!(status.message(), "failed to decode");
        let status = guarded(async { Status::out_of_range("too long").into_http() });
        assert_eq!((status.code(), code(&status)), (Grpc::ResourceExhausted, Some("PAYLOAD_TOO_LARGE")));
        let status = guarded(async { Status::unimplemented("").into_http() });
        assert_eq!((status.code(), code(&status)), (Grpc::Unimplemented, None));
        let own = guarded(async { status::internal("the disk").into_http() });
        assert_eq!((own.code(), code(&own)), (Grpc::Internal, Some("INTERNAL_ERROR")));
    }
}
