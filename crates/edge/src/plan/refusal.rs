//! What goes wrong around runs, as statuses. Every text is cut to what a header can carry.

use macp_plan::executor::{ControlError, ReplayError, StartError};
use macp_plan::export::{ImportError, NotReplayed};
use macp_plan::session::{self, Reason};
use macp_plan::store::{JournalError, StoreError};
use macp_plan_core::finding::Finding;
use macp_wire::codes::Code;
use tonic::Status;

use crate::status;

/// Bytes of a status's text. It travels in a header, three bytes for every one that is not plain ASCII.
const TEXT_BYTES_MAX: usize = 2_000;

/// Longest reason or note that a caller may leave.
const REMARK_BYTES_MAX: usize = 4_096;

pub(super) fn refused(code: Code, message: impl Into<String>) -> Status {
    status::coded(code, cut(message.into()))
}

pub(super) fn run_not_found(run_id: &str) -> Status {
    let run_id = status::shown(run_id);
    // One answer for both, so that it tells nobody which of them it is.
    refused(Code::RunNotFound, format!("there is no run {run_id:?}, or none that this credential may see"))
}

pub(super) fn may_not_repeat(what: &str) -> Status {
    refused(Code::Forbidden, format!("{what}, and this credential has no role that may repeat effects"))
}

/// Whoever could start a plan under another agent's name could spend its budget and use up its effects.
pub(super) fn not_the_agent(identity: &str, agent_id: &str) -> Status {
    let (identity, agent_id) = (status::shown(identity), status::shown(agent_id));
    let message = format!(
        "the plan is of agent {agent_id:?}, and {identity:?} is neither that agent nor has a role with the right to cancel"
    );
    refused(Code::Forbidden, message)
}

/// Everything that is wrong with a plan, as far as there is room.
pub(super) fn invalid_plan(advice: &str, findings: &[Finding]) -> Status {
    let found: Vec<String> = findings.iter().filter(|finding| finding.is_error()).map(ToString::to_string).collect();
    refused(Code::PlanInvalid, format!("{advice}: {}", found.join("; ")))
}

/// A text a caller leaves in a run's papers.
pub(super) fn check_remark(field: &str, text: &str) -> Result<(), Status> {
    if text.len() > REMARK_BYTES_MAX {
        let found = text.len();
        return Err(status::invalid_request(format!("{field} has {found} bytes, at most {REMARK_BYTES_MAX} are kept")));
    }
    Ok(())
}

pub(super) fn of_store(error: &StoreError) -> Status {
    match error {
        StoreError::Closed => status::shutting_down(),
        StoreError::NoRun(run_id) => run_not_found(run_id),
        StoreError::NotInDoubt { .. } => refused(Code::RunConflict, error.to_string()),
        _ours => ours(error),
    }
}

pub(super) fn of_journal(error: &JournalError) -> Status {
    match error {
        JournalError::Closed => status::shutting_down(),
        JournalError::Store(error) => of_store(error),
        JournalError::Exists(_) | JournalError::Finished(_) | JournalError::NotOwner { .. } => {
            refused(Code::RunConflict, error.to_string())
        }
        _ours => ours(error),
    }
}

pub(super) fn of_start(error: &StartError) -> Status {
    match error {
        StartError::Overloaded { .. } => refused(Code::RateLimited, error.to_string()),
        StartError::Stopping => status::shutting_down(),
        StartError::RequestReused { .. } => refused(Code::RequestReused, error.to_string()),
        StartError::NoRun(run_id) => run_not_found(run_id),
        StartError::NoStep(_) => refused(Code::InvalidRequest, error.to_string()),
        StartError::Unrepeatable { .. } | StartError::NoRoom { .. } => refused(Code::PlanRefused, error.to_string()),
        StartError::OtherPlan { .. }
        | StartError::NotFinished(_)
        | StartError::Succeeded { .. }
        | StartError::InDoubt { .. }
        | StartError::NeverAdmitted { .. }
        | StartError::Held { .. }
        | StartError::ReplayOfReplay { .. } => refused(Code::RunConflict, error.to_string()),
        StartError::Journal(error) => of_journal(error),
        StartError::Store(error) => of_store(error),
        StartError::Core(_) => ours(error),
    }
}

pub(super) fn of_control(error: &ControlError) -> Status {
    match error {
        ControlError::NoRun(run_id) => run_not_found(run_id),
        ControlError::Finished(_) | ControlError::Stuck { .. } => refused(Code::RunConflict, error.to_string()),
        ControlError::Store(error) => of_store(error),
    }
}

pub(super) fn of_replay(error: &ReplayError) -> Status {
    match error {
        ReplayError::NoRun(run_id) => run_not_found(run_id),
        ReplayError::NotFinished(_) => refused(Code::RunConflict, error.to_string()),
        ReplayError::Refused(refusal) if refusal.is_usage() => {
            refused(Code::InvalidRequest, status::with_causes(refusal))
        }
        ReplayError::Refused(refusal) => refused(Code::PlanRefused, status::with_causes(refusal)),
        ReplayError::Start(error) => of_start(error),
        ReplayError::Store(error) => of_store(error),
    }
}

/// The first reason gives the code, all of them the text.
pub(super) fn of_session(error: &session::Error) -> Status {
    match error {
        session::Error::Refused(refusals) | session::Error::Rejected { refusals, .. } => {
            let code = match refusals.first().map(|refusal| refusal.reason) {
                Some(Reason::SessionNotFound) => Code::SessionNotFound,
                Some(Reason::EpochNotPermitted) => Code::Forbidden,
                Some(Reason::EpochInvalid | Reason::EpochReasonMissing) => Code::InvalidRequest,
                Some(
                    Reason::ScopeUnknown
                    | Reason::AgentOutsideScope
                    | Reason::AgentNotInSession
                    | Reason::SkillOutsideScope,
                ) => Code::PolicyDenied,
                _ => Code::PlanRefused,
            };
            refused(code, error.to_string())
        }
        session::Error::History(_) => ours(error),
        session::Error::Store(error) => of_store(error),
        session::Error::Executor(error) => of_start(error),
    }
}

/// What cannot be read is a bad request; what can is refused for how the run in it stands, so that whoever sent it can
/// tell one from the other.
pub(super) fn of_replayed(error: &NotReplayed) -> Status {
    let code = if error.is_unreadable() { Code::InvalidRequest } else { Code::RunConflict };
    refused(code, status::with_causes(error))
}

pub(super) fn of_import(error: &ImportError) -> Status {
    match error {
        ImportError::Open(_) | ImportError::Differs(_) => refused(Code::RunConflict, error.to_string()),
        ImportError::Store(error) => of_store(error),
        ImportError::Journal(error @ JournalError::Invalid(_)) => refused(Code::InvalidRequest, error.to_string()),
        ImportError::Journal(error) => of_journal(error),
    }
}

pub(super) fn ours(error: &dyn std::error::Error) -> Status {
    let message = status::with_causes(error);
    tracing::error!(error = message, "a call about plans failed");
    refused(Code::InternalError, message)
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str(" …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned()), "short");
        let long = cut("é".repeat(TEXT_BYTES_MAX));
        assert!(long.len() <= TEXT_BYTES_MAX + " …".len() && long.ends_with("é …"));
    }
}
