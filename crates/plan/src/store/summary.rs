//! What a list shows of a run: kept in the index beside the journal and changed in the same step, never decided on.

use std::fmt;

use bytes::Bytes;
use macp_ledger::{Head, IndexUpdate};
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, RunMode, RunStart, RunStatus};
use macp_wire::plan::v1::RunStatus as WireStatus;
use serde::{Deserialize, Serialize};

use super::error::StoreError;

/// One run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub run_id: String,
    pub plan_id: String,
    pub plan_hash: Digest,
    pub agent_id: String,
    pub mode: RunMode,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commitment_hash: Option<String>,
    pub epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// Who asked for it; empty if nobody said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub started_by: String,
    pub started_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at_ms: Option<u64>,
    pub retry_count: u32,
    pub cost_microcents: u64,
    pub steps_done: u32,
    pub steps_total: u32,
    /// It was executed elsewhere, and what it cost was paid there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
    /// What its journal takes in the store, in bytes; of a run under way, as of the last entry that changed the rest.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub journal_bytes: u64,
    /// What its outputs take that are kept beside the journal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_bytes: u64,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Running,
    Succeeded,
    Failed,
    BudgetExceeded,
    Rejected,
    Cancelled,
    InDoubt,
}

/// What a summary takes from the plan.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PlanFacts {
    pub(crate) agent_id: String,
    pub(crate) steps: Vec<serde::de::IgnoredAny>,
}

impl Summary {
    pub(crate) fn begin(start: &RunStart, plan: &PlanFacts, started_at_ms: u64) -> Self {
        let session = start.session.as_ref();
        Self {
            run_id: start.run_id.clone(),
            plan_id: start.plan_id.clone(),
            plan_hash: start.plan_hash.clone(),
            agent_id: plan.agent_id.clone(),
            mode: start.mode,
            status: Status::Running,
            final_code: None,
            session_id: session.map(|session| session.session_id.clone()),
            commitment_hash: session.map(|session| session.commitment_hash.clone()),
            epoch: start.epoch,
            original_run_id: start.original_run_id.clone(),
            parent_run_id: start.parent_run_id.clone(),
            started_by: start.started_by.clone(),
            started_at_ms,
            finished_at_ms: None,
            retry_count: 0,
            cost_microcents: 0,
            steps_done: 0,
            steps_total: u32::try_from(plan.steps.len()).unwrap_or(u32::MAX),
            imported: false,
            journal_bytes: 0,
            output_bytes: 0,
        }
    }

    /// Takes an entry into account; says whether there is anything new to show.
    pub(crate) fn take(&mut self, body: &Body, now_ms: u64) -> bool {
        match body {
            Body::RunStarted(_) => {}
            Body::StepFinished(step) => {
                self.steps_done = self.steps_done.saturating_add(1);
                self.retry_count = self.retry_count.saturating_add(step.backend_retries);
                self.cost_microcents = self.cost_microcents.saturating_add(step.cost_microcents);
            }
            Body::RunFinished(run) => {
                self.status = run.status.into();
                self.final_code = Some(run.final_code.clone());
                self.retry_count = run.retry_count;
                self.cost_microcents = run.total_cost_microcents;
                self.finished_at_ms = Some(now_ms);
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn is_open(&self) -> bool {
        self.status == Status::Running
    }

    /// The index row that says the same. Runs have no deadline in the index: their own is in their journal.
    pub(crate) fn index(&self, changed: bool) -> IndexUpdate {
        let summary = changed.then(|| Bytes::from(serde_json::to_vec(self).expect("strings and integers are JSON")));
        IndexUpdate { open: self.is_open(), deadline_ms: i64::MAX, state: self.status as i32, summary }
    }

    pub(crate) fn of_head(head: &Head) -> Result<Self, StoreError> {
        serde_json::from_slice(&head.summary).map_err(|error| StoreError::Damaged {
            what: "summary of run",
            key: head.session_id.to_string(),
            reason: error.to_string(),
        })
    }
}

impl Status {
    /// As it is written in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::InDoubt => "in_doubt",
        }
    }

    /// None where nothing is said of it.
    #[must_use]
    pub const fn of_wire(status: WireStatus) -> Option<Self> {
        match status {
            WireStatus::Unspecified => None,
            WireStatus::Running => Some(Self::Running),
            WireStatus::Succeeded => Some(Self::Succeeded),
            WireStatus::Failed => Some(Self::Failed),
            WireStatus::BudgetExceeded => Some(Self::BudgetExceeded),
            WireStatus::Rejected => Some(Self::Rejected),
            WireStatus::Cancelled => Some(Self::Cancelled),
            WireStatus::InDoubt => Some(Self::InDoubt),
        }
    }
}

impl From<Status> for WireStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Running => Self::Running,
            Status::Succeeded => Self::Succeeded,
            Status::Failed => Self::Failed,
            Status::BudgetExceeded => Self::BudgetExceeded,
            Status::Rejected => Self::Rejected,
            Status::Cancelled => Self::Cancelled,
            Status::InDoubt => Self::InDoubt,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<RunStatus> for Status {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Succeeded => Self::Succeeded,
            RunStatus::Failed => Self::Failed,
            RunStatus::BudgetExceeded => Self::BudgetExceeded,
            RunStatus::Rejected => Self::Rejected,
            RunStatus::Cancelled => Self::Cancelled,
            RunStatus::InDoubt => Self::InDoubt,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_has_one_word_and_comes_back_from_the_wire() {
        let statuses = (0..).map_while(|number| WireStatus::try_from(number).ok()).filter_map(Status::of_wire);
        let statuses: Vec<Status> = statuses.collect();
        assert_eq!(statuses.len(), 7);
        for status in statuses {
            assert_eq!(Status::of_wire(status.into()), Some(status));
            assert_eq!(json!(status), status.as_str());
            assert_eq!(WireStatus::from(status).as_str_name().to_lowercase(), format!("run_status_{status}"));
        }
    }

    #[test]
    fn a_mode_has_one_word() {
        for mode in [RunMode::Execute, RunMode::DryRun, RunMode::FullReplay, RunMode::MockReplay] {
            assert_eq!(json!(mode), mode.as_str());
        }
    }
}
