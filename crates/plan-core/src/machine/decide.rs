//! What is due next: entries the machine can decide, and questions it cannot.

use macp_wire::canonical::INTEGER_MAX;
use serde_json::{Map, Value, json};

use super::state::{Alert, Current, Ending, Happened, Phase};
use super::{Machine, Next, Question};
use crate::behavior;
use crate::cause::Cause;
use crate::cost::{self, CostBasis};
use crate::journal::{Body, BudgetAlert, BudgetTotals, EFFECT, EFFECT_UNKNOWN, RunFinished, RunStatus, StepFinished};
use crate::plan::StepStatus;

impl Machine {
    /// What is due. Pure, and of constant cost but for the end of the run, which adds everything up.
    #[must_use]
    pub fn next(&self) -> Next<'_> {
        if let Some(alert) = &self.state.alert_due {
            return decide(Body::BudgetAlert(BudgetAlert {
                threshold_percent: self.plan.plan.context.budget_policy.alert_threshold_percent,
                spent: self.state.spent,
                refused: match alert {
                    Alert::Threshold => None,
                    Alert::Refused(check) => Some(check.clone()),
                },
            }));
        }
        match (&self.state.phase, &self.state.current) {
            (Phase::Start, _) => decide(Body::RunStarted(Box::new(self.start.clone()))),
            (Phase::Admission, _) => Next::Ask(Question::Admission),
            (Phase::Finished, _) => Next::Finished,
            (Phase::StepStart, None) if self.state.unprepared.is_some() => Next::Ask(Question::Outputs),
            (Phase::Dispatch, Some(current)) if current.prepared.is_set_down => Next::Ask(Question::Outputs),
            (Phase::RunEnd, _) | (_, None) => decide(Body::RunFinished(self.run_finished())),
            (phase, Some(current)) => self.next_in_step(phase, current),
        }
    }

    fn next_in_step<'m>(&'m self, phase: &Phase, current: &'m Current) -> Next<'m> {
        let step = self.step(current);
        let prepared = &current.prepared;
        let step_id = || step.step_id.clone();
        let attempt = current.attempt;
        match phase {
            Phase::StepStart => decide(Body::StepStarted {
                step_id: step_id(),
                index: u32::try_from(prepared.index).unwrap_or(u32::MAX),
                request_digest: prepared.request_digest.clone(),
            }),
            Phase::Budget => {
                let remaining = self.remaining();
                let breach = self.rules.breach(prepared.required, remaining, prepared.ceiling);
                decide(Body::BudgetChecked {
                    step_id: step_id(),
                    attempt,
                    bound: prepared.bound,
                    required: prepared.required,
                    remaining,
                    ceiling: prepared.ceiling,
                    allowed: breach.is_none(),
                    breach,
                })
            }
            Phase::Schedule => decide(Body::RetryScheduled {
                step_id: step_id(),
                next_attempt: attempt,
                backoff_ms: self.rules.backoff_ms(
                    &step.retry_policy,
                    attempt.saturating_sub(1),
                    &self.start.jitter_seed,
                ),
            }),
            Phase::Limiter => Next::Ask(Question::Limiter { step, attempt, wait_ms: current.wait_ms }),
            Phase::Dedupe => Next::Ask(Question::Dedupe {
                step,
                attempt,
                effect_key: &prepared.effect_keys[0],
                request_digest: prepared.request_digest.as_ref(),
            }),
            Phase::Intent => {
                let effect = &prepared.effects[current.intents];
                decide(Body::EffectIntent {
                    step_id: step_id(),
                    attempt,
                    effect_type: effect.kind.clone(),
                    target: effect.target.clone(),
                    effect_key: prepared.effect_keys[current.intents].clone(),
                })
            }
            Phase::Dispatch => Next::Ask(Question::Dispatch {
                step,
                attempt,
                parameters: &prepared.parameters,
                timeout_ms: prepared.timeout_ms,
                effects: &prepared.effects,
                effect_keys: &prepared.effect_keys[..prepared.effects.len()],
            }),
            Phase::Judge => decide(self.judge(current)),
            Phase::StepEnd(ending) => decide(Body::StepFinished(self.step_finished(current, ending))),
            Phase::Start | Phase::Admission | Phase::RunEnd | Phase::Finished => {
                unreachable!("handled by `next` before it looks at a step")
            }
        }
    }

    /// Code, charge and whether to try again, in that order.
    fn judge(&self, current: &Current) -> Body {
        let step = self.step(current);
        let happened = current.happened.as_ref().expect("an attempt is judged after something happened to it");
        let code = self.rules.code(self.taxonomy(), &happened.cause, current.prepared.skill.as_ref());
        let (cost_microcents, cost_basis) = self.charge(current, happened);
        // An effect in doubt is settled by an operator, whatever a policy lists.
        let settled_outside = matches!(happened.cause, Cause::EffectInDoubt);
        Body::AttemptJudged {
            step_id: step.step_id.clone(),
            attempt: current.attempt,
            code: code.to_owned(),
            retryable: self.rules.retryable(self.taxonomy(), code),
            cost_microcents,
            cost_basis,
            retry: !settled_outside && self.rules.retry(&step.retry_policy, current.attempt, code),
        }
    }

    fn charge(&self, current: &Current, happened: &Happened) -> (u64, CostBasis) {
        if !happened.dispatched {
            return (0, CostBasis::None);
        }
        let prepared = &current.prepared;
        let Some(price) = &prepared.price else {
            let recorded = prepared.charges.get(usize::try_from(current.attempt).unwrap_or(usize::MAX));
            return recorded.copied().unwrap_or((0, CostBasis::None));
        };
        match &happened.usage {
            Some(usage) if !price.is_flat() => (self.rules.cost(price, usage), CostBasis::Metered),
            // A failure that took nothing may come behind an answer that did, and then the skill says what was used.
            usage if happened.cause.consumes_nothing() && usage.unwrap_or_default() == cost::Usage::default() => {
                (0, CostBasis::None)
            }
            _ if price.is_flat() => (self.rules.cost(price, &cost::Usage::default()), CostBasis::Flat),
            _ => (self.rules.cost(price, &prepared.bound), CostBasis::Reserved),
        }
    }

    fn step_finished(&self, current: &Current, ending: &Ending) -> StepFinished {
        let step = self.step(current);
        let (status, code) = self.outcome(current, ending);
        let mut details = self.details(current, ending);
        if status == StepStatus::Failure && current.may_have_acted {
            details.insert(EFFECT.to_owned(), EFFECT_UNKNOWN.into());
        }
        StepFinished {
            step_id: step.step_id.clone(),
            status,
            retryable: self.rules.retryable(self.taxonomy(), &code),
            code,
            cost_microcents: current.cost,
            cost_cents: cost::cents(current.cost),
            skill_id: step.skill_id.clone(),
            skill_version: step.skill_version.clone(),
            backend_retries: current.retries(),
            total_attempts: u32::try_from(current.codes.len()).unwrap_or(u32::MAX),
            attempt_codes: current.codes.clone(),
            side_effects: current.effects.clone(),
            details,
        }
    }

    fn outcome(&self, current: &Current, ending: &Ending) -> (StepStatus, String) {
        let taxonomy = self.taxonomy();
        let failed = |cause: &Cause| {
            let code = self.rules.code(taxonomy, cause, current.prepared.skill.as_ref());
            (StepStatus::Failure, code.to_owned())
        };
        match ending {
            Ending::Condition => (StepStatus::Skipped, taxonomy.or_substitute("OK_SKIP_CONDITION").to_owned()),
            Ending::Duplicate { .. } => (StepStatus::Skipped, taxonomy.or_substitute("OK_SKIP_DUPLICATE").to_owned()),
            Ending::Refused { cause, .. } => failed(cause),
            Ending::Budget { .. } => failed(&Cause::BudgetExceeded),
            Ending::Conflict { .. } => failed(&Cause::IdempotencyConflict),
            Ending::Cancelled { .. } => failed(&Cause::Cancelled),
            Ending::Deadline { .. } => failed(&Cause::GuardTimeout),
            Ending::Attempt | Ending::InDoubt => {
                let status = current.attempt_status();
                if self.dry() && status != StepStatus::Failure {
                    return (StepStatus::Skipped, "OK_DRY_RUN".to_owned());
                }
                (status, current.codes.last().cloned().unwrap_or_default())
            }
        }
    }

    /// Facts that explain the outcome, never compared.
    fn details(&self, current: &Current, ending: &Ending) -> Map<String, Value> {
        let facts = match ending {
            Ending::Condition => json!({}),
            Ending::Refused { details, .. } => Value::Object(details.clone()),
            Ending::Attempt | Ending::InDoubt => match current.happened.as_ref().map(|happened| &happened.cause) {
                Some(Cause::HttpStatus { status, .. } | Cause::LlmStatus { status, .. })
                    if current.attempt_status() == StepStatus::Failure =>
                {
                    json!({"upstream_status": status})
                }
                Some(Cause::Connection { fault }) => json!({"connection_fault": fault}),
                _ => json!({}),
            },
            Ending::Budget { breach, required, remaining, ceiling } => json!({
                "breach": breach,
                "required": required,
                "remaining": remaining,
                "limit": match breach {
                    Some(crate::budget::Breach::PerStep) => *ceiling,
                    _ => Some(cost::microcents(self.plan.plan.context.budget_cents)),
                },
            }),
            Ending::Duplicate { reused_run_id, .. } => json!({"reused_run_id": reused_run_id}),
            Ending::Conflict { effect_key } => json!({"effect_key": effect_key}),
            Ending::Cancelled { by, reason } => json!({"by": by, "reason": reason}),
            Ending::Deadline { limit_ms } => json!({"limit_ms": limit_ms}),
        };
        let mut details = match facts {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        let ended_otherwise = !matches!(ending, Ending::Attempt | Ending::InDoubt);
        if let Some(code) = current.codes.last().filter(|_| ended_otherwise) {
            details.insert("last_error_code".to_owned(), Value::from(code.as_str()));
        }
        details
    }

    fn run_finished(&self) -> RunFinished {
        let state = &self.state;
        let (stop, status) = match &state.stop {
            Some((stop, status)) => (Some(stop.clone()), *status),
            None => (None, RunStatus::Succeeded),
        };
        let last = state.results.last().map(|result| result.code.clone());
        let final_code =
            last.or_else(|| stop.as_ref().map(|stop| stop.code.clone())).unwrap_or_else(|| "OK".to_owned());
        let steps = self.plan.plan.steps.iter();
        let not_reached = steps.filter(|step| !state.seen.contains_key(&step.step_id));
        RunFinished {
            status,
            final_code,
            not_reached: not_reached.map(|step| step.step_id.clone()).collect(),
            retry_count: state.results.iter().map(|result| result.backend_retries).fold(0, u32::saturating_add),
            total_cost_microcents: state.spent,
            total_cost_cents: cost::cents(state.spent),
            budget: BudgetTotals::of(self.plan.plan.context.budget_cents, state.spent),
            behavior_digest: behavior::digest(&self.plan.hash, &state.results, stop.as_ref(), state.spent),
            stop,
        }
    }
}

fn decide(body: Body) -> Next<'static> {
    Next::Decide(Box::new(body))
}

/// Adds a charge; a sum stays a number that every reader of the journal reads exactly, which is over every budget.
pub(super) fn add(sum: u64, charge: u64) -> u64 {
    sum.saturating_add(charge).min(INTEGER_MAX)
}

impl Current {
    /// How the last attempt leaves the step, if nothing else ends it.
    pub(super) fn attempt_status(&self) -> StepStatus {
        let failed = self.codes.last().is_none_or(|code| code.starts_with("ERR_"));
        match &self.happened {
            _ if failed => StepStatus::Failure,
            Some(Happened { cause: Cause::Partial, .. }) => StepStatus::Partial,
            _ => StepStatus::Success,
        }
    }
}
