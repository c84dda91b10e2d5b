//! Tells a run from its journal.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use macp_plan_core::behavior::{Behavior, StepBehavior};
use macp_plan_core::cause::Cause;
use macp_plan_core::cost::{self, Usage};
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, BudgetTotals, LimiterVerdict, Output, StepFinished};
use macp_plan_core::plan::{FrozenPlan, Step};
use macp_plan_core::taxonomy;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{
    AttemptResult, Cancelled, Observability, RunResult, SideEffect, SkillPin, StepResult, StructuredOutcome, at_work,
};
use crate::session::{SUPERSEDED, SUPERSEDED_BY};
use crate::store::{Run, Status, bodies};

/// What was observed of one attempt.
#[derive(Clone, Debug)]
struct Observed {
    cause: Cause,
    usage: Option<Usage>,
    retry_after_ms: Option<u64>,
    output_ref: Option<Digest>,
}

/// What a journal holds beside the decisions.
#[derive(Debug, Default)]
struct Inputs<'r> {
    attempts: BTreeMap<(&'r str, u32), Observed>,
    outputs: BTreeMap<&'r str, &'r Output>,
    facts: BTreeMap<&'r str, &'r Map<String, Value>>,
}

impl RunResult {
    /// A run as its journal alone tells it: outputs that are kept apart are named by their digests.
    #[must_use]
    pub fn of_journal(run: &Run, plan: &FrozenPlan) -> Self {
        Self::of(run, plan, &bodies::without_text)
    }

    /// A run as its journal tells it. `body` gives outputs kept apart from the journal; of one that it does not give,
    /// the result has the digest.
    #[must_use]
    pub fn of(run: &Run, plan: &FrozenPlan, body: &dyn Fn(&Digest) -> Option<Value>) -> Self {
        let start = run.start();
        let behavior = Behavior::of(run.entries.iter().map(|sealed| &sealed.entry));
        let inputs = Inputs::of(run);
        let trace_id = trace_id(&start.run_id);
        let steps: Vec<_> = behavior
            .steps
            .iter()
            .filter_map(|step| {
                let finished = step.finished.as_ref()?;
                Some(told(run, step, finished, &inputs, &trace_id, body))
            })
            .collect();
        let finish = behavior.finished.as_ref();
        let at_work = if finish.is_some() { None } else { at_work::of(run) };
        let charged = steps.iter().map(|step| step.outcome.cost_microcents);
        let charged = charged.chain(at_work.iter().map(|at_work| at_work.cost_microcents));
        let spent = charged.fold(0, u64::saturating_add);
        let so_far = || BudgetTotals::of(plan.plan.context.budget_cents, spent);
        let started = run.summary.started_at_ms;
        let admission = run.bodies().find_map(|body| match body {
            Body::Admission(admission) => Some(admission),
            _ => None,
        });
        let cancelled = run.bodies().find_map(|body| match body {
            Body::CancelRequested { by, reason } => Some(Cancelled { by: by.clone(), reason: reason.clone() }),
            _ => None,
        });
        let alerts = run.bodies().filter_map(|body| match body {
            Body::BudgetAlert(alert) => Some(alert.clone()),
            _ => None,
        });
        Self {
            run_id: start.run_id.clone(),
            plan_id: start.plan_id.clone(),
            plan_hash: start.plan_hash.clone(),
            agent_id: plan.plan.agent_id.clone(),
            mode: start.mode,
            status: finish.map_or(Status::Running, |finish| finish.status.into()),
            final_code: finish.map(|finish| finish.final_code.clone()),
            retry_count: steps.iter().map(|step| step.retry_count).fold(0, u32::saturating_add),
            stop: finish.and_then(|finish| finish.stop.clone()),
            not_reached: finish.map_or_else(Vec::new, |finish| finish.not_reached.clone()),
            ahead: if finish.is_some() { Vec::new() } else { ahead(&behavior, plan) },
            total_cost_microcents: finish.map_or(spent, |finish| finish.total_cost_microcents),
            total_cost_cents: finish.map_or_else(|| cost::cents(spent), |finish| finish.total_cost_cents),
            budget: Some(finish.map_or_else(so_far, |finish| finish.budget)),
            alerts: alerts.collect(),
            aliases: plan.plan.aliases(),
            jitter_seed: start.jitter_seed.clone(),
            epoch: start.epoch,
            epoch_reason: start.epoch_reason.clone(),
            original_run_id: start.original_run_id.clone(),
            parent_run_id: start.parent_run_id.clone(),
            session: start.session.clone(),
            journal_head: run.head().to_string(),
            behavior_digest: finish.map(|finish| finish.behavior_digest.clone()),
            started_at: stamp(started),
            finished_at: run.summary.finished_at_ms.map(stamp),
            duration_ms: run.summary.finished_at_ms.map(|finished| finished.saturating_sub(started)),
            durable: true,
            at_work,
            settled: Vec::new(),
            no_retry: superseded(run, cancelled.as_ref()),
            stuck: None,
            held_up: None,
            findings: admission.map_or_else(Vec::new, |admission| admission.findings.clone()),
            cancelled,
            trace_id,
            steps,
        }
    }
}

