//! The rules of the decision mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope, PolicyDenied};
use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use serde_json::json;

use super::Decision;
use crate::mode::standard::harness::Table;

fn proposal(proposal_id: &str, option: &str) -> ProposalPayload {
    ProposalPayload { proposal_id: proposal_id.into(), option: option.into(), ..Default::default() }
}

fn evaluation(proposal_id: &str, recommendation: &str, confidence: f64) -> EvaluationPayload {
    EvaluationPayload {
        proposal_id: proposal_id.into(),
        recommendation: recommendation.into(),
        confidence,
        reason: "long text".into(),
    }
}

fn objection(proposal_id: &str, severity: &str) -> ObjectionPayload {
    ObjectionPayload { proposal_id: proposal_id.into(), severity: severity.into(), reason: "long text".into() }
}

fn vote(proposal_id: &str, vote: &str) -> VotePayload {
    VotePayload { proposal_id: proposal_id.into(), vote: vote.into(), reason: "long text".into() }
}

fn open() -> Table<Decision> {
    Table::new("lead", &["lead", "a", "b"])
}

/// With a proposal.
fn proposed() -> Table<Decision> {
    let mut table = open();
    table.accept("lead", "Proposal", &proposal("p1", "deploy"));
    table
}

/// With a vote.
fn voting() -> Table<Decision> {
    let mut table = proposed();
    table.accept("a", "Vote", &vote("p1", "APPROVE"));
    table
}

#[test]
fn std_dec_1_an_empty_roster_can_end_in_nothing() {
    let mut table: Table<Decision> = Table::new("lead", &[]);
    assert_eq!(table.refuse("lead", "Proposal", &proposal("p1", "x")), Forbidden);
    assert_eq!(table.refuse_commit("lead", "done", true), InvalidEnvelope);
    assert_eq!(table.refuse_commit("lead", "done", false), InvalidEnvelope);
}

#[test]
fn std_dec_2_authority() {
    let mut table: Table<Decision> = Table::new("lead", &["a"]);
    for sender in ["lead", "outsider"] {
        assert_eq!(table.refuse(sender, "Proposal", &proposal("p1", "x")), Forbidden);
        assert_eq!(table.refuse(sender, "Evaluation", &evaluation("p1", "APPROVE", 0.5)), Forbidden);
        assert_eq!(table.refuse(sender, "Objection", &objection("p1", "low")), Forbidden);
        assert_eq!(table.refuse(sender, "Vote", &vote("p1", "APPROVE")), Forbidden);
        // Before the payload is looked at.
        assert_eq!(table.refuse_bytes(sender, "Vote", &b"\xff"[..]), Forbidden);
    }
}

#[test]
fn std_core_35_36_unknown_types_are_forbidden_to_everyone() {
    for unknown in ["Message", "SessionCancel", "SessionSuspend", "SessionResume", "proposal", "Contribute"] {
        for sender in ["lead", "a", "outsider"] {
            assert_eq!(proposed().refuse_bytes(sender, unknown, &b""[..]), Forbidden, "{unknown} of {sender}");
        }
    }
}

#[test]
fn std_dec_3_phases() {
    let mut table = open();
    assert_eq!(table.describe()["phase"], "Proposal");
    assert_eq!(table.refuse("a", "Evaluation", &evaluation("p1", "APPROVE", 0.5)), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Objection", &objection("p1", "low")), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Vote", &vote("p1", "APPROVE")), InvalidEnvelope);

    table.accept("a", "Proposal", &proposal("p1", "x"));
    assert_eq!(table.describe()["phase"], "Evaluation");
    table.accept("b", "Proposal", &proposal("p2", "y"));
    table.accept("b", "Evaluation", &evaluation("p1", "REVIEW", 0.0));
    table.accept("b", "Objection", &objection("p2", "critical"));
    assert_eq!(table.describe()["phase"], "Evaluation");

    table.accept("b", "Vote", &vote("p1", "ABSTAIN"));
    assert_eq!(table.describe()["phase"], "Voting");
    assert_eq!(table.refuse("a", "Proposal", &proposal("p3", "z")), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Evaluation", &evaluation("p1", "APPROVE", 0.5)), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Objection", &objection("p1", "low")), InvalidEnvelope);
    table.accept("a", "Vote", &vote("p2", "REJECT"));

    table.commit("lead", "decision.selected", true);
    assert_eq!(table.describe()["phase"], "Committed");
}

