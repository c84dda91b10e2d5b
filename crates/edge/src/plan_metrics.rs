//! The metrics of plans: runs, steps, money, and what replays found. Labels come from sets that configuration bounds;
//! no run, session, plan or tenant is ever named.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use macp_plan::executor::{MemoryUse, RunObserver};
use macp_plan::registry::Registry as Skills;
use macp_plan::store::Status;
use macp_plan_core::compare::{Aspect, Origin, Report, Verdict};
use macp_plan_core::journal::{DedupeVerdict, RunFinished, RunMode, RunStart, StepFinished};
use macp_plan_core::taxonomy;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

const PREFIX: &str = "aos";

/// What stands for a name that is in no bounded set.
const OTHER: &str = "other";

const STATUSES: [Status; 6] =
    [Status::Succeeded, Status::Failed, Status::BudgetExceeded, Status::Rejected, Status::Cancelled, Status::InDoubt];

const PINS: [&str; 10] = [
    "skill_missing",
    "skill_disabled",
    "skill_build_changed",
    "taxonomy",
    "rate_card",
    "jitter",
    "token_estimator",
    "spec",
    "revision",
    "journal",
];

/// A live replay did not follow from its own inputs.
const CONFORMANCE: &str = "conformance";

/// Decisions came out differently on the same inputs.
const DIVERGENCE: &str = "divergence";

