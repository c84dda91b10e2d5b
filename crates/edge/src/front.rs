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
use crate::inflow::{Counted, Counting, Inflow};
use crate::replies::{self, Charge, OpenCall, ReplyBody, ReplySize};
use crate::runtime::Runtime;
use crate::status;
use crate::streamed;
use crate::unary::{self, Answer};

type RuntimeServer = runtime::Server<Runtime>;

/// The call that nearly all are.
const SEND: &str = "/macp.v1.MACPRuntimeService/Send";

/// The call that delivers the same to many.
const STREAM_SESSION: &str = "/macp.v1.MACPRuntimeService/StreamSession";

/// What a refused request is refused with when nothing more may be held in memory for its connection.
type Refused = Box<dyn std::error::Error + Send + Sync>;

/// Memory of one call beyond its request and its reply.
const CALL_BYTES: usize = 2 * 1024;

/// Everything that is served on a port.
#[derive(Debug)]
pub(crate) struct Front {
    runtime: Runtime,
    request_memory: Arc<Inflow>,
    /// Longest Send that is decoded at all.
    decode_max: usize,
    /// Longest any call takes until its answer begins.
    timeout: Duration,
    services: Guard<Counting<Services>>,
    /// Whether calls of the runtime's service are served at all.
    serves_runtime: bool,
}

impl Front {
    pub(crate) fn new(
        runtime: Runtime,
        request_memory: Arc<Inflow>,
        decode_max: usize,
        timeout: Duration,
        services: Services,
    ) -> Self {
        let serves_runtime = services.runtime.is_some();
        let services = Guard::new(Counting::new(services, Arc::clone(&request_memory)));
        Front { runtime, request_memory, decode_max, timeout, services, serves_runtime }
    }

    /// Finds out who calls, and waits until there is room for the reply.
    async fn admit(&self, connection: &Connection, headers: &HeaderMap, size: ReplySize) -> (Access, Charge) {
        let access = identity::access(self.runtime.context(), headers, connection).await;
        let charge = access.memory.replies.reserve(size.reserved()).await;
        (access, charge)
    }

    async fn send(&self, request: Request<Incoming>, connection: Arc<Connection>, call: OpenCall) -> Reply {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let (parts, body) = request.into_parts();
        // In its place, and not handed on by value: this is the future that hundreds of wait at a time.
        let sending = pin!(caught(async {
            let (access, charge) = self.admit(&connection, &parts.headers, ReplySize::Small).await;
            let body = Counted::new(body, Arc::clone(&self.request_memory));
            let request = unary::receive(body, self.decode_max).await?;
            Ok((self.runtime.send(&access, request).await?, charge))
        }));
        let panicked = |Panicked| Err(status::panicked());
        match deadline::within(allowed, sending).await.and_then(|sent| sent.unwrap_or_else(panicked)) {
            Ok((response, charge)) => {
                let body = |answer| ReplyBody::new(answer, Arc::clone(&connection), None, charge, false, call);
                begun(unary::answer(&response).map(body)).await
            }
            Err(status) => refused(status, &connection, call),
        }
    }

    async fn stream(
        &self,
        request: Request<Incoming>,
        connection: Arc<Connection>,
        reply: Arc<replies::Reply>,
        call: OpenCall,
    ) -> Reply {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let (parts, body) = request.into_parts();
        let opening = caught(async {
            let (access, charge) = self.admit(&connection, &parts.headers, ReplySize::Small).await;
            let requests = Streaming::new_request(macp_rpc::decoder(), body, None, Some(self.decode_max));
            Ok((self.runtime.stream(access, requests, connection.number)?, charge))
        });
        let panicked = |Panicked| Err(status::panicked());
        match deadline::within(allowed, opening).await.and_then(|opened| opened.unwrap_or_else(panicked)) {
            Ok((messages, charge)) => {
                let body = |answer| ReplyBody::new(answer, Arc::clone(&connection), Some(reply), charge, true, call);
                begun(streamed::answer(messages).map(body)).await
            }
            Err(status) => refused(status, &connection, call),
        }
    }