/// Steps of the plan that have not begun.
fn ahead(behavior: &Behavior, plan: &FrozenPlan) -> Vec<String> {
    let begun = |step: &&Step| behavior.step(&step.step_id).is_some();
    plan.plan.steps.iter().filter(|step| !begun(step)).map(|step| step.step_id.clone()).collect()
}

/// That a commitment took the place of the run's own, where the journal tells.
fn superseded(run: &Run, cancelled: Option<&Cancelled>) -> Option<String> {
    run.start().session.as_ref()?;
    let facts = run.bodies().any(|body| match body {
        Body::Observed { facts, .. } => facts.shown().contains_key(SUPERSEDED_BY),
        _ => false,
    });
    let told = facts || cancelled.is_some_and(|cancelled| cancelled.reason.starts_with(SUPERSEDED));
    told.then(|| "another commitment took the place of the one it carries out".to_owned())
}

impl<'r> Inputs<'r> {
    fn of(run: &'r Run) -> Self {
        let mut inputs = Self::default();
        for body in run.bodies() {
            match body {
                Body::AttemptObserved { step_id, attempt, cause, usage, retry_after_ms, output } => {
                    let observed = Observed {
                        cause: cause.clone(),
                        usage: *usage,
                        retry_after_ms: *retry_after_ms,
                        output_ref: output.output_ref.clone(),
                    };
                    inputs.attempts.insert((step_id, *attempt), observed);
                    inputs.outputs.insert(step_id, output);
                }
                Body::LimiterVerdict { step_id, attempt, verdict } => {
                    let cause = match verdict {
                        LimiterVerdict::Allowed => continue,
                        LimiterVerdict::RateLimited => Cause::RateLimited,
                        LimiterVerdict::ConcurrencyLimited => Cause::ConcurrencyLimited,
                        LimiterVerdict::StorageLimited => Cause::StorageQuotaExceeded,
                    };
                    let observed = Observed { cause, usage: None, retry_after_ms: None, output_ref: None };
                    inputs.attempts.insert((step_id, *attempt), observed);
                }
                Body::DedupeVerdict { step_id, output, .. } => {
                    inputs.outputs.insert(step_id, output);
                }
                Body::Observed { step_id: Some(step_id), facts } => {
                    inputs.facts.insert(step_id, facts.shown());
                }
                _ => {}
            }
        }
        inputs
    }

    /// A number among the facts of one attempt.
    fn fact_of_attempt(&self, step_id: &str, attempt: u32, name: &str) -> Option<u64> {
        let attempts = self.facts.get(step_id)?.get("attempts")?.as_array()?;
        let told = attempts.iter().find(|told| told.get("attempt").and_then(Value::as_u64) == Some(attempt.into()))?;
        told.get(name)?.as_u64()
    }
}

