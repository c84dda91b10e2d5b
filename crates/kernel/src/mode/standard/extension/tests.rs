//! The rules of the extension mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope, ModeNotSupported};
use macp_wire::v1::ModeDescriptor;
use serde_json::{Value, json};

use super::PassThrough;
use crate::mode::Extension;
use crate::mode::standard::harness::Table;

fn open(participants: &[&str]) -> Table<PassThrough> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let descriptor = ModeDescriptor {
        mode: "ext.chat.v1".into(),
        mode_version: "1.0.0".into(),
        message_types: words(&["SessionStart", "Say", "SessionCancel", "Commitment"]),
        terminal_message_types: words(&["Commitment"]),
        ..Default::default()
    };
    let mut table = Table::new("lead", participants);
    table.extension = Some(Extension { descriptor, promoted: false });
    table
}

#[test]
fn std_ext_1_who_may_send() {
    let mut table = open(&["a"]);
    table.accept_bytes("a", "Say", &b"hello"[..]);
    for sender in ["lead", "outsider"] {
        assert_eq!(table.refuse_bytes(sender, "Say", &b"hello"[..]), Forbidden);
        assert_eq!(table.refuse_bytes(sender, "Sing", &b"hello"[..]), Forbidden);
    }
    open(&[]).accept_bytes("anyone", "Say", &b"hello"[..]);
}

#[test]
fn std_ext_1_what_may_be_sent() {
    assert_eq!(open(&["a"]).refuse_bytes("a", "Sing", &b"la"[..]), InvalidEnvelope);
    assert_eq!(open(&[]).refuse_bytes("anyone", "Sing", &b"la"[..]), InvalidEnvelope);
}

/// Registering them does not hand them out.
#[test]
fn std_core_35_reserved_types() {
    for reserved in ["SessionStart", "SessionCancel", "SessionSuspend", "SessionResume"] {
        assert_eq!(open(&["a"]).refuse_bytes("a", reserved, &b""[..]), InvalidEnvelope);
    }
}

#[test]
fn std_ext_1_commitment() {
    let mut table = open(&["a"]).governed(json!({"commitment": {"authority": "any_participant"}}));
    assert_eq!(table.refuse_commit("a", "done", true), Forbidden);
    assert_eq!(table.refuse_commit("lead", "chat.rejected", true), InvalidEnvelope);
    table.commit("lead", "chat.\"over\"", true);
    assert_eq!(table.resolution.as_deref(), Some(&br#"{"action":"chat.\"over\"","commitment_id":"c1"}"#[..]));
}

#[test]
fn a_session_without_its_descriptor_takes_nothing() {
    let mut table = open(&["a"]);
    table.extension = None;
    assert_eq!(table.refuse_bytes("a", "Say", &b"hello"[..]), ModeNotSupported);
}

#[test]
fn the_state_is_a_fingerprint_of_the_last_payload() {
    let mut table = open(&["a"]);
    assert_eq!(table.describe(), json!({"last_payload": Value::Null}));
    table.accept_bytes("a", "Say", &b"hello"[..]);
    table.accept_bytes("a", "Say", &b"abc"[..]);
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(table.describe(), json!({"last_payload": {"length": 3, "sha256": sha256}}));
}
