//! Dry run: what a plan would do and cost if every call succeeded at once, and at worst. Nothing is called, nothing is
//! compared, and nothing is copied from a recorded run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::behavior::Behavior;
use crate::cause::Cause;
use crate::check;
use crate::compare::Verdict;
use crate::cost::{self, Usage};
use crate::digest::{self, BODY_LABEL, Digest};
use crate::effect::Effect;
use crate::finding::Finding;
use crate::journal::{
    Admission, Body, DedupeVerdict, LimiterVerdict, Output, RunFinished, RunMode, RunStart, RunStatus, StepFinished,
    Stop,
};
use crate::limits;
use crate::machine::{self, Assumed, Machine, Next, OutOfPlace, Pinned, Question, Rules};
use crate::plan::{FrozenPlan, RetryPolicy, Step, StepStatus};
use crate::rate_card::{self, RateCard};
use crate::reference;
use crate::retry;
use crate::skill::{Catalog, PureSkill, SkillMetadata, guarded, has_target};

/// What a plan would do and cost.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    pub verdict: Verdict,
    pub plan_hash: Digest,
    /// What keeps the plan from running here, and warnings.
    pub findings: Vec<Finding>,
    /// Every step of the plan, in its order.
    pub steps: Vec<StepEstimate>,
    /// If every call succeeds at the first attempt and uses what it may.
    pub cost_low_microcents: u64,
    pub cost_low_cents: u64,
    /// If every attempt is made and charged what was reserved. None if nothing bounds it.
    pub cost_high_microcents: Option<u64>,
    pub cost_high_cents: Option<u64>,
    /// How the run would end if every call succeeds.
    pub status: RunStatus,
    pub final_code: String,
    pub stop: Option<Stop>,
    pub not_reached: Vec<String>,
    /// All waits between attempts by formula, and if targets ask for the longest waits that are obeyed.
    pub wait_ms_max: u64,
    pub wait_with_hints_ms_max: u64,
    /// The longest the run can take: every attempt runs into its guard, every wait is the longest.
    pub duration_ms_max: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepEstimate {
    pub step_id: String,
    /// None for a step that would not be reached.
    pub status: Option<StepStatus>,
    pub code: Option<String>,
    pub cost_low_microcents: u64,
    pub cost_high_microcents: Option<u64>,
    pub attempts_max: u32,
    pub timeout_ms: u64,
    pub wait_ms_max: u64,
    pub wait_with_hints_ms_max: u64,
    pub duration_ms_max: u64,
    /// Effects of one dispatch.
    pub effects: Vec<Effect>,
    /// Outputs of earlier steps that decide about the request, so that effects and costs may be others.
    pub depends_on: Vec<String>,
}

/// What was predicted of a step and what happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Predicted {
    pub step_id: Option<String>,
    pub field: &'static str,
    pub predicted: Value,
    pub actual: Value,
}

/// Estimates a plan. `start` gives what a run would be bound to; its mode does not matter.
pub fn dry_run(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>, start: RunStart) -> Result<Estimate, OutOfPlace> {
    let bounds = Bounds::new(plan, catalog.as_ref());
    let (results, finished) = predict(plan, catalog, &bounds, start)?;
    let results: BTreeMap<&str, &StepFinished> = results.iter().map(|it| (it.step_id.as_str(), it)).collect();
    let steps: Vec<StepEstimate> =
        plan.plan.steps.iter().map(|step| bounds.estimate(step, results.get(step.step_id.as_str()).copied())).collect();
    let sum = |of: fn(&StepEstimate) -> u64| steps.iter().map(of).fold(0, u64::saturating_add);
    let high = steps.iter().try_fold(0_u64, |sum, step| Some(sum.saturating_add(step.cost_high_microcents?)));
    let high = if bounds.hard_limit { Some(high.unwrap_or(u64::MAX).min(bounds.budget)) } else { high };
    Ok(Estimate {
        verdict: Verdict::Estimate,
        plan_hash: plan.hash.clone(),
        findings: check::preflight(plan, catalog.as_ref()),
        cost_low_microcents: finished.total_cost_microcents,
        cost_low_cents: finished.total_cost_cents,
        cost_high_microcents: high,
        cost_high_cents: high.map(cost::cents),
        status: finished.status,
        final_code: finished.final_code,
        stop: finished.stop,
        not_reached: finished.not_reached,
        wait_ms_max: sum(|step| step.wait_ms_max),
        wait_with_hints_ms_max: sum(|step| step.wait_with_hints_ms_max),
        duration_ms_max: sum(|step| step.duration_ms_max),
        steps,
    })
}

