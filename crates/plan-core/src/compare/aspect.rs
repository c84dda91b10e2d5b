//! The aspects of behaviour that two runs are compared by.

use serde::{Deserialize, Serialize};

/// One aspect. The order is that of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    RetryCount,
    ErrorCodes,
    CostCents,
    SideEffects,
    BudgetEnforcement,
    StepOrder,
    Status,
    Retryable,
    SkillPins,
    BackoffMs,
}

impl Aspect {
    pub const ALL: [Aspect; 10] = [
        Aspect::RetryCount,
        Aspect::ErrorCodes,
        Aspect::CostCents,
        Aspect::SideEffects,
        Aspect::BudgetEnforcement,
        Aspect::StepOrder,
        Aspect::Status,
        Aspect::Retryable,
        Aspect::SkillPins,
        Aspect::BackoffMs,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Aspect::RetryCount => "retry_count",
            Aspect::ErrorCodes => "error_codes",
            Aspect::CostCents => "cost_cents",
            Aspect::SideEffects => "side_effects",
            Aspect::BudgetEnforcement => "budget_enforcement",
            Aspect::StepOrder => "step_order",
            Aspect::Status => "status",
            Aspect::Retryable => "retryable",
            Aspect::SkillPins => "skill_pins",
            Aspect::BackoffMs => "backoff_ms",
        }
    }

    /// Its name in metrics, which differs in one case.
    #[must_use]
    pub fn metric_label(self) -> &'static str {
        match self {
            Aspect::ErrorCodes => "error_code",
            other => other.key(),
        }
    }
}
