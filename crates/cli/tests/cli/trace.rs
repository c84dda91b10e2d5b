//! Traces with refused envelopes replay to the same verdicts (REPLAY-2).

use std::path::Path;

use crate::support::{Server, command, decide, macp, send};

fn record(place: &Path) -> String {
    let trace = place.join("trace.jsonl");
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(place.join("data"))
            .arg("--audit")
            .arg(&trace),
    );
    decide(&server, "s1", false);
    send(&server, "s1", "x1", "mallory", "Vote", r#"{"proposal_id":"p1"}"#).exits(1);
    send(&server, "s1", "x2", "alice", "Evaluation", r#"{"proposal_id":"nothing"}"#).exits(1);
    send(&server, "nowhere", "x3", "alice", "Vote", "{}").exits(1);
    send(&server, "s1", "m2", "bob", "Vote", r#"{"proposal_id":"p1","vote":"approve"}"#).exits(0);
    server.macp(&["session", "start", "s2", "--sender", "a", "--mode", "unheard-of"]).exits(1);
    send(&server, "s1", "m3", "alice", "Commitment", r#"{"commitment_id":"c1"}"#).exits(0);
    send(&server, "s1", "x4", "bob", "Vote", r#"{"proposal_id":"p1"}"#).exits(1);
    assert!(server.terminate().success());
    trace.to_str().unwrap().to_owned()
}

#[test]
fn replay_2_a_recorded_trace_gets_the_same_verdicts() {
    let place = tempfile::tempdir().unwrap();
    let trace = record(place.path());
    let report = macp(&["--json", "replay", &trace]).exits(0).value();
    let report = &report["report"];
    assert_eq!(report["verdict"], "match");
    let count = |name: &str| report["trace"][name].as_u64().unwrap();
    assert_eq!(count("events"), 10, "{report}");
    assert_eq!((count("different"), count("lost"), count("same")), (0, 0, 10), "{report}");
    let human = macp(&["replay", &trace]).exits(0).stdout;
    assert!(human.starts_with("MATCH"), "{human}");

    // Refusals are in the trace and never in history.
    let data = place.path().join("data");
    let log = macp(&["--json", "session", "log", "s1", "--data", data.to_str().unwrap()]).exits(0).values();
    assert_eq!(log.len(), 4);
}

#[test]
fn a_trace_goes_on_when_the_server_is_started_again() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace.jsonl").to_str().unwrap().to_owned();
    let data = place.path().join("data").to_str().unwrap().to_owned();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", &data, "--audit", &trace, "--audit-max-files", "2"];
    for round in 0..4 {
        let server = Server::with(command().args(serve));
        decide(&server, &format!("s{round}"), round % 2 == 0);
        assert!(server.terminate().success());
    }
    assert!(!place.path().join("trace.jsonl.1").exists(), "a start is no reason for a new file");
    let report = macp(&["--json", "replay", &trace]).exits(0).value();
    let report = &report["report"]["trace"];
    assert_eq!((&report["events"], &report["same"]), (&serde_json::json!(14), &serde_json::json!(14)), "{report}");
}

#[test]
fn a_file_that_is_no_trace_is_not_written_into() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("letter");
    std::fs::write(&file, "dear friend\n").unwrap();
    for _ in 0..2 {
        let refused =
            macp(&["serve", "--memory", "--listen", "127.0.0.1:0", "--audit", file.to_str().unwrap()]).exits(2);
        let told = refused.stderr.contains("letter") && refused.stderr.contains("something else than a trace");
        assert!(told, "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "dear friend\n");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn replay_2_a_changed_trace_is_found() {
    let place = tempfile::tempdir().unwrap();
    let trace = record(place.path());
    let text = std::fs::read_to_string(&trace).unwrap();
    let at = text.find("SESSION_NOT_FOUND").expect("a refusal is recorded");
    let line = text[..at].lines().count();
    std::fs::write(&trace, text.replacen("SESSION_NOT_FOUND", "MODE_NOT_SUPPORTED", 1)).unwrap();

    let values = macp(&["--json", "replay", &trace]).exits(1).values();
    assert_eq!(values.len(), 2, "{values:?}");
    assert_eq!(values[0]["difference"]["line"], line);
    assert_eq!(values[1]["report"]["verdict"], "diverged");
    let told = macp(&["replay", &trace]).exits(1).stdout;
    let verdicts = ": recorded rejected, MODE_NOT_SUPPORTED; decided again rejected, SESSION_NOT_FOUND";
    let first = told.lines().next().expect("the difference");
    assert!(first.starts_with(&format!("line {line}, session ")) && first.ends_with(verdicts), "{told}");
    assert!(first.contains(", before its first entry"), "{told}");

    std::fs::write(&trace, text.replacen("\"at_ms\"", "\"at\"", 1)).unwrap();
    macp(&["replay", &trace]).exits(2);
}

#[test]
fn what_cannot_be_replayed_is_called_what_it_is() {
    let place = tempfile::tempdir().unwrap();
    let trace = record(place.path());
    let told = macp(&["verify", &trace]).exits(2).stderr;
    assert!(told.contains("is a trace") && told.contains("macp replay"), "{told}");
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::write(&trace, text.replacen("macp-trace/1", "macp-trace/7", 1)).unwrap();
    let told = macp(&["replay", &trace]).exits(2).stderr;
    assert!(told.contains("a trace of format macp-trace/7"), "{told}");
    std::fs::write(&trace, text.split_once('\n').unwrap().1).unwrap();
    let told = macp(&["replay", &trace]).exits(2).stderr;
    assert!(told.contains("neither an export of a session nor a trace"), "{told}");
}

#[test]
fn a_trace_cut_off_by_a_kill_replays_up_to_there() {
    let place = tempfile::tempdir().unwrap();
    let trace = record(place.path());
    let bytes = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &bytes[..bytes.len() - 10]).unwrap();
    let report = macp(&["--json", "replay", &trace]).exits(0).value();
    assert_eq!(report["report"]["trace"]["torn"], 1, "{report}");
    assert_eq!(report["report"]["trace"]["same"], 9, "{report}");
    assert!(macp(&["replay", &trace]).exits(0).stdout.contains("cut off"));
}

#[test]
fn replay_2_a_line_taken_out_of_a_trace_is_found() {
    let place = tempfile::tempdir().unwrap();
    let trace = record(place.path());
    let text = std::fs::read_to_string(&trace).unwrap();
    let is_second_entry =
        |line: &str| line.contains(r#""after_sequence":1,"#) && line.contains(r#""verdict":"accepted""#);
    let line = text.lines().position(is_second_entry).expect("it is recorded");
    let kept: String = text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != line).map(|(_, it)| it).collect();
    std::fs::write(&trace, kept).unwrap();

    let values = macp(&["--json", "replay", &trace]).exits(1).values();
    let gap = &values[0]["gap"];
    assert_eq!((gap["session_id"].as_str(), gap["known_sequence"].as_u64()), (Some("s1"), Some(1)), "{gap}");
    assert_eq!(gap["known_ordinal"], 1, "{gap}");
    let report = &values[1]["report"];
    assert_eq!((report["verdict"].as_str(), report["trace"]["earlier"].as_u64()), (Some("incomplete"), Some(0)));
    let told = macp(&["replay", &trace]).exits(1).stdout;
    assert!(told.contains("session s1, after entry 2: the trace leads only to entry 1, ordinal 1"), "{told}");
    assert!(told.contains("INCOMPLETE: ") && told.contains("1 gap that the trace does not explain"), "{told}");
}

#[test]
fn a_trace_of_which_nothing_can_be_compared_is_no_match() {
    let place = tempfile::tempdir().unwrap();
    let trace = record(place.path());
    let text = std::fs::read_to_string(&trace).unwrap();
    let is_later = |line: &&str| line.starts_with(r#"{"format""#) || line.contains(r#""after_sequence":2,"#);
    let kept: String = text.split_inclusive('\n').filter(is_later).collect();
    std::fs::write(&trace, kept).unwrap();
    let report = macp(&["--json", "replay", &trace]).exits(1).value();
    assert_eq!(report["report"]["verdict"], "nothing_compared", "{report}");
    let told = macp(&["replay", &trace]).exits(1).stdout;
    assert!(told.starts_with("NOTHING COMPARED: ") && told.contains("of sessions begun before the trace"), "{told}");
}
