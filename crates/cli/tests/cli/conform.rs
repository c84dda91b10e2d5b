//! `macp conform` with our own fixtures, which need no network: what holds passes, and what does not is found.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::Server;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures")
}

#[test]
fn our_fixtures_pass_and_one_that_expects_something_else_is_found() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::on(&place.path().join("data"));
    let count = std::fs::read_dir(fixtures()).unwrap().count();
    let told = server.macp(&["--json", "conform", "--fixtures", fixtures().to_str().unwrap()]).exits(0).values();
    let (summary, reports) = told.split_last().unwrap();
    assert_eq!(reports.len(), count, "{told:?}");
    // One sets the clock, which no server lets anyone do.
    let not_passed: Vec<&Value> = reports.iter().filter(|report| report["outcome"] != "passed").collect();
    assert_eq!(not_passed.len(), 1, "{told:?}");
    assert_eq!(
        (&not_passed[0]["name"], &not_passed[0]["outcome"]),
        (&json!("handoff_late_decline"), &json!("skipped"))
    );
    assert_eq!(summary["level_reached"], "standard", "{summary}");

    let name = "quorum_tie";
    let file = format!("{name}.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(fixtures().join(&file)).unwrap()).unwrap();
    let message = changed["messages"][0].as_object_mut().unwrap();
    message.remove("expected_error_code");
    message.insert("expect".to_owned(), json!("accept"));
    let directory = place.path().join("changed");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join(file), changed.to_string()).unwrap();
    let run = server.macp(&["conform", "--fixtures", directory.to_str().unwrap()]).exits(1);
    assert!(run.stdout.contains(&format!("failed   {name}")), "{run:?}");
    assert!(run.stdout.contains("1 failed"), "{run:?}");
}
