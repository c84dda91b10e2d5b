//! The runner finds what is wrong: fixtures that hold are changed to expect something else, one thing at a time, and
//! must then fail for that reason and no other.

use std::path::Path;

use macp_conformance::{Clock, Driver, Fixture, KernelDriver, Level, Outcome, Report, SessionRef, Submission};
use macp_conformance::{HashVector, ReceiptVector, Trouble, Verdict, run, run_hash_vectors, run_receipt_vectors};
use macp_wire::v1::{Envelope, PolicyDescriptor, SessionState};
use serde_json::{Value, json};

fn own(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(format!("{name}.json"));
    let text = std::fs::read_to_string(path).expect("an own fixture");
    serde_json::from_str(&text).expect("JSON")
}

async fn play(fixture: &Value) -> Report {
    let fixture = Fixture::parse(&fixture.to_string()).expect("a fixture");
    run("changed", Level::Core, &fixture, &mut KernelDriver::default()).await
}

/// Changes one member of a fixture and tells the reasons it fails for.
async fn changed(name: &str, pointer: &str, value: Value) -> Vec<String> {
    let mut fixture = own(name);
    *fixture.pointer_mut(pointer).expect("the member is there") = value;
    play(&fixture).await.failures().to_vec()
}

#[tokio::test]
async fn a_wrong_verdict_is_found() {
    let reasons = changed("quorum_tie", "/messages/1/expect", json!("reject")).await;
    assert_eq!(reasons, ["message 2 (ApprovalRequest of agent://coordinator): expected to be refused, was accepted"]);
    let mut fixture = own("quorum_tie");
    fixture["messages"][0]["expect"] = json!("accept");
    fixture["messages"][0].as_object_mut().expect("an object").remove("expected_error_code");
    let report = play(&fixture).await;
    let [reason] = report.failures() else { panic!("{report:?}") };
    let expected = "message 1 (ApprovalRequest of agent://coordinator): expected to be accepted, was refused with \
                    INVALID_ENVELOPE: ";
    assert!(reason.starts_with(expected), "{reason}");
}

#[tokio::test]
async fn a_wrong_code_is_found() {
    let reasons = changed("quorum_tie", "/messages/2/expected_error_code", json!("POLICY_DENIED")).await;
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert!(reason.contains("expected POLICY_DENIED, was refused with FORBIDDEN: "), "{reason}");
}