impl Estimate {
    /// The estimate beside what a run of the plan did, where the two are not the same.
    #[must_use]
    pub fn against(&self, run: &Behavior) -> Vec<Predicted> {
        let mut differences = Vec::new();
        let mut differ = |step_id: Option<&str>, field, predicted: Value, actual: Value| {
            if predicted != actual {
                differences.push(Predicted { step_id: step_id.map(str::to_owned), field, predicted, actual });
            }
        };
        for step in &self.steps {
            let actual = run.step(&step.step_id).and_then(|step| step.finished.as_ref());
            let id = Some(step.step_id.as_str());
            differ(id, "reached", step.status.is_some().into(), actual.is_some().into());
            let Some(actual) = actual else { continue };
            // An estimate never says that a step succeeds, only that nothing it knows of stops it.
            if step.code.as_deref() != Some("OK_DRY_RUN") || actual.status != StepStatus::Success {
                differ(id, "code", step.code.as_deref().into(), actual.code.as_str().into());
            }
            differ(id, "cost_microcents", step.cost_low_microcents.into(), actual.cost_microcents.into());
            differ(id, "backend_retries", 0.into(), actual.backend_retries.into());
        }
        if let Some(finished) = &run.finished {
            let total = (self.cost_low_microcents, finished.total_cost_microcents);
            differ(None, "total_cost_microcents", total.0.into(), total.1.into());
            let status = |status: &RunStatus| serde_json::to_value(status).unwrap_or(Value::Null);
            differ(None, "status", status(&self.status), status(&finished.status));
            let step = |stop: &Option<Stop>| stop.as_ref().and_then(|stop| stop.step_id.clone());
            differ(None, "stopped_at", step(&self.stop).into(), step(&finished.stop).into());
        }
        differences
    }
}

/// Runs the machine in a world where everything is allowed and every call succeeds with all it may use.
fn predict(
    plan: &Arc<FrozenPlan>,
    catalog: &Arc<dyn Catalog>,
    bounds: &Bounds<'_>,
    start: RunStart,
) -> Result<(Vec<StepFinished>, RunFinished), OutOfPlace> {
    let start = RunStart { mode: RunMode::DryRun, ..start };
    let machine = Machine::new(Arc::clone(plan), Arc::clone(catalog), Arc::new(Pinned), start);
    let mut machine = machine.assuming(bounds.assumptions());
    loop {
        let body = match machine.next() {
            Next::Finished => break,
            Next::Decide(body) => *body,
            Next::Ask(question) => answer(&question, machine.bound()),
        };
        machine.apply(&body, None)?;
    }
    let finished = machine.finished().expect("a machine finishes with the entry that says so").clone();
    Ok((machine.results().to_vec(), finished))
}

fn answer(question: &Question<'_>, bound: Usage) -> Body {
    match question {
        Question::Admission => Body::Admission(Admission { admitted: true, ..Admission::default() }),
        Question::Limiter { step, attempt, .. } => {
            Body::LimiterVerdict { step_id: step.step_id.clone(), attempt: *attempt, verdict: LimiterVerdict::Allowed }
        }
        Question::Dedupe { step, effect_key, .. } => Body::DedupeVerdict {
            step_id: step.step_id.clone(),
            effect_key: (*effect_key).to_owned(),
            verdict: DedupeVerdict::New,
            reused_run_id: None,
            reused: None,
            output: Output::default(),
        },
        // There will be an output, and nobody knows which: a digest without a body says just that.
        Question::Outputs => unreachable!("only a lean machine asks for outputs"),
        Question::Dispatch { step, attempt, .. } => Body::AttemptObserved {
            step_id: step.step_id.clone(),
            attempt: *attempt,
            cause: Cause::Success,
            usage: Some(bound),
            retry_after_ms: None,
            output: Output { output_ref: Some(digest::of_bytes(BODY_LABEL, b"")), output: None },
        },
    }
}

/// What the plan alone says about the worst of every step.
struct Bounds<'a> {
    plan: &'a FrozenPlan,
    catalog: &'a dyn Catalog,
    card: Option<RateCard>,
    budget: u64,
    hard_limit: bool,
}

impl<'a> Bounds<'a> {
    fn new(plan: &'a FrozenPlan, catalog: &'a dyn Catalog) -> Self {
        Self {
            plan,
            catalog,
            card: rate_card::pinned(&plan.plan.pins.rate_card, catalog).ok(),
            budget: cost::microcents(plan.plan.context.budget_cents),
            hard_limit: plan.plan.context.budget_policy.hard_limit,
        }
    }

    fn skill(&self, step: &Step) -> Option<Arc<dyn PureSkill>> {
        self.catalog.skill(&step.skill_id, &step.skill_version).map(|registration| registration.skill)
    }

