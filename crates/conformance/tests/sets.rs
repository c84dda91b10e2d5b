//! Directories of fixtures: both layouts, and what is refused.

use std::fs;
use std::path::Path;

use macp_conformance::{Counts, LoadError, Set};

const FIXTURE: &str = r#"{
    "mode": "macp.mode.decision.v1", "initiator": "a", "participants": [], "mode_version": "1.0.0",
    "configuration_version": "c", "ttl_ms": 1, "expected_final_state": "Open",
    "messages": [{"sender": "a", "message_type": "Vote", "payload_type": "t", "payload": {}, "expect": "reject"}]
}"#;

const HASH: &str =
    r#"{"name": "cmt_hash_1", "label": "l", "wire_hex": "00", "claimed_hash": "", "expected_outcome": "match"}"#;

const RECEIPT: &str = r#"{
    "name": "receipt_1", "receipt": {"_kept": 1}, "trusted_keys": {"k": "x"},
    "expected": {"integrity": null, "attestations": [], "verdict": "refused"}
}"#;

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
    fs::write(path, text).expect("writable");
}

#[track_caller]
fn refused(directory: &Path, text: &str) {
    let error = Set::load(directory).expect_err("must be refused").to_string();
    assert_eq!(error.replace(&format!("{}", directory.display()), "…"), text);
}

#[test]
fn both_layouts_are_found() {
    for receipts in ["set/receipt", "vectors/receipt"] {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path(), "set/decision_one.json", FIXTURE);
        write(root.path(), "set/schema.json", "no fixture");
        write(root.path(), "set/SOURCE.md", "no fixture");
        write(root.path(), "set/cmt-hash/cmt_hash_1.json", HASH);
        write(root.path(), "set/cmt-hash/vector-schema.json", "no vector");
        write(root.path(), &format!("{receipts}/receipt_1.json"), RECEIPT);
        let set = Set::load(&root.path().join("set")).expect("a set");
        assert_eq!(set.counts(), Counts { fixtures: 1, hash_vectors: 1, receipt_vectors: 1 });
        // A receipt is signed with every member it has, so nothing in it is a note.
        assert_eq!(set.receipt_vectors["receipt_1"].receipt["_kept"], 1);
    }
}

#[test]
fn an_empty_directory_is_no_set() {
    let root = tempfile::tempdir().expect("a directory");
    refused(root.path(), "… holds no fixtures");
    let error = Set::load(&root.path().join("nowhere")).expect_err("must be refused");
    assert!(matches!(error, LoadError::Io { .. }), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_file_and_place() {
    let root = tempfile::tempdir().expect("a directory");
    write(root.path(), "decision_one.json", &FIXTURE.replace("\"expect\"", "\"expects\""));
    refused(root.path(), "…/decision_one.json: messages[0].expect is missing");
    write(root.path(), "decision_one.json", FIXTURE);
    write(root.path(), "cmt-hash/cmt_hash_1.json", &HASH.replace("\"00\"", "\"0\""));
    refused(root.path(), "…/cmt-hash/cmt_hash_1.json: wire_hex: Odd number of digits");
    write(root.path(), "cmt-hash/cmt_hash_1.json", &HASH.replace("cmt_hash_1", "cmt_hash_2"));
    refused(root.path(), "…/cmt-hash/cmt_hash_1.json: the vector calls itself \"cmt_hash_2\"");
    write(root.path(), "cmt-hash/cmt_hash_1.json", &HASH.replace("\"label\"", "\"hash\": \"\", \"label\""));
    refused(root.path(), "…/cmt-hash/cmt_hash_1.json: hash is not a member known here");
    fs::remove_dir_all(root.path().join("cmt-hash")).expect("writable");
    write(root.path(), "other.json", FIXTURE);
    refused(
        root.path(),
        "…/other.json: the name tells no level; fixtures are called after what they test, such as decision_…",
    );
}
