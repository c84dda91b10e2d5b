//! Plain HTTP beside gRPC: liveness, readiness, metrics, and what becomes of unknown paths.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tonic::Status;

use crate::context::Context;
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

/// Whether a caller understands a status of gRPC.
pub(crate) fn speaks_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|content_type| content_type.as_bytes().starts_with(b"application/grpc"))
}

/// Services answer calls of gRPC and nothing else. What is marked as something else can be sent by a page in a browser,
/// to whatever listens on the machine of its reader.
pub(crate) async fn grpc_only(request: Request, next: Next) -> Response {
    if speaks_grpc(request.headers()) { next.run(request).await } else { not_grpc() }
}

pub(crate) fn not_grpc() -> Response {
    refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "calls at this path are gRPC, with the content type application/grpc")
}

/// A call that failed, for a caller who does not.
pub(crate) fn failed(code: tonic::Code) -> Response {
    match code {
        tonic::Code::DeadlineExceeded => refusal(StatusCode::GATEWAY_TIMEOUT, "the answer took too long"),
        _ => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the call failed in a way it should not"),
    }
}

pub(crate) fn refusal(status: StatusCode, reason: &str) -> Response {
    let body = json!({ "error": reason }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
