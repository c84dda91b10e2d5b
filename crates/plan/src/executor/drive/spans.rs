//! Traces (AOS-98): one span per run, step and attempt. Names, codes and keys go into them; no parameter, no output and
//! no message does, so that no secret can.

use macp_plan_core::journal::{Body, RunFinished, RunStart, RunStatus};
use macp_plan_core::plan::Step;
use tracing::Span;
use tracing::field::Empty;

use crate::result;
use crate::store::Status;

/// The span of a run.
pub(in crate::executor) fn of_run(start: &RunStart) -> Span {
    tracing::info_span!(
        "run",
        trace_id = result::trace_id(&start.run_id),
        run_id = start.run_id,
        plan_id = start.plan_id,
        plan_hash = %start.plan_hash,
        session_id = start.session.as_ref().map(|session| session.session_id.as_str()),
        epoch = start.epoch,
        replay_mode = start.original_run_id.is_some().then_some("full_replay"),
        original_run_id = start.original_run_id,
    )
}

fn of_step(step_id: &str) -> Span {
    tracing::info_span!("step", step_id, code = Empty)
}

fn of_attempt(step: &Span, step_id: &str, attempt: u32) -> Span {
    tracing::info_span!(
        parent: step,
        "attempt",
        step_id,
        attempt,
        code = Empty,
        backoff_ms = Empty,
        effect_key = Empty
    )
}

/// One line for every run. What an operator has to look at stands out.
fn ended(finished: &RunFinished) {
    let (status, code) = (Status::from(finished.status).as_str(), finished.final_code.as_str());
    let step_id = finished.stop.as_ref().and_then(|stop| stop.step_id.as_deref());
    match finished.status {
        RunStatus::Succeeded | RunStatus::Cancelled => tracing::info!(status, code, step_id, "the run has ended"),
        RunStatus::InDoubt => {
            tracing::error!(
                status,
                code,
                step_id,
                "the run has ended in doubt; `macp run show` tells how to settle it"
            );
        }
        RunStatus::Failed | RunStatus::BudgetExceeded | RunStatus::Rejected => {
            tracing::warn!(status, code, step_id, "the run has ended");
        }
    }
}

/// The spans of the step and the attempt under way.
#[derive(Debug, Default)]
pub(super) struct Spans {
    step: Option<Span>,
    attempt: Option<Span>,
}

impl Spans {
    /// Those of a run that goes on in the middle of a step.
    pub(super) fn resumed((step, attempt): (&Step, u32)) -> Self {
        let span = of_step(&step.step_id);
        let attempt = of_attempt(&span, &step.step_id, attempt);
        Self { step: Some(span), attempt: Some(attempt) }
    }

    /// Moves on with an entry.
    pub(super) fn note(&mut self, body: &Body) {
        match body {
            Body::StepStarted { step_id, .. } => self.step = Some(of_step(step_id)),
            Body::LimiterVerdict { step_id, attempt, .. } => {
                let step = self.step.get_or_insert_with(|| of_step(step_id));
                self.attempt = Some(of_attempt(step, step_id, *attempt));
            }
            Body::EffectIntent { effect_key, .. } => {
                if let Some(attempt) = &self.attempt {
                    attempt.record("effect_key", effect_key.as_str());
                }
            }
            Body::AttemptJudged { code, .. } => {
                if let Some(attempt) = &self.attempt {
                    attempt.record("code", code.as_str());
                }
            }
            Body::RetryScheduled { backoff_ms, .. } => {
                if let Some(attempt) = self.attempt.take() {
                    attempt.record("backoff_ms", backoff_ms);
                    tracing::debug!(parent: &attempt, "the step is tried again");
                }
            }
            Body::StepFinished(finished) => {
                let attempt = self.attempt.take();
                if let Some(step) = self.step.take() {
                    step.record("code", finished.code.as_str());
                    tracing::debug!(parent: attempt.as_ref().unwrap_or(&step), "the step has ended");
                }
            }
            Body::RunFinished(finished) => ended(finished),
            _ => {}
        }
    }

    /// The span to make a call in.
    pub(super) fn attempt(&self) -> Span {
        self.attempt.as_ref().or(self.step.as_ref()).cloned().unwrap_or_else(Span::current)
    }
}
