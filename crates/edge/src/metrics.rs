//! Every metric: name, unit and help, in one place.
//!
//! Counters and histograms are updated as things happen; what can be asked of the engine is asked when someone
//! scrapes. Handles are looked up once, so that counting costs no lookup.

mod plain;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use macp_engine::Engine;
use macp_plan::executor::MemoryUse;
use macp_wire::codes::Code;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::context::Context;
use crate::plan_metrics::PlanMetrics;

const PREFIX: &str = "macp";

/// The formats in which a scrape can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// What every scraper understands.
    Plain,
    OpenMetrics,
}

impl Format {
    /// OpenMetrics is for those who name it.
    pub(crate) fn asked_for(accept: &str) -> Self {
        let mut types = accept.split(',').filter_map(|range| range.split(';').next());
        let is_named = types.any(|name| name.trim().eq_ignore_ascii_case("application/openmetrics-text"));
        if is_named { Format::OpenMetrics } else { Format::Plain }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// How long a count of the open sessions is good for.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// The calls whose latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rpc {
    Initialize,
    Send,
    /// One envelope on a stream, from its arrival to its answer.
    StreamSession,
    GetSession,
    CancelSession,
    GetManifest,
    ListModes,
    ListExtModes,
    ListRoots,
    ListSessions,
    GetSessionLog,
    VerifySession,
    SuspendSession,
    ResumeSession,
    RegisterExtMode,
    UnregisterExtMode,
    PromoteMode,
    RegisterPolicy,
    UnregisterPolicy,
    GetPolicy,
    ListPolicies,
    WhatIfReplay,
    GetDecisionReceipt,
    GetReceiptKeys,
    ValidatePlan,
    DryRun,
    StartRun,
    GetRun,
    ListRuns,
    CancelRun,
    ResolveInDoubt,
    Query,
    ListSkills,
    DescribeSkill,
    ImportRun,
}

/// In the order of [`Rpc`]'s variants, so that a call is its own index.
const RPCS: [Rpc; 35] = [
    Rpc::Initialize,
    Rpc::Send,
    Rpc::StreamSession,
    Rpc::GetSession,
    Rpc::CancelSession,
    Rpc::GetManifest,
    Rpc::ListModes,
    Rpc::ListExtModes,
    Rpc::ListRoots,
    Rpc::ListSessions,
    Rpc::GetSessionLog,
    Rpc::VerifySession,
    Rpc::SuspendSession,
    Rpc::ResumeSession,
    Rpc::RegisterExtMode,
    Rpc::UnregisterExtMode,
    Rpc::PromoteMode,
    Rpc::RegisterPolicy,
    Rpc::UnregisterPolicy,
    Rpc::GetPolicy,
    Rpc::ListPolicies,
    Rpc::WhatIfReplay,
    Rpc::GetDecisionReceipt,
    Rpc::GetReceiptKeys,
    Rpc::ValidatePlan,
    Rpc::DryRun,
    Rpc::StartRun,
    Rpc::GetRun,
    Rpc::ListRuns,
    Rpc::CancelRun,
    Rpc::ResolveInDoubt,
    Rpc::Query,
    Rpc::ListSkills,
    Rpc::DescribeSkill,
    Rpc::ImportRun,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabel {
    rpc: Rpc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: CodeValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CodeValue(Code);

impl EncodeLabelValue for Rpc {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        write!(encoder, "{self:?}")
    }
}

impl EncodeLabelValue for CodeValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CredentialLabel {
    credential: CredentialValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CredentialValue {
    Valid,
    None,
}

impl EncodeLabelValue for CredentialValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(match self {
            CredentialValue::Valid => "valid",
            CredentialValue::None => "none",
        })
    }
}

/// What happens at the doors and in the engine, counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    accepted: Counter,
    duplicates: Counter,
    relayed: Counter,
    rejected: Vec<Counter>,
    latency: Vec<Histogram>,
    commit_entries: Histogram,
    commit_duration: Histogram,
    commit_failures: Counter,
}

/// What is asked of others at the time of a scrape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) requests_in_flight: usize,
    pub(crate) sessions_resident: usize,
    /// None when the store could not say.
    pub(crate) sessions_open: Option<u64>,
    pub(crate) trace_records_dropped: u64,
    /// Bytes of replies for callers with a valid credential, and for all others.
    pub(crate) reply_bytes: [usize; 2],
    /// Connections with a valid credential, and all others.
    pub(crate) connections: [usize; 2],
}

