//! Every fixture and vector in process, with mode state and replay.

mod common;

use macp_conformance::{KernelDriver, Level, Report, Set, Summary, run, run_hash_vectors, run_receipt_vectors};

async fn play(set: &Set) -> Vec<Report> {
    let mut reports = Vec::new();
    for (name, fixture) in &set.fixtures {
        let level = Level::of(name).expect("loaded fixtures have one");
        let report = run(name, level, fixture, &mut KernelDriver::default()).await;
        assert_eq!(report.unchecked, [""; 0], "{name}: nothing is hidden in process");
        reports.push(report);
    }
    common::judge(&reports);
    reports
}

fn all_passed(reports: &[Report], number: u64) {
    common::judge(reports);
    assert_eq!(Summary::of(reports).total().passed, number);
}

#[tokio::test]
async fn std_conf_1_every_public_fixture_holds() {
    let Some(set) = common::set() else { return };
    let reports = play(set).await;
    all_passed(&reports, 40);
    let passed = |level| Summary::of(&reports).levels[&level].passed;
    assert_eq!(Level::ALL.map(passed), [1, 21, 16, 2]);
}

#[test]
fn std_hash_8_every_public_hash_vector_holds() {
    let Some(set) = common::set() else { return };
    all_passed(&run_hash_vectors(&set.hash_vectors), 10);
}

#[test]
fn std_rcpt_7_every_public_receipt_vector_holds() {
    let Some(set) = common::set() else { return };
    all_passed(&run_receipt_vectors(&set.receipt_vectors), 12);
}

/// Behaviour the public fixtures do not touch.
#[tokio::test]
async fn every_own_fixture_holds() {
    all_passed(&play(&common::own()).await, 7);
}
