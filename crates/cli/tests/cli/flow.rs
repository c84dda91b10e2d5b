//! From a first start to an imported copy, every command on the way.

use serde_json::{Value, json};

use crate::support::{Running, Server, command, decide, macp, send};

#[test]
fn a_session_lives_is_proven_and_travels() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    decide(&server, "s1", true);

    let session = server.macp(&["--json", "session", "show", "s1"]).exits(0).value();
    assert_eq!((&session["state"], &session["initiator"]), (&json!("Resolved"), &json!("alice")));
    assert_eq!(session["participants"], json!(["alice", "bob"]));

    let log = server.macp(&["--json", "session", "log", "s1"]).exits(0).values();
    let types: Vec<_> = log.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["SessionStart", "Proposal", "Vote", "Commitment"]);
    assert_eq!(log[1]["payload"]["option"], "Deploy");
    assert_eq!(log[3]["terminal"]["state"], "Resolved");
    let tail = server.macp(&["--json", "session", "log", "s1", "--after", "2"]).exits(0).values();
    assert_eq!(tail, log[2..]);

    let replayed = server.macp(&["--json", "replay", "s1"]).exits(0).values();
    assert_eq!(replayed.len(), 5);
    assert_eq!(replayed[1]["step"]["message_id"], "m1");
    let report = &replayed[4]["report"];
    assert_eq!((&report["verdict"], &report["entries"]), (&json!("match"), &json!(4)));
    assert_eq!(report["resolution"]["action"], "deploy");

    let verified = server.macp(&["--json", "verify", "s1"]).exits(0).value();
    assert_eq!((&verified["ok"], &verified["sealed"], &verified["entries"]), (&json!(true), &json!(true), &json!(4)));
    assert_eq!(verified["head_hash"], log[3]["hash"]);

    // Away as a file, which proves itself without the server.
    let file = data.path().join("s1.jsonl");
    let file = file.to_str().unwrap();
    server.macp(&["export", "s1", "--out", file]).exits(0);
    let refused = server.macp(&["export", "s2", "--out", file]).exits(2).stderr;
    assert!(refused.contains("is there already; pass --force"), "{refused}");
    server.macp(&["export", "s1", "--out", file, "--force"]).exits(0);
    assert_eq!(server.macp(&["export", "s1"]).exits(0).stdout, std::fs::read_to_string(file).unwrap());
    assert_eq!(macp(&["--json", "verify", file]).exits(0).value(), verified);
    assert_eq!(macp(&["--json", "replay", file]).exits(0).values(), replayed);

    // Into another directory, where another server knows it.
    let other = tempfile::tempdir().unwrap();
    let other_path = other.path().to_str().unwrap();
    let imported = macp(&["--json", "import", file, "--data", other_path]).exits(0).value();
    assert_eq!((&imported["new"], &imported["entries"]), (&json!(true), &json!(4)));
    let again = macp(&["--json", "import", file, "--data", other_path]).exits(0).value();
    assert_eq!(again["new"], false);
    let second = Server::on(other.path());
    assert_eq!(second.macp(&["--json", "session", "log", "s1"]).exits(0).values(), log);
    assert_eq!(send(&second, "s1", "m3", "alice", "Commitment", "{}").exits(0).value()["duplicate"], true);
    let late = send(&second, "s1", "m9", "alice", "Vote", r#"{"proposal_id":"p1"}"#).exits(1).value();
    assert_eq!(late["error"]["code"], "SESSION_NOT_OPEN");
}

