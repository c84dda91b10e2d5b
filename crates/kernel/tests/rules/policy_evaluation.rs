//! STD-POL-13 to STD-POL-30, STD-CMT-3 and the thresholds of STD-QUOR-3: what a bound policy says to a Commitment.

use std::collections::BTreeSet;

use macp_kernel::policy::evaluate::{self, Ballot, Ballots, DecisionFacts};
use macp_kernel::policy::{
    Denial, DenialCode, Objections, Policy, Rules, Threshold, VoteQuorum, Weights, builtins, default_policy, denied,
};
use macp_kernel::{Rejection, Roster};
use macp_wire::codes::Code;
use macp_wire::v1::PolicyDescriptor;
use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::policy::descriptor;

const POSITIVE: bool = true;
const NEGATIVE: bool = false;

/// A policy of the decision mode.
fn policy(schema_version: u32, rules: Value) -> Policy {
    let descriptor = PolicyDescriptor { schema_version, ..descriptor("macp.mode.decision.v1", &rules.to_string()) };
    Policy::read(descriptor).unwrap_or_else(|error| panic!("{rules}: {error}"))
}

fn codes(answer: &Result<(), Rejection>) -> Vec<String> {
    let Err(rejection) = answer else { return Vec::new() };
    assert_eq!(rejection.code, Code::PolicyDenied);
    assert!(!rejection.operational, "governance is replayed");
    let details: Value = serde_json::from_slice(&rejection.details).expect("the details are JSON");
    let denials = details["denials"].as_array().expect("a list");
    denials.iter().map(|denial| denial["code"].as_str().expect("a word").to_owned()).collect()
}

/// What happened in a session of alice, bob and carol, unless said otherwise.
struct Happened {
    roster: Roster,
    evaluations: Vec<f64>,
    objectors: Vec<&'static str>,
    ballots: Ballots,
}

impl Happened {
    fn nothing() -> Self {
        let roster = Roster::new(["alice", "bob", "carol"]);
        Happened { roster, evaluations: Vec::new(), objectors: Vec::new(), ballots: Ballots::default() }
    }

    /// Votes as words: `alice+ bob- carol0`, and `p2:alice+` for a vote on another proposal than the first.
    fn votes(votes: &str) -> Self {
        let mut happened = Happened::nothing();
        for vote in votes.split_whitespace() {
            // All proposals count together.
            let (_, vote) = vote.split_once(':').unwrap_or(("p1", vote));
            let (voter, ballot) = vote.split_at(vote.len() - 1);
            let ballot = match ballot {
                "+" => Ballot::Approve,
                "-" => Ballot::Reject,
                "0" => Ballot::Abstain,
                other => panic!("{other} is no ballot"),
            };
            happened.ballots.cast(voter.into(), ballot);
        }
        happened
    }

