//! Leads calls to what answers them: a Send and a stream straight to their handlers, other calls of the runtime's service
//! to that, and all the rest through the router.
//!
//! Nearly all calls are Sends, and nearly all others of that one service. A router boxes the body of a request, that of
//! its answer and the future between them, and every look at a body goes through all of its boxes.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use macp_rpc::runtime;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Code, Status, Streaming};
use tower::Service;

use crate::access::Access;
use crate::connection::Calls;
use crate::connections::Connection;
use crate::deadline;
use crate::guard::{Guard, Panicked, caught};
use crate::http;
use crate::identity;
use crate::replies::{self, Charge, OpenCall, ReplyBody, ReplySize};
use crate::requests::{MessageBytes, Received};
use crate::runtime::Runtime;
use crate::status;
use crate::streamed;
use crate::unary::{self, Answer};

type RuntimeServer = runtime::Server<Runtime>;

/// The call that nearly all are.
const SEND: &str = "/macp.v1.MACPRuntimeService/Send";

/// The call that delivers the same to many.
const STREAM_SESSION: &str = "/macp.v1.MACPRuntimeService/StreamSession";

/// Memory of one call beyond its headers, its request and its reply: tasks, buffers, and what the transport has of it.
const CALL_BYTES: usize = 4 * 1024;
const STREAM_BYTES: usize = 16 * 1024;

/// Calls that ask for health or readiness. They need no credential, and are answered whatever others hold.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/grpc.health.v1.Health/Check"];

/// Everything that is served on a port.
#[derive(Debug)]
pub(crate) struct Front {
    runtime: Runtime,
    /// Longest Send that is decoded at all.
    decode_max: usize,
    /// Longest any call takes until its answer begins.
    timeout: Duration,
    services: Guard<Services>,
    /// Whether calls of the runtime's service are served at all.
    serves_runtime: bool,
}

impl Front {
    pub(crate) fn new(runtime: Runtime, decode_max: usize, timeout: Duration, services: Services) -> Self {
        let serves_runtime = services.runtime.is_some();
        Front { runtime, decode_max, timeout, services: Guard::new(services), serves_runtime }
    }

    /// Finds out who calls, counts the call, and waits until there is room for its reply.
    async fn admit(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        bytes: usize,
        size: ReplySize,
    ) -> Result<Admitted, Status> {
        let access = identity::access(self.runtime.context(), headers, connection).await;
        let call = access.memory.calls.try_reserve(bytes).ok_or_else(too_many_calls)?;
        // Where callers are authenticated, one that is not gets a refusal and no page.
        let size = if access.local || access.identity().is_some() { size } else { ReplySize::Small };
        let reply = match size {
            ReplySize::Small => access.memory.replies.wait().await,
            size => access.memory.replies.reserve(size.reserved()).await,
        };
        Ok(Admitted { access, call, reply })
    }

    async fn send(&self, request: Request<Incoming>, connection: Arc<Connection>, open: OpenCall) -> Reply {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let (parts, body) = request.into_parts();
        let bytes = open.bytes;
        // In its place, and not handed on by value: this is the future that hundreds of wait at a time.
        let sending = pin!(caught(async {
            let Admitted { access, call, reply } =
                self.admit(&connection, &parts.headers, bytes, ReplySize::Small).await?;
            let body = Received::unary(body, &access.memory.requests);
            let request = unary::receive(body, self.decode_max).await?;
            Ok((self.runtime.send(&access, request).await?, call, reply))
        }));
        let panicked = |Panicked| Err(status::panicked());
        match deadline::within(allowed, sending).await.and_then(|sent| sent.unwrap_or_else(panicked)) {
            Ok((response, call, charge)) => {
                let open = open.counted(call);
                let body = |answer| ReplyBody::new(answer, Arc::clone(&connection), None, charge, false, open);
                begun(unary::answer(&response).map(body)).await
            }
            Err(status) => refused(status, &connection, open),
        }
    }

