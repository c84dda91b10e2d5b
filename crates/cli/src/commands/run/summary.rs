//! Runs as lists show them, wherever they come from.

use macp_plan::store::{Status, Summary};
use macp_wire::plan::v1::{RunStatus, RunSummary};
use serde::Serialize;

use crate::money::cents;
use crate::output::Paint;
use crate::table::{Cell, Column, left, right};
use crate::text::clean;
use crate::time::stamp;

pub(super) const COLUMNS: &[Column] = &[
    left("RUN", 12),
    left("STATUS", 9),
    left("CODE", 12),
    left("PLAN", 8),
    left("AGENT", 6),
    right("STEPS", 5),
    right("RETRIES", 7),
    right("COST", 4),
    left("STARTED (UTC)", 23),
    left("OF", 2),
];

/// One run in a list.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Listed {
    pub(super) run_id: String,
    pub(super) plan_id: String,
    pub(super) plan_hash: String,
    pub(super) agent_id: String,
    pub(super) mode: String,
    pub(super) status: Option<Status>,
    pub(super) final_code: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) commitment_hash: Option<String>,
    pub(super) epoch: u64,
    pub(super) original_run_id: Option<String>,
    pub(super) parent_run_id: Option<String>,
    pub(super) started_at_unix_ms: i64,
    pub(super) finished_at_unix_ms: Option<i64>,
    pub(super) retry_count: u32,
    pub(super) cost_microcents: u64,
    pub(super) steps_done: u32,
    pub(super) steps_total: u32,
}

impl Listed {
    pub(super) fn row(&self) -> Vec<Cell> {
        vec![
            clean(&self.run_id).into(),
            status_cell(self.status),
            clean(self.final_code.as_deref().unwrap_or("-")).into(),
            clean(&self.plan_id).into(),
            clean(&self.agent_id).into(),
            format!("{}/{}", self.steps_done, self.steps_total).into(),
            self.retry_count.to_string().into(),
            cents(self.cost_microcents).into(),
            stamp(self.started_at_unix_ms).into(),
            self.relation().into(),
        ]
    }

    /// What the run is a replay or a retry of.
    pub(super) fn relation(&self) -> String {
        match (&self.original_run_id, &self.parent_run_id) {
            (Some(original), _) => format!("replay of {}", clean(original)),
            (None, Some(parent)) => format!("retry of {}", clean(parent)),
            (None, None) => String::new(),
        }
    }
}

/// How a run stands, in a word.
pub(crate) fn status_word(status: &Status) -> &'static str {
    status.as_str()
}

pub(super) fn status_paint(status: Status) -> Paint {
    match status {
        Status::Running => Paint::Name,
        Status::Succeeded => Paint::Good,
        Status::Cancelled => Paint::Warn,
        Status::Failed | Status::BudgetExceeded | Status::Rejected | Status::InDoubt => Paint::Bad,
    }
}

fn status_cell(status: Option<Status>) -> Cell {
    match status {
        Some(status) => Cell::painted(status_paint(status), status_word(&status)),
        None => Cell::painted(Paint::Faint, "unknown"),
    }
}

pub(super) fn wire_status(status: Status) -> RunStatus {
    status.into()
}

impl From<RunSummary> for Listed {
    fn from(summary: RunSummary) -> Self {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Listed {
            status: Status::of_wire(summary.status()),
            run_id: summary.run_id,
            plan_id: summary.plan_id,
            plan_hash: summary.plan_hash,
            agent_id: summary.agent_id,
            mode: summary.mode,
            final_code: given(summary.final_code),
            session_id: given(summary.session_id),
            commitment_hash: given(summary.commitment_hash),
            epoch: summary.epoch,
            original_run_id: given(summary.original_run_id),
            parent_run_id: given(summary.parent_run_id),
            started_at_unix_ms: summary.started_unix_ms,
            finished_at_unix_ms: Some(summary.finished_unix_ms).filter(|ms| *ms != 0),
            retry_count: summary.retry_count,
            cost_microcents: summary.cost_microcents,
            steps_done: summary.steps_done,
            steps_total: summary.steps_total,
        }
    }
}

impl From<Summary> for Listed {
    fn from(summary: Summary) -> Self {
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        Listed {
            run_id: summary.run_id,
            plan_id: summary.plan_id,
            plan_hash: summary.plan_hash.to_string(),
            agent_id: summary.agent_id,
            mode: summary.mode.as_str().to_owned(),
            status: Some(summary.status),
            final_code: summary.final_code,
            session_id: summary.session_id,
            commitment_hash: summary.commitment_hash,
            epoch: summary.epoch,
            original_run_id: summary.original_run_id,
            parent_run_id: summary.parent_run_id,
            started_at_unix_ms: ms(summary.started_at_ms),
            finished_at_unix_ms: summary.finished_at_ms.map(ms),
            retry_count: summary.retry_count,
            cost_microcents: summary.cost_microcents,
            steps_done: summary.steps_done,
            steps_total: summary.steps_total,
        }
    }
}