    async fn serve(
        &self,
        mut request: Request<Incoming>,
        connection: Arc<Connection>,
        reply: Arc<replies::Reply>,
        call: OpenCall,
    ) -> Reply {
        let allowed = deadline::allowed(request.headers(), self.timeout);
        let speaks_grpc = http::speaks_grpc(request.headers());
        let size = ReplySize::of(request.uri().path());
        let serving = async {
            let (access, charge) = self.admit(&connection, request.headers(), size).await;
            request.extensions_mut().insert(access);
            match self.services.clone().call(request).await {
                Ok(response) => (response, charge),
                Err(never) => match never {},
            }
        };
        let (response, charge) = match deadline::within(allowed, serving).await {
            Ok(served) => served,
            Err(status) => (status.into_http(), connection.replies.of_strangers().charge(0)),
        };
        let response = match response.headers().get(Status::GRPC_STATUS) {
            Some(code) if !speaks_grpc => http::failed(Code::from_bytes(code.as_bytes())).map(Body::new),
            _ => response,
        };
        let is_stream = size == ReplySize::Stream;
        let body = |body| {
            let answer = Answer::Generated(body);
            ReplyBody::new(answer, Arc::clone(&connection), Some(reply), charge, is_stream, call)
        };
        begun(response.map(body)).await
    }
}

type Reply = Result<Response<ReplyBody>, Refused>;

/// Makes what can be made of a reply now, so that it counts with its real size.
async fn begun(response: Response<ReplyBody>) -> Reply {
    let (parts, body) = response.into_parts();
    let mut body = Some(body);
    let body = poll_fn(|cx| Poll::Ready(body.take().map(|body| body.begin(cx)))).await;
    Ok(Response::from_parts(parts, body.expect("it is there until it was polled")?))
}

/// A status, which is in the headers alone.
fn refused(status: Status, connection: &Arc<Connection>, call: OpenCall) -> Reply {
    Ok(short(unary::refuse(status), connection, call))
}

/// A reply for which no room is reserved.
fn short(response: Response<Answer>, connection: &Arc<Connection>, call: OpenCall) -> Response<ReplyBody> {
    let nothing = connection.replies.of_strangers().charge(0);
    response.map(|answer| ReplyBody::new(answer, Arc::clone(connection), None, nothing, false, call))
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

    /// Counts a call. None if its connection, its caller or all together hold too much.
    fn open(&self, request: &Request<Incoming>) -> Option<OpenCall> {
        let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let path = request.uri().path();
        let bytes = CALL_BYTES + path.len() + headers.sum::<usize>();
        let memory = self.connection.replies.of_last_caller().try_charge(bytes)?;
        Some(OpenCall { _memory: memory, _in_progress: self.connection.begin(path) })
    }
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<ReplyBody>;
    type Error = Refused;
    type Future = BoxFuture<Self::Response, Refused>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Some(call) = self.open(&request) else {
            self.calls.next_is_brief();
            // The client may repeat it: nothing was done. HTTP/1.1 has no word for that, and its connection ends.
            return Box::pin(ready(Err(h2::Error::from(h2::Reason::REFUSED_STREAM).into())));
        };
        if let Some(refused) = http::refuse_version(&request) {
            self.calls.next_is_brief();
            let refused = refused.map(|body| Answer::Generated(Body::new(body)));
            return Box::pin(ready(Ok(short(refused, &self.connection, call))));
        }
        let (front, connection) = (Arc::clone(&self.front), Arc::clone(&self.connection));
        match request.uri().path() {
            SEND if front.serves_runtime && unary::is_plain(&request) => {
                self.calls.next_is_brief();
                Box::pin(async move { front.send(request, connection, call).await })
            }
            path => {
                let is_stream = front.serves_runtime && path == STREAM_SESSION && unary::is_plain(&request);
                let reply = connection.replies.open();
                self.calls.next_is_supervised(Arc::clone(&reply));
                Box::pin(async move {
                    match is_stream {
                        true => front.stream(request, connection, reply, call).await,
                        false => front.serve(request, connection, reply, call).await,
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

impl Service<Request<Counted<Incoming>>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if let Some(runtime) = &mut self.runtime {
            task::ready!(Service::<Request<Counted<Incoming>>>::poll_ready(runtime, cx)?);
        }
        Service::<Request<Counted<Incoming>>>::poll_ready(&mut self.others, cx)
    }

    fn call(&mut self, request: Request<Counted<Incoming>>) -> Self::Future {
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
