//! The journal of a run: its entries, each an input or a decision, and the chain over them.

mod admission;
mod alert;
mod chain;
mod written;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use macp_wire::informational::Informational;

use crate::budget::Breach;
use crate::cause::Cause;
use crate::cost::{CostBasis, Usage};
use crate::digest::Digest;
use crate::plan::{Pins, StepStatus};

pub use crate::budget::BudgetTotals;
pub use admission::{Admission, AdmissionFinding};
pub use alert::{BudgetAlert, RefusedCheck};
pub use chain::{Broken, Chain, Fault, Journal, link, seal};

/// One entry: its place and what it says.
#[derive(Clone, Debug)]
pub struct Entry {
    pub seq: u64,
    pub body: Body,
}

/// Where an entry's content comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A fact from outside, which cannot be worked out again.
    Input,
    /// A value computed from the plan and the inputs before it.
    Decision,
}

/// What an entry says. Every kind is either an input or a decision, see [`Body::class`]. It is written as a part of its
/// [`Entry`], never by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    RunStarted(Box<RunStart>),
    Admission(Admission),
    StepStarted {
        step_id: String,
        index: u32,
        /// None if a reference does not resolve: then nothing was ever requested.
        request_digest: Option<Digest>,
    },
    BudgetChecked {
        step_id: String,
        attempt: u32,
        bound: Usage,
        required: u64,
        remaining: i64,
        ceiling: Option<u64>,
        allowed: bool,
        breach: Option<Breach>,
    },
    LimiterVerdict {
        step_id: String,
        attempt: u32,
        verdict: LimiterVerdict,
    },
    DedupeVerdict {
        step_id: String,
        effect_key: String,
        verdict: DedupeVerdict,
        /// With `duplicate`: the run and output that are used again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reused_run_id: Option<String>,
        /// With `duplicate`: how the step ended there, which is what later conditions look at.
        #[serde(flatten)]
        reused: Option<Reused>,
        #[serde(flatten)]
        output: Output,
    },
    EffectIntent {
        step_id: String,
        attempt: u32,
        effect_type: String,
        target: String,
        effect_key: String,
    },
    AttemptObserved {
        step_id: String,
        attempt: u32,
        cause: Cause,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        #[serde(flatten)]
        output: Output,
    },
    AttemptJudged {
        step_id: String,
        attempt: u32,
        code: String,
        retryable: bool,
        cost_microcents: u64,
        cost_basis: CostBasis,
        retry: bool,
    },
    RetryScheduled {
        step_id: String,
        next_attempt: u32,
        backoff_ms: u64,
    },
    StepFinished(StepFinished),
    Observed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step_id: Option<String>,
        facts: Informational,
    },
    CancelRequested {
        by: String,
        reason: String,
    },
    DeadlineReached {
        limit_ms: u64,
    },
    BudgetAlert(BudgetAlert),
    RunFinished(RunFinished),
}

impl Body {
    /// The output an entry tells of.
    #[must_use]
    pub fn output(&self) -> Option<&Output> {
        match self {
            Body::AttemptObserved { output, .. } | Body::DedupeVerdict { output, .. } => Some(output),
            _ => None,
        }
    }

    /// The digest of an output that the entry names without holding it.
    #[must_use]
    pub fn output_apart(&self) -> Option<&Digest> {
        self.output().filter(|output| output.output.is_none())?.output_ref.as_ref()
    }

    /// The name of the kind, as written in `type`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Body::RunStarted(_) => "run_started",
            Body::Admission(_) => "admission",
            Body::StepStarted { .. } => "step_started",
            Body::BudgetChecked { .. } => "budget_checked",
            Body::LimiterVerdict { .. } => "limiter_verdict",
            Body::DedupeVerdict { .. } => "dedupe_verdict",
            Body::EffectIntent { .. } => "effect_intent",
            Body::AttemptObserved { .. } => "attempt_observed",
            Body::AttemptJudged { .. } => "attempt_judged",
            Body::RetryScheduled { .. } => "retry_scheduled",
            Body::StepFinished(_) => "step_finished",
            Body::Observed { .. } => "observed",
            Body::CancelRequested { .. } => "cancel_requested",
            Body::DeadlineReached { .. } => "deadline_reached",
            Body::BudgetAlert(_) => "budget_alert",
            Body::RunFinished(_) => "run_finished",
        }
    }

    /// Whether the entry came from outside or was computed.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Body::Admission(_)
            | Body::LimiterVerdict { .. }
            | Body::DedupeVerdict { .. }
            | Body::AttemptObserved { .. }
            | Body::Observed { .. }
            | Body::CancelRequested { .. }
            | Body::DeadlineReached { .. } => Class::Input,
            Body::RunStarted(_)
            | Body::StepStarted { .. }
            | Body::BudgetChecked { .. }
            | Body::EffectIntent { .. }
            | Body::AttemptJudged { .. }
            | Body::RetryScheduled { .. }
            | Body::StepFinished(_)
            | Body::BudgetAlert(_)
            | Body::RunFinished(_) => Class::Decision,
        }
    }

    /// The step the entry belongs to, if it belongs to one.
    #[must_use]
    pub fn step_id(&self) -> Option<&str> {
        match self {
            Body::StepStarted { step_id, .. }
            | Body::BudgetChecked { step_id, .. }
            | Body::LimiterVerdict { step_id, .. }
            | Body::DedupeVerdict { step_id, .. }
            | Body::EffectIntent { step_id, .. }
            | Body::AttemptObserved { step_id, .. }
            | Body::AttemptJudged { step_id, .. }
            | Body::RetryScheduled { step_id, .. }
            | Body::StepFinished(StepFinished { step_id, .. }) => Some(step_id),
            Body::Observed { step_id, .. } => step_id.as_deref(),
            Body::BudgetAlert(alert) => alert.refused.as_ref().map(|refused| refused.step_id.as_str()),
            Body::RunStarted(_)
            | Body::Admission(_)
            | Body::CancelRequested { .. }
            | Body::DeadlineReached { .. }
            | Body::RunFinished(_) => None,
        }
    }

    /// The attempt the entry belongs to, if it belongs to one.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        match self {
            Body::BudgetChecked { attempt, .. }
            | Body::LimiterVerdict { attempt, .. }
            | Body::EffectIntent { attempt, .. }
            | Body::AttemptObserved { attempt, .. }
            | Body::AttemptJudged { attempt, .. } => Some(*attempt),
            Body::RetryScheduled { next_attempt, .. } => Some(*next_attempt),
            Body::BudgetAlert(alert) => alert.refused.as_ref().map(|refused| refused.attempt),
            _ => None,
        }
    }
}

