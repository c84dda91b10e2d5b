//! The result of a run as clients see it: what was decided, and beside it what was observed for people.

mod at_work;
mod build;
mod report;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::{CostBasis, Usage};
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{AdmissionFinding, BudgetAlert, BudgetTotals, RunMode, SessionLink, Stop};
use macp_plan_core::plan::{Aliases, StepStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::store::{Outcome, Status};
pub(crate) use build::{stamp, trace_id};

pub use at_work::{AtWork, Doing};
pub use report::{TracedReport, traced};

/// The detail of a step that names the secret for which it was not called: one that an earlier output mentions, or that
/// was taken out of it.
pub const SECRET_WITHHELD: &str = "secret_withheld";

/// The detail of a step that names the run which may have brought its effect about, so that it was not called.
pub const IN_DOUBT_BY: &str = "in_doubt_by_run";

/// A run, told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    pub run_id: String,
    pub plan_id: String,
    pub plan_hash: Digest,
    pub agent_id: String,
    pub mode: RunMode,
    pub status: Status,
    pub final_code: Option<String>,
    pub retry_count: u32,
    pub steps: Vec<StepResult>,
    pub stop: Option<Stop>,
    pub not_reached: Vec<String>,
    /// Steps that have not begun yet, of a run that has not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<String>,
    pub total_cost_microcents: u64,
    pub total_cost_cents: u64,
    /// So far, of a run that has not ended. A result from an older server may have none until then.
    pub budget: Option<BudgetTotals>,
    /// What people are to hear of the budget, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<BudgetAlert>,
    /// Codes as the author of the plan wrote them, where the taxonomy has another word.
    #[serde(default, skip_serializing_if = "Aliases::is_empty")]
    pub aliases: Aliases,
    pub jitter_seed: String,
    pub epoch: u64,
    /// Why effects were repeated, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_reason: Option<String>,
    pub original_run_id: Option<String>,
    pub parent_run_id: Option<String>,
    pub session: Option<SessionLink>,
    pub journal_head: String,
    pub behavior_digest: Option<Digest>,
    pub started_at: String,
    pub finished_at: Option<String>,
    pub duration_ms: Option<u64>,
    /// Everything told here was durable when it was read.
    pub durable: bool,
    /// The step under way, of a run that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_work: Option<AtWork>,
    /// What operators said became of effects in doubt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Settled>,
    /// Why nothing of the run can be tried again, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_retry: Option<String>,
    /// Why nobody can go on with the run where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// Why what the run has to write down cannot be written now; nothing more is called before it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up: Option<String>,
    /// Why a run was not admitted, or what was found of it all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<AdmissionFinding>,
    /// Who asked for the run to stop, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Cancelled>,
    pub trace_id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cancelled {
    pub by: String,
    pub reason: String,
}

/// What an operator said became of the effect of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settled {
    pub step_id: String,
    #[serde(rename = "as")]
    pub outcome: Outcome,
    pub note: String,
    pub by: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepResult {
    pub step_id: String,
    pub retry_count: u32,
    pub final_code: String,
    pub outcome: StructuredOutcome,
    pub attempts: Vec<AttemptResult>,
}

/// How a step ended. Every field that takes part in a comparison, and those for people. What else a skill has to say
/// belongs into the details.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructuredOutcome {
    pub run_id: String,
    pub step_id: String,
    pub status: StepStatus,
    pub code: String,
    pub message: String,
    pub details: Map<String, Value>,
    pub cost_cents: u64,
    pub cost_microcents: u64,
    pub latency_ms: u64,
    pub retryable: bool,
    pub side_effects: Vec<SideEffect>,
    pub metadata: SkillPin,
    pub observability: Observability,
    /// RFC 3339, like every time here.
    pub timestamp: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideEffect {
    #[serde(rename = "type")]
    pub kind: String,
    pub target: String,
    pub attempt: u32,
    pub timestamp: String,
    pub effect_key: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SkillPin {
    pub skill_id: String,
    pub skill_version: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observability {
    pub trace_id: String,
    pub span_id: String,
    pub backend_retries: u32,
    pub total_attempts: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttemptResult {
    pub attempt: u32,
    pub cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_ref: Option<Digest>,
    pub code: String,
    pub cost_microcents: u64,
    pub cost_basis: CostBasis,
    pub retry_decision: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}
