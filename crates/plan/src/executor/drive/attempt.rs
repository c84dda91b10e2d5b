//! What leads to a call and what comes of it: admission of the run, the limiter, the call itself.

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::check;
use macp_plan_core::journal::{Admission, AdmissionFinding, Body, LimiterVerdict, Output};
use tokio::time::Instant;
use tracing::Instrument;

use super::boundary::Wait;
use super::{Broken, Drive, Driven};
use crate::executor::dispatch::{self, Dispatch};
use crate::executor::spending::Refusal;

impl Drive<'_> {
    /// Checks the plan as a whole, and whether its agent may have another run (AOS-68, AOS-19).
    pub(super) async fn admit(&mut self) -> Driven<()> {
        let plan = Arc::clone(self.machine.plan());
        let findings = check::preflight(&plan, &*self.shared.registry);
        if check::rejection(&findings).is_some() {
            return self.note(Body::Admission(Admission::refused(&findings)));
        }
        let started_at_ms = self.journal.summary().started_at_ms;
        let admitted = match self.shared.admit(self.machine.start(), &plan, started_at_ms).await {
            Ok(admitted) => admitted,
            Err(_) if self.shared.is_stopping() => return Err(Broken::Stopping),
            Err(error) => {
                self.trouble(&error, "read what its agent has spent").await;
                return Ok(());
            }
        };
        // Without an error there are only warnings left, which whoever reads the result should see.
        let warnings = findings.iter().map(AdmissionFinding::from);
        let mut admission = Admission::admitted(admitted.limits);
        if let Some(Refusal { cause, finding }) = admitted.refusal {
            admission.admitted = false;
            admission.cause = Some(cause);
            admission.code = Some(finding.code.clone());
            admission.findings.push(finding);
        }
        admission.findings.extend(warnings);
        self.note(Body::Admission(admission))
    }

    /// Asks whether a call may go now. Where there is no room for what it would leave behind, it may not.
    pub(super) async fn limit(&mut self, step_id: String, attempt: u32) -> Driven<()> {
        let full = match self.used_up().await {
            Ok(full) => full,
            Err(_) if self.shared.is_stopping() => return Err(Broken::Stopping),
            Err(error) => {
                self.trouble(&error, "read what is kept of its agent's runs").await;
                return Ok(());
            }
        };
        self.wait = Wait::None;
        if let Some(why) = full {
            self.told.say(format!("nothing was called: {why}"));
            let verdict = LimiterVerdict::StorageLimited;
            return self.note(Body::LimiterVerdict { step_id, attempt, verdict });
        }
        let verdict = match self.shared.limiter.ask(&self.machine.plan().plan.agent_id) {
            Ok(permit) => {
                self.permit = Some(permit);
                LimiterVerdict::Allowed
            }
            Err(refused) => refused,
        };
        self.note(Body::LimiterVerdict { step_id, attempt, verdict })
    }

    /// Notes that the call that is due may have been made by an earlier process.
    pub(super) fn doubt(&mut self, step_id: String, attempt: u32) -> Driven<()> {
        self.claim = None;
        self.told.say("the process ended while the call was out, and nothing tells whether it took effect");
        let (cause, output) = (Cause::EffectInDoubt, Output::default());
        let (usage, retry_after_ms) = (None, None);
        self.note(Body::AttemptObserved { step_id, attempt, cause, usage, retry_after_ms, output })
    }

    /// Makes a call, once everything that led to it is durable, and notes what came of it.
    pub(super) async fn dispatch(&mut self, step_id: String, attempt: u32, dispatch: Dispatch) -> Driven<()> {
        if std::mem::take(&mut self.in_doubt) {
            return self.doubt(step_id, attempt);
        }
        if let Err(error) = self.measure().await {
            if self.shared.is_stopping() {
                return Err(Broken::Stopping);
            }
            self.trouble(&error, "count what it has kept").await;
            return Ok(());
        }
        // Reserved already, but where an earlier process went as far as the call.
        if !self.reserve_call().await? {
            return if self.shared.is_stopping() { Err(Broken::Stopping) } else { Ok(()) };
        }
        self.flush().await?;
        // A call that was allowed before a restart still counts among those that are out.
        let agent_id = &self.machine.plan().plan.agent_id;
        let permit = self.permit.take().unwrap_or_else(|| self.shared.limiter.take(agent_id));
        let (dispatched, dispatched_unix_ms) = (Instant::now(), self.shared.runs.now_ms());
        let (registry, secrets) = (&self.shared.registry, Arc::clone(&self.shared.secrets));
        self.shared.desk.calls(self.journal.run_id(), Some(dispatched_unix_ms));
        let observation =
            dispatch::call(dispatch, registry, secrets, &self.memory).instrument(self.spans.attempt()).await;
        self.shared.desk.calls(self.journal.run_id(), None);
        drop(permit);
        let mut cause = observation.cause;
        self.told.attempt(attempt, dispatched, dispatched_unix_ms, &observation.message);
        self.told.say(observation.message);
        self.told.details = observation.details;
        let (mut output, mut size) = (Output::default(), None);
        if let Some(given) = observation.output {
            match self.keep_within(given, &cause).await? {
                Ok(kept) => (output, size) = (kept.output, Some(kept.size)),
                Err((instead, told)) => {
                    cause = instead;
                    self.told.say(told);
                }
            }
        }
        // Nothing of it is left but what the journal gets, and the parameters, which another attempt may need.
        self.memory.end_work();
        self.memory.shrink_call(self.machine.request_bytes());
        self.output = output.clone();
        let (usage, retry_after_ms) = (observation.usage, observation.retry_after_ms);
        let body = Body::AttemptObserved { step_id, attempt, cause, usage, retry_after_ms, output };
        self.note_with(body, size)
    }
}
