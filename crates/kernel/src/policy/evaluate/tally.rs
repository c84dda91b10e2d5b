//! The votes of a decision session, over all its proposals together, and what they come to.
//!
//! Everybody may commit as often as they like and be refused, so what a Commitment asks is kept up to date with every
//! vote: it costs as much as there are participants or weights, however many proposals were voted on.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::super::{Algorithm, Voting};
use crate::Roster;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    Approve,
    Reject,
    Abstain,
}

/// Ballots cast so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ballots {
    approvals: u64,
    rejections: u64,
    /// Everybody who has cast any.
    by_voter: BTreeMap<SmolStr, Cast>,
}

/// The ballots of one voter, abstentions apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cast {
    approvals: u32,
    rejections: u32,
}

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

impl Ballots {
    /// Adds a ballot, of which a voter has one per proposal.
    pub fn cast(&mut self, voter: SmolStr, ballot: Ballot) {
        let cast = self.by_voter.entry(voter).or_default();
        match ballot {
            Ballot::Approve => {
                cast.approvals += 1;
                self.approvals += 1;
            }
            Ballot::Reject => {
                cast.rejections += 1;
                self.rejections += 1;
            }
            Ballot::Abstain => {}
        }
    }

    /// How many have cast any ballot on any proposal.
    pub(super) fn voters(&self) -> usize {
        self.by_voter.len()
    }

    /// Counts by an algorithm; None where votes decide nothing.
    pub(super) fn count(&self, voting: &Voting, roster: &Roster) -> Option<Tally> {
        let Ballots { approvals, rejections, .. } = *self;
        let weighed = match voting.algorithm {
            Algorithm::Weighted => self.weigh(voting),
            _ => Weighed {
                approving: approvals as f64,
                decisive: (approvals + rejections) as f64,
                rejected: rejections > 0,
            },
        };
        let Weighed { approving, decisive, rejected } = weighed;
        let empty = approvals + rejections == 0 || (voting.algorithm == Algorithm::Weighted && decisive == 0.0);
        let share_of_at_least = |threshold: f64| decisive > 0.0 && approving / decisive >= threshold;
        let passed = match voting.algorithm {
            Algorithm::None => return None,
            Algorithm::Supermajority if voting.threshold <= 0.5 => share_of_at_least(2.0 / 3.0),
            Algorithm::Majority | Algorithm::Supermajority | Algorithm::Weighted => share_of_at_least(voting.threshold),
            Algorithm::Unanimous => rejections == 0 && self.all_approve(roster),
            Algorithm::Plurality => approvals > rejections,
        };
        let outcome = match (empty, passed) {
            (true, _) => Outcome::Empty,
            (false, true) => Outcome::Passed,
            (false, false) => Outcome::Failed,
        };
        Some(Tally { outcome, approvals, rejections, rejected })
    }

    /// Sums of fractions depend on their order; this one is the same everywhere, by the names of the voters. Who has no
    /// weight counts for nothing.
    fn weigh(&self, voting: &Voting) -> Weighed {
        let mut weighed = Weighed::default();
        for (voter, weight) in voting.weights.iter().flatten() {
            let Some(cast) = self.by_voter.get(voter) else {
                continue;
            };
            weighed.approving += f64::from(cast.approvals) * weight;
            weighed.decisive += (f64::from(cast.approvals) + f64::from(cast.rejections)) * weight;
            weighed.rejected |= cast.rejections > 0 && *weight > 0.0;
        }
        weighed
    }

    fn all_approve(&self, roster: &Roster) -> bool {
        roster.iter().all(|participant| self.by_voter.get(participant).is_some_and(|cast| cast.approvals > 0))
    }
}

#[derive(Debug, Default)]
struct Weighed {
    approving: f64,
    /// For and against.
    decisive: f64,
    rejected: bool,
}

#[cfg(test)]
mod tests;