/// How many sessions are open, counted at most once in a while: anyone may scrape, and counting reads the index.
#[derive(Debug, Default)]
pub(crate) struct OpenSessions {
    counted: tokio::sync::Mutex<Option<(Instant, Option<u64>)>>,
}

impl OpenSessions {
    /// None when the store could not say. Those who ask while it is counted get the same answer.
    async fn count(&self, engine: &Engine) -> Option<u64> {
        let mut counted = self.counted.lock().await;
        if let Some((at, open)) = *counted
            && at.elapsed() < COUNTED_EVERY
        {
            return open;
        }
        let store = Arc::clone(engine.store());
        let open = match tokio::task::spawn_blocking(move || store.open_sessions()).await {
            Ok(Ok(open)) => Some(open),
            Ok(Err(failure)) => {
                tracing::warn!(%failure, "cannot count the open sessions");
                None
            }
            Err(panic) => {
                tracing::error!(%panic, "counting the open sessions failed");
                None
            }
        };
        *counted = Some((Instant::now(), open));
        open
    }
}

/// Measures a call from here to where it is dropped.
#[derive(Debug)]
pub(crate) struct Timer<'a> {
    histogram: &'a Histogram,
    began: Instant,
}

impl Metrics {
    pub(crate) fn new(version: &'static str) -> Arc<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register("build", "The version that is running", Info::new([("version", version)]));

        let accepted = Counter::default();
        registry.register("messages_accepted", "Envelopes that became history", accepted.clone());
        let duplicates = Counter::default();
        registry.register("messages_duplicate", "Envelopes that had been accepted before", duplicates.clone());
        let relayed = Counter::default();
        registry.register("signals_relayed", "Signals and Progress passed on to watchers", relayed.clone());

        let rejected = Family::<CodeLabel, Counter>::default();
        registry.register("messages_rejected", "Envelopes that were refused, by error code", rejected.clone());
        let rejected = Code::all().map(|code| rejected.get_or_create_owned(&CodeLabel { code: CodeValue(code) }));
        let rejected = rejected.collect();

        let latency = Family::<RpcLabel, Histogram>::new_with_constructor(durations);
        let help = "Time from a request's arrival to its answer, by call";
        registry.register_with_unit("request_duration", help, Unit::Seconds, latency.clone());
        let latency = RPCS.iter().map(|rpc| latency.get_or_create_owned(&RpcLabel { rpc: *rpc })).collect();

        let commit_entries = Histogram::new(exponential_buckets(1.0, 2.0, 13));
        registry.register("commit_entries", "Entries stored by one group commit", commit_entries.clone());
        let commit_duration = durations();
        let help = "Time one group commit took, sync included";
        registry.register_with_unit("commit_duration", help, Unit::Seconds, commit_duration.clone());
        let commit_failures = Counter::default();
        registry.register("commit_failures", "Group commits of which not all was stored", commit_failures.clone());

        Arc::new(Metrics {
            registry,
            accepted,
            duplicates,
            relayed,
            rejected,
            latency,
            commit_entries,
            commit_duration,
            commit_failures,
        })
    }

    pub(crate) fn accepted(&self) {
        self.accepted.inc();
    }

    pub(crate) fn duplicate(&self) {
        self.duplicates.inc();
    }

    pub(crate) fn relayed(&self) {
        self.relayed.inc();
    }

    pub(crate) fn rejected(&self, code: Code) {
        self.rejected[code as usize].inc();
    }

    pub(crate) fn time(&self, rpc: Rpc) -> Timer<'_> {
        Timer { histogram: &self.latency[rpc as usize], began: Instant::now() }
    }

    pub(crate) fn committed(&self, entries: usize, took: Duration, stored: bool) {
        self.commit_entries.observe(entries as f64);
        self.commit_duration.observe(took.as_secs_f64());
        if !stored {
            self.commit_failures.inc();
        }
    }

    /// The answer to a scrape.
    pub(crate) fn encode(
        &self,
        observed: Observed,
        plans: Option<(&PlanMetrics, MemoryUse)>,
        format: Format,
    ) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        if let Some((plans, memory)) = plans {
            plans.encode(memory, &mut text)?;
        }
        encode_registry(&mut text, &observed.registry())?;
        encode_eof(&mut text)?;
        match format {
            Format::Plain => plain::from_open_metrics(&text),
            Format::OpenMetrics => Ok(text),
        }
    }
}