#[test]
fn refusals_are_findings_and_duplicates_are_not() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    decide(&server, "s1", false);

    let stranger = send(&server, "s1", "x1", "mallory", "Vote", r#"{"proposal_id":"p1"}"#).exits(1).value();
    assert_eq!((&stranger["ok"], &stranger["error"]["code"]), (&json!(false), &json!("INVALID_ENVELOPE")));
    let again = send(&server, "s1", "m2", "bob", "Vote", r#"{"proposal_id":"p1","vote":"approve"}"#).exits(0).value();
    assert_eq!((&again["ok"], &again["duplicate"]), (&json!(true), &json!(true)));
    let nowhere = send(&server, "nowhere", "x2", "bob", "Vote", "{}").exits(1).value();
    assert_eq!(nowhere["error"]["code"], "SESSION_NOT_FOUND");
    let human = server.macp(&["session", "send", "s1", "--sender", "eve", "--type", "Vote"]).exits(1);
    assert!(human.stdout.starts_with("refused INVALID_ENVELOPE: "), "{human:?}");

    let cancelled = server.macp(&["--json", "session", "cancel", "s1", "--reason", "enough"]).exits(0).value();
    assert_eq!(cancelled["ok"], true);
    assert_eq!(cancelled["session_id"], "s1");
    let again = server.macp(&["session", "cancel", "s1"]).exits(0).stdout;
    assert_eq!(again, "accepted: s1 (Expired)\n");
    let shown = server.macp(&["session", "show", "s1"]).exits(0).stdout;
    let deadline = shown.lines().find(|line| line.starts_with("deadline")).unwrap();
    assert!(deadline.ends_with(" UTC (the session has ended)"), "{shown}");
    let unknown = server.macp(&["--json", "session", "cancel", "nowhere"]).exits(1).value();
    assert_eq!(unknown["error"]["code"], "SESSION_NOT_FOUND");
    let log = server.macp(&["--json", "session", "log", "s1"]).exits(0).values();
    let last = log.last().unwrap();
    assert_eq!(
        (&last["type"], &last["reason"], &last["ordinal"]),
        (&json!("SessionCancel"), &json!("enough"), &json!(0))
    );
}

#[test]
fn multi_round_sessions_take_a_context() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    let start = [
        "session",
        "start",
        "r1",
        "--mode",
        "multi_round",
        "--sender",
        "a",
        "--participants",
        "a,b,c",
        "--context",
        r#"{"convergence":{"strategy":"majority"}}"#,
    ];
    server.macp(&start).exits(0);
    send(&server, "r1", "m1", "a", "Contribute", r#"{"value":"blue"}"#).exits(0);
    let last = send(&server, "r1", "m2", "c", "Contribute", r#"{"value":"blue"}"#).exits(0).value();
    assert_eq!(last["state"], "Resolved");
    let replayed = server.macp(&["--json", "replay", "r1", "--quiet"]).exits(0).value();
    assert_eq!(replayed["report"]["resolution"]["converged_value"], "blue");

    let bad = server.macp(&["--json", "session", "start", "r2", "--mode", "multi_round", "--sender", "a"]).exits(1);
    assert_eq!(bad.value()["error"]["code"], "INVALID_ENVELOPE");
}

#[test]
fn other_versions_are_no_historical_reconstruction() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    server.macp(&["session", "start", "s1", "--sender", "a", "--configuration-version", "c1"]).exits(0);

    let refused = server.macp(&["--json", "replay", "s1", "--configuration-version", "c2"]).exits(1);
    let report = refused.values().pop().unwrap();
    assert_eq!(report["report"]["verdict"], "refused");
    let message = report["report"]["message"].as_str().unwrap();
    assert!(message.contains("not historical reconstruction"), "{message}");
    let directory = data.path().to_str().unwrap();
    let local = ["--json", "replay", "s1", "--data", directory, "--configuration-version", "c2"];
    assert_eq!(macp(&local).exits(1).values().pop().unwrap()["report"]["message"], message);
    server.macp(&["replay", "s1", "--configuration-version", "c1"]).exits(0);

    // A what-if says which of the versions asked for make no difference, and which do not exist.
    for args in [["--json", "replay", "s1"].as_slice(), &["--json", "replay", "s1", "--data", directory]] {
        let run = |more: &[&str]| match args.contains(&"--data") {
            true => macp(&[args, more].concat()),
            false => server.macp(&[args, more].concat()),
        };
        let report = |run: crate::support::Run| run.values().pop().unwrap()["report"].clone();
        let nonsense = report(run(&["--what-if", "--configuration-version", "nonsense"]).exits(0));
        assert_eq!((&nonsense["verdict"], &nonsense["what_if"]), (&json!("match"), &json!(true)));
        assert!(nonsense["notes"][0].as_str().unwrap().contains("do not influence"), "{nonsense}");
        let missing = report(run(&["--what-if", "--mode-version", "9"]).exits(1));
        assert_eq!(missing["verdict"], "refused");
        assert!(
            missing["notes"][0].as_str().unwrap().contains("no mode is offered here in version \"9\""),
            "{missing}"
        );
        assert_eq!(report(run(&["--configuration-version", "c1"]).exits(0))["notes"], json!([]));
    }
    let human = server.macp(&["replay", "s1", "--what-if", "--policy-version", "p"]).exits(0).stdout;
    assert!(human.contains("\nnote: configuration and policy versions do not influence"), "{human}");
}

#[test]
fn sessions_are_listed_page_by_page() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--list-sessions-default-page-size", "2", "--data"])
            .arg(data.path()),
    );
    decide(&server, "done", true);
    for session in ["a", "b", "c", "d"] {
        server.macp(&["session", "start", session, "--sender", "alice", "--ttl", "10m"]).exits(0);
    }
    let ids = |values: Vec<Value>| -> Vec<String> {
        values.iter().map(|it| it["session_id"].as_str().unwrap().to_owned()).collect()
    };
    let all = server.macp(&["--json", "session", "list"]).exits(0).values();
    let directory = data.path().to_str().unwrap();
    let read = macp(&["--json", "session", "list", "--data", directory]).exits(0).values();
    assert_eq!(ids(all.clone()), ["a", "b", "c", "d", "done"]);
    assert_eq!(ids(read.clone()), ids(all));
    assert_eq!(read[4]["state"], "Resolved");
    let open = server.macp(&["--json", "session", "list", "--open"]).exits(0).values();
    assert_eq!(ids(open), ["a", "b", "c", "d"]);
    let human = server.macp(&["session", "list"]).exits(0).stdout;
    assert_eq!(human.lines().count(), 6, "{human}");
    assert!(!human.contains('\u{1b}'), "no colour without a terminal");
}

