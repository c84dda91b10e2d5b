//! Reports about replays as they are handed out: with the name of the replay's own trace, which the decision core does
//! not know.

use macp_plan_core::compare::Report;
use serde::Serialize;

use super::build;

/// A report and the trace it belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct TracedReport<'r> {
    pub trace_id: String,
    #[serde(flatten)]
    pub report: &'r Report,
}

/// A report as it is handed out.
#[must_use]
pub fn traced(report: &Report) -> TracedReport<'_> {
    TracedReport { trace_id: build::trace_id(&report.replay_run_id), report }
}
