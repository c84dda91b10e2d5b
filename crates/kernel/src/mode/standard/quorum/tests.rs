//! The rules of the quorum mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope, PolicyDenied};
use macp_wire::modes::quorum::v1::{AbstainPayload, ApprovalRequestPayload, ApprovePayload, RejectPayload};
use serde_json::{Value, json};

use super::Quorum;
use crate::mode::standard::harness::{Table, refuse_start};

fn request(request_id: &str, required_approvals: u32) -> ApprovalRequestPayload {
    ApprovalRequestPayload {
        request_id: request_id.into(),
        action: "deploy".into(),
        required_approvals,
        ..Default::default()
    }
}

fn approve(request_id: &str) -> ApprovePayload {
    ApprovePayload { request_id: request_id.into(), reason: String::new() }
}

fn reject(request_id: &str) -> RejectPayload {
    RejectPayload { request_id: request_id.into(), reason: String::new() }
}

fn abstain(request_id: &str) -> AbstainPayload {
    AbstainPayload { request_id: request_id.into(), reason: String::new() }
}

fn open() -> Table<Quorum> {
    Table::new("lead", &["a", "b", "c"])
}

fn requested(required_approvals: u32, rules: Value) -> Table<Quorum> {
    let mut table = open().governed(rules);
    table.accept("lead", "ApprovalRequest", &request("r1", required_approvals));
    table
}

#[test]
fn std_quor_1_roster_and_authority() {
    assert_eq!(refuse_start::<Quorum>("lead", &[]), InvalidEnvelope);
    let mut table = open();
    for sender in ["a", "outsider"] {
        assert_eq!(table.refuse(sender, "ApprovalRequest", &request("r1", 2)), Forbidden);
    }
    table.accept("lead", "ApprovalRequest", &request("r1", 2));
    // The initiator has no ballot unless it takes part.
    for sender in ["lead", "outsider"] {
        assert_eq!(table.refuse(sender, "Approve", &approve("r1")), Forbidden);
        assert_eq!(table.refuse(sender, "Reject", &reject("r1")), Forbidden);
        assert_eq!(table.refuse(sender, "Abstain", &abstain("r1")), Forbidden);
    }
    assert_eq!(table.refuse_commit("a", "quorum.approved", true), Forbidden);
}

#[test]
fn std_core_35_36_unknown_types() {
    for unknown in ["Vote", "SessionCancel", "SessionSuspend", "SessionResume"] {
        assert_eq!(open().refuse_bytes("a", unknown, &b""[..]), InvalidEnvelope);
        assert_eq!(open().refuse_bytes("outsider", unknown, &b""[..]), Forbidden);
    }
}

