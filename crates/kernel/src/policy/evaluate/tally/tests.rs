//! What is kept up to date is what a count of all votes would find.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

/// Ballots by proposal and voter, counted one by one.
fn recount(voting: &Voting, votes: &BTreeMap<u8, BTreeMap<SmolStr, Ballot>>, roster: &Roster) -> Option<Tally> {
    let weighted = voting.algorithm == Algorithm::Weighted;
    let weight_of = |voter: &str| voting.weights.as_ref().and_then(|weights| weights.get(voter)).copied();
    let (mut approvals, mut rejections, mut rejected) = (0, 0, false);
    let (mut approving, mut decisive) = (0.0, 0.0);
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
    let all_approve = roster.iter().all(|participant| {
        votes.values().any(|ballots| ballots.get(participant).is_some_and(|ballot| *ballot == Ballot::Approve))
    });
    let empty = approvals + rejections == 0 || (weighted && decisive == 0.0);
    let share_of_at_least = |threshold: f64| decisive > 0.0 && approving / decisive >= threshold;
    let passed = match voting.algorithm {
        Algorithm::None => return None,
        Algorithm::Supermajority if voting.threshold <= 0.5 => share_of_at_least(2.0 / 3.0),
        Algorithm::Majority | Algorithm::Supermajority | Algorithm::Weighted => share_of_at_least(voting.threshold),
        Algorithm::Unanimous => rejections == 0 && all_approve,
        Algorithm::Plurality => approvals > rejections,
    };
    let outcome = match (empty, passed) {
        (true, _) => Outcome::Empty,
        (false, true) => Outcome::Passed,
        (false, false) => Outcome::Failed,
    };
    Some(Tally { outcome, approvals, rejections, rejected })
}

fn voter() -> impl Strategy<Value = SmolStr> {
    "[a-e]".prop_map(SmolStr::from)
}

fn voting() -> impl Strategy<Value = Voting> {
    let algorithms = vec![
        Algorithm::None,
        Algorithm::Majority,
        Algorithm::Supermajority,
        Algorithm::Unanimous,
        Algorithm::Weighted,
        Algorithm::Plurality,
    ];
    // Eighths, of which sums are exact in any order; one that was never read may have any weight.
    let weights = prop::option::of(btree_map(voter(), (-8_i32..80).prop_map(|eighths| f64::from(eighths) / 8.0), 0..5));
    let thresholds = vec![0.0, 0.5, 0.6, 2.0 / 3.0, 0.75, 1.0];
    (prop::sample::select(algorithms), prop::sample::select(thresholds), weights)
        .prop_map(|(algorithm, threshold, weights)| Voting { algorithm, threshold, weights, ..Voting::default() })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_is_what_a_recount_finds(
        voting in voting(),
        cast in vec((0_u8..4, voter(), prop::sample::select(vec![Ballot::Approve, Ballot::Reject, Ballot::Abstain])), 0..40),
        roster in vec(voter(), 0..4),
    ) {
        let roster = Roster::new(roster.iter().map(SmolStr::as_str));
        let (mut ballots, mut votes) = (Ballots::default(), BTreeMap::<u8, BTreeMap<SmolStr, Ballot>>::new());
        for (proposal, voter, ballot) in cast {
            // The first vote on a proposal stands.
            let of_proposal = votes.entry(proposal).or_default();
            if !of_proposal.contains_key(&voter) {
                of_proposal.insert(voter.clone(), ballot);
                ballots.cast(voter, ballot);
            }
            prop_assert_eq!(ballots.count(&voting, &roster), recount(&voting, &votes, &roster));
        }
        let voters: std::collections::BTreeSet<_> = votes.values().flat_map(BTreeMap::keys).collect();
        prop_assert_eq!(ballots.voters(), voters.len());
    }
}
