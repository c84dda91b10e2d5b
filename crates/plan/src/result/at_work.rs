//! What a run that has not ended is doing, as far as its journal tells: everything that leads to a call or a wait is
//! written down before it begins.

use macp_plan_core::journal::{Body, LimiterVerdict};
use serde::{Deserialize, Serialize};

use super::build::stamp;
use crate::executor::DUE;
use crate::store::Run;

/// The step under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtWork {
    pub step_id: String,
    /// Which attempt is out, or comes next.
    pub attempt: u32,
    pub doing: Doing,
    /// Since when the call is out, or the run waits for memory; only the process at work on it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Until when the next attempt waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Where the last call of it went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How the attempts so far ended.
    pub attempt_codes: Vec<String>,
    /// What they cost.
    pub cost_microcents: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// The call is out.
    Calling,
    /// The next attempt waits for its time.
    Waiting,
    /// Neither: it is about to be called, or waits for something else.
    Preparing,
    /// It was told to wait, and does so between calls.
    Paused,
    /// It waits until the runs of this process take less memory.
    AwaitingMemory,
}

/// The step that has begun and not ended, if there is one.
pub(super) fn of(run: &Run) -> Option<AtWork> {
    let mut at_work: Option<AtWork> = None;
    for body in run.bodies() {
        match (body, &mut at_work) {
            (Body::StepStarted { step_id, .. }, _) => at_work = Some(begun(step_id)),
            (Body::StepFinished(_) | Body::RunFinished(_), _) => at_work = None,
            (body, Some(current)) => current.note(body),
            (_, None) => {}
        }
    }
    at_work
}

fn begun(step_id: &str) -> AtWork {
    AtWork {
        step_id: step_id.to_owned(),
        attempt: 0,
        doing: Doing::Preparing,
        since: None,
        until: None,
        target: None,
        attempt_codes: Vec::new(),
        cost_microcents: 0,
    }
}

impl AtWork {
    /// A step that is about to begin.
    pub(crate) fn next(step_id: &str) -> Self {
        begun(step_id)
    }

    pub(crate) fn awaiting_memory(self, since: String) -> Self {
        Self { doing: Doing::AwaitingMemory, since: Some(since), until: None, ..self }
    }

    fn note(&mut self, body: &Body) {
        match body {
            Body::RetryScheduled { next_attempt, .. } => {
                self.attempt = *next_attempt;
                self.go_on(Doing::Waiting);
            }
            Body::Observed { facts, .. } if self.doing == Doing::Waiting => {
                let due = facts.shown().get(DUE).and_then(serde_json::Value::as_u64);
                self.until = due.map(stamp).or(self.until.take());
            }
            Body::LimiterVerdict { attempt, verdict, .. } => {
                self.attempt = *attempt;
                let allowed = *verdict == LimiterVerdict::Allowed;
                self.go_on(if allowed { Doing::Calling } else { Doing::Preparing });
            }
            Body::EffectIntent { target, .. } => self.target = Some(target.clone()),
            Body::AttemptObserved { .. } => self.go_on(Doing::Preparing),
            Body::AttemptJudged { code, cost_microcents, .. } => {
                self.attempt_codes.push(code.clone());
                self.cost_microcents = self.cost_microcents.saturating_add(*cost_microcents);
            }
            _ => {}
        }
    }

    fn go_on(&mut self, doing: Doing) {
        (self.doing, self.until) = (doing, None);
    }
}
