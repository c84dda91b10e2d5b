//! Counting the votes of a decision session, over all its proposals together.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::super::{Algorithm, Voting};
use crate::Roster;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    Approve,
    Reject,
    Abstain,
}

/// Ballots by proposal and voter.
pub(super) type Votes = BTreeMap<SmolStr, BTreeMap<SmolStr, Ballot>>;

/// What the votes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// Nobody whose vote counts has voted for or against.
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tally {
    pub(super) outcome: Outcome,
    pub(super) approvals: u64,
    pub(super) rejections: u64,
    /// Whether somebody whose vote counts is against.
    pub(super) rejected: bool,
}

/// Counts by an algorithm; None where votes decide nothing.
pub(super) fn count(voting: &Voting, votes: &Votes, roster: &Roster) -> Option<Tally> {
    let weighted = voting.algorithm == Algorithm::Weighted;
    let weight_of = |voter: &str| voting.weights.as_ref().and_then(|weights| weights.get(voter)).copied();
    let (mut approvals, mut rejections, mut rejected) = (0, 0, false);
    let (mut approving, mut decisive) = (0.0, 0.0);
    // Sums of fractions depend on their order; this one is the same everywhere, by proposal and then by voter.
    for (voter, ballot) in votes.values().flatten() {
        let weight = if weighted { weight_of(voter).unwrap_or(0.0) } else { 1.0 };
        match ballot {
            Ballot::Approve => {
                approvals += 1;
                approving += weight;
                decisive += weight;
            }
            Ballot::Reject => {
                rejections += 1;
                rejected |= weight > 0.0;
                decisive += weight;
            }
            Ballot::Abstain => {}
        }
    }
    let empty = approvals + rejections == 0 || (weighted && decisive == 0.0);
    let share_of_at_least = |threshold: f64| decisive > 0.0 && approving / decisive >= threshold;
    let passed = match voting.algorithm {
        Algorithm::None => return None,
        Algorithm::Supermajority if voting.threshold <= 0.5 => share_of_at_least(2.0 / 3.0),
        Algorithm::Majority | Algorithm::Supermajority | Algorithm::Weighted => share_of_at_least(voting.threshold),
        Algorithm::Unanimous => rejections == 0 && all_approve(votes, roster),
        Algorithm::Plurality => approvals > rejections,
    };
    let outcome = match (empty, passed) {
        (true, _) => Outcome::Empty,
        (false, true) => Outcome::Passed,
        (false, false) => Outcome::Failed,
    };
    Some(Tally { outcome, approvals, rejections, rejected })
}

fn all_approve(votes: &Votes, roster: &Roster) -> bool {
    let approving: BTreeSet<&str> = votes
        .values()
        .flatten()
        .filter(|(_, ballot)| **ballot == Ballot::Approve)
        .map(|(voter, _)| voter.as_str())
        .collect();
    roster.iter().all(|participant| approving.contains(participant))
}

/// How many have cast any ballot on any proposal.
pub(super) fn voters(votes: &Votes) -> usize {
    votes.values().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>().len()
}