#[test]
fn std_quor_2_request() {
    let mut table = open();
    assert_eq!(table.refuse_bytes("lead", "ApprovalRequest", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("lead", "ApprovalRequest", &request("", 2)), InvalidEnvelope);
    assert_eq!(table.refuse("lead", "ApprovalRequest", &request(&"r".repeat(257), 2)), InvalidEnvelope);
    assert_eq!(table.refuse("lead", "ApprovalRequest", &request("r1", 0)), InvalidEnvelope);
    assert_eq!(table.refuse("lead", "ApprovalRequest", &request("r1", 4)), InvalidEnvelope);
    table.accept("lead", "ApprovalRequest", &request("r1", 3));
    assert_eq!(table.refuse("lead", "ApprovalRequest", &request("r2", 2)), InvalidEnvelope);
}

#[test]
fn std_quor_2_ballots() {
    let mut table = open();
    assert_eq!(table.refuse("a", "Approve", &approve("r1")), InvalidEnvelope);
    table.accept("lead", "ApprovalRequest", &request("r1", 2));
    for message_type in ["Approve", "Reject", "Abstain"] {
        assert_eq!(table.refuse_bytes("a", message_type, &b"\xff"[..]), InvalidEnvelope);
        assert_eq!(table.refuse_bytes("a", message_type, &b""[..]), InvalidEnvelope);
    }
    assert_eq!(table.refuse("a", "Approve", &approve("r2")), InvalidEnvelope);
    table.accept("a", "Approve", &approve("r1"));
    table.accept("b", "Abstain", &abstain("r1"));
    for sender in ["a", "b"] {
        assert_eq!(table.refuse(sender, "Approve", &approve("r1")), InvalidEnvelope);
        assert_eq!(table.refuse(sender, "Reject", &reject("r1")), InvalidEnvelope);
        assert_eq!(table.refuse(sender, "Abstain", &abstain("r1")), InvalidEnvelope);
    }
}

#[test]
fn std_quor_4_readiness() {
    assert_eq!(open().refuse_commit("lead", "quorum.rejected", false), InvalidEnvelope);
    let mut table = requested(2, json!({}));
    table.accept("a", "Approve", &approve("r1"));
    assert_eq!(table.refuse_commit("lead", "quorum.approved", true), InvalidEnvelope);
    assert_eq!(table.refuse_commit("lead", "quorum.rejected", false), InvalidEnvelope);
    table.accept("b", "Approve", &approve("r1"));
    table.commit("lead", "quorum.approved", true);

    // Abstaining uses a ballot up as much as rejecting does.
    let mut table = requested(2, json!({}));
    table.accept("a", "Reject", &reject("r1"));
    assert_eq!(table.refuse_commit("lead", "quorum.rejected", false), InvalidEnvelope);
    table.accept("b", "Abstain", &abstain("r1"));
    table.commit("lead", "quorum.rejected", false);
}

#[test]
fn std_quor_3_the_policy_replaces_the_request() {
    let count = |value: u64| json!({"threshold": {"type": "n_of_m", "value": value}});
    let mut table = requested(3, count(1));
    table.accept("a", "Approve", &approve("r1"));
    table.commit("lead", "quorum.approved", true);

    let mut table = requested(1, count(2));
    table.accept("a", "Approve", &approve("r1"));
    assert_eq!(table.refuse_commit("lead", "quorum.approved", true), InvalidEnvelope);

    // More than there are participants: declined at once.
    requested(1, count(4)).commit("lead", "quorum.rejected", false);
    assert_eq!(requested(1, count(4)).refuse_commit("lead", "quorum.approved", true), PolicyDenied);

    // A third of three is one, a hundredth more is two.
    let mut table = requested(3, json!({"threshold": {"type": "percentage", "value": 33}}));
    table.accept("a", "Approve", &approve("r1"));
    table.commit("lead", "quorum.approved", true);
    let mut table = requested(3, json!({"threshold": {"type": "percentage", "value": 34}}));
    table.accept("a", "Approve", &approve("r1"));
    assert_eq!(table.refuse_commit("lead", "quorum.approved", true), InvalidEnvelope);
}

#[test]
fn std_quor_5_what_is_out_of_reach_cannot_be_approved() {
    for rules in [json!({}), json!({"threshold": {"type": "n_of_m", "value": 2}})] {
        let mut table = requested(2, rules);
        table.accept("a", "Reject", &reject("r1"));
        table.accept("b", "Reject", &reject("r1"));
        assert_eq!(table.refuse_commit("lead", "quorum.approved", true), PolicyDenied);
        table.commit("lead", "quorum.rejected", false);
    }
    let mut table = requested(1, json!({}));
    table.accept("a", "Approve", &approve("r1"));
    table.commit("lead", "quorum.rejected", false);
}

#[test]
fn std_quor_6_state() {
    assert_eq!(open().describe(), json!({"request": null, "ballots": {}}));
    let mut table = requested(2, json!({}));
    table.accept("c", "Approve", &approve("r1"));
    table.accept("b", "Reject", &reject("r1"));
    table.accept("a", "Abstain", &abstain("r1"));
    assert_eq!(
        table.describe(),
        json!({
            "request": {"request_id": "r1", "required_approvals": 2, "requested_by": "lead"},
            "ballots": {
                "a": {"request_id": "r1", "choice": "Abstain", "sender": "a"},
                "b": {"request_id": "r1", "choice": "Reject", "sender": "b"},
                "c": {"request_id": "r1", "choice": "Approve", "sender": "c"},
            },
        })
    );
}