fn told(
    run: &Run,
    step: &StepBehavior,
    finished: &StepFinished,
    inputs: &Inputs<'_>,
    trace_id: &str,
    body: &dyn Fn(&Digest) -> Option<Value>,
) -> StepResult {
    let (run_id, step_id) = (run.run_id.to_string(), finished.step_id.as_str());
    let facts = inputs.facts.get(step_id).copied();
    let fact = |name: &str| facts.and_then(|facts| facts.get(name));
    let number = |name: &str| fact(name).and_then(Value::as_u64);
    let said = fact("message").and_then(Value::as_str).map(str::to_owned);
    // What a skill says of its call stands beside what was decided, never in its place.
    let mut details = match fact("details") {
        Some(Value::Object(observed)) => observed.clone(),
        _ => Map::new(),
    };
    details.extend(finished.details.clone());
    if finished.attempt_codes.len() > 1 {
        details.insert("attempt_codes".to_owned(), finished.attempt_codes.clone().into());
    }
    if let Some(output) = inputs.outputs.get(step_id).copied() {
        match (value(output, body), &output.output_ref) {
            (Some(value), _) => drop(details.insert("output".to_owned(), value)),
            (None, Some(digest)) => drop(details.insert("output_ref".to_owned(), digest.as_str().into())),
            (None, None) => {}
        }
    }
    let finished_at = number("finished_unix_ms").unwrap_or(run.summary.started_at_ms);
    let side_effects = step.effects.iter().map(|effect| SideEffect {
        kind: effect.effect_type.clone(),
        target: effect.target.clone(),
        attempt: effect.attempt,
        timestamp: stamp(inputs.fact_of_attempt(step_id, effect.attempt, "dispatched_unix_ms").unwrap_or(finished_at)),
        effect_key: effect.effect_key.clone(),
    });
    let attempts = step.attempts.iter().map(|judged| {
        let observed = inputs.attempts.get(&(step_id, judged.attempt));
        AttemptResult {
            attempt: judged.attempt,
            cause: observed.map(|observed| observed.cause.clone()),
            usage: observed.and_then(|observed| observed.usage),
            retry_after_ms: observed.and_then(|observed| observed.retry_after_ms),
            output_ref: observed.and_then(|observed| observed.output_ref.clone()),
            code: judged.code.clone(),
            cost_microcents: judged.cost_microcents,
            cost_basis: judged.cost_basis,
            retry_decision: judged.retry,
            backoff_ms: judged.backoff_ms,
            dispatched_at: inputs.fact_of_attempt(step_id, judged.attempt, "dispatched_unix_ms").map(stamp),
            latency_ms: inputs.fact_of_attempt(step_id, judged.attempt, "latency_ms"),
        }
    });
    let outcome = StructuredOutcome {
        step_id: step_id.to_owned(),
        status: finished.status,
        code: finished.code.clone(),
        message: said.unwrap_or_else(|| meaning(&finished.code)),
        details,
        cost_cents: finished.cost_cents,
        cost_microcents: finished.cost_microcents,
        latency_ms: number("latency_ms").unwrap_or_default(),
        retryable: finished.retryable,
        side_effects: side_effects.collect(),
        metadata: SkillPin { skill_id: finished.skill_id.clone(), skill_version: finished.skill_version.clone() },
        observability: Observability {
            trace_id: trace_id.to_owned(),
            span_id: digits(&format!("{run_id}/{step_id}"), 8),
            backend_retries: finished.backend_retries,
            total_attempts: finished.total_attempts,
        },
        timestamp: stamp(finished_at),
        run_id,
    };
    StepResult {
        step_id: step_id.to_owned(),
        retry_count: finished.backend_retries,
        final_code: finished.code.clone(),
        outcome,
        attempts: attempts.collect(),
    }
}

fn value(output: &Output, body: &dyn Fn(&Digest) -> Option<Value>) -> Option<Value> {
    output.output.clone().or_else(|| body(output.output_ref.as_ref()?))
}

/// What a code means, for steps of which nothing else was said.
fn meaning(code: &str) -> String {
    taxonomy::explain(code).map_or_else(String::new, |explanation| explanation.meaning.to_owned())
}

/// RFC 3339.
pub(crate) fn stamp(unix_ms: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(SystemTime::UNIX_EPOCH);
    prost_types::Timestamp::from(time).to_string()
}

/// The id under which traces know a run.
pub(crate) fn trace_id(run_id: &str) -> String {
    digits(run_id, 16)
}

/// A name of so many bytes for traces; the same whenever it is asked for.
fn digits(text: &str, bytes: usize) -> String {
    hex::encode(&Sha256::digest(text)[..bytes])
}