impl Observed {
    fn registry(self) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        let gauge = |value: usize| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let help = "Requests inside the engine, waiting or being decided";
        registry.register("requests_in_flight", help, gauge(self.requests_in_flight));
        registry.register("sessions_resident", "Sessions in memory", gauge(self.sessions_resident));
        if let Some(open) = self.sessions_open {
            let open = ConstGauge::new(i64::try_from(open).unwrap_or(i64::MAX));
            registry.register("sessions_open", "Sessions that have not ended", open);
        }
        let by_credential = |counts: [usize; 2]| {
            let family = Family::<CredentialLabel, Gauge>::default();
            for (credential, count) in [(CredentialValue::Valid, counts[0]), (CredentialValue::None, counts[1])] {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                family.get_or_create(&CredentialLabel { credential }).set(count);
            }
            family
        };
        let help = "Bytes of replies in memory that are not yet written to their sockets";
        registry.register_with_unit("replies_unwritten", help, Unit::Bytes, by_credential(self.reply_bytes));
        let help = "Open connections, by whether a valid credential was presented on them";
        registry.register("connections_open", help, by_credential(self.connections));
        let help = "Trace records that were lost because they could not be written fast enough, or are larger than a file may be";
        registry.register("trace_records_dropped", help, ConstCounter::new(self.trace_records_dropped));
        registry
    }

    /// Asks the engine and its store. A store that cannot say how many sessions are open is left out.
    pub(crate) async fn of(ctx: &Context) -> Self {
        let engine = &ctx.engine;
        let sessions_open = ctx.open_sessions.count(engine).await;
        let (identified, strangers) = ctx.call_memory.used();
        Observed {
            requests_in_flight: engine.requests_in_flight(),
            sessions_resident: engine.resident_sessions(),
            sessions_open,
            trace_records_dropped: ctx.trace.as_ref().map_or(0, |trace| trace.dropped()),
            reply_bytes: [identified, strangers],
            connections: ctx.connections.count(),
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.histogram.observe(self.began.elapsed().as_secs_f64());
    }
}

/// From a tenth of a millisecond to some thirteen seconds.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 18))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_a_code_are_their_own_index() {
        assert!(RPCS.iter().enumerate().all(|(index, rpc)| *rpc as usize == index));
        assert!(Code::all().enumerate().all(|(index, code)| code as usize == index));
    }

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::new("1.2.3");
        metrics.accepted();
        metrics.rejected(Code::SessionNotOpen);
        metrics.committed(3, Duration::from_millis(2), false);
        drop(metrics.time(Rpc::Send));
        let observed = Observed {
            requests_in_flight: 4,
            sessions_resident: 5,
            sessions_open: Some(6),
            trace_records_dropped: 7,
            reply_bytes: [8, 9],
            connections: [10, 11],
        };
        let text = metrics.encode(observed, None, Format::OpenMetrics).expect("text can be written");
        for line in [
            "macp_build_info{version=\"1.2.3\"} 1",
            "macp_messages_accepted_total 1",
            "macp_messages_duplicate_total 0",
            "macp_messages_rejected_total{code=\"SESSION_NOT_OPEN\"} 1",
            "macp_request_duration_seconds_count{rpc=\"Send\"} 1",
            "macp_commit_entries_sum 3.0",
            "macp_commit_failures_total 1",
            "macp_requests_in_flight 4",
            "macp_sessions_resident 5",
            "macp_sessions_open 6",
            "macp_replies_unwritten_bytes{credential=\"valid\"} 8",
            "macp_replies_unwritten_bytes{credential=\"none\"} 9",
            "macp_connections_open{credential=\"none\"} 11",
            "macp_trace_records_dropped_total 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let unknown = metrics
            .encode(Observed { sessions_open: None, ..observed }, None, Format::OpenMetrics)
            .expect("text can be written");
        assert!(!unknown.contains("macp_sessions_open"));
    }
}
