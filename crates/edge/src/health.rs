//! Whether the server can accept messages, as `/readyz` and the standard gRPC health service tell it.

use std::sync::Arc;
use std::time::Duration;

use macp_rpc::{history, plan, runtime};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::context::Context;
use crate::history::History;
use crate::plan::Plan;
use crate::runtime::Runtime;

/// The server as a whole, and each service of ours.
const NAMES: [&str; 3] =
    ["", <runtime::Server<Runtime> as NamedService>::NAME, <history::Server<History> as NamedService>::NAME];

/// The service that is there only where plans are executed.
const PLANS: &str = <plan::Server<Plan> as NamedService>::NAME;

/// How often the health service is told how the server is.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Why the server cannot accept messages at the moment, if it cannot.
pub(crate) fn unready(ctx: &Context) -> Option<&'static str> {
    if ctx.drain.has_begun() {
        Some("the server is shutting down")
    } else if !ctx.engine.is_healthy() {
        Some("the last write failed; reads go on, and writes as soon as the store takes them again")
    } else if ctx.plans.as_ref().is_some_and(|plans| !plans.runs().is_writable()) {
        Some("the last write to the journal of a run failed; runs go on as soon as their store takes writes again")
    } else {
        None
    }
}

/// Tells the health service when the server becomes unready, and when it is ready again, until the drain begins.
pub(crate) async fn follow(ctx: Arc<Context>, reporter: HealthReporter) {
    let mut was_ready = true;
    loop {
        tokio::select! {
            () = ctx.drain.begun() => return,
            () = tokio::time::sleep(TOLD_EVERY) => {}
        }
        let ready = unready(&ctx).is_none();
        if ready != was_ready && !ctx.drain.has_begun() {
            let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            set(&reporter, ctx.plans.is_some(), status).await;
            was_ready = ready;
        }
    }
}

pub(crate) async fn serve(reporter: &HealthReporter, plans: bool) {
    set(reporter, plans, ServingStatus::Serving).await;
}

/// Says that the end is near.
pub(crate) async fn warn(reporter: &HealthReporter, plans: bool) {
    set(reporter, plans, ServingStatus::NotServing).await;
}

/// Ends the streams of those who watch; they have heard the warning, and would hold up the drain.
pub(crate) async fn forget(mut reporter: HealthReporter) {
    for name in NAMES.into_iter().chain([PLANS]) {
        reporter.clear_service_status(name).await;
    }
}

async fn set(reporter: &HealthReporter, plans: bool, status: ServingStatus) {
    for name in NAMES.into_iter().chain(plans.then_some(PLANS)) {
        reporter.set_service_status(name, status).await;
    }
}
