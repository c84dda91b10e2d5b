//! What a bound policy says to a Commitment, and the few rules modes ask while a session runs.
//!
//! A policy that was read is well formed. The guards are for one that was not: governance that cannot be understood
//! refuses, it never waves through.

mod decision;
mod tally;

pub use decision::{DecisionFacts, decision};
pub use tally::{Ballot, Ballots};

use super::{Authority, Denial, DenialCode, Policy, SCHEMA_VERSIONS, Threshold, denied};
use crate::{Rejection, Roster};

/// Whether a sender may commit (STD-CMT-3).
pub fn may_commit(policy: &Policy, initiator: &str, roster: &Roster, sender: &str) -> bool {
    let commitment = &policy.rules.commitment;
    match commitment.authority {
        Authority::InitiatorOnly => sender == initiator,
        Authority::AnyParticipant => sender == initiator || roster.contains(sender),
        Authority::DesignatedRole => commitment.designated_roles.contains(sender),
    }
}

/// Holds the Commitment of a proposal session to its policy (STD-POL-21).
pub fn proposal(policy: &Policy, counter_proposals: u64, positive: bool) -> Result<(), Rejection> {
    check_guards(policy)?;
    let most = policy.rules.counter_proposals_max;
    refuse_if(positive && most > 0 && counter_proposals > most, DenialCode::CriterionNotMet, || {
        format!("too many counter-proposals were made (made: {counter_proposals}, allowed: {most})")
    })
}

/// Holds the Commitment of a task session to its policy (STD-POL-24). `has_output` is whether the task was completed
/// with an output that is not empty.
pub fn task(policy: &Policy, has_output: bool, positive: bool) -> Result<(), Rejection> {
    check_guards(policy)?;
    refuse_if(positive && policy.rules.require_output && !has_output, DenialCode::OutputRequired, || {
        "the policy requires an output, and the task was not completed with one".into()
    })
}

/// Holds the Commitment of a quorum session to its threshold, be it the policy's or the request's (STD-QUOR-5).
pub fn quorum(policy: &Policy, approvals: u64, threshold: u64, positive: bool) -> Result<(), Rejection> {
    check_guards(policy)?;
    refuse_if(positive && approvals < threshold, DenialCode::ThresholdNotMet, || {
        format!("not enough approvals were given (given: {approvals}, needed: {threshold})")
    })
}

/// How many approvals a quorum session needs (STD-QUOR-3). None when the policy cannot be evaluated for it.
pub fn quorum_threshold(policy: &Policy, required_approvals: u64, participants: u64) -> Option<u64> {
    match policy.rules.threshold {
        None | Some(Threshold::Count(0) | Threshold::Percentage(0)) => Some(required_approvals),
        Some(Threshold::Count(count)) => Some(count),
        Some(Threshold::Percentage(_)) if participants == 0 => None,
        Some(Threshold::Percentage(hundredths)) => {
            let needed = (u128::from(hundredths) * u128::from(participants)).div_ceil(100);
            Some(u64::try_from(needed).unwrap_or(u64::MAX))
        }
    }
}

/// The refusal of an assignment after the one who had the task gave it back (STD-TASK-3).
pub fn reassignment_denied() -> Rejection {
    denied(vec![Denial::new(
        DenialCode::ReassignmentNotAllowed,
        "the policy does not allow an assigned task to be rejected and assigned again",
    )])
}

/// What makes a policy impossible to evaluate (STD-POL-13).
fn check_guards(policy: &Policy) -> Result<(), Rejection> {
    let version = policy.schema_version();
    refuse_if(!SCHEMA_VERSIONS.contains(&version), DenialCode::UnsupportedSchemaVersion, || {
        format!("the policy has schema_version {version}, which is not supported")
    })?;
    let confidence = policy.rules.evaluations.minimum_confidence;
    let sane = policy.rules.objections.veto_threshold >= 1 && (0.0..=1.0).contains(&confidence);
    refuse_if(!sane, DenialCode::InvalidRules, || "the rules of the policy are out of their domain".into())
}

fn refuse_if(refused: bool, code: DenialCode, message: impl FnOnce() -> String) -> Result<(), Rejection> {
    if refused { Err(denied(vec![Denial::new(code, message())])) } else { Ok(()) }
}
