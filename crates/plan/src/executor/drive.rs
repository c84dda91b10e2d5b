//! Drives one run: the loop around the decision core.
//!
//! Entries are collected and written together, as late as the promise allows: everything decided so far is durable
//! before a call goes out and before a wait begins. A step that succeeds at once so costs one write.

use std::sync::Arc;
use std::time::Duration;

use macp_plan_core::cause::Cause;
use macp_plan_core::check;
use macp_plan_core::journal::{Admission, Body, DedupeVerdict, LimiterVerdict, Output, RunMode, StepFinished};
use macp_plan_core::machine::{Machine, Next};
use macp_plan_core::plan::StepStatus;
use macp_wire::informational::Informational;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::control::Control;
use super::dispatch::{self, Dispatch};
use super::limiter::Permit;
use super::question::Asked;
use super::recovery::{DUE, Recovered};
use super::reuse::Reuse;
use crate::store::{Claim, ClaimRequest, Journal, JournalError, Scope, Status, StoreError};

/// Entries written together at most, so that a plan of free steps does not collect without end.
const PENDING_MAX: usize = 256;

/// How often a claim that another run holds is looked at again.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);

/// How driving ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Finished,
    /// The executor stops; the journal says where to go on.
    Stopping,
}

pub(super) struct Drive<'x> {
    shared: &'x Shared,
    machine: Machine,
    journal: Journal,
    pending: Vec<Body>,
    control: watch::Receiver<Control>,
    stopping: watch::Receiver<bool>,
    began: Instant,
    /// Why the next call must not be made: an earlier process may have made it.
    in_doubt: bool,
    due_unix_ms: Option<u64>,
    permit: Option<Permit>,
    /// The claim of the step under way, and what became of claims once the journal has it.
    claim: Option<ClaimRequest>,
    settled: Vec<(ClaimRequest, Option<Output>)>,
    reuse: Option<Reuse>,
    facts: Facts,
    output: Output,
}

/// What is told of a step besides its outcome.
#[derive(Default)]
struct Facts {
    first_dispatch: Option<Instant>,
    last_answer: Option<Instant>,
    said: String,
    details: Map<String, Value>,
    attempts: Vec<Value>,
}

impl<'x> Drive<'x> {
    pub(super) fn begun(
        shared: &'x Shared,
        machine: Machine,
        journal: Journal,
        control: watch::Receiver<Control>,
    ) -> Self {
        Self {
            shared,
            machine,
            journal,
            pending: Vec::new(),
            control,
            stopping: shared.stopping.subscribe(),
            began: Instant::now(),
            in_doubt: false,
            due_unix_ms: None,
            permit: None,
            claim: None,
            settled: Vec::new(),
            reuse: None,
            facts: Facts::default(),
            output: Output::default(),
        }
    }

    pub(super) fn recovered(
        shared: &'x Shared,
        recovered: Recovered,
        journal: Journal,
        control: watch::Receiver<Control>,
    ) -> Self {
        let Recovered { machine, due_unix_ms, .. } = recovered;
        let in_doubt = machine.in_doubt();
        Self { in_doubt, due_unix_ms, ..Self::begun(shared, machine, journal, control) }
    }

