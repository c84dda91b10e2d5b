//! The journal's chain: published vectors, and what a reader refuses.

use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, Broken, Chain, Fault, Journal, RunStatus, StepFinished, Stop, StopReason, link};
use macp_plan_core::plan::StepStatus;
use macp_plan_core::testkit::{Kit, World, execute, freeze, http, plan, start, step};
use macp_plan_core::{behavior, journal};
use macp_wire::informational::Informational;
use serde_json::{Map, json};

const MINIMAL_PLAN: &str = "sha256:7fed53b7bc7f30d35f93ddf6885dcd816716e2ca540c5846153d0051ec215d2d";

/// AOS-30: the published chain.
#[test]
fn chain_vectors() {
    let first = format!(r#"{{"plan_hash":"{MINIMAL_PLAN}","run_id":"r1","seq":0,"type":"run_started"}}"#);
    let head = link(None, first.as_bytes());
    assert_eq!(head, "5c78a781010527c9caf3ddfea3abdf8252e5e93add8b3383f3a1f5d32016c761");
    let second = r#"{"seq":1,"step_id":"s1","type":"step_started"}"#;
    let head = link(Some(&head), second.as_bytes());
    assert_eq!(head, "09e834410377f0f8df3063adc9a8adb64f92115e11122134b74bf3dce43c74eb");
}

/// AOS-31: the published behaviour digest.
#[test]
fn behavior_vector() {
    let plan_hash = Digest::try_from(MINIMAL_PLAN.to_owned()).expect("a digest");
    let code = "ERR_HTTP_503".to_owned();
    let steps = [StepFinished {
        step_id: "s1".to_owned(),
        status: StepStatus::Failure,
        code: code.clone(),
        retryable: true,
        cost_microcents: 0,
        cost_cents: 0,
        skill_id: "http_call".to_owned(),
        skill_version: "1.2.0".to_owned(),
        backend_retries: 3,
        total_attempts: 4,
        attempt_codes: vec![code.clone(); 4],
        side_effects: vec![("http_request".to_owned(), "api.example.com".to_owned()); 4],
        details: Map::new(),
    }];
    let stop = Stop { reason: StopReason::StepFailed, step_id: Some("s1".to_owned()), code };
    let digest = behavior::digest(&plan_hash, &steps, Some(&stop), 0);
    assert_eq!(digest.as_str(), "sha256:7db42d1ce87675ca2030bbd9f2a44abf32393d362175b90f8acc556cfefde4b6");
}

/// The texts and hashes of a run.
fn recorded() -> Vec<(String, String)> {
    let plan = freeze(plan(10, vec![step("s1", "http_call", json!({})), step("s2", "post_call", json!({}))]));
    let run = execute(&plan, &Kit::standard().shared(), World::new().answer("s1", 0, http(503)));
    let mut previous: Option<String> = None;
    let seal = |entry: &journal::Entry| {
        let (text, hash) = journal::seal(previous.as_deref(), entry).expect("canonical");
        previous = Some(hash.clone());
        (text, hash)
    };
    run.journal.entries().iter().map(seal).collect()
}

#[test]
fn a_journal_reads_back_as_it_was_sealed() {
    let records = recorded();
    let journal = Journal::read(records.iter().map(|(text, hash)| (text.as_bytes(), hash))).expect("intact");
    assert!(journal.finished());
    assert_eq!(journal.head(), records.last().expect("entries").1);
    assert_eq!(journal.entries().len(), records.len());
    assert!(matches!(&journal.entries().last().expect("entries").body,
        Body::RunFinished(finished) if finished.status == RunStatus::Succeeded));
}

fn broken(records: &[(String, String)]) -> Broken {
    Journal::read(records.iter().map(|(text, hash)| (text.as_bytes(), hash))).expect_err("broken")
}

/// Test 33, the journal's half: one changed byte anywhere shows, at its entry.
#[test]
fn every_changed_byte_shows_at_its_entry() {
    let records = recorded();
    for place in 0..records.len() {
        for byte in (0..records[place].0.len()).step_by(7) {
            let mut altered: Vec<(Vec<u8>, String)> =
                records.iter().map(|(text, hash)| (text.as_bytes().to_vec(), hash.clone())).collect();
            altered[place].0[byte] ^= 1;
            let error = Journal::read(altered.iter().map(|(text, hash)| (text, hash))).expect_err("broken");
            assert_eq!(error.seq, place as u64);
        }
    }
}

/// Seals a text onto a chain, whatever it says.
fn sealed(previous: Option<&str>, text: &str) -> (String, String) {
    (text.to_owned(), link(previous, text.as_bytes()))
}

#[test]
fn gaps_unknown_kinds_and_trailing_data_are_refused() {
    let records = recorded();
    let head = records[0].1.as_str();
    let after = |text: &str| broken(&[records[0].clone(), sealed(Some(head), text)]);

    let without_second = [records[0].clone(), sealed(Some(head), &records[2].0)];
    assert!(matches!(broken(&without_second), Broken { seq: 1, fault: Fault::Gap(2) }));
    let unknown = after(r#"{"seq":1,"type":"thought"}"#);
    assert!(matches!(unknown, Broken { seq: 1, fault: Fault::UnknownKind(kind) } if kind == "thought"));
    let unreadable = [
        "",
        "{",
        "[]",
        r#"{"seq":1}"#,
        r#"{"seq":1,"seq":1}"#,
        r#"{"seq":1,"type":1,"admitted":true}"#,
        r#"{"seq":"1","type":"admission","admitted":true}"#,
        r#"{"type":"admission","admitted":true}"#,
        r#"{"seq":1,"type":"admission","admitted":true} {}"#,
    ];
    for text in unreadable {
        assert!(matches!(after(text), Broken { seq: 1, fault: Fault::Unreadable(_) }), "{text}");
    }
    assert!(matches!(after(&records[0].0.replace("\"seq\":0", "\"seq\":1")), Broken { fault: Fault::Beginning, .. }));

    let mut longer = records.clone();
    let text = format!(r#"{{"facts":{{}},"seq":{},"type":"observed"}}"#, records.len());
    longer.push(sealed(records.last().map(|(_, hash)| hash.as_str()), &text));
    let error = broken(&longer);
    assert_eq!(error.seq, records.len() as u64);
    assert!(matches!(error.fault, Fault::AfterEnd));

    let nothing: [(&str, &str); 0] = [];
    assert!(matches!(Journal::read(nothing), Err(Broken { seq: 0, fault: Fault::Empty })));
}

/// An output without a canonical form is refused when it is sealed, not when it is read.
#[test]
fn an_inexact_integer_cannot_be_sealed() {
    let plan = freeze(plan(10, vec![step("s1", "http_call", json!({}))]));
    let mut journal = Journal::begin(start(&plan, "r")).expect("canonical");
    let output = journal::Output { output_ref: None, output: Some(json!({"id": u64::MAX})) };
    let cause = macp_plan_core::cause::Cause::Success;
    let body =
        Body::AttemptObserved { step_id: "s1".into(), attempt: 0, cause, usage: None, retry_after_ms: None, output };
    let (length, head) = (journal.entries().len(), journal.head().to_owned());
    journal.append(body).expect_err("beyond 2^53 - 1");
    assert_eq!((journal.entries().len(), journal.head()), (length, head.as_str()));
    assert_eq!(Chain::new().next_seq(), 0);
}

/// A number that cannot be counted on from is no overflow, and nothing can be sealed behind it.
#[test]
fn a_chain_ends_at_the_last_number() {
    assert_eq!(Chain::resume(4, "head".to_owned()).next_seq(), 5);
    let mut chain = Chain::resume(u64::MAX, "head".to_owned());
    assert_eq!(chain.next_seq(), u64::MAX);
    let body = Body::Observed { step_id: None, facts: Informational::default() };
    chain.append(body).expect_err("beyond 2^53 - 1");
    // Reading does not count beyond the end either.
    let text = format!(r#"{{"facts":{{}},"seq":{},"type":"observed"}}"#, u64::MAX);
    chain.read(text.as_bytes(), &link(Some("head"), text.as_bytes())).expect("an entry of the last number");
    assert_eq!(chain.next_seq(), u64::MAX);
}
