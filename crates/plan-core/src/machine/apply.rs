//! How entries move the machine on. Nothing is decided here: what an entry says is taken as it stands, so that a journal
//! written once stays true.

use macp_wire::memory;
use serde_json::Value;

use super::decide::add;
use super::outputs::Given;
use super::prepare::Gate;
use super::state::{Alert, Current, Ending, Happened, Held, Phase, Seen};
use super::{Machine, OutOfPlace};
use crate::cause::Cause;
use crate::cost;
use crate::journal::{
    Admission, Body, DedupeVerdict, LimiterVerdict, Output, REVISION, RefusedCheck, Reused, RunStart, RunStatus,
    StepFinished, Stop, StopReason,
};
use crate::plan::{OnError, StepStatus};
use crate::skill::has_target;
use crate::taxonomy::{self, Class};

impl Machine {
    /// Applies an entry. `output` is the body of an output that the entry names by digest alone.
    pub fn apply(&mut self, body: &Body, output: Option<&Value>) -> Result<(), OutOfPlace> {
        self.apply_given(body, output.map_or(Given::Nothing, Given::Value))
    }

    pub(super) fn apply_given(&mut self, body: &Body, output: Given<'_>) -> Result<(), OutOfPlace> {
        if let Body::Observed { .. } = body {
            return Ok(());
        }
        self.check_place(body)?;
        match body {
            Body::RunStarted(start) => self.apply_run_started(start)?,
            Body::Admission(admission) => self.apply_admission(admission),
            Body::StepStarted { step_id, index, .. } => self.apply_step_started(step_id, *index)?,
            Body::BudgetChecked { .. } => self.apply_budget_checked(body),
            Body::RetryScheduled { backoff_ms, .. } => {
                let wait_ms = self.wait_ms(*backoff_ms);
                self.with_current(|current| current.wait_ms = wait_ms);
                self.state.phase = Phase::Limiter;
            }
            Body::LimiterVerdict { verdict, .. } => self.apply_limiter(*verdict),
            Body::DedupeVerdict { step_id, verdict, effect_key, reused_run_id, reused, output: recorded } => {
                let held = self.held(step_id, recorded, output)?;
                match verdict {
                    DedupeVerdict::New => {
                        self.with_current(|current| current.claimed = true);
                        self.open_attempt();
                    }
                    DedupeVerdict::Duplicate => {
                        self.with_current(|current| current.output = held);
                        let (reused_run_id, reused) = (reused_run_id.clone(), reused.clone());
                        self.end_step(Ending::Duplicate { reused_run_id, reused });
                    }
                    DedupeVerdict::Conflict => self.end_step(Ending::Conflict { effect_key: effect_key.clone() }),
                }
            }
            Body::EffectIntent { effect_type, target, .. } => {
                let effect = (effect_type.clone(), target.clone());
                let complete = self.with_current(|current| {
                    current.effects.push(effect);
                    current.intents += 1;
                    current.intents >= current.prepared.effects.len()
                });
                if complete {
                    self.state.phase = Phase::Dispatch;
                }
            }
            Body::AttemptObserved { step_id, cause, usage, retry_after_ms, output: recorded, .. } => {
                let held = self.held(step_id, recorded, output)?;
                let happened =
                    Happened { cause: cause.clone(), usage: *usage, retry_after_ms: *retry_after_ms, dispatched: true };
                self.with_current(|current| {
                    // Any attempt counts: that the last one proves something says nothing of those before it.
                    current.may_have_acted |= current.prepared.is_unrepeatable() && !happened.cause.proves_no_effect();
                    current.happened = Some(happened);
                    current.output = held;
                });
                self.state.phase = Phase::Judge;
            }
            Body::AttemptJudged { code, cost_microcents, retry, .. } => {
                self.apply_judged(code, *cost_microcents, *retry)
            }
            Body::StepFinished(finished) => self.apply_step_finished(finished),
            Body::CancelRequested { by, reason } => {
                self.end_step(Ending::Cancelled { by: by.clone(), reason: reason.clone() });
            }
            Body::DeadlineReached { limit_ms } => self.end_step(Ending::Deadline { limit_ms: *limit_ms }),
            Body::BudgetAlert(alert) => {
                self.state.alert_due = None;
                self.state.threshold_told |= alert.refused.is_none();
            }
            Body::RunFinished(finished) => {
                self.state.finished = Some(finished.clone());
                self.state.phase = Phase::Finished;
            }
            Body::Observed { .. } => {}
        }
        Ok(())
    }

