//! What an operator may set about execution.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one executor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutorSettings {
    /// Goes into effect keys, so that those of two tenants never meet. It has no `/`: behind that comes the agent of a
    /// run without a session.
    pub namespace: String,
    /// Runs at work at once; a start beyond it is refused and can be tried again. One agent has at most a quarter of
    /// them, unless its limit says otherwise.
    pub runs_live_max: usize,
    pub agent: AgentLimits,
    /// Bytes of outputs that may be kept for one run beside its journal; a step whose output goes beyond it fails.
    pub run_output_bytes_max: u64,
    /// Bytes of memory that all runs reserve together for their calls and outputs; one agent has at most half of it. A
    /// run for which there is none left waits before its next call.
    pub memory_bytes_max: usize,
    /// How long a stopping executor waits for calls that are out.
    pub shutdown_grace: Duration,
}

/// Limits counted for every agent by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    /// Runs at work at once; a run beyond it is rejected. Without it, a share of all: see [`ExecutorSettings`].
    pub runs_max: Option<usize>,
    /// Calls that are out at once; a call beyond it is a failed attempt with a code of its own.
    pub calls_max: Option<u32>,
    /// Calls in a minute.
    pub calls_per_minute: Option<u32>,
    /// The largest budget of a run, in cents; a run with a larger one is rejected.
    pub cents_per_run: Option<u64>,
    /// What runs started on one day, in UTC, may cost, in cents; a run whose budget does not fit is rejected.
    pub cents_per_day: Option<u64>,
    /// The same for one month.
    pub cents_per_month: Option<u64>,
    /// Bytes that may be kept of its runs, journals and outputs; once they are used up its runs are rejected, and those
    /// under way call nothing more.
    pub kept_bytes_max: Option<u64>,
}

/// Of all places for runs, the part that one agent may have. More than one agent must get on, whatever one of them does;
/// and few servers have so many that a quarter were too little.
const AGENT_SHARE: usize = 4;

impl ExecutorSettings {
    /// Runs of one agent that may be at work at once.
    pub(super) fn agent_runs_max(&self) -> usize {
        self.agent.runs_max.unwrap_or((self.runs_live_max / AGENT_SHARE).max(1))
    }
}

impl Default for ExecutorSettings {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            runs_live_max: 1_024,
            agent: AgentLimits::default(),
            run_output_bytes_max: 1024 * 1024 * 1024,
            memory_bytes_max: 1024 * 1024 * 1024,
            shutdown_grace: Duration::from_secs(5),
        }
    }
}
