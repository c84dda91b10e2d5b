//! The rules of the multi-round mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope};
use macp_wire::modes::multi_round::v1::ContributePayload;
use prost::Message;
use serde_json::json;

use super::{MultiRound, contribution};
use crate::CONTRIBUTION_BYTES_MAX;
use crate::mode::standard::harness::{Table, refuse_start};

fn value(value: &str) -> ContributePayload {
    ContributePayload { value: value.into() }
}

fn open() -> Table<MultiRound> {
    Table::new("lead", &["b", "a"])
}

fn converged() -> Table<MultiRound> {
    let mut table = open();
    table.accept("a", "Contribute", &value("x"));
    table.accept("b", "Contribute", &value("y"));
    table.accept("b", "Contribute", &value("x"));
    table
}

#[test]
fn std_mr_1_roster_and_authority() {
    assert_eq!(refuse_start::<MultiRound>("lead", &[]), InvalidEnvelope);
    for sender in ["lead", "outsider"] {
        assert_eq!(open().refuse(sender, "Contribute", &value("x")), Forbidden);
    }
    // Whatever the policy says.
    let rules = json!({"commitment": {"authority": "any_participant"}});
    assert_eq!(converged().governed(rules).refuse_commit("a", "done", true), Forbidden);
}

#[test]
fn std_core_35_36_unknown_types() {
    for unknown in ["Vote", "SessionCancel", "SessionSuspend", "SessionResume"] {
        assert_eq!(open().refuse_bytes("a", unknown, &b""[..]), InvalidEnvelope);
        assert_eq!(open().refuse_bytes("outsider", unknown, &b""[..]), Forbidden);
    }
}

#[test]
fn std_mr_2_rounds_and_convergence() {
    let mut table = open();
    let shows = |table: &Table<MultiRound>| {
        let state = table.describe();
        (state["round"].as_u64().unwrap(), state["converged"].as_bool().unwrap())
    };
    assert_eq!(shows(&table), (0, false));
    table.accept("a", "Contribute", &value("x"));
    assert_eq!(shows(&table), (1, false));
    table.accept("a", "Contribute", &value("x"));
    assert_eq!(shows(&table), (1, false), "nothing new");
    table.accept("b", "Contribute", &value("y"));
    table.accept("a", "Contribute", &value("y"));
    assert_eq!(shows(&table), (3, true));
    assert_eq!(table.resolution, None);
    assert_eq!(table.refuse("a", "Contribute", &value("y")), InvalidEnvelope);
    assert_eq!(table.refuse("a", "Contribute", &value("x")), InvalidEnvelope);
}

#[test]
fn std_mr_2_one_participant_agrees_with_itself() {
    let mut table: Table<MultiRound> = Table::new("a", &["a"]);
    table.accept("a", "Contribute", &value("x"));
    table.commit("a", "multi_round.converged", true);
}

#[test]
fn contributions_are_bounded() {
    let long = "x".repeat(CONTRIBUTION_BYTES_MAX);
    open().accept("a", "Contribute", &value(&long));
    assert_eq!(open().refuse("a", "Contribute", &value(&format!("{long}x"))), InvalidEnvelope);
}

#[test]
fn std_mr_3_commitment() {
    assert_eq!(open().refuse_commit("lead", "multi_round.converged", true), InvalidEnvelope);
    let mut table = converged();
    let mut commitment = table.commitment("multi_round.converged", true);
    commitment.mode_version = "2.0.0".into();
    assert_eq!(table.refuse("lead", "Commitment", &commitment), InvalidEnvelope);
    table.commit("lead", "multi_round.converged", true);
    let resolution = br#"{"converged_value":"x","round":3,"final":{"a":"x","b":"x"}}"#;
    assert_eq!(table.resolution.as_deref(), Some(&resolution[..]));
}

#[test]
fn std_mr_4_encodings() {
    let read = |payload: &[u8]| contribution::read(payload).ok();
    assert_eq!(read(b""), None);
    assert_eq!(read(&value("x").encode_to_vec()).as_deref(), Some("x"));
    assert_eq!(read(br#"{"value":"x"}"#).as_deref(), Some("x"));
    assert_eq!(read(b" \n{\"value\":\"x\",\"more\":[1]} ").as_deref(), Some("x"));
    assert_eq!(read(br#"{"value":""}"#).as_deref(), Some(""));
    for neither in [r#"{"value":1}"#, r#"{"values":"x"}"#, r#"["x"]"#, r#"{"value":"x"} y"#, r#"{"value":"x""#] {
        assert_eq!(read(neither.as_bytes()), None, "{neither}");
    }
    assert_eq!(read(b"{\"value\":\"\xff\"}"), None, "no UTF-8");
    // Fields nobody knows are let pass, and leave an empty value.
    assert_eq!(read(&[0x10, 0x01]).as_deref(), Some(""));
}

/// Lengths 13 and 32 are white space to JSON, and a length of 123 is an opening brace.
#[test]
fn std_mr_4_protobuf_that_looks_like_json() {
    let bytes = hex::decode("0a0d7b2276616c7565223a2278227d").unwrap();
    assert_eq!(contribution::read(&bytes).unwrap(), r#"{"value":"x"}"#);
    let members = |length: usize| format!(r#""value":"{}"}}"#, "x".repeat(length - 11));
    for look_alike in [r#"{"value":"x"}"#.to_owned(), format!("{{{}", members(31)), members(123)] {
        let payload = value(&look_alike).encode_to_vec();
        assert!(serde_json::from_slice::<serde_json::Value>(&payload).is_ok(), "it is JSON as well");
        assert_eq!(contribution::read(&payload).unwrap(), look_alike);
    }
}

#[test]
fn std_mr_4_json_that_looks_like_protobuf() {
    // A brace and a carriage return as lengths that do not fit.
    assert_eq!(contribution::read(b"\n{\"value\":\"x\"}").unwrap(), "x");
    assert_eq!(contribution::read(b"\n\r{\"value\":\"xy\"}").unwrap(), "xy");
    // The white space at the end is a field that protobuf reads and would not write.
    let both = b"\n\r{\"value\":\"x\"} \n";
    assert_eq!(ContributePayload::decode(&both[..]).unwrap().value, r#"{"value":"x"}"#);
    assert_eq!(contribution::read(both).unwrap(), "x");
}

#[test]
fn std_mr_5_state() {
    let mut table = open();
    table.accept("a", "Contribute", &value("x"));
    assert_eq!(
        table.describe(),
        json!({
            "round": 1,
            "participants": ["b", "a"],
            "contributions": {"a": "x"},
            "convergence_type": "all_equal",
            "converged": false,
        })
    );
}