    /// Steps that refer to outputs are looked at as they are written.
    fn assumptions(&self) -> BTreeMap<String, Assumed> {
        let steps = self.plan.plan.steps.iter().filter(|step| !reference::is_literal(&step.parameters));
        let assume = |step: &Step| {
            let skill = self.skill(step)?;
            // A skill that panics over a template may not over what becomes of it.
            let bound = guarded(|| skill.usage_bound(&step.parameters)).unwrap_or_default();
            let effects = guarded(|| skill.effects(&step.parameters)).unwrap_or_default();
            Some((step.step_id.clone(), Assumed { bound, effects, ..Assumed::default() }))
        };
        steps.filter_map(assume).collect()
    }

    fn estimate(&self, step: &Step, result: Option<&StepFinished>) -> StepEstimate {
        let skill = self.skill(step);
        let policy = &step.retry_policy;
        let retries = if policy.retryable_codes.is_empty() { 0 } else { policy.max_retries };
        let attempts_max = retries + 1;
        let timeout_ms = match &skill {
            Some(skill) => timeout_ms_max(step, skill.metadata()),
            None => step.timeout_ms.unwrap_or_default(),
        };
        let waits = |with_hints| (0..retries).map(|attempt| wait_ms_max(policy, attempt, with_hints)).sum::<u64>();
        let effects = skill.as_ref().and_then(|skill| guarded(|| skill.effects(&step.parameters))).unwrap_or_default();
        let hinted = skill.as_ref().is_none_or(|skill| has_target(skill.metadata(), &effects));
        let wait_with_hints_ms_max = waits(hinted);
        let running = u64::from(attempts_max).saturating_mul(timeout_ms.saturating_add(limits::GUARD_MS));
        StepEstimate {
            step_id: step.step_id.clone(),
            status: result.map(|result| result.status),
            code: result.map(|result| result.code.clone()),
            cost_low_microcents: result.map_or(0, |result| result.cost_microcents),
            cost_high_microcents: self.cost_high(step, skill.as_deref(), attempts_max),
            attempts_max,
            timeout_ms,
            wait_ms_max: waits(false),
            wait_with_hints_ms_max,
            duration_ms_max: running.saturating_add(wait_with_hints_ms_max),
            effects,
            depends_on: self.depends_on(step),
        }
    }

    /// The most a step can cost. Where the request is not known yet, only a hard budget bounds it.
    fn cost_high(&self, step: &Step, skill: Option<&dyn PureSkill>, attempts: u32) -> Option<u64> {
        let within_budget = |cost: u64| if self.hard_limit { cost.min(self.budget) } else { cost };
        let Some(skill) = skill else { return Some(0) };
        let key = &skill.metadata().cost_model.rate_card_key;
        let price = self.card.as_ref().and_then(|card| card.price(key, skill.model(&step.parameters)));
        let literal = reference::is_literal(&step.parameters);
        match price {
            Some(price) if literal || price.is_flat() => {
                let bound = guarded(|| skill.usage_bound(&step.parameters)).unwrap_or_default();
                let once = Pinned.cost(&price, &bound);
                Some(within_budget(once.saturating_mul(u64::from(attempts))))
            }
            // Without a price the step ends before it is dispatched.
            None if literal => Some(0),
            _ => self.hard_limit.then_some(self.budget),
        }
    }

    fn depends_on(&self, step: &Step) -> Vec<String> {
        let names: BTreeSet<&str> = self.plan.plan.steps.iter().map(Step::name).collect();
        let references = reference::references(&step.parameters).unwrap_or_default();
        let meant = references.iter().filter_map(|reference| reference.names().find(|name| names.contains(name)));
        meant.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The longest timeout an attempt can have; one that an earlier output decides is as long as the skill allows.
fn timeout_ms_max(step: &Step, metadata: &SkillMetadata) -> u64 {
    let schema = metadata.input_schema.pointer("/properties/timeout_ms");
    match (schema, step.parameters.get("timeout_ms")) {
        (Some(schema), Some(Value::String(_))) => {
            schema.get("maximum").and_then(Value::as_u64).unwrap_or(limits::TIMEOUT_MS_MAX)
        }
        _ => machine::timeout_ms(step, &step.parameters, metadata),
    }
}

/// The longest wait after an attempt, whatever the jitter, and if the target asks for as much as is obeyed.
fn wait_ms_max(policy: &RetryPolicy, attempt: u32, with_hints: bool) -> u64 {
    let even = RetryPolicy { jitter_enabled: false, ..policy.clone() };
    let jitter = if policy.jitter_enabled { policy.jitter_max_ms } else { 0 };
    let backoff = retry::backoff_ms(&even, attempt, "").saturating_add(jitter);
    if with_hints { backoff.max(policy.max_delay_ms) } else { backoff }
}
