//! Plain HTTP beside gRPC: liveness, readiness, metrics, and what becomes of unknown paths.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use macp_wire::codes::Code;
use serde_json::json;
use tonic::Status;

use crate::context::Context;
use crate::status::ERROR_CODE;
use crate::{health, scrape};

/// What is served next to gRPC.
pub(crate) fn routes(ctx: Arc<Context>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape::restricted))
        .with_state(ctx)
}

/// What is served on the listener for metrics.
pub(crate) fn metrics_routes(ctx: Arc<Context>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape::open))
        .fallback(unknown)
        .with_state(ctx)
}

async fn ready(State(ctx): State<Arc<Context>>) -> Response {
    match health::unready(&ctx) {
        Some(reason) => refusal(StatusCode::SERVICE_UNAVAILABLE, reason),
        None => "ok".into_response(),
    }
}

/// A gRPC client must hear of an unknown service in its own terms.
pub(crate) async fn unknown(headers: HeaderMap) -> Response {
    if speaks_grpc(&headers) {
        return Status::unimplemented("there is no such service").into_http();
    }
    refusal(StatusCode::NOT_FOUND, "there is nothing at this path")
}

/// Whether a request is marked as gRPC, so that the caller understands its statuses. gRPC-Web, whose messages are framed
/// differently, is something else.
pub(crate) fn speaks_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(|content_type| content_type.as_bytes());
    let rest = content_type.and_then(|content_type| content_type.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Refuses gRPC over HTTP/1.x, which it is not defined for: trailers, and with them the status, need not arrive.
pub(crate) fn refuse_version<B>(request: &axum::http::Request<B>) -> Option<Response> {
    let is_older = request.version() < Version::HTTP_2;
    (is_older && speaks_grpc(request.headers()))
        .then(|| coded(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC is served over HTTP/2 only"))
}

/// Services answer calls of gRPC and nothing else. What is marked as something else can be sent by a page in a browser,
/// to whatever listens on the machine of its reader.
pub(crate) async fn grpc_only(request: Request, next: Next) -> Response {
    if speaks_grpc(request.headers()) { next.run(request).await } else { not_grpc() }
}

pub(crate) fn not_grpc() -> Response {
    let reason =
        "calls at this path are gRPC over HTTP/2, with the content type application/grpc; gRPC-Web is not served";
    coded(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason)
}

/// A call that failed, for a caller who does not.
pub(crate) fn failed(code: tonic::Code) -> Response {
    match code {
        tonic::Code::ResourceExhausted => {
            refusal(StatusCode::TOO_MANY_REQUESTS, "this caller has too many calls open; retry when some have ended")
        }
        tonic::Code::DeadlineExceeded => refusal(StatusCode::GATEWAY_TIMEOUT, "the answer took too long"),
        _ => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the call failed in a way it should not"),
    }
}

/// The refusal of a request that no call can be made of, with its code where a status of gRPC would have it.
fn coded(status: StatusCode, reason: &str) -> Response {
    let code = HeaderValue::from_static(Code::InvalidRequest.as_str());
    ([(HeaderName::from_static(ERROR_CODE), code)], refusal(status, reason)).into_response()
}

pub(crate) fn refusal(status: StatusCode, reason: &str) -> Response {
    let body = json!({ "error": reason }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
