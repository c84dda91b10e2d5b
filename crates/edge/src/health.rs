//! The standard gRPC health service: serving until the drain begins.

use macp_rpc::{history, plan, runtime};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::history::History;
use crate::plan::Plan;
use crate::runtime::Runtime;

/// The server as a whole, and each service of ours.
const NAMES: [&str; 3] =
    ["", <runtime::Server<Runtime> as NamedService>::NAME, <history::Server<History> as NamedService>::NAME];

/// The service that is there only where plans are executed.
const PLANS: &str = <plan::Server<Plan> as NamedService>::NAME;

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
