//! The conventions of fixtures, held against the generated messages.

use macp_wire::modes::decision::v1::EvaluationPayload;
use macp_wire::modes::handoff::v1::HandoffContextPayload;
use macp_wire::modes::proposal::v1::ProposalPayload;
use macp_wire::modes::quorum::v1::ApprovalRequestPayload;
use macp_wire::v1::{CommitmentPayload, CommitmentRef, Root, SessionStartPayload};
use prost::Message;
use serde_json::json;

use super::*;

fn encoded(type_name: &str, payload: Value) -> Result<Bytes, PayloadError> {
    let Value::Object(members) = payload else { panic!("a payload is an object") };
    encode(type_name, &members)
}

#[track_caller]
fn check<M: Message + PartialEq + Default + std::fmt::Debug>(type_name: &str, payload: Value, expected: M) {
    let bytes = encoded(type_name, payload).expect("a payload");
    assert_eq!(M::decode(bytes).expect("protobuf"), expected);
}

#[track_caller]
fn refused(type_name: &str, payload: Value, text: &str) {
    assert_eq!(encoded(type_name, payload).expect_err("must be refused").to_string(), text);
}

#[test]
fn an_absent_outcome_is_positive_and_a_given_one_is_kept() {
    let positive = CommitmentPayload { outcome_positive: true, ..CommitmentPayload::default() };
    check(COMMITMENT, json!({}), positive.clone());
    check(COMMITMENT, json!({"outcome_positive": true}), positive);
    check(COMMITMENT, json!({"outcome_positive": false}), CommitmentPayload::default());
}

#[test]
fn bytes_are_text_or_byte_values() {
    let context = |bytes: &'static [u8]| HandoffContextPayload { context: bytes.into(), ..Default::default() };
    let name = "macp.modes.handoff.v1.HandoffContextPayload";
    check(name, json!({"context": "aGk="}), context(b"aGk="));
    check(name, json!({"context": "ä"}), context("ä".as_bytes()));
    check(name, json!({"context": []}), context(b""));
    check(name, json!({"context": [0, 255]}), context(&[0, 255]));
    refused(
        name,
        json!({"context": [256]}),
        &format!("context of {name} cannot be [256]: it is text, or a list of byte values"),
    );
}

#[test]
fn numbers_lists_messages_and_maps_are_written() {
    let evaluation = EvaluationPayload { confidence: 1.0, ..Default::default() };
    check("macp.modes.decision.v1.EvaluationPayload", json!({"confidence": 1}), evaluation);
    let request = ApprovalRequestPayload { required_approvals: 2, ..Default::default() };
    check("macp.modes.quorum.v1.ApprovalRequestPayload", json!({"required_approvals": 2}), request);
    let proposal = ProposalPayload { tags: vec!["a".into(), "b".into()], ..Default::default() };
    check("macp.modes.proposal.v1.ProposalPayload", json!({"tags": ["a", "b"], "details": []}), proposal);
    let start = SessionStartPayload {
        ttl_ms: -1,
        roots: vec![Root { uri: "u".into(), name: String::new() }],
        extensions: [("k".to_owned(), Bytes::from_static(b"v"))].into(),
        ..Default::default()
    };
    check(
        "macp.v1.SessionStartPayload",
        json!({"ttl_ms": -1, "roots": [{"uri": "u"}], "extensions": {"k": "v"}}),
        start,
    );
}

#[test]
fn what_cannot_be_written_is_refused_by_name() {
    refused("macp.v1.Nonsense", json!({}), "there is no protobuf message \"macp.v1.Nonsense\"");
    refused(COMMITMENT, json!({"acton": "x"}), "macp.v1.CommitmentPayload has no field \"acton\"");
    let name = "macp.modes.quorum.v1.ApprovalRequestPayload";
    for value in [json!(-1), json!(4_294_967_296_u64), json!(1.5), json!("1"), json!(null)] {
        let text = format!("required_approvals of {name} cannot be {value}: it is an integer of 32 bits, not negative");
        refused(name, json!({"required_approvals": value}), &text);
    }
}

#[test]
fn decoding_shows_defaults_and_leaves_out_absent_messages() {
    let mut commitment = CommitmentPayload { action: "a".into(), ..Default::default() };
    let shown = decode(COMMITMENT, &commitment.encode_to_vec()).expect("protobuf");
    assert_eq!(shown["action"], json!("a"));
    assert_eq!(shown["outcome_positive"], json!(false));
    assert_eq!(shown.get("supersedes"), None);
    commitment.supersedes = Some(CommitmentRef::default());
    let shown = decode(COMMITMENT, &commitment.encode_to_vec()).expect("protobuf");
    assert_eq!(shown["supersedes"], json!({"session_id": "", "commitment_hash": ""}));
    let error = decode(COMMITMENT, b"{}").expect_err("this is no protobuf");
    assert_eq!(error.to_string(), "it is not a macp.v1.CommitmentPayload");
}

#[test]
fn what_was_written_is_read_back() {
    let payload = json!({"handoff_id": "h", "content_type": "t", "context": "text"});
    let name = "macp.modes.handoff.v1.HandoffContextPayload";
    let bytes = encoded(name, payload.clone()).expect("a payload");
    assert_eq!(decode(name, &bytes).expect("protobuf"), payload);
}

#[test]
fn expected_bytes_are_compared_as_bytes_and_not_as_lists() {
    let name = "macp.modes.handoff.v1.HandoffContextPayload";
    assert_eq!(normalise(name, &json!({"context": []})).expect("known fields"), json!({"context": ""}));
    assert_eq!(normalise(name, &json!({"context": [104, 105]})).expect("known fields"), json!({"context": "hi"}));
    assert_eq!(normalise(name, &json!({"context": [255]})).expect("known fields"), json!({"context": [255]}));
    assert!(normalise(name, &json!({"contxt": ""})).is_err(), "a misspelt expectation is refused");
}

#[test]
fn payload_types_follow_the_mode() {
    assert_eq!(type_of("macp.mode.handoff.v1", "HandoffAccept"), "macp.modes.handoff.v1.HandoffAcceptPayload");
    assert_eq!(type_of("ext.multi_round.v1", "Contribute"), "macp.modes.multi_round.v1.ContributePayload");
    assert_eq!(type_of("macp.mode.task.v1", "Commitment"), COMMITMENT);
}
