//! Whether an attempt may be paid for.

use serde::{Deserialize, Serialize};

use crate::cost;
use crate::plan::{BudgetPolicy, Step};

/// Which limit a requirement breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breach {
    Budget,
    PerStep,
}

/// Compares what an attempt requires with what remains and with the ceiling of one step, all in microcents.
///
/// Equality is enough. What remains may be negative after an overrun; then nothing passes, not even what is free.
#[must_use]
pub fn check(required: u64, remaining: i64, ceiling: Option<u64>) -> Option<Breach> {
    if i128::from(required) > i128::from(remaining) {
        return Some(Breach::Budget);
    }
    ceiling.is_some_and(|ceiling| required > ceiling).then_some(Breach::PerStep)
}

/// What one attempt of a step may cost, in microcents: the step's own ceiling, else the policy's.
#[must_use]
pub fn ceiling(step: &Step, policy: &BudgetPolicy) -> Option<u64> {
    step.max_cost_cents.or(policy.per_step_max_cents).map(cost::microcents)
}

/// What remains of a budget in whole cents after spending microcents.
#[must_use]
pub fn remaining(budget_cents: u64, spent: u64) -> i64 {
    let remaining = i128::from(cost::microcents(budget_cents)) - i128::from(spent);
    i64::try_from(remaining).unwrap_or(if remaining < 0 { i64::MIN } else { i64::MAX })
}

/// What became of a budget, in microcents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTotals {
    pub budget: u64,
    pub spent: u64,
    pub remaining: i64,
    pub overrun: u64,
}

impl BudgetTotals {
    /// Of a budget in whole cents.
    #[must_use]
    pub fn of(budget_cents: u64, spent_microcents: u64) -> Self {
        let (budget, spent) = (cost::microcents(budget_cents), spent_microcents);
        Self { budget, spent, remaining: remaining(budget_cents, spent), overrun: spent.saturating_sub(budget) }
    }
}