#[test]
fn tail_follows_across_a_crash_without_gap_or_repetition() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    let address = server.address.clone();
    decide(&server, "s1", false);

    let uri = server.uri();
    let tail = Running::start(command().args(["--json", "session", "tail", "s1", "--after", "1", "--server", &uri]));
    let next = || {
        let value = tail.value();
        (value["ordinal"].as_u64().unwrap(), value["message_id"].as_str().unwrap().to_owned())
    };
    assert_eq!(next(), (2, "m1".to_owned()));
    assert_eq!(next(), (3, "m2".to_owned()));
    send(&server, "s1", "m4", "alice", "Evaluation", r#"{"proposal_id":"p1"}"#).exits(0);
    assert_eq!(next(), (4, "m4".to_owned()));

    server.kill();
    let server = Server::with(command().args(["serve", "--listen", &address, "--data"]).arg(data.path()));
    send(&server, "s1", "m5", "alice", "Evaluation", r#"{"proposal_id":"p1"}"#).exits(0);
    assert_eq!(next(), (5, "m5".to_owned()));
    server.macp(&["session", "tail", "s1", "--after", "99"]).exits(2);
    server.macp(&["session", "tail", "nowhere"]).exits(2);
}

#[test]
fn tail_ends_with_the_session_and_says_how() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    let uri = server.uri();
    let follow = |session: &str, after: &str| {
        Running::start(command().args(["--json", "session", "tail", session, "--after", after, "--server", &uri]))
    };
    let ended = |tail: Running, expected: Value| {
        assert_eq!(tail.value()["ended"], expected);
        tail.ends(0);
    };

    decide(&server, "cancelled", false);
    let tail = follow("cancelled", "2");
    assert_eq!(tail.value()["message_id"], "m2");
    server.macp(&["session", "cancel", "cancelled", "--reason", "enough"]).exits(0);
    // The classic profile has no state of its own for cancelled sessions; the entry tells.
    let by = canceller(&server, "cancelled");
    ended(tail, json!({ "state": "Expired", "type": "SessionCancel", "by": by, "reason": "enough" }));

    decide(&server, "resolved", true);
    let tail = follow("resolved", "3");
    assert_eq!(tail.value()["message_id"], "m3");
    ended(tail, json!({ "state": "Resolved", "type": "", "by": "", "reason": "" }));

    server.macp(&["session", "start", "expired", "--sender", "a", "--ttl", "1s"]).exits(0);
    let tail = follow("expired", "1");
    ended(tail, json!({ "state": "Expired", "type": "TtlExpired", "by": "", "reason": "the deadline passed" }));

    let human = server.macp(&["session", "tail", "cancelled"]).exits(0).stdout;
    let last = human.lines().last().unwrap();
    assert!(
        last.starts_with("cancelled has ended as Expired with SessionCancel") && last.ends_with(": enough"),
        "{human}"
    );
}

/// Who cancelled, as the history has it.
fn canceller(server: &Server, session: &str) -> Value {
    let log = server.macp(&["--json", "session", "log", session]).exits(0).values();
    log.last().unwrap()["sender"].clone()
}

/// Whoever asks for JSON can read every answer as such, also that the question was wrong.
#[test]
fn a_wrong_call_is_told_in_json_where_that_is_asked_for() {
    for args in [["--json", "verify", "--nonsense"].as_slice(), &["session", "--json"], &["verify", "--keys", "--json"]]
    {
        let run = macp(args).exits(2);
        let told: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
        assert!(!told["error"]["message"].as_str().unwrap().is_empty() && run.stdout.is_empty(), "{run:?}");
    }
    let run = macp(&["verify", "--nonsense"]).exits(2);
    assert!(run.stderr.starts_with("error: unexpected argument '--nonsense'"), "{run:?}");
    // Help is what was asked for.
    assert!(macp(&["--json", "verify", "--help"]).exits(0).stdout.contains("Usage:"));
}
