//! Leads calls to what answers them: those of the runtime's service straight to it, all others through the router.
//!
//! Nearly all calls are of that one service. A router boxes the body of a request, that of its answer and the future
//! between them, and every look at a body goes through all of its boxes.

use std::convert::Infallible;
use std::task::{Context, Poll, ready};

use macp_rpc::runtime;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;

use crate::inflow::Counted;
use crate::runtime::Runtime;

type RuntimeServer = runtime::Server<Runtime>;

/// Everything that is served on the port.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    runtime: RuntimeServer,
    others: Routes,
}

impl Front {
    pub(crate) fn new(runtime: RuntimeServer, others: Routes) -> Self {
        Front { runtime, others }
    }
}

impl Service<Request<Counted>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        ready!(Service::<Request<Counted>>::poll_ready(&mut self.runtime, cx)?);
        Service::<Request<Counted>>::poll_ready(&mut self.others, cx)
    }

    fn call(&mut self, request: Request<Counted>) -> Self::Future {
        let mut names = request.uri().path().split('/');
        if names.next() == Some("") && names.next() == Some(RuntimeServer::NAME) && names.next().is_some() {
            return self.runtime.call(request);
        }
        Box::pin(self.others.call(request))
    }
}