    /// The kind of entry that is due.
    fn due(&self) -> &'static str {
        if self.state.alert_due.is_some() {
            return "budget_alert";
        }
        match self.state.phase {
            Phase::Start => "run_started",
            Phase::Admission => "admission",
            Phase::StepStart => "step_started",
            Phase::Budget => "budget_checked",
            Phase::Schedule => "retry_scheduled",
            Phase::Limiter => "limiter_verdict",
            Phase::Dedupe => "dedupe_verdict",
            Phase::Intent => "effect_intent",
            Phase::Dispatch => "attempt_observed",
            Phase::Judge => "attempt_judged",
            Phase::StepEnd(_) => "step_finished",
            Phase::RunEnd => "run_finished",
            Phase::Finished => "nothing",
        }
    }

    fn check_place(&self, body: &Body) -> Result<(), OutOfPlace> {
        let (expected, found) = (self.due(), body.kind());
        let interrupts = matches!(body, Body::CancelRequested { .. } | Body::DeadlineReached { .. });
        if (interrupts && self.boundary()) || expected == found {
            return self.check_step(body);
        }
        Err(OutOfPlace::Kind { expected, found })
    }

    fn check_step(&self, body: &Body) -> Result<(), OutOfPlace> {
        // A step that starts is looked up by its place instead: other rules may have ordered a recorded run.
        if matches!(body, Body::StepStarted { .. }) {
            return Ok(());
        }
        let (Some(found), Some(current)) = (body.step_id(), &self.state.current) else { return Ok(()) };
        let expected = &self.step(current).step_id;
        if found != expected {
            return Err(OutOfPlace::Step { expected: expected.clone(), found: found.to_owned() });
        }
        match body.attempt() {
            Some(attempt) if attempt != current.attempt => {
                Err(OutOfPlace::Attempt { step_id: found.to_owned(), expected: current.attempt, found: attempt })
            }
            _ => Ok(()),
        }
    }

    fn apply_run_started(&mut self, start: &RunStart) -> Result<(), OutOfPlace> {
        if start.plan_hash != self.plan.hash {
            return Err(OutOfPlace::Plan { expected: self.plan.hash.clone(), found: start.plan_hash.clone() });
        }
        if !(1..=REVISION).contains(&start.revision) {
            return Err(OutOfPlace::Revision { found: start.revision });
        }
        self.start = start.clone();
        self.state.phase = Phase::Admission;
        Ok(())
    }

    fn apply_admission(&mut self, admission: &Admission) {
        let pinned = self.taxonomy.is_some() && (self.card.is_some() || self.closing);
        if admission.admitted && pinned {
            return self.go_to_next_step();
        }
        let first = || admission.findings.first().map(|finding| finding.code.clone());
        let by_cause = || admission.cause.as_ref().map(|cause| self.taxonomy().code_of(Class::of(cause)).to_owned());
        let code = admission.code.clone().or_else(first).or_else(by_cause);
        let code = code.unwrap_or_else(|| self.taxonomy().code_of(Class::of(&Cause::InputInvalid)).to_owned());
        let stop = Stop { reason: StopReason::Preflight, step_id: None, code };
        self.state.stop = Some((stop, RunStatus::Rejected));
        self.state.phase = Phase::RunEnd;
    }

    fn apply_step_started(&mut self, step_id: &str, index: u32) -> Result<(), OutOfPlace> {
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        let step = self.plan.plan.steps.get(place).filter(|step| step.step_id == step_id);
        if step.is_none() || self.state.seen.contains_key(step_id) {
            return Err(OutOfPlace::NoSuchStep { step_id: step_id.to_owned(), index });
        }
        if self.state.current.as_ref().is_none_or(|current| current.prepared.index != place) {
            self.make_current(place);
        }
        if self.state.current.is_none() {
            return Err(OutOfPlace::Unprepared { step_id: step_id.to_owned() });
        }
        let gate = self.with_current(|current| current.prepared.gate.clone());
        self.state.phase = match gate {
            Gate::Open => Phase::Budget,
            Gate::Skip => Phase::StepEnd(Ending::Condition),
            Gate::Refuse { cause, details } => Phase::StepEnd(Ending::Refused { cause, details }),
        };
        Ok(())
    }

    fn apply_budget_checked(&mut self, body: &Body) {
        let Body::BudgetChecked { step_id, attempt, allowed, breach, required, remaining, ceiling, .. } = body else {
            return;
        };
        if !allowed && self.plan.plan.context.budget_policy.hard_limit {
            return self.end_step(Ending::Budget {
                breach: *breach,
                required: *required,
                remaining: *remaining,
                ceiling: *ceiling,
            });
        }
        if !allowed {
            let (step_id, attempt, breach) = (step_id.clone(), *attempt, *breach);
            self.state.alert_due = match self.start.revision {
                1 => (!self.state.threshold_told).then_some(Alert::Threshold),
                _ => {
                    let (required, remaining) = (*required, *remaining);
                    Some(Alert::Refused(RefusedCheck { step_id, attempt, breach, required, remaining }))
                }
            };
        }
        self.state.phase = if *attempt == 0 { Phase::Limiter } else { Phase::Schedule };
    }

    fn apply_limiter(&mut self, verdict: LimiterVerdict) {
        let cause = match verdict {
            LimiterVerdict::Allowed => {
                let parent = self.start.parent_run_id.is_some();
                let claims = self.with_current(|current| {
                    let prepared = &current.prepared;
                    !current.claimed && (parent || prepared.claims || prepared.needs_claim())
                });
                if claims {
                    self.state.phase = Phase::Dedupe;
                } else {
                    self.open_attempt();
                }
                return;
            }
            LimiterVerdict::RateLimited => Cause::RateLimited,
            LimiterVerdict::ConcurrencyLimited => Cause::ConcurrencyLimited,
            LimiterVerdict::StorageLimited => Cause::StorageQuotaExceeded,
        };
        let happened = Happened { cause, usage: None, retry_after_ms: None, dispatched: false };
        self.with_current(|current| {
            current.happened = Some(happened);
            current.output = None;
        });
        self.state.phase = Phase::Judge;
    }

    fn apply_judged(&mut self, code: &str, charge: u64, retry: bool) {
        let in_doubt = self.with_current(|current| {
            current.codes.push(code.to_owned());
            current.cost = add(current.cost, charge);
            current.attempt += u32::from(retry);
            matches!(&current.happened, Some(Happened { cause: Cause::EffectInDoubt, .. }))
        });
        self.state.spent = add(self.state.spent, charge);
        self.state.alert_due = (!self.state.threshold_told && self.crosses_threshold()).then_some(Alert::Threshold);
        self.state.phase = match (in_doubt, retry) {
            (true, _) => Phase::StepEnd(Ending::InDoubt),
            (false, true) => Phase::Budget,
            (false, false) => Phase::StepEnd(Ending::Attempt),
        };
    }

    fn apply_step_finished(&mut self, finished: &StepFinished) {
        let Some(mut current) = self.state.current.take() else { return };
        let Phase::StepEnd(ending) = std::mem::replace(&mut self.state.phase, Phase::RunEnd) else { return };
        let step = self.step(&current);
        let (name, continues) = (step.name().to_owned(), step.on_error == OnError::Continue);
        // An estimate assumes that the call succeeds, and conditions must see what they would then see. So they must of
        // a step that was done before: that it is not done again is no reason to leave out what follows from it.
        let seen = match (&ending, self.dry()) {
            (Ending::Duplicate { reused: Some(Reused { status, code }), .. }, _) => {
                Seen { status: *status, code: code.clone() }
            }
            (Ending::Attempt, true) => {
                Seen { status: current.attempt_status(), code: current.codes.last().cloned().unwrap_or_default() }
            }
            _ => Seen { status: finished.status, code: finished.code.clone() },
        };
        self.state.seen.insert(finished.step_id.clone(), seen);
        if let Some(held) = current.output.take() {
            let small_max = self.small_max();
            self.state.hold(name, held, small_max);
        }
        self.state.release(&self.reads[current.prepared.index]);
        self.state.stop = stop_of(finished, &ending, continues);
        self.state.results.push(finished.clone());
        if self.state.stop.is_none() {
            self.go_to_next_step();
        }
    }

    fn go_to_next_step(&mut self) {
        let next = self.rules.next_step(&self.plan.plan, self.state.results.len());
        let next = next.filter(|index| *index < self.plan.plan.steps.len());
        self.state.phase = if next.is_some() { Phase::StepStart } else { Phase::RunEnd };
        if let Some(index) = next {
            self.make_current(index);
        }
    }

    /// The limiter and the claim are behind; intents come next, if the call has effects.
    fn open_attempt(&mut self) {
        let effects = self.with_current(|current| {
            current.intents = 0;
            current.prepared.effects.len()
        });
        self.state.phase = if effects == 0 { Phase::Dispatch } else { Phase::Intent };
    }

    fn end_step(&mut self, ending: Ending) {
        self.state.phase = Phase::StepEnd(ending);
    }

    fn wait_ms(&self, backoff_ms: u64) -> u64 {
        let Some(current) = &self.state.current else { return backoff_ms };
        let hint = current.happened.as_ref().and_then(|happened| happened.retry_after_ms);
        let hint = hint.filter(|_| has_target(current.prepared.skill.metadata(), &current.prepared.effects));
        crate::retry::wait_ms(&self.step(current).retry_policy, backoff_ms, hint)
    }

    /// Whether so much is spent that people should hear of it.
    fn crosses_threshold(&self) -> bool {
        let context = &self.plan.plan.context;
        let threshold = u128::from(cost::microcents(context.budget_cents))
            * u128::from(context.budget_policy.alert_threshold_percent);
        self.state.spent > 0 && u128::from(self.state.spent) * 100 >= threshold
    }

    /// The output an entry speaks of, if a later step refers to it. One that cannot be had is an error, unless what
    /// depends on it is assumed.
    fn held(&self, step_id: &str, recorded: &Output, apart: Given<'_>) -> Result<Option<Held>, OutOfPlace> {
        if self.current().is_none_or(|(step, _)| !self.state.unread.contains_key(step.name())) {
            return Ok(None);
        }
        let value = match (&recorded.output, apart) {
            (Some(value), _) | (None, Given::Value(value)) => Some(value),
            (None, Given::Nothing | Given::Size(_)) => None,
        };
        if let (None, Some(digest), Given::Size(size)) = (value, &recorded.output_ref, apart) {
            return Ok(Some(Held::Stored { digest: digest.clone(), size }));
        }
        match (value, &recorded.output_ref) {
            (Some(value), digest) if self.lean => Ok(Some(Self::lean_hold(value, digest.as_ref()))),
            (Some(value), digest) => {
                Ok(Some(Held::Known { value: value.clone(), memory: memory::of(value), digest: digest.clone() }))
            }
            (None, None) => Ok(None),
            (None, Some(_)) if self.assumptions.is_some() => Ok(Some(Held::Unknown)),
            (None, Some(digest)) => {
                Err(OutOfPlace::OutputMissing { step_id: step_id.to_owned(), digest: digest.clone() })
            }
        }
    }

    fn with_current<T>(&mut self, change: impl FnOnce(&mut Current) -> T) -> T {
        change(self.state.current.as_mut().expect("entries of a step are due only while a step is under way"))
    }
}

/// Whether and why the run ends with this step.
fn stop_of(finished: &StepFinished, ending: &Ending, continues: bool) -> Option<(Stop, RunStatus)> {
    let (reason, status) = match ending {
        Ending::Cancelled { .. } => (StopReason::Cancelled, RunStatus::Cancelled),
        Ending::Deadline { .. } => (StopReason::Deadline, RunStatus::Failed),
        Ending::InDoubt => (StopReason::InDoubt, RunStatus::InDoubt),
        _ if finished.status != StepStatus::Failure => return None,
        _ if finished.code == "ERR_BUDGET_EXCEEDED" => (StopReason::Budget, RunStatus::BudgetExceeded),
        _ if taxonomy::stops_always(&finished.code) => (StopReason::Policy, RunStatus::Failed),
        _ if continues => return None,
        _ => (StopReason::StepFailed, RunStatus::Failed),
    };
    Some((Stop { reason, step_id: Some(finished.step_id.clone()), code: finished.code.clone() }, status))
}