    fn with_objections(self, objectors: &[&'static str]) -> Self {
        Happened { objectors: objectors.to_vec(), ..self }
    }

    fn with_evaluations(self, confidences: &[f64]) -> Self {
        Happened { evaluations: confidences.to_vec(), ..self }
    }

    fn judged(&self, policy: &Policy, positive: bool) -> Result<(), Rejection> {
        let critical_objectors: BTreeSet<SmolStr> = self.objectors.iter().copied().map(SmolStr::new).collect();
        let facts = DecisionFacts {
            roster: &self.roster,
            evaluations: self.evaluations.len() as u64,
            highest_confidence: self.evaluations.iter().copied().reduce(f64::max),
            critical_objections: self.objectors.len() as u64,
            critical_objectors: &critical_objectors,
            ballots: &self.ballots,
        };
        evaluate::decision(policy, &facts, positive)
    }

    #[track_caller]
    fn expect(&self, policy: &Policy, positive: &[&str], negative: &[&str]) {
        let rules = &policy.descriptor.rules;
        assert_eq!(codes(&self.judged(policy, POSITIVE)), positive, "a positive commitment under {rules}");
        assert_eq!(codes(&self.judged(policy, NEGATIVE)), negative, "a negative commitment under {rules}");
    }
}

#[test]
fn std_cmt_3_authority() {
    let roster = Roster::new(["alice", "bob"]);
    let senders = ["initiator", "alice", "eve", "outside", ""];
    let designated = json!({ "authority": "designated_role", "designated_roles": ["outside", "alice"] });
    let table = [
        (json!({}), [true, false, false, false, false]),
        (json!({ "authority": "initiator_only" }), [true, false, false, false, false]),
        (json!({ "authority": "any_participant" }), [true, true, false, false, false]),
        (designated, [false, true, false, true, false]),
    ];
    for (commitment, expected) in table {
        let policy = policy(3, json!({ "commitment": commitment }));
        let allowed = senders.map(|sender| evaluate::may_commit(&policy, "initiator", &roster, sender));
        assert_eq!(allowed, expected, "{:?} under {commitment}", senders);
    }
    let listed =
        policy(3, json!({ "commitment": { "authority": "designated_role", "designated_roles": ["initiator"] } }));
    assert!(evaluate::may_commit(&listed, "initiator", &roster, "initiator"));
    // An open roster has no declared participants.
    let anyone = policy(3, json!({ "commitment": { "authority": "any_participant" } }));
    assert!(!evaluate::may_commit(&anyone, "initiator", &Roster::default(), "alice"));
}

/// A policy that never went through the reader is refused, in every mode.
#[test]
fn std_pol_13_guards() {
    let whole = policy(3, json!({}));
    let changed = |change: &dyn Fn(&mut Policy)| {
        let mut policy = whole.clone();
        change(&mut policy);
        policy
    };
    let cases = [
        (changed(&|it| it.descriptor.schema_version = 0), "unsupported_schema_version"),
        (changed(&|it| it.descriptor.schema_version = 4), "unsupported_schema_version"),
        (changed(&|it| it.rules.objections.veto_threshold = 0), "invalid_rules"),
        (changed(&|it| it.rules.evaluations.minimum_confidence = 1.5), "invalid_rules"),
        (changed(&|it| it.rules.evaluations.minimum_confidence = f64::NAN), "invalid_rules"),
    ];
    let happened = Happened::votes("alice+").with_objections(&["bob"]);
    for (policy, code) in cases {
        happened.expect(&policy, &[code], &[code]);
        for positive in [POSITIVE, NEGATIVE] {
            assert_eq!(codes(&evaluate::proposal(&policy, 0, positive)), [code]);
            assert_eq!(codes(&evaluate::task(&policy, true, positive)), [code]);
            assert_eq!(codes(&evaluate::quorum(&policy, 1, 1, positive)), [code]);
        }
    }
}

/// Every critical objection counts, also the second one of the same sender.
#[test]
fn std_pol_14_veto_threshold() {
    let policy = policy(2, json!({ "objection_handling": { "critical_severity_vetoes": true, "veto_threshold": 2 } }));
    Happened::nothing().expect(&policy, &[], &[]);
    Happened::nothing().with_objections(&["bob"]).expect(&policy, &[], &[]);
    Happened::nothing().with_objections(&["bob", "bob"]).expect(&policy, &["veto"], &["veto"]);
    Happened::nothing().with_objections(&["bob", "carol", "bob"]).expect(&policy, &["veto"], &["veto"]);
    // Objections are recorded and veto nothing where the policy does not say so.
    let off = json!({ "objection_handling": { "veto_threshold": 1, "critical_objection_action": "deny" } });
    Happened::nothing().with_objections(&["bob"]).expect(&self::policy(2, off), &[], &[]);
}

#[test]
fn std_pol_15_evaluations() {
    let policy = |required: bool, minimum: f64| {
        policy(3, json!({ "evaluation": { "required_before_voting": required, "minimum_confidence": minimum } }))
    };
    let given = |confidences: &[f64]| Happened::nothing().with_evaluations(confidences);
    let below = ["confidence_below_minimum"].as_slice();
    let missing = ["evaluation_required"].as_slice();
    let table: [(bool, f64, &[f64], &[&str]); 9] = [
        (false, 0.0, &[], &[]),
        (false, 0.9, &[], &[]),
        (false, 0.9, &[0.1], &[]),
        (true, 0.0, &[], missing),
        (true, 0.0, &[0.0], &[]),
        (true, 0.8, &[], below),
        (true, 0.8, &[0.3, 0.79], below),
        (true, 0.8, &[0.8], &[]),
        (true, 0.8, &[0.1, 0.95, 0.2], &[]),
    ];
    for (required, minimum, confidences, expected) in table {
        given(confidences).expect(&policy(required, minimum), expected, expected);
    }
}

#[test]
fn std_pol_16_veto_actions() {
    let policy = |action: &str| {
        let objections = json!({ "critical_severity_vetoes": true, "critical_objection_action": action });
        policy(3, json!({ "objection_handling": objections }))
    };
    let vetoed = Happened::nothing().with_objections(&["carol", "bob", "carol"]);
    vetoed.expect(&policy("deny"), &["veto"], &["veto"]);
    vetoed.expect(&policy("hold"), &["veto_hold"], &["veto_hold"]);
    vetoed.expect(&policy("finalize_decline"), &["veto"], &[]);
    // Objectors are listed once, in order.
    let rejection = vetoed.judged(&policy("hold"), POSITIVE).expect_err("held");
    let details: Value = serde_json::from_slice(&rejection.details).expect("JSON");
    assert_eq!(details["denials"][0]["participants"], json!(["bob", "carol"]));
}

/// A decline the objection authorizes needs no evaluation, no voters and no rejecting vote; a positive outcome hears of
/// all of them, and so does a decline while no veto stands.
#[test]
fn std_pol_14_an_objection_authorized_decline_waives_the_rest() {
    let rules = json!({
        "voting": { "algorithm": "majority", "quorum": { "value": 2 } },
        "evaluation": { "required_before_voting": true },
        "objection_handling": {
            "critical_severity_vetoes": true, "veto_threshold": 2, "critical_objection_action": "finalize_decline",
        },
        "commitment": { "require_vote_quorum": true },
    });
    let policy = policy(3, rules);
    let all = ["evaluation_required", "veto", "quorum_not_met", "no_votes"];
    Happened::nothing().with_objections(&["bob", "carol"]).expect(&policy, &all, &[]);
    let unmet = ["evaluation_required", "quorum_not_met", "decline_not_backed"];
    let positive = ["evaluation_required", "quorum_not_met", "no_votes"];
    Happened::nothing().with_objections(&["bob"]).expect(&policy, &positive, &unmet);
    // Also over a vote that passes.
    Happened::votes("alice+ bob+ carol+").with_objections(&["bob", "bob"]).expect(
        &policy,
        &["evaluation_required", "veto"],
        &[],
    );
}

#[test]
fn std_pol_17_vote_quorum() {
    let policy = |kind: &str, value: f64, required: bool| {
        let voting = json!({ "algorithm": "none", "quorum": { "type": kind, "value": value } });
        policy(3, json!({ "voting": voting, "commitment": { "require_vote_quorum": required } }))
    };
    let unmet = ["quorum_not_met"].as_slice();
    // Two voters of three: one of them twice, the other abstaining.
    let two = Happened::votes("alice+ p2:alice- bob0");
    let table: [(&str, f64, &[&str]); 8] = [
        ("count", 0.0, &[]),
        ("count", 1.5, &[]),
        ("count", 2.0, &[]),
        ("count", 2.5, unmet),
        ("percentage", 0.0, &[]),
        ("percentage", 66.6, &[]),
        ("percentage", 66.7, unmet),
        ("percentage", 101.0, unmet),
    ];
    for (kind, value, expected) in table {
        two.expect(&policy(kind, value, true), expected, expected);
        two.expect(&policy(kind, value, false), &[], &[]);
    }
    let open = Happened { roster: Roster::default(), ..Happened::nothing() };
    open.expect(&policy("percentage", 0.0, true), &[], &[]);
    open.expect(&policy("percentage", 0.1, true), unmet, unmet);
}

/// Every algorithm against the same votes: P passes, F fails, E is empty.
#[test]
fn std_pol_18_algorithms() {
    let rules = [
        json!({ "algorithm": "majority" }),
        json!({ "algorithm": "majority", "threshold": 0.75 }),
        json!({ "algorithm": "supermajority", "threshold": 0.666_666_666_666_666_6 }),
        json!({ "algorithm": "unanimous" }),
        json!({ "algorithm": "plurality" }),
        json!({ "algorithm": "weighted", "threshold": 0.5, "weights": { "alice": 3, "bob": 1 } }),
    ];
    let table = [
        ("", "EEEEEE"),
        ("alice0 bob0 carol0", "EEEEEE"),
        ("alice+", "PPPFPP"),
        ("bob-", "FFFFFF"),
        ("alice+ bob-", "PFFFFP"),
        ("alice- bob+", "PFFFFF"),
        ("alice+ bob+ carol-", "PFPFPP"),
        ("alice- bob- carol+", "FFFFFF"),
        ("alice+ bob+ carol+", "PPPPPP"),
        ("alice+ bob+ carol0", "PPPFPP"),
        // Over all proposals together: each approves one.
        ("p1:alice+ p2:bob+ p3:carol+", "PPPPPP"),
        ("p1:alice+ p1:bob+ p1:carol+ p2:bob-", "PPPFPP"),
        ("p1:alice+ p2:alice-", "PFFFFP"),
        // Carol weighs nothing.
        ("carol+", "PPPFPE"),
        ("carol-", "FFFFFE"),
        ("bob+ carol-", "PFFFFP"),
        ("bob- carol+", "PFFFFF"),
    ];
    for (votes, expected) in table {
        let happened = Happened::votes(votes);
        let found: String = rules
            .iter()
            .map(|voting| {
                // Version 3, and declines over approval forbidden: the codes tell the three outcomes apart.
                let policy = policy(3, json!({ "voting": voting }));
                match codes(&happened.judged(&policy, POSITIVE)).join("").as_str() {
                    "" => 'P',
                    "threshold_not_met" => 'F',
                    "no_votes" => 'E',
                    other => panic!("{other}"),
                }
            })
            .collect();
        assert_eq!(found, expected, "{votes:?}");
    }
}

#[test]
fn std_pol_18_outcome_table() {
    let majority = |version: u32, required: bool, over: bool| {
        let commitment = json!({ "require_vote_quorum": required, "allow_decline_over_approval": over });
        policy(version, json!({ "voting": { "algorithm": "majority" }, "commitment": commitment }))
    };
    for version in [1, 2, 3] {
        for required in [false, true] {
            let passed = Happened::votes("alice+ bob+");
            passed.expect(&majority(version, required, false), &[], &["decline_over_approval"]);
            passed.expect(&majority(version, required, true), &[], &["decline_not_backed"]);
            let contested = Happened::votes("alice+ bob+ carol-");
            contested.expect(&majority(version, required, false), &[], &["decline_over_approval"]);
            contested.expect(&majority(version, required, true), &[], &[]);
            let failed = Happened::votes("alice- bob-");
            failed.expect(&majority(version, required, false), &["threshold_not_met"], &[]);
            let binding = version == 3 || required;
            let positive: &[&str] = if binding { &["no_votes"] } else { &[] };
            Happened::votes("alice0").expect(&majority(version, required, true), positive, &["decline_not_backed"]);
        }
    }
    // A vote can fail without a rejection, and then nothing backs a decline.
    let unanimous = policy(3, json!({ "voting": { "algorithm": "unanimous" } }));
    Happened::votes("alice+").expect(&unanimous, &["threshold_not_met"], &["decline_not_backed"]);
}

/// Only a rejection that weighs something backs a decline.
#[test]
fn std_pol_18_weighted_rejections() {
    let weighted = |version: u32, threshold: f64| {
        let voting = json!({ "algorithm": "weighted", "threshold": threshold, "weights": { "alice": 1, "bob": 1 } });
        policy(version, json!({ "voting": voting, "commitment": { "allow_decline_over_approval": true } }))
    };
    Happened::votes("carol-").expect(&weighted(3, 0.5), &["no_votes"], &["decline_not_backed"]);
    Happened::votes("carol-").expect(&weighted(1, 0.5), &[], &["decline_not_backed"]);
    Happened::votes("alice+ carol-").expect(&weighted(3, 0.5), &[], &["decline_not_backed"]);
    Happened::votes("alice+ bob- carol-").expect(&weighted(3, 0.5), &[], &[]);
    Happened::votes("alice+ bob-").expect(&weighted(3, 0.6), &["threshold_not_met"], &[]);
}

/// Ratios are taken in binary64 as written: two thirds meet the constant for two thirds.
#[test]
fn std_pol_18_two_thirds() {
    let supermajority = &builtins()[2];
    Happened::votes("alice+ bob+ carol-").expect(supermajority, &[], &["decline_over_approval"]);
    Happened::votes("alice+ bob-").expect(supermajority, &["threshold_not_met"], &[]);
    // One that was never registered may hold a threshold below a half, and means two thirds.
    let mut legacy = (**supermajority).clone();
    legacy.rules.voting.threshold = 0.5;
    Happened::votes("alice+ bob+ carol-").expect(&legacy, &[], &["decline_over_approval"]);
    Happened::votes("alice+ bob-").expect(&legacy, &["threshold_not_met"], &[]);
}

/// Weights that were never checked at registration fail rather than divide.
#[test]
fn std_pol_18_a_negative_sum_fails() {
    let mut policy = policy(3, json!({ "voting": { "algorithm": "weighted", "weights": { "alice": 1, "bob": 1 } } }));
    policy.rules.voting.weights = Some(Weights::from([("alice".into(), -3.0), ("bob".into(), 1.0)]));
    Happened::votes("alice+ bob-").expect(&policy, &["threshold_not_met"], &[]);
}

#[test]
fn std_pol_19_without_an_algorithm_votes_are_advice() {
    for version in [1, 2, 3] {
        let policy = policy(version, json!({ "voting": { "algorithm": "none" } }));
        for votes in ["", "alice- bob- carol-", "alice+ bob+ carol+"] {
            Happened::votes(votes).expect(&policy, &[], &[]);
            Happened::votes(votes).with_objections(&["bob"]).expect(default_policy(), &[], &[]);
        }
    }
}

/// All reasons are told, in the order of evaluation.
#[test]
fn std_pol_18_every_reason_in_order() {
    let rules = json!({
        "voting": { "algorithm": "majority", "quorum": { "value": 3 } },
        "evaluation": { "required_before_voting": true, "minimum_confidence": 0.5 },
        "objection_handling": { "critical_severity_vetoes": true, "critical_objection_action": "hold" },
        "commitment": { "require_vote_quorum": true },
    });
    let policy = policy(1, rules);
    let happened = Happened::votes("alice+ bob-").with_objections(&["bob"]).with_evaluations(&[0.2]);
    let shared = ["confidence_below_minimum", "veto_hold", "quorum_not_met"];
    happened.expect(&policy, &shared, &[&shared[..], &["decline_over_approval"]].concat());
    let failing = Happened::votes("alice-").with_objections(&["bob"]).with_evaluations(&[0.2]);
    failing.expect(&policy, &[&shared[..], &["threshold_not_met"]].concat(), &shared);
}

#[test]
fn std_pol_21_counter_proposals() {
    let policy = |most: u64| {
        let rules = json!({ "counter_proposal": { "max_rounds": most } }).to_string();
        Policy::read(descriptor("macp.mode.proposal.v1", &rules)).expect("valid")
    };
    assert_eq!(evaluate::proposal(&policy(0), 1000, POSITIVE), Ok(()));
    assert_eq!(evaluate::proposal(&policy(2), 2, POSITIVE), Ok(()));
    assert_eq!(codes(&evaluate::proposal(&policy(2), 3, POSITIVE)), ["criterion_not_met"]);
    assert_eq!(evaluate::proposal(&policy(2), 3, NEGATIVE), Ok(()));
}

#[test]
fn std_pol_24_required_output() {
    let policy = |required: bool| {
        let rules = json!({ "completion": { "require_output": required } }).to_string();
        Policy::read(descriptor("macp.mode.task.v1", &rules)).expect("valid")
    };
    assert_eq!(evaluate::task(&policy(false), false, POSITIVE), Ok(()));
    assert_eq!(evaluate::task(&policy(true), true, POSITIVE), Ok(()));
    assert_eq!(codes(&evaluate::task(&policy(true), false, POSITIVE)), ["output_required"]);
    assert_eq!(evaluate::task(&policy(true), false, NEGATIVE), Ok(()));
    assert_eq!(codes(&Err(evaluate::reassignment_denied())), ["reassignment_not_allowed"]);
}

fn with_threshold(threshold: Option<Threshold>) -> Policy {
    Policy { rules: Rules { threshold, ..Rules::default() }, ..(**default_policy()).clone() }
}

#[test]
fn std_quor_3_effective_threshold() {
    let threshold = |threshold, participants| evaluate::quorum_threshold(&with_threshold(threshold), 2, participants);
    let count = |value| Some(Threshold::Count(value));
    let percentage = |value| Some(Threshold::Percentage(value));
    assert_eq!(threshold(None, 3), Some(2));
    assert_eq!(threshold(count(0), 3), Some(2), "nothing below one replaces the request");
    assert_eq!(threshold(percentage(0), 3), Some(2));
    assert_eq!(threshold(count(1), 3), Some(1), "the policy replaces the request, also downwards");
    assert_eq!(threshold(count(5), 3), Some(5), "and beyond the roster");
    assert_eq!(threshold(percentage(100), 3), Some(3));
    assert_eq!(threshold(percentage(67), 3), Some(3));
    assert_eq!(threshold(percentage(66), 3), Some(2));
    assert_eq!(threshold(percentage(1), 3), Some(1));
    assert_eq!(threshold(percentage(50), 0), None, "a share of nobody cannot be evaluated");
    assert_eq!(threshold(None, 0), Some(2));
    // Exact at every size, also where binary fractions are not: 7 % of 100 is 7.
    for participants in 1..=1000_u64 {
        for value in 1..=100_u64 {
            let needed = threshold(percentage(value), participants).expect("evaluable");
            assert!(needed * 100 >= value * participants && (needed - 1) * 100 < value * participants);
        }
    }
    assert_eq!(threshold(percentage(u64::MAX), u64::MAX), Some(u64::MAX));
}

/// Holds for the threshold of a request as for that of a policy: an approval takes the approvals it asked for.
#[test]
fn std_quor_5_threshold_of_a_commitment() {
    for policy in [with_threshold(None), with_threshold(Some(Threshold::Count(3)))] {
        assert_eq!(codes(&evaluate::quorum(&policy, 2, 3, POSITIVE)), ["threshold_not_met"]);
        assert_eq!(evaluate::quorum(&policy, 3, 3, POSITIVE), Ok(()));
        assert_eq!(evaluate::quorum(&policy, 4, 3, POSITIVE), Ok(()));
        assert_eq!(evaluate::quorum(&policy, 2, 3, NEGATIVE), Ok(()));
    }
}

#[test]
fn std_pol_30_codes() {
    let words = DenialCode::ALL.map(DenialCode::as_str);
    assert_eq!(
        words,
        [
            "veto",
            "veto_hold",
            "quorum_not_met",
            "threshold_not_met",
            "confidence_below_minimum",
            "evaluation_required",
            "no_votes",
            "decline_over_approval",
            "decline_not_backed",
            "criterion_not_met",
            "output_required",
            "reassignment_not_allowed",
            "unsupported_schema_version",
            "invalid_rules",
            "unspecified",
        ]
    );
}

#[test]
fn std_pol_30_details() {
    let participants = ["carol".into(), "bob".into(), "carol".into()].into();
    let rejection = denied(vec![
        Denial { participants, ..Denial::new(DenialCode::Veto, "two \"critical\" objections") },
        Denial::new(DenialCode::NoVotes, "no votes"),
    ]);
    assert_eq!(rejection.code, Code::PolicyDenied);
    assert_eq!(rejection.message, "two \"critical\" objections; no votes");
    let details: Value = serde_json::from_slice(&rejection.details).expect("UTF-8 JSON");
    assert_eq!(
        details,
        json!({
            "reasons": ["two \"critical\" objections", "no votes"],
            "denials": [
                { "code": "veto", "message": "two \"critical\" objections", "participants": ["bob", "carol"] },
                { "code": "no_votes", "message": "no votes" },
            ],
        })
    );
}

/// The texts are for people: they name the numbers that count.
#[test]
fn std_pol_30_messages() {
    let mut policy =
        policy(3, json!({ "voting": { "algorithm": "majority" }, "commitment": { "require_vote_quorum": true } }));
    policy.rules.voting.quorum = VoteQuorum::Percentage(50.0);
    policy.rules.objections = Objections { critical_severity_vetoes: true, ..Objections::default() };
    let rejection = Happened::votes("alice-").with_objections(&["bob"]).judged(&policy, POSITIVE).expect_err("denied");
    assert_eq!(
        rejection.message,
        "critical objections veto any commitment (1 raised); not enough participants have voted (voted: 1 of 3, \
         needed: 50 %); the vote fails (approvals: 0, rejections: 1)"
    );
}