    pub(super) async fn run(mut self) -> Result<Ended, JournalError> {
        loop {
            if self.machine.boundary() && self.heed().await? == Some(Ended::Stopping) {
                return Ok(Ended::Stopping);
            }
            let asked = match self.machine.next() {
                Next::Decide(body) => {
                    self.note(*body)?;
                    if self.pending.len() >= PENDING_MAX {
                        self.flush().await?;
                    }
                    continue;
                }
                Next::Ask(question) => Asked::of(question, &self.machine),
                Next::Finished => {
                    self.flush().await?;
                    if let Some(finished) = self.machine.finished() {
                        self.shared.observer.run_finished(finished);
                    }
                    return Ok(Ended::Finished);
                }
            };
            match asked {
                Asked::Admission => self.admit()?,
                Asked::Limiter { step_id, attempt, wait } => {
                    if self.wait(wait).await? {
                        // Whatever interrupted the wait is heeded at the top.
                        continue;
                    }
                    self.limit(step_id, attempt)?;
                }
                Asked::Dedupe { step_id, effect_key, request_digest } => {
                    let Some(request_digest) = request_digest else {
                        return Err(out_of_place("a claim without a request"));
                    };
                    let request = ClaimRequest {
                        effect_key,
                        request_digest,
                        run_id: self.journal.run_id().to_owned(),
                        step_id,
                        scope: match self.machine.start().mode {
                            RunMode::FullReplay => Scope::Run,
                            _ => Scope::All,
                        },
                    };
                    if !self.claim(request).await? {
                        continue;
                    }
                }
                Asked::Dispatch { step_id, attempt, dispatch } => self.dispatch(step_id, attempt, dispatch).await?,
            }
        }
    }

    /// Takes an entry as it is: the machine moves on, and the journal gets it with the next write.
    fn note(&mut self, body: Body) -> Result<(), JournalError> {
        self.note_with(body, None)
    }

    fn note_with(&mut self, body: Body, apart: Option<&Value>) -> Result<(), JournalError> {
        self.machine.apply(&body, apart).map_err(|error| out_of_place(&error.to_string()))?;
        let finished = match &body {
            Body::StepFinished(finished) => Some(self.step_finished(finished)),
            _ => None,
        };
        self.pending.push(body);
        self.pending.extend(finished);
        Ok(())
    }

    /// What is told of a finished step, and what becomes of its claim.
    fn step_finished(&mut self, finished: &StepFinished) -> Body {
        self.shared.observer.step_finished(finished);
        self.permit = None;
        let output = std::mem::take(&mut self.output);
        if let Some(claim) = self.claim.take() {
            match finished.status {
                StepStatus::Success | StepStatus::Partial => self.settled.push((claim, Some(output))),
                // What is in doubt stays claimed until an operator has said what became of it.
                StepStatus::Failure if self.in_doubt => {}
                StepStatus::Failure | StepStatus::Skipped => self.settled.push((claim, None)),
            }
        }
        let Facts { first_dispatch, last_answer, said, details, attempts } = std::mem::take(&mut self.facts);
        let latency = first_dispatch.zip(last_answer).map_or(Duration::ZERO, |(first, last)| last - first);
        let mut facts = Map::new();
        facts.insert("finished_unix_ms".to_owned(), self.shared.runs.now_ms().into());
        facts.insert("latency_ms".to_owned(), json!(u64::try_from(latency.as_millis()).unwrap_or(u64::MAX)));
        if !said.is_empty() {
            facts.insert("message".to_owned(), said.into());
        }
        if !details.is_empty() {
            facts.insert("details".to_owned(), details.into());
        }
        if !attempts.is_empty() {
            facts.insert("attempts".to_owned(), attempts.into());
        }
        Body::Observed { step_id: Some(finished.step_id.clone()), facts: Informational::new(facts) }
    }

    /// Makes everything noted so far durable. Claims follow, since the journal is what is believed.
    async fn flush(&mut self) -> Result<(), JournalError> {
        if !self.pending.is_empty() {
            let began = std::time::Instant::now();
            self.journal.append(std::mem::take(&mut self.pending)).await?;
            self.shared.observer.appended(began.elapsed());
        }
        for (claim, output) in std::mem::take(&mut self.settled) {
            let claims = self.shared.runs.claims();
            match output {
                Some(output) => claims.finish(claim, output).await?,
                None => claims.fail(claim).await?,
            }
        }
        Ok(())
    }

