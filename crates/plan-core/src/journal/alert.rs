//! Alerts about a budget: entries that stop nothing, and that people should see.

use serde::{Deserialize, Serialize};

use crate::budget::Breach;

/// What people are to hear of a budget while the run goes on. There are two kinds: the threshold was reached, of which
/// there is one in a run (AOS-18), and a check was refused that nothing enforces, each of which is told (AOS-64).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAlert {
    pub threshold_percent: u32,
    /// In microcents, as every amount here.
    pub spent: u64,
    /// The check that was refused; none if it is the threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedCheck>,
}

/// A check that the budget refused and that the run went on past, because the plan has no hard limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCheck {
    pub step_id: String,
    pub attempt: u32,
    pub breach: Option<Breach>,
    pub required: u64,
    pub remaining: i64,
}