    async fn stream(
        &self,
        request: Request<Incoming>,
        connection: Arc<Connection>,
        reply: Arc<replies::Reply>,
        open: OpenCall,
    ) -> Reply {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let (parts, body) = request.into_parts();
        let opening = caught(async {
            let Admitted { access, call, reply } =
                self.admit(&connection, &parts.headers, open.bytes, ReplySize::Small).await?;
            let message = MessageBytes::new(&access.memory.requests);
            let body = Received::stream(body, message.clone(), self.timeout);
            let requests = Streaming::new_request(macp_rpc::decoder(), body, None, Some(self.decode_max));
            Ok((self.runtime.stream(access, requests, message)?, call, reply))
        });
        let panicked = |Panicked| Err(status::panicked());
        match deadline::within(allowed, opening).await.and_then(|opened| opened.unwrap_or_else(panicked)) {
            Ok((messages, call, charge)) => {
                let open = open.counted(call);
                let body = |answer| ReplyBody::new(answer, Arc::clone(&connection), Some(reply), charge, true, open);
                begun(streamed::answer(messages).map(body)).await
            }
            Err(status) => refused(status, &connection, open),
        }
    }

    async fn serve(
        &self,
        request: Request<Incoming>,
        connection: Arc<Connection>,
        reply: Arc<replies::Reply>,
        open: OpenCall,
    ) -> Reply {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let speaks_grpc = http::speaks_grpc(request.headers());
        let size = ReplySize::of(request.uri().path());
        let serving = async {
            let (request, call, charge) = if PROBES.contains(&request.uri().path()) {
                let probes = connection.replies.of_probes();
                let call = probes.try_reserve(open.bytes).ok_or_else(too_many_calls)?;
                (request.map(|body| Received::unary(body, probes)), call, probes.charge(0))
            } else {
                let admitted = self.admit(&connection, request.headers(), open.bytes, size).await?;
                let Admitted { access, call, reply } = admitted;
                let message = MessageBytes::new(&access.memory.requests);
                let path = request.uri().path().to_owned();
                let mut request = request.map(|body| match path.as_str() {
                    STREAM_SESSION => Received::stream(body, message.clone(), self.timeout),
                    path if REQUEST_STREAMS.contains(&path) => Received::uncounted(body),
                    _ => Received::unary(body, &access.memory.requests),
                });
                request.extensions_mut().insert(message);
                request.extensions_mut().insert(access);
                (request, call, reply)
            };
            match self.services.clone().call(request).await {
                Ok(response) => Ok((response, call, charge)),
                Err(never) => match never {},
            }
        };
        let (response, open, charge) = match deadline::within(allowed, serving).await.flatten() {
            Ok((response, call, charge)) => (response, open.counted(call), charge),
            Err(status) => (status.into_http(), open, connection.replies.of_strangers().charge(0)),
        };
        let response = match response.headers().get(Status::GRPC_STATUS) {
            Some(code) if !speaks_grpc => http::failed(Code::from_bytes(code.as_bytes())).map(Body::new),
            _ => response,
        };
        let is_stream = size == ReplySize::Stream;
        let body = |body| {
            let answer = Answer::Generated(body);
            ReplyBody::new(answer, Arc::clone(&connection), Some(reply), charge, is_stream, open)
        };
        begun(response.map(body)).await
    }
}

type Reply = Result<Response<ReplyBody>, Box<dyn std::error::Error + Send + Sync>>;

/// A call that may be made.
struct Admitted {
    access: Access,
    /// What counts for the call itself.
    call: Charge,
    /// Reserved for its reply.
    reply: Charge,
}