    /// What the run was told, at a boundary. A pause ends when the run is told to go on, to stop, or the executor stops.
    async fn heed(&mut self) -> Result<Option<Ended>, JournalError> {
        loop {
            if *self.stopping.borrow_and_update() {
                self.flush().await?;
                return Ok(Some(Ended::Stopping));
            }
            let told = self.control.borrow_and_update().clone();
            if let Some(cancel) = told.cancel {
                self.note(Body::CancelRequested { by: cancel.by, reason: cancel.reason })?;
                return Ok(None);
            }
            if let Some(limit_ms) = self.overdue() {
                self.note(Body::DeadlineReached { limit_ms })?;
                return Ok(None);
            }
            if !told.paused {
                return Ok(None);
            }
            self.flush().await?;
            tokio::select! {
                told = self.control.changed() => if told.is_err() { return Ok(Some(Ended::Stopping)) },
                _ = self.stopping.changed() => {}
            }
        }
    }

    /// The run's deadline, if it has passed. Time spent before a restart counts by the wall, at most as much as there is.
    fn overdue(&self) -> Option<u64> {
        let limit_ms = self.machine.start().deadline_ms?;
        let started = self.journal.summary().started_at_ms;
        let by_wall = Duration::from_millis(self.shared.runs.now_ms().saturating_sub(started));
        let recovered = self.due_unix_ms.is_some() || self.in_doubt;
        let passed = if recovered { by_wall.max(self.began.elapsed()) } else { self.began.elapsed() };
        (passed >= Duration::from_millis(limit_ms)).then_some(limit_ms)
    }

    fn admit(&mut self) -> Result<(), JournalError> {
        let plan = Arc::clone(self.machine.plan());
        let findings = check::preflight(&plan, &*self.shared.registry);
        let admission = if check::rejection(&findings).is_some() {
            Admission::refused(&findings)
        } else {
            let at_work = self.shared.live().values().filter(|live| live.agent_id == plan.plan.agent_id).count();
            let most = self.shared.settings.agent.runs_max;
            let limits = json!({ "runs_at_work": at_work, "runs_max": most });
            let Value::Object(limits) = limits else { unreachable!("an object was written") };
            match most {
                Some(most) if at_work > most => {
                    Admission { cause: Some(Cause::ConcurrencyLimited), limits, ..Admission::default() }
                }
                _ => Admission::admitted(limits),
            }
        };
        self.note(Body::Admission(admission))
    }