const BREACHES: [&str; 2] = ["budget", "per_step"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AspectLabel {
    aspect: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplayLabels {
    mode: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    skill_id: String,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SkillLabel {
    skill_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BreachLabel {
    breach: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// What happens to plans, counted. A full replay is counted as a replay and never as a run.
#[derive(Debug)]
pub(crate) struct PlanMetrics {
    registry: Registry,
    skills: BTreeSet<String>,
    matches: Family<AspectLabel, Counter>,
    mismatches: Family<AspectLabel, Counter>,
    replays: Family<ReplayLabels, Counter>,
    pin_violations: Family<KindLabel, Counter>,
    determinism_violations: Family<KindLabel, Counter>,
    runs: Family<StatusLabel, Counter>,
    steps: Family<StepLabels, Counter>,
    step_retries: Family<StepLabels, Counter>,
    cost: Family<SkillLabel, Counter>,
    budget_stops: Family<BreachLabel, Counter>,
    idempotency: Family<ResultLabel, Counter>,
    append: Histogram,
}

impl PlanMetrics {
    pub(crate) fn new(skills: &Skills) -> Arc<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        let metrics = PlanMetrics {
            matches: counted(&mut registry, "replay_behavior_match", "Aspects in which a replay behaved alike"),
            mismatches: counted(&mut registry, "replay_behavior_mismatch", "Aspects in which a replay differed"),
            replays: counted(&mut registry, "replay", "Replays, by mode and verdict"),
            pin_violations: counted(&mut registry, "pin_violation", "Pins that did not hold in a replay, by kind"),
            determinism_violations: counted(
                &mut registry,
                "determinism_violation",
                "Replays in which the runtime itself decided differently, by how that was found",
            ),
            runs: counted(&mut registry, "runs", "Runs that ended, by status"),
            steps: counted(&mut registry, "steps", "Steps that ended, by skill and code"),
            step_retries: counted(&mut registry, "step_retries", "Attempts that were retried, by skill and code"),
            cost: counted(&mut registry, "cost_microcents", "Money that runs spent, by skill"),
            budget_stops: counted(&mut registry, "budget_stops", "Runs that stopped for money, by the limit they met"),
            idempotency: counted(&mut registry, "idempotency", "Answers to claims of effects"),
            append: Histogram::new(exponential_buckets(0.0001, 2.0, 18)),
            skills: skills.registrations().map(|known| known.skill.metadata().skill_id.clone()).collect(),
            registry: Registry::default(),
        };
        let help = "Time until a batch of journal entries was durable";
        registry.register_with_unit("journal_append", help, Unit::Seconds, metrics.append.clone());
        let metrics = PlanMetrics { registry, ..metrics };
        metrics.show_zeros();
        Arc::new(metrics)
    }

    /// What has not happened yet is shown as such, so that a rate can be had from the first time it does.
    fn show_zeros(&self) {
        for aspect in Aspect::ALL {
            let label = AspectLabel { aspect: aspect.metric_label() };
            self.matches.get_or_create(&label).inc_by(0);
            self.mismatches.get_or_create(&label).inc_by(0);
        }
        for status in STATUSES {
            self.runs.get_or_create(&StatusLabel { status: status.as_str() }).inc_by(0);
        }
        for kind in PINS {
            self.pin_violations.get_or_create(&KindLabel { kind }).inc_by(0);
        }
        for kind in [CONFORMANCE, DIVERGENCE] {
            self.determinism_violations.get_or_create(&KindLabel { kind }).inc_by(0);
        }
        for breach in BREACHES {
            self.budget_stops.get_or_create(&BreachLabel { breach }).inc_by(0);
        }
        for verdict in [DedupeVerdict::New, DedupeVerdict::Duplicate, DedupeVerdict::Conflict] {
            self.idempotency.get_or_create(&ResultLabel { result: result(verdict) }).inc_by(0);
        }
    }

    pub(crate) fn encode(&self, memory: MemoryUse, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.registry)?;
        encode_registry(text, &memory_registry(memory))
    }

    /// A name out of the registry of skills.
    fn skill(&self, skill_id: &str) -> String {
        if self.skills.contains(skill_id) { skill_id.to_owned() } else { OTHER.to_owned() }
    }
}

impl RunObserver for PlanMetrics {
    fn run_finished(&self, start: &RunStart, finished: &RunFinished) {
        if start.mode == RunMode::Execute {
            self.runs.get_or_create(&StatusLabel { status: Status::from(finished.status).as_str() }).inc();
        }
    }

    fn step_finished(&self, start: &RunStart, finished: &StepFinished) {
        if start.mode != RunMode::Execute {
            return;
        }
        let skill_id = self.skill(&finished.skill_id);
        let labels = |code: &str| StepLabels { skill_id: skill_id.clone(), code: known_code(code) };
        self.steps.get_or_create(&labels(&finished.code)).inc();
        let retries = usize::try_from(finished.backend_retries).unwrap_or(usize::MAX);
        for code in finished.attempt_codes.iter().take(retries) {
            self.step_retries.get_or_create(&labels(code)).inc();
        }
        self.cost.get_or_create(&SkillLabel { skill_id: skill_id.clone() }).inc_by(finished.cost_microcents);
        let breach = finished.details.get("breach").and_then(serde_json::Value::as_str);
        if let Some(breach) = breach.and_then(|breach| BREACHES.into_iter().find(|known| *known == breach)) {
            self.budget_stops.get_or_create(&BreachLabel { breach }).inc();
        }
    }

    fn replayed(&self, report: &Report) {
        let labels = ReplayLabels { mode: report.replay_mode.as_str(), verdict: verdict(report.verdict) };
        self.replays.get_or_create(&labels).inc();
        if report.what_if {
            // It differs on purpose.
            return;
        }
        for (aspect, matches) in &report.behavior_match {
            let family = match matches {
                Some(true) => &self.matches,
                Some(false) => &self.mismatches,
                None => continue,
            };
            family.get_or_create(&AspectLabel { aspect: aspect.metric_label() }).inc();
        }
        for violation in &report.pin_violations {
            let kind = PINS.into_iter().find(|known| *known == violation.kind).unwrap_or(OTHER);
            self.pin_violations.get_or_create(&KindLabel { kind }).inc();
        }
        if report.conformance == Some(false) {
            self.determinism_violations.get_or_create(&KindLabel { kind: CONFORMANCE }).inc();
        } else if report.mismatches.iter().any(|mismatch| mismatch.cause == Origin::Runtime) {
            self.determinism_violations.get_or_create(&KindLabel { kind: DIVERGENCE }).inc();
        }
    }

    fn appended(&self, took: Duration) {
        self.append.observe(took.as_secs_f64());
    }

    fn deduplicated(&self, verdict: DedupeVerdict) {
        self.idempotency.get_or_create(&ResultLabel { result: result(verdict) }).inc();
    }
}

/// What runs have reserved of their memory budget at the moment of a scrape.
fn memory_registry(memory: MemoryUse) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let gauge = |value: usize| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register("run_memory_reserved_bytes", "Memory that runs have reserved", gauge(memory.reserved));
    registry.register("run_memory_budget_bytes", "Memory that runs may reserve together", gauge(memory.total));
    registry.register(
        "runs_awaiting_memory",
        "Runs that wait for memory before their next call",
        gauge(memory.waiting),
    );
    registry.register("run_memory_waits", "Times that a run had to wait for memory", ConstCounter::new(memory.waits));
    registry
}

fn counted<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Counter>
where
    L: Clone + fmt::Debug + Eq + std::hash::Hash + EncodeLabelSet + Send + Sync + 'static,
{
    let family = Family::<L, Counter>::default();
    registry.register(name, help, family.clone());
    family
}

/// A code of the taxonomy, in whichever version it is.
fn known_code(code: &str) -> &'static str {
    taxonomy::explain(code).map_or(OTHER, |explanation| explanation.code)
}

fn result(verdict: DedupeVerdict) -> &'static str {
    match verdict {
        DedupeVerdict::New => "new",
        DedupeVerdict::Duplicate => "duplicate",
        DedupeVerdict::Conflict => "conflict",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Match => "match",
        Verdict::Explained => "explained",
        Verdict::Diverged => "diverged",
        Verdict::NotComparable => "not_comparable",
        Verdict::Estimate => "estimate",
    }
}
