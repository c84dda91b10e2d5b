//! GET /metrics: rendered once for all who scrape at the same time.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use macp_kernel::Credential;
use tokio::sync::Mutex;

use crate::access::Access;
use crate::context::Context;
use crate::http::refusal;
use crate::metrics::{Format, Observed};

/// The page as it was rendered last, in both formats.
#[derive(Debug, Default)]
pub(crate) struct Scrapes {
    plain: Mutex<Option<Rendered>>,
    open_metrics: Mutex<Option<Rendered>>,
}

#[derive(Debug)]
struct Rendered {
    /// When it was begun: whoever asked before gets what is current for it.
    begun: Instant,
    page: Bytes,
}

impl Scrapes {
    fn of(&self, format: Format) -> &Mutex<Option<Rendered>> {
        match format {
            Format::Plain => &self.plain,
            Format::OpenMetrics => &self.open_metrics,
        }
    }
}

/// On the port of everything: where authentication is configured, for observers.
pub(crate) async fn restricted(
    State(ctx): State<Arc<Context>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    if access.local || access.observer {
        return page(&ctx, &headers).await;
    }
    match access.caller.credential {
        Credential::Identity(_) => {
            refusal(StatusCode::FORBIDDEN, "this credential has no observer right, which the metrics need")
        }
        Credential::Absent | Credential::Refused(_) => refusal(
            StatusCode::UNAUTHORIZED,
            "the metrics need a credential with the observer right; metrics_addr serves them without one",
        ),
    }
}

/// On a listener of its own, which the operator shields.
pub(crate) async fn open(State(ctx): State<Arc<Context>>, headers: HeaderMap) -> Response {
    page(&ctx, &headers).await
}

async fn page(ctx: &Context, headers: &HeaderMap) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::asked_for(&accept.collect::<Vec<_>>().join(","));
    match rendered(ctx, format).await {
        Ok(page) => ([(header::CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be encoded");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be encoded")
        }
    }
}

/// Returns a page whose rendering began after this call.
async fn rendered(ctx: &Context, format: Format) -> Result<Bytes, std::fmt::Error> {
    let asked = Instant::now();
    let mut last = ctx.scrapes.of(format).lock().await;
    if let Some(rendered) = &*last
        && rendered.begun >= asked
    {
        return Ok(rendered.page.clone());
    }
    let begun = Instant::now();
    let observed = Observed::of(ctx).await;
    let plans = ctx.plans.as_ref().map(|plans| (&*plans.metrics, plans.executor.memory()));
    let page = ctx.metrics.encode(observed, plans, format)?;
    let page = Bytes::from(page);
    *last = Some(Rendered { begun, page: page.clone() });
    Ok(page)
}