#[test]
fn std_dec_4_proposal() {
    let mut table = open();
    assert_eq!(table.refuse_bytes("a", "Proposal", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse_bytes("a", "Proposal", &b""[..]), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Proposal", &proposal(" ", "x")), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Proposal", &proposal("p1", " ")), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Proposal", &proposal(&"p".repeat(257), "x")), InvalidEnvelope);
    table.accept("a", "Proposal", &proposal(&"p".repeat(256), "x"));
    table.accept("a", "Proposal", &proposal("p1", "x"));
    assert_eq!(table.refuse("b", "Proposal", &proposal("p1", "y")), InvalidEnvelope);
}

#[test]
fn std_dec_4_evaluation() {
    let mut table = proposed();
    assert_eq!(table.refuse_bytes("a", "Evaluation", &b"\xff"[..]), InvalidEnvelope);
    for word in ["", "Approve", "approve", "APPROVED"] {
        assert_eq!(table.refuse("a", "Evaluation", &evaluation("p1", word, 0.5)), InvalidEnvelope);
    }
    for confidence in [-0.1, 1.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(table.refuse("a", "Evaluation", &evaluation("p1", "APPROVE", confidence)), InvalidEnvelope);
    }
    assert_eq!(table.refuse("a", "Evaluation", &evaluation("p2", "APPROVE", 0.5)), InvalidEnvelope);
    for (word, confidence) in [("APPROVE", 0.0), ("REVIEW", 1.0), ("BLOCK", 0.5), ("REJECT", 0.5)] {
        table.accept("a", "Evaluation", &evaluation("p1", word, confidence));
    }
}

#[test]
fn std_dec_4_objection() {
    let mut table = proposed();
    assert_eq!(table.refuse_bytes("a", "Objection", &b"\xff"[..]), InvalidEnvelope);
    for word in ["", "CRITICAL", "Low", "severe"] {
        assert_eq!(table.refuse("a", "Objection", &objection("p1", word)), InvalidEnvelope);
    }
    assert_eq!(table.refuse("a", "Objection", &objection("p2", "low")), InvalidEnvelope);
    for word in ["low", "medium", "high", "critical"] {
        table.accept("a", "Objection", &objection("p1", word));
    }
}

#[test]
fn std_dec_4_5_vote() {
    let mut table = proposed();
    table.accept("lead", "Proposal", &proposal("p2", "wait"));
    assert_eq!(table.refuse_bytes("a", "Vote", &b"\xff"[..]), InvalidEnvelope);
    for word in ["", "approve", "YES"] {
        assert_eq!(table.refuse("a", "Vote", &vote("p1", word)), InvalidEnvelope);
    }
    assert_eq!(table.refuse("a", "Vote", &vote("p3", "APPROVE")), InvalidEnvelope);
    table.accept("a", "Vote", &vote("p1", "APPROVE"));
    assert_eq!(table.refuse("a", "Vote", &vote("p1", "APPROVE")), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Vote", &vote("p1", "REJECT")), InvalidEnvelope);
    table.accept("a", "Vote", &vote("p2", "REJECT"));
    table.accept("b", "Vote", &vote("p1", "ABSTAIN"));
}

#[test]
fn std_dec_4_commitment_needs_a_proposal() {
    assert_eq!(open().refuse_commit("lead", "decision.selected", true), InvalidEnvelope);
    assert_eq!(open().refuse_commit("lead", "decision.declined", false), InvalidEnvelope);
    proposed().commit("lead", "decision.selected", true);
    proposed().commit("lead", "decision.rejected", false);
}

#[test]
fn std_pol_18_votes_reach_the_policy() {
    let rules = json!({"voting": {"algorithm": "majority", "threshold": 0.5}});
    assert_eq!(proposed().governed(rules.clone()).refuse_commit("lead", "decision.selected", true), PolicyDenied);
    voting().governed(rules.clone()).commit("lead", "decision.selected", true);
    assert_eq!(voting().governed(rules).refuse_commit("lead", "decision.rejected", false), PolicyDenied);
}

#[test]
fn std_pol_14_critical_objections_reach_the_policy() {
    let rules = json!({"objection_handling": {"critical_severity_vetoes": true, "veto_threshold": 2}});
    let mut table = proposed().governed(rules);
    table.accept("a", "Objection", &objection("p1", "critical"));
    table.accept("b", "Objection", &objection("p1", "high"));
    table.accept("a", "Vote", &vote("p1", "APPROVE"));
    table.commit("lead", "decision.selected", true);

    let rules = json!({"objection_handling": {"critical_severity_vetoes": true, "veto_threshold": 2}});
    let mut table = proposed().governed(rules);
    table.accept("a", "Objection", &objection("p1", "critical"));
    table.accept("a", "Objection", &objection("p1", "critical"));
    assert_eq!(table.refuse_commit("lead", "decision.selected", true), PolicyDenied);
}

#[test]
fn std_pol_15_evaluations_reach_the_policy() {
    let rules = json!({"evaluation": {"required_before_voting": true, "minimum_confidence": 0.8}});
    let mut table = proposed().governed(rules);
    table.accept("a", "Evaluation", &evaluation("p1", "REVIEW", 0.9));
    assert_eq!(table.refuse_commit("lead", "decision.selected", true), PolicyDenied);
    table.accept("a", "Evaluation", &evaluation("p1", "APPROVE", 0.7));
    assert_eq!(table.refuse_commit("lead", "decision.selected", true), PolicyDenied);
    table.accept("b", "Evaluation", &evaluation("p1", "REJECT", 0.8));
    table.accept("b", "Evaluation", &evaluation("p1", "APPROVE", 0.1));
    table.commit("lead", "decision.selected", true);
}

#[test]
fn std_dec_7_state() {
    let mut table = proposed();
    table.accept("a", "Evaluation", &evaluation("p1", "APPROVE", 0.75));
    table.accept("b", "Objection", &objection("p1", "critical"));
    table.accept("a", "Vote", &vote("p1", "APPROVE"));
    table.accept("b", "Vote", &vote("p1", "ABSTAIN"));
    assert_eq!(
        table.describe(),
        json!({
            "phase": "Voting",
            "proposals": {"p1": {"proposal_id": "p1", "sender": "lead"}},
            "evaluations": [{"proposal_id": "p1", "recommendation": "APPROVE", "confidence": 0.75, "sender": "a"}],
            "objections": [{"proposal_id": "p1", "severity": "critical", "sender": "b"}],
            "votes": {"p1": {
                "a": {"proposal_id": "p1", "vote": "APPROVE", "sender": "a"},
                "b": {"proposal_id": "p1", "vote": "ABSTAIN", "sender": "b"},
            }},
        })
    );
}
