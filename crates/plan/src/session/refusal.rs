//! Why the plan of a session may not run.

use std::fmt;

use macp_ledger::FailureKind;

use crate::executor;
use crate::store::StoreError;

/// One thing that keeps a committed plan from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// What is wrong and, where that helps, what to do.
    pub message: String,
}

/// Why, as one word; stable, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    SessionNotFound,
    SessionNotResolved,
    NotACommitment,
    CommitmentUnverifiable,
    CommitmentOther,
    OutcomeNotPositive,
    NoPlanNamed,
    DigestMalformed,
    SeveralPlansNamed,
    PlanNotInHistory,
    PlanNotResolvable,
    PlanInvalid,
    ScopeUnknown,
    AgentOutsideScope,
    AgentNotInSession,
    SkillOutsideScope,
    Superseded,
    WorstCaseTooLong,
    EpochInvalid,
    EpochNotPermitted,
    EpochReasonMissing,
    EarlierEpochMissing,
    EarlierEpochUnfinished,
    LaterEpochBegun,
    RunLost,
}

/// Why no run was started from a session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session's plan may not run: every reason that was found.
    #[error("the session's plan may not run: {}", listed(.0))]
    Refused(Vec<Refusal>),
    /// The same, and a run that is rejected for it tells so.
    #[error("the session's plan may not run: {}; recorded as run {run_id:?}", listed(.refusals))]
    Rejected { refusals: Vec<Refusal>, run_id: String },
    #[error("the history of the session could not be read: {0}")]
    History(#[from] macp_ledger::ReadError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Executor(#[from] executor::StartError),
}

impl Refusal {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The taxonomy's code for it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.reason.code()
    }
}

impl Reason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::SessionNotFound => "session_not_found",
            Reason::SessionNotResolved => "session_not_resolved",
            Reason::NotACommitment => "not_a_commitment",
            Reason::CommitmentUnverifiable => "commitment_unverifiable",
            Reason::CommitmentOther => "commitment_other",
            Reason::OutcomeNotPositive => "outcome_not_positive",
            Reason::NoPlanNamed => "no_plan_named",
            Reason::DigestMalformed => "digest_malformed",
            Reason::SeveralPlansNamed => "several_plans_named",
            Reason::PlanNotInHistory => "plan_not_in_history",
            Reason::PlanNotResolvable => "plan_not_resolvable",
            Reason::PlanInvalid => "plan_invalid",
            Reason::ScopeUnknown => "scope_unknown",
            Reason::AgentOutsideScope => "agent_outside_scope",
            Reason::AgentNotInSession => "agent_not_in_session",
            Reason::SkillOutsideScope => "skill_outside_scope",
            Reason::Superseded => "superseded",
            Reason::WorstCaseTooLong => "worst_case_too_long",
            Reason::EpochInvalid => "epoch_invalid",
            Reason::EpochNotPermitted => "epoch_not_permitted",
            Reason::EpochReasonMissing => "epoch_reason_missing",
            Reason::EarlierEpochMissing => "earlier_epoch_missing",
            Reason::EarlierEpochUnfinished => "earlier_epoch_unfinished",
            Reason::LaterEpochBegun => "later_epoch_begun",
            Reason::RunLost => "run_lost",
        }
    }

    /// The taxonomy's code for it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Reason::ScopeUnknown
            | Reason::AgentOutsideScope
            | Reason::AgentNotInSession
            | Reason::SkillOutsideScope
            | Reason::EpochNotPermitted => "ERR_PERMISSION_DENIED",
            Reason::OutcomeNotPositive
            | Reason::Superseded
            | Reason::WorstCaseTooLong
            | Reason::EarlierEpochMissing
            | Reason::EarlierEpochUnfinished
            | Reason::LaterEpochBegun
            | Reason::RunLost => "ERR_POLICY_VIOLATION",
            Reason::SessionNotFound
            | Reason::SessionNotResolved
            | Reason::NotACommitment
            | Reason::CommitmentUnverifiable
            | Reason::CommitmentOther
            | Reason::NoPlanNamed
            | Reason::DigestMalformed
            | Reason::SeveralPlansNamed
            | Reason::PlanNotInHistory
            | Reason::PlanNotResolvable
            | Reason::PlanInvalid
            | Reason::EpochInvalid
            | Reason::EpochReasonMissing => "ERR_VALIDATION_FAILED",
        }
    }
}

impl Error {
    pub(super) fn refused(reason: Reason, message: impl Into<String>) -> Self {
        Error::Refused(vec![Refusal::new(reason, message)])
    }

    /// Whether the same may go well the next time: a store did not answer.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Error::History(macp_ledger::ReadError::Failure(failure)) | Error::Store(StoreError::Failure(failure)) => {
                !matches!(failure.kind(), FailureKind::Corrupt)
            }
            Error::Store(error) => matches!(error, StoreError::Closed),
            _ => false,
        }
    }

    /// The reasons of a refusal, none of them for a failure of ours.
    #[must_use]
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            Error::Refused(refusals) | Error::Rejected { refusals, .. } => refusals,
            _ => &[],
        }
    }
}

impl From<macp_ledger::Failure> for Error {
    fn from(failure: macp_ledger::Failure) -> Self {
        Error::Store(failure.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason)
    }
}

fn listed(refusals: &[Refusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