/// The output of a skill: inline if it is small, by digest alone if it is kept apart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Output {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_ref: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// How a step ended whose result is used again. The step itself is skipped, but what depends on it is not: to conditions
/// it ended as it did when it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reused {
    #[serde(rename = "reused_status")]
    pub status: StepStatus,
    #[serde(rename = "reused_code")]
    pub code: String,
}

/// The revision of the rules that new runs are decided by. A run keeps the one it began under.
///
/// 1. One alert in a run, whether the threshold was reached first or a check refused.
/// 2. One alert at the threshold, and one for every check that is refused and not enforced.
pub const REVISION: u32 = 2;

fn first_revision() -> u32 {
    1
}

fn is_first_revision(revision: &u32) -> bool {
    *revision == first_revision()
}

/// Everything a run is bound to from its beginning.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunStart {
    /// The rules the run is decided by, see [`REVISION`]; journals of the first do not say it.
    #[serde(default = "first_revision", skip_serializing_if = "is_first_revision")]
    pub revision: u32,
    pub run_id: String,
    pub plan_id: String,
    pub plan_hash: Digest,
    pub pins: Pins,
    pub mode: RunMode,
    pub epoch: u64,
    pub jitter_seed: String,
    pub namespace: String,
    pub executor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// From which step on nothing is taken over from the parent, but for effects that took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_from_step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Why effects are repeated, where whoever began a further epoch said so. For people, nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_reason: Option<String>,
    /// Who asked for it; empty if nobody said. For access only, nothing is decided by it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub started_by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    Execute,
    DryRun,
    FullReplay,
    MockReplay,
}

impl RunMode {
    /// As it is written in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::DryRun => "dry_run",
            Self::FullReplay => "full_replay",
            Self::MockReplay => "mock_replay",
        }
    }
}

/// The commitment that authorised a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLink {
    pub session_id: String,
    pub commitment_hash: String,
    /// Ordinal of the Commitment in accepted history.
    pub position: u64,
    pub mode_version: String,
    pub configuration_version: String,
    pub policy_version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimiterVerdict {
    Allowed,
    RateLimited,
    ConcurrencyLimited,
    /// There is no room left for what the agent's runs keep.
    StorageLimited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupeVerdict {
    New,
    Duplicate,
    Conflict,
}

/// How a step ended: the deterministic part of its outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepFinished {
    pub step_id: String,
    pub status: StepStatus,
    pub code: String,
    pub retryable: bool,
    pub cost_microcents: u64,
    pub cost_cents: u64,
    pub skill_id: String,
    pub skill_version: String,
    pub backend_retries: u32,
    pub total_attempts: u32,
    pub attempt_codes: Vec<String>,
    /// Type and target of every effect dispatched, in order.
    pub side_effects: Vec<(String, String)>,
    /// Facts about a refusal, such as what was required and what remained.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

/// The detail of a step that says what is known of its effect, and its one value. Of a step without it nothing is in
/// doubt: it succeeded, or nothing harmful can have happened.
pub const EFFECT: &str = "effect";
pub const EFFECT_UNKNOWN: &str = "unknown";

impl StepFinished {
    /// Whether the step failed although its effect may have taken place, so that nobody may try it again before an
    /// operator has said what became of it (AOS-80).
    #[must_use]
    pub fn leaves_doubt(&self) -> bool {
        self.details.get(EFFECT).and_then(Value::as_str) == Some(EFFECT_UNKNOWN)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFinished {
    pub status: RunStatus,
    pub final_code: String,
    pub stop: Option<Stop>,
    pub not_reached: Vec<String>,
    pub retry_count: u32,
    pub total_cost_microcents: u64,
    pub total_cost_cents: u64,
    pub budget: BudgetTotals,
    pub behavior_digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Succeeded,
    Failed,
    BudgetExceeded,
    Rejected,
    Cancelled,
    InDoubt,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub reason: StopReason,
    pub step_id: Option<String>,
    pub code: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    StepFailed,
    Budget,
    Policy,
    Preflight,
    Cancelled,
    Deadline,
    InDoubt,
}