    /// Waits before an attempt; says whether something else came first.
    async fn wait(&mut self, planned: Duration) -> Result<bool, JournalError> {
        if planned.is_zero() {
            return Ok(false);
        }
        let now = self.shared.runs.now_ms();
        let wait = match self.due_unix_ms.take() {
            // The clock on the wall may have been moved meanwhile; it never makes a wait longer than it was.
            Some(due) => Duration::from_millis(due.saturating_sub(now)).min(planned),
            None => {
                let due = now.saturating_add(u64::try_from(planned.as_millis()).unwrap_or(u64::MAX));
                let facts = Map::from_iter([(DUE.to_owned(), Value::from(due))]);
                self.note(Body::Observed { step_id: None, facts: Informational::new(facts) })?;
                planned
            }
        };
        self.flush().await?;
        let over = Instant::now() + wait;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(over) => return Ok(false),
                told = self.control.changed() => {
                    let cancelled = self.control.borrow_and_update().cancel.is_some();
                    if cancelled || told.is_err() {
                        self.remember_due(over);
                        return Ok(true);
                    }
                }
                _ = self.stopping.changed() => {
                    self.remember_due(over);
                    return Ok(true);
                }
            }
        }
    }

    fn remember_due(&mut self, over: Instant) {
        let left = over.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        self.due_unix_ms = Some(self.shared.runs.now_ms().saturating_add(left));
    }

    fn limit(&mut self, step_id: String, attempt: u32) -> Result<(), JournalError> {
        let verdict = match self.shared.limiter.ask(&self.machine.plan().plan.agent_id) {
            Ok(permit) => {
                self.permit = Some(permit);
                LimiterVerdict::Allowed
            }
            Err(refused) => refused,
        };
        self.note(Body::LimiterVerdict { step_id, attempt, verdict })
    }

    /// Claims the effect of a step; says whether there is an answer, and not something to heed first.
    async fn claim(&mut self, request: ClaimRequest) -> Result<bool, JournalError> {
        let reused = match &self.machine.start().parent_run_id {
            Some(_) => {
                if self.reuse.is_none() {
                    self.reuse = Some(Reuse::of(self.shared, self.machine.start(), self.machine.plan()).await?);
                }
                self.reuse.as_ref().and_then(|reuse| reuse.output(&request.step_id))
            }
            None => None,
        };
        let claim = match reused {
            Some((run_id, output)) => Claim::Duplicate { run_id, output },
            None => self.shared.runs.claims().claim(request.clone()).await?,
        };
        let (verdict, reused_run_id, output) = match claim {
            Claim::New | Claim::Held => {
                self.claim = Some(request.clone());
                (DedupeVerdict::New, None, Output::default())
            }
            Claim::Duplicate { run_id, output } => (DedupeVerdict::Duplicate, Some(run_id), output),
            Claim::Conflict { .. } => (DedupeVerdict::Conflict, None, Output::default()),
            Claim::Unfinished { run_id } => {
                if !self.holder_is_stuck(&run_id).await? {
                    self.flush().await?;
                    tokio::time::sleep(CLAIM_PAUSE).await;
                    return Ok(false);
                }
                (DedupeVerdict::Conflict, None, Output::default())
            }
        };
        self.shared.observer.deduplicated(verdict);
        let value = self.shared.runs.bodies().of_output(&output).await?;
        let ClaimRequest { step_id, effect_key, .. } = request;
        self.note_with(Body::DedupeVerdict { step_id, effect_key, verdict, reused_run_id, output }, value.as_ref())?;
        Ok(true)
    }

    /// Whether the run that holds a claim has ended without saying what became of it.
    async fn holder_is_stuck(&self, run_id: &str) -> Result<bool, StoreError> {
        let holder = self.shared.runs.summary(run_id).await?;
        Ok(holder.is_none_or(|holder| holder.status != Status::Running))
    }

    /// Makes a call, once everything that led to it is durable, and notes what came of it.
    async fn dispatch(&mut self, step_id: String, attempt: u32, dispatch: Dispatch) -> Result<(), JournalError> {
        if self.in_doubt {
            let (cause, output) = (Cause::EffectInDoubt, Output::default());
            self.facts.said =
                "the process ended while the call was out, and nothing tells whether it took effect".to_owned();
            return self.note(Body::AttemptObserved {
                step_id,
                attempt,
                cause,
                usage: None,
                retry_after_ms: None,
                output,
            });
        }
        self.flush().await?;
        let (dispatched, dispatched_unix_ms) = (Instant::now(), self.shared.runs.now_ms());
        let observation = dispatch::call(dispatch, &self.shared.registry, Arc::clone(&self.shared.secrets)).await;
        let answered = Instant::now();
        self.permit = None;
        let latency_ms = u64::try_from((answered - dispatched).as_millis()).unwrap_or(u64::MAX);
        self.facts.first_dispatch.get_or_insert(dispatched);
        self.facts.last_answer = Some(answered);
        self.facts.attempts.push(json!({
            "attempt": attempt,
            "dispatched_unix_ms": dispatched_unix_ms,
            "latency_ms": latency_ms,
            "message": observation.message,
        }));
        self.facts.said = observation.message;
        self.facts.details = observation.details;
        let mut cause = observation.cause;
        let (mut output, mut value) = (Output::default(), None);
        if let Some(given) = observation.output {
            match self.shared.runs.bodies().keep(given).await {
                Ok(kept) => (output, value) = (kept.output, Some(kept.value)),
                Err(error @ (StoreError::NotCanonical { .. } | StoreError::TooLarge { .. })) => {
                    cause = Cause::SerializationFailed;
                    self.facts.said = error.to_string();
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.output = output.clone();
        let (usage, retry_after_ms) = (observation.usage, observation.retry_after_ms);
        let body = Body::AttemptObserved { step_id, attempt, cause, usage, retry_after_ms, output };
        self.note_with(body, value.as_ref())
    }
}

fn out_of_place(reason: &str) -> JournalError {
    JournalError::Invalid(reason.to_owned())
}