#[tokio::test]
async fn a_wrong_end_is_found() {
    let reasons = changed("quorum_tie", "/expected_final_state", json!("Open")).await;
    assert_eq!(reasons, ["final state: expected OPEN, found RESOLVED"]);
    let reasons = changed("quorum_tie", "/expected_resolution/action", json!("quorum.approved")).await;
    assert_eq!(reasons, [r#"resolution: action: expected "quorum.approved", found "quorum.rejected""#]);
    let reasons = changed("handoff_late_decline", "/expect_resolution_present", json!(true)).await;
    assert_eq!(reasons, ["resolution: expected one, found none"]);
    let reasons = changed("decision_duplicate_after_end", "/expect_resolution_present", json!(false)).await;
    assert_eq!(reasons, ["resolution: expected none, found one"]);
    let mut fixture = own("handoff_late_decline");
    fixture.as_object_mut().expect("an object").remove("expect_resolution_present");
    fixture["expected_resolution"] = json!({});
    assert_eq!(play(&fixture).await.failures(), ["resolution: expected one, found none"]);
}

#[tokio::test]
async fn a_wrong_mode_state_is_found() {
    let reasons = changed("quorum_tie", "/expected_mode_state/ballots/agent:~1~1d/choice", json!("Approve")).await;
    assert_eq!(reasons, [r#"mode state: ballots["agent://d"].choice: expected "Approve", found "Reject""#]);
}

#[tokio::test]
async fn a_wrong_history_is_found() {
    let name = "handoff_late_decline";
    let mut fixture = own(name);
    fixture["expected_history"].as_array_mut().expect("a list").pop();
    assert_eq!(
        play(&fixture).await.failures(),
        ["history: expected 2 envelopes after the start, found 3: HandoffOffer, HandoffAccept, HandoffContext"]
    );
    let reasons = changed(name, "/expected_history/1/synthetic", json!(false)).await;
    assert_eq!(reasons, [r#"history[1]: "implicit-accept:h1" was written by the runtime"#]);
    let reasons = changed(
        name,
        "/expected_history/0",
        json!({
            "message_type": "HandoffOffer", "sender": "agent://owner", "synthetic": true,
        }),
    )
    .await;
    assert_eq!(reasons, [r#"history[0]: "m2" was written by the script"#]);
    let reasons = changed(name, "/expected_history/2/payload", json!({"context": []})).await;
    assert_eq!(reasons, [r#"history[2].payload: context: expected "", found "read the runbook""#]);
    let reasons = changed(name, "/expected_history/2/sender", json!("agent://target")).await;
    assert_eq!(reasons, [r#"history[2].sender: expected "agent://target", found "agent://owner""#]);
}

#[tokio::test]
async fn a_session_that_does_not_start_is_a_failure() {
    let reasons = changed("quorum_tie", "/ttl_ms", json!(0)).await;
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert!(reason.starts_with("the session does not start: INVALID_ENVELOPE: "), "{reason}");
}

#[tokio::test]
async fn what_cannot_be_played_is_a_failure_and_not_a_pass() {
    let reasons = changed("quorum_tie", "/messages/1/payload", json!({"request": "r1"})).await;
    let text = "message 2 (ApprovalRequest of agent://coordinator): macp.modes.quorum.v1.ApprovalRequestPayload has \
                no field \"request\"";
    assert_eq!(reasons, [text]);
    let reasons = changed("decision_designated_outsider", "/policy/rules", json!({"comitment": {}})).await;
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert!(reason.starts_with("policy \"policy.own.designated-outsider\" is refused: "), "{reason}");
}

#[test]
fn a_wrong_hash_is_found() {
    let vector = json!({
        "name": "cmt_hash_1", "label": "macp-commitment-hash/1", "payload": {"outcome_positive": false},
        "jcs_utf8_hex": "7b7d", "preimage_utf8_hex": "", "hash": "sha256:00", "must_differ_from": "cmt_hash_0",
    });
    let vector = HashVector::parse(&vector.to_string()).expect("a vector");
    let [report] = run_hash_vectors(&[("cmt_hash_1".to_owned(), vector)].into()).try_into().expect("one report");
    let reasons: Vec<&str> = report.failures().iter().filter_map(|reason| reason.split(':').next()).collect();
    let missing = "there is no vector cmt_hash_0 to differ from";
    assert_eq!(reasons, ["canonical JSON", "preimage", "hash", "verification", missing]);
    let claim = json!({
        "name": "cmt_hash_2", "label": "another", "wire_hex": "", "claimed_hash": "", "expected_outcome": "match",
    });
    let vector = HashVector::parse(&claim.to_string()).expect("a vector");
    let [report] = run_hash_vectors(&[("cmt_hash_2".to_owned(), vector)].into()).try_into().expect("one report");
    let label = "label: expected another, found macp-commitment-hash/1";
    assert_eq!(report.failures(), [label, "verification: expected match, found mismatch"]);
}

#[test]
fn a_wrong_receipt_verdict_is_found() {
    let vector = json!({
        "name": "receipt_1", "receipt": {"receipt_format": "macp-receipt/2"}, "trusted_keys": {},
        "expected": {"integrity": null, "attestations": [], "verdict": "attested"},
    });
    let vector = ReceiptVector::parse(&vector.to_string()).expect("a vector");
    let [report] = run_receipt_vectors(&[("receipt_1".to_owned(), vector)].into()).try_into().expect("one report");
    let [reason] = report.failures() else { panic!("{report:?}") };
    assert!(reason.contains(r#"verdict: "attested" }, found"#) && reason.contains("refused"), "{reason}");
}

/// The kernel, as a driver that shows no more than a server does.
struct Veiled(KernelDriver);

impl Driver for Veiled {
    fn clock(&self) -> Clock {
        Clock::Own
    }

    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    async fn register(&mut self, policy: &PolicyDescriptor) -> Result<(), Trouble> {
        self.0.register(policy).await
    }

    async fn send(&mut self, submission: Submission) -> Result<Verdict, Trouble> {
        self.0.send(submission).await
    }

    async fn state(&mut self, session: &SessionRef) -> Result<SessionState, Trouble> {
        self.0.state(session).await
    }

    async fn history(&mut self, session: &SessionRef) -> Result<Vec<Envelope>, Trouble> {
        self.0.history(session).await
    }

    async fn resolution(&mut self, session: &SessionRef) -> Result<Option<bytes::Bytes>, Trouble> {
        self.0.resolution(session).await
    }

    async fn mode_state(&mut self, _session: &SessionRef) -> Result<Option<Value>, Trouble> {
        Ok(None)
    }

    async fn replay(&mut self, _session: &SessionRef) -> Result<Option<Vec<String>>, Trouble> {
        Ok(None)
    }
}

/// STD-CONF-2: a driver without a clock skips what needs one, and what it cannot see is told.
#[tokio::test]
async fn what_a_driver_cannot_show_is_told() {
    let mut driver = Veiled(KernelDriver::default());
    let fixture = Fixture::parse(&own("quorum_tie").to_string()).expect("a fixture");
    let report = run("quorum_tie", Level::Standard, &fixture, &mut driver).await;
    assert_eq!((report.outcome, report.unchecked), (Outcome::Passed, vec!["mode state", "replay equivalence"]));
    let clocked = Fixture::parse(&own("handoff_late_decline").to_string()).expect("a fixture");
    let report = run("handoff_late_decline", Level::Standard, &clocked, &mut driver).await;
    assert!(matches!(report.outcome, Outcome::Skipped { .. }), "{report:?}");
}