/// Other calls whose request is a stream. Their handlers bound what they read.
const REQUEST_STREAMS: [&str; 3] = [
    "/macp.plan.v1.PlanService/ImportRun",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

fn too_many_calls() -> Status {
    status::coded(
        macp_wire::codes::Code::RateLimited,
        "this caller has too many calls open; retry when some have ended",
    )
}

/// Makes what can be made of a reply now, so that it counts with its real size.
async fn begun(response: Response<ReplyBody>) -> Reply {
    let (parts, body) = response.into_parts();
    let mut body = Some(body);
    let body = poll_fn(|cx| Poll::Ready(body.take().map(|body| body.begin(cx)))).await;
    Ok(Response::from_parts(parts, body.expect("it is there until it was polled")?))
}

/// A status, which is in the headers alone.
fn refused(status: Status, connection: &Arc<Connection>, open: OpenCall) -> Reply {
    Ok(short(unary::refuse(status), connection, open))
}

/// A reply for which no room is reserved.
fn short(response: Response<Answer>, connection: &Arc<Connection>, open: OpenCall) -> Response<ReplyBody> {
    let nothing = connection.replies.of_strangers().charge(0);
    response.map(|answer| ReplyBody::new(answer, Arc::clone(connection), None, nothing, false, open))
}

/// The front as one connection sees it.
#[derive(Debug)]
pub(crate) struct Door {
    front: Arc<Front>,
    calls: Calls,
    connection: Arc<Connection>,
}

impl Door {
    pub(crate) fn new(front: Arc<Front>, calls: Calls, connection: Arc<Connection>) -> Self {
        Door { front, calls, connection }
    }

    fn open(&self, request: &Request<Incoming>) -> OpenCall {
        let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let path = request.uri().path();
        let call = if ReplySize::of(path) == ReplySize::Stream { STREAM_BYTES } else { CALL_BYTES };
        OpenCall::new(call + path.len() + headers.sum::<usize>(), self.connection.begin(path))
    }
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<ReplyBody>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let open = self.open(&request);
        if let Some(refused) = http::refuse_version(&request) {
            self.calls.next_is_brief();
            let refused = refused.map(|body| Answer::Generated(Body::new(body)));
            return Box::pin(ready(Ok(short(refused, &self.connection, open))));
        }
        let (front, connection) = (Arc::clone(&self.front), Arc::clone(&self.connection));
        match request.uri().path() {
            SEND if front.serves_runtime && unary::is_plain(&request) => {
                self.calls.next_is_brief();
                Box::pin(async move { front.send(request, connection, open).await })
            }
            path => {
                let is_stream = front.serves_runtime && path == STREAM_SESSION && unary::is_plain(&request);
                let reply = connection.replies.open();
                self.calls.next_is_supervised(Arc::clone(&reply));
                Box::pin(async move {
                    match is_stream {
                        true => front.stream(request, connection, reply, open).await,
                        false => front.serve(request, connection, reply, open).await,
                    }
                })
            }
        }
    }
}

/// The services as they are generated.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    /// `None` on the listener for metrics.
    runtime: Option<RuntimeServer>,
    others: Routes,
}

impl Services {
    pub(crate) fn new(runtime: Option<RuntimeServer>, others: Routes) -> Self {
        Services { runtime, others }
    }
}

impl Service<Request<Received<Incoming>>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if let Some(runtime) = &mut self.runtime {
            task::ready!(Service::<Request<Received<Incoming>>>::poll_ready(runtime, cx)?);
        }
        Service::<Request<Received<Incoming>>>::poll_ready(&mut self.others, cx)
    }

    fn call(&mut self, request: Request<Received<Incoming>>) -> Self::Future {
        let mut names = request.uri().path().split('/');
        let is_of_runtime =
            names.next() == Some("") && names.next() == Some(RuntimeServer::NAME) && names.next().is_some();
        if is_of_runtime && let Some(runtime) = &mut self.runtime {
            if !http::speaks_grpc(request.headers()) {
                return Box::pin(ready(Ok(http::not_grpc().map(Body::new))));
            }
            return runtime.call(request);
        }
        Box::pin(self.others.call(request))
    }
}
