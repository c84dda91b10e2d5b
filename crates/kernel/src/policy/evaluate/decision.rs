//! What a policy says to the Commitment of a decision session: every reason against it, in a fixed order.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::super::{Denial, DenialCode, ObjectionAction, Policy, VoteQuorum, denied};
use super::check_guards;
use super::tally::{Ballots, Outcome, Tally};
use crate::{Rejection, Roster};

/// What has happened in a decision session, as far as policies ask.
#[derive(Clone, Copy, Debug)]
pub struct DecisionFacts<'a> {
    pub roster: &'a Roster,
    /// Evaluations that recommend something other than a review.
    pub evaluations: u64,
    /// The highest confidence among those.
    pub highest_confidence: Option<f64>,
    /// Each counts, also several by one sender.
    pub critical_objections: u64,
    pub critical_objectors: &'a BTreeSet<SmolStr>,
    pub ballots: &'a Ballots,
}

/// Holds the Commitment of a decision session to its policy (STD-POL-13 to STD-POL-19).
pub fn decision(policy: &Policy, facts: &DecisionFacts<'_>, positive: bool) -> Result<(), Rejection> {
    check_guards(policy)?;
    let objections = &policy.rules.objections;
    let vetoed = objections.critical_severity_vetoes && facts.critical_objections >= objections.veto_threshold;
    // The objection itself authorizes this decline, so nothing votes or evaluations would have to say is asked.
    if vetoed && !positive && objections.action == ObjectionAction::FinalizeDecline {
        return Ok(());
    }
    let denials: Vec<Denial> = [
        evaluations(policy, facts),
        vetoed.then(|| veto(objections.action, facts)),
        vote_quorum(policy, facts),
        votes(policy, facts, positive),
    ]
    .into_iter()
    .flatten()
    .collect();
    if denials.is_empty() { Ok(()) } else { Err(denied(denials)) }
}

/// STD-POL-15.
fn evaluations(policy: &Policy, facts: &DecisionFacts<'_>) -> Option<Denial> {
    let rules = &policy.rules.evaluations;
    if !rules.required_before_voting {
        return None;
    }
    let minimum = rules.minimum_confidence;
    if minimum > 0.0 {
        let message = match facts.highest_confidence {
            Some(highest) if highest >= minimum => return None,
            Some(highest) => format!("no evaluation reaches the confidence of {minimum}; the highest is {highest}"),
            None => format!("an evaluation with a confidence of at least {minimum} is required, and there is none"),
        };
        return Some(Denial::new(DenialCode::ConfidenceBelowMinimum, message));
    }
    (facts.evaluations == 0).then(|| {
        Denial::new(
            DenialCode::EvaluationRequired,
            "an evaluation is required, and there is none that recommends more than a review",
        )
    })
}

/// STD-POL-16, once a veto stands and does not authorize the outcome.
fn veto(action: ObjectionAction, facts: &DecisionFacts<'_>) -> Denial {
    let objections = facts.critical_objections;
    let (code, message) = match action {
        ObjectionAction::Deny => {
            (DenialCode::Veto, format!("critical objections veto any commitment ({objections} raised)"))
        }
        ObjectionAction::FinalizeDecline => {
            (DenialCode::Veto, format!("critical objections leave only a negative commitment ({objections} raised)"))
        }
        ObjectionAction::Hold => {
            (DenialCode::VetoHold, format!("critical objections hold the decision open ({objections} raised)"))
        }
    };
    Denial { participants: facts.critical_objectors.clone(), ..Denial::new(code, message) }
}

/// STD-POL-17.
fn vote_quorum(policy: &Policy, facts: &DecisionFacts<'_>) -> Option<Denial> {
    if !policy.rules.commitment.require_vote_quorum {
        return None;
    }
    let voters = facts.ballots.voters();
    let (met, message) = match policy.rules.voting.quorum {
        VoteQuorum::Count(needed) => {
            (voters as f64 >= needed, format!("not enough participants have voted (voted: {voters}, needed: {needed})"))
        }
        VoteQuorum::Percentage(needed) => {
            let roster = facts.roster.len();
            // Divided first, as the standard writes it: every runtime has to round alike.
            let met = if roster == 0 { needed <= 0.0 } else { voters as f64 / roster as f64 * 100.0 >= needed };
            (met, format!("not enough participants have voted (voted: {voters} of {roster}, needed: {needed} %)"))
        }
    };
    (!met).then(|| Denial::new(DenialCode::QuorumNotMet, message))
}

/// STD-POL-18 and STD-POL-19.
fn votes(policy: &Policy, facts: &DecisionFacts<'_>, positive: bool) -> Option<Denial> {
    let tally = facts.ballots.count(&policy.rules.voting, facts.roster)?;
    let Tally { approvals, rejections, .. } = tally;
    if !positive {
        return decline(policy, &tally);
    }
    match tally.outcome {
        Outcome::Passed => None,
        Outcome::Failed => Some(Denial::new(
            DenialCode::ThresholdNotMet,
            format!("the vote fails (approvals: {approvals}, rejections: {rejections})"),
        )),
        Outcome::Empty => {
            let binding = policy.schema_version() >= 3 || policy.rules.commitment.require_vote_quorum;
            binding.then(|| Denial::new(DenialCode::NoVotes, "no vote that counts has been cast"))
        }
    }
}

fn decline(policy: &Policy, tally: &Tally) -> Option<Denial> {
    let Tally { approvals, rejections, .. } = *tally;
    if tally.outcome == Outcome::Passed && !policy.rules.commitment.allow_decline_over_approval {
        return Some(Denial::new(
            DenialCode::DeclineOverApproval,
            format!("the vote passes and cannot be declined (approvals: {approvals}, rejections: {rejections})"),
        ));
    }
    let backed = tally.outcome != Outcome::Empty && tally.rejected;
    (!backed).then(|| {
        Denial::new(
            DenialCode::DeclineNotBacked,
            "a negative commitment needs a rejecting vote that counts, and there is none",
        )
    })
}
