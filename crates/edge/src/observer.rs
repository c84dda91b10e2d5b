//! What the engine reports, handed to the metrics and, where verdicts are recorded, to the trace.

use std::sync::Arc;
use std::time::Duration;

use macp_archive::TraceWriter;
use macp_kernel::trace;

use crate::metrics::Metrics;

/// The engine's observer.
#[derive(Debug)]
pub(crate) struct Observer {
    metrics: Arc<Metrics>,
    trace: Option<Arc<TraceWriter>>,
}

impl Observer {
    pub(crate) fn new(metrics: Arc<Metrics>, trace: Option<Arc<TraceWriter>>) -> Self {
        Observer { metrics, trace }
    }
}

impl macp_engine::Observer for Observer {
    fn committed(&self, _appends: usize, entries: usize, took: Duration, stored: bool) {
        self.metrics.committed(entries, took, stored);
    }

    fn traced(&self, event: trace::Event) {
        if let Some(trace) = &self.trace {
            trace.record(event);
        }
    }
}
