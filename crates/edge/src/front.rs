//! Leads calls to what answers them: a Send and a stream straight to their handlers, other calls of the runtime's service
//! to that, and all the rest through the router.
//!
//! Nearly all calls are Sends, and nearly all others of that one service. A router boxes the body of a request, that of
//! its answer and the future between them, and every look at a body goes through all of its boxes.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;
use macp_rpc::runtime;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::{Request, Response};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Code, Status, Streaming};
use tower::Service;

use crate::connection::Calls;
use crate::deadline;
use crate::guard::{Guard, Panicked, caught};
use crate::http;
use crate::inflow::{Counted, Counting, Inflow};
use crate::runtime::Runtime;
use crate::status;
use crate::streamed;
use crate::unary::{self, Answer};

type RuntimeServer = runtime::Server<Runtime>;

/// The call that nearly all are.
const SEND: &str = "/macp.v1.MACPRuntimeService/Send";

/// The call that delivers the same to many.
const STREAM_SESSION: &str = "/macp.v1.MACPRuntimeService/StreamSession";

/// Everything that is served on the port.
#[derive(Debug)]
pub(crate) struct Front {
    runtime: Runtime,
    inflow: Arc<Inflow>,
    /// Longest Send that is decoded at all.
    decode_max: usize,
    /// Longest any call takes until its answer begins.
    timeout: Duration,
    services: Guard<Counting<Services>>,
    /// Connections there have been.
    connections: AtomicU64,
}

impl Front {
    pub(crate) fn new(
        runtime: Runtime,
        inflow: Arc<Inflow>,
        decode_max: usize,
        timeout: Duration,
        services: Services,
    ) -> Self {
        let services = Guard::new(Counting::new(services, Arc::clone(&inflow)));
        Front { runtime, inflow, decode_max, timeout, services, connections: AtomicU64::new(0) }
    }

    async fn send(&self, request: Request<Incoming>) -> Response<Answer> {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let (parts, body) = request.into_parts();
        let metadata = MetadataMap::from_headers(parts.headers);
        // In its place, and not handed on by value: this is the future that hundreds of wait at a time.
        let sending = pin!(caught(async {
            let body = Counted::new(body, Arc::clone(&self.inflow));
            let request = unary::receive(body, self.decode_max).await?;
            self.runtime.send(&metadata, request).await
        }));
        let panicked = |Panicked| Err(status::panicked());
        match deadline::within(allowed, sending).await.and_then(|sent| sent.unwrap_or_else(panicked)) {
            Ok(response) => unary::answer(&response),
            Err(status) => unary::refuse(status),
        }
    }

    async fn stream(&self, request: Request<Incoming>, connection: u64) -> Response<Answer> {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let (parts, body) = request.into_parts();
        let metadata = MetadataMap::from_headers(parts.headers);
        let requests = Streaming::new_request(macp_rpc::decoder(), body, None, Some(self.decode_max));
        let opening = caught(self.runtime.stream(&metadata, requests, connection));
        let panicked = |Panicked| Err(status::panicked());
        match deadline::within(allowed, opening).await.and_then(|opened| opened.unwrap_or_else(panicked)) {
            Ok(messages) => streamed::answer(messages),
            Err(status) => unary::refuse(status),
        }
    }

    async fn serve(&self, request: Request<Incoming>) -> Response<Answer> {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let speaks_grpc = http::speaks_grpc(request.headers());
        let served = self.services.clone().call(request);
        let response = match deadline::within(allowed, served).await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(status) => status.into_http(),
        };
        match response.headers().get(Status::GRPC_STATUS) {
            Some(code) if !speaks_grpc => http::failed(Code::from_bytes(code.as_bytes())).map(Body::new),
            _ => response,
        }
        .map(Answer::Generated)
    }
}

/// The front as one connection sees it.
#[derive(Debug)]
pub(crate) struct Door {
    front: Arc<Front>,
    calls: Calls,
    /// Which of all connections it is.
    connection: u64,
}

impl Door {
    pub(crate) fn new(front: Arc<Front>, calls: Calls) -> Self {
        let connection = front.connections.fetch_add(1, Ordering::Relaxed);
        Door { front, calls, connection }
    }
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let front = Arc::clone(&self.front);
        match request.uri().path() {
            SEND if unary::is_plain(&request) => {
                self.calls.next_is_brief();
                Box::pin(async move { Ok(front.send(request).await) })
            }
            STREAM_SESSION if unary::is_plain(&request) => {
                let connection = self.connection;
                Box::pin(async move { Ok(front.stream(request, connection).await) })
            }
            _ => Box::pin(async move { Ok(front.serve(request).await) }),
        }
    }
}

/// The services as they are generated.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    runtime: RuntimeServer,
    others: Routes,
}

impl Services {
    pub(crate) fn new(runtime: RuntimeServer, others: Routes) -> Self {
        Services { runtime, others }
    }
}

impl Service<Request<Counted<Incoming>>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        ready!(Service::<Request<Counted<Incoming>>>::poll_ready(&mut self.runtime, cx)?);
        Service::<Request<Counted<Incoming>>>::poll_ready(&mut self.others, cx)
    }

    fn call(&mut self, request: Request<Counted<Incoming>>) -> Self::Future {
        let mut names = request.uri().path().split('/');
        if names.next() == Some("") && names.next() == Some(RuntimeServer::NAME) && names.next().is_some() {
            if !http::speaks_grpc(request.headers()) {
                return Box::pin(std::future::ready(Ok(http::not_grpc().map(Body::new))));
            }
            return self.runtime.call(request);
        }
        Box::pin(self.others.call(request))
    }
}
