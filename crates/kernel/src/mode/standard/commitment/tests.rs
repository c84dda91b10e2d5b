//! The Commitment, shown in the decision mode, which has the least to say about it.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope};
use macp_wire::modes::decision::v1::ProposalPayload;
use macp_wire::v1::{CommitmentPayload, CommitmentRef};
use prost::Message;
use serde_json::json;

use crate::mode::standard::decision::Decision;
use crate::mode::standard::harness::Table;

fn ready() -> Table<Decision> {
    let mut table = Table::new("lead", &["a", "b"]);
    let proposal = ProposalPayload { proposal_id: "p1".into(), option: "x".into(), ..Default::default() };
    table.accept("a", "Proposal", &proposal);
    table
}

#[track_caller]
fn accepted(change: impl FnOnce(&mut CommitmentPayload)) {
    let mut table = ready();
    let mut commitment = table.commitment("done", true);
    change(&mut commitment);
    table.accept("lead", "Commitment", &commitment);
}

#[track_caller]
fn refused(change: impl FnOnce(&mut CommitmentPayload)) {
    let mut table = ready();
    let mut commitment = table.commitment("done", true);
    change(&mut commitment);
    assert_eq!(table.refuse("lead", "Commitment", &commitment), InvalidEnvelope);
    assert_eq!(table.resolution, None);
}

#[test]
fn std_cmt_2_decodes() {
    assert_eq!(ready().refuse_bytes("lead", "Commitment", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(ready().refuse_bytes("lead", "Commitment", &b""[..]), InvalidEnvelope);
}

#[test]
fn std_cmt_2_words_are_not_blank() {
    refused(|commitment| commitment.commitment_id = " ".into());
    refused(|commitment| commitment.action = String::new());
    refused(|commitment| commitment.authority_scope = "\t".into());
    refused(|commitment| commitment.reason = "\u{a0}".into());
}

#[test]
fn std_cmt_2_versions_are_the_bound_ones() {
    refused(|commitment| commitment.mode_version = "1.0".into());
    refused(|commitment| commitment.mode_version = String::new());
    refused(|commitment| commitment.configuration_version = "cfg-2".into());
    refused(|commitment| commitment.configuration_version = String::new());
    refused(|commitment| commitment.policy_version = "policy.other".into());
    accepted(|commitment| commitment.policy_version = "policy.default".into());
    accepted(|commitment| commitment.policy_version = String::new());
}

#[test]
fn std_cmt_2_supersedes_has_its_shape() {
    let with = |session_id: &str, hash: String| {
        let reference = CommitmentRef { session_id: session_id.into(), commitment_hash: hash };
        move |commitment: &mut CommitmentPayload| commitment.supersedes = Some(reference)
    };
    accepted(with("earlier", format!("sha256:{}", "0a".repeat(32))));
    refused(with(" ", format!("sha256:{}", "0a".repeat(32))));
    refused(with("earlier", format!("sha256:{}", "0A".repeat(32))));
    refused(with("earlier", format!("sha256:{}", "0a".repeat(31))));
    refused(with("earlier", format!("sha256:{}0", "0a".repeat(32))));
    refused(with("earlier", "0a".repeat(32)));
    refused(with("earlier", String::new()));
}

#[test]
fn std_cmt_3_authority() {
    let who = |rules: serde_json::Value| {
        ["lead", "a", "outsider"].map(|sender| {
            let mut table = ready().governed(rules.clone());
            let commitment = table.commitment("done", true).encode_to_vec();
            let envelope = table.envelope(sender, "Commitment", commitment);
            table.submit(&envelope).map_err(|rejection| rejection.code)
        })
    };
    let (yes, no) = (Ok(()), Err(Forbidden));
    assert_eq!(who(json!({})), [yes, no, no]);
    assert_eq!(who(json!({"commitment": {"authority": "initiator_only"}})), [yes, no, no]);
    assert_eq!(who(json!({"commitment": {"authority": "any_participant"}})), [yes, yes, no]);
    let designated = json!({"commitment": {"authority": "designated_role", "designated_roles": ["outsider"]}});
    assert_eq!(who(designated), [no, no, yes]);
}

#[test]
fn std_cmt_1_authority_comes_before_the_payload() {
    assert_eq!(ready().refuse_bytes("a", "Commitment", &b"\xff"[..]), Forbidden);
}

#[test]
fn std_cmt_4_actions_and_outcomes_agree() {
    for action in ["decision.rejected", "task.failed", "declined"] {
        refused(|commitment| commitment.action = action.into());
        accepted(|commitment| (commitment.action, commitment.outcome_positive) = (action.into(), false));
    }
    for action in ["decision.selected", "accepted", "task.completed", "unapproved"] {
        accepted(|commitment| commitment.action = action.into());
        refused(|commitment| (commitment.action, commitment.outcome_positive) = (action.into(), false));
    }
    for action in ["decision.Rejected", "rejected.", "multi_round.converged"] {
        accepted(|commitment| commitment.action = action.into());
        accepted(|commitment| (commitment.action, commitment.outcome_positive) = (action.into(), false));
    }
}

#[test]
fn std_cmt_5_the_resolution_is_the_payload_as_received() {
    let mut table = ready();
    let mut payload = table.commitment("done", true).encode_to_vec();
    // A field nobody knows: number 100, of one byte.
    payload.extend_from_slice(&[0xa0, 0x06, 0x07]);
    table.accept_bytes("lead", "Commitment", payload.clone());
    assert_eq!(table.resolution.as_deref(), Some(payload.as_slice()));
}
