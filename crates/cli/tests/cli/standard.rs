//! Sessions by today's standard, from the command line.

use serde_json::{Value, json};

use crate::support::{Run, Running, Server, command, macp, run};

const DECISION: &str = "macp.mode.decision.v1";

/// An id as the standard asks for: not to be guessed.
fn sid(number: u32) -> String {
    format!("3f2504e0-4f89-41d3-9a0c-{number:012x}")
}

/// Runs a command as someone; in local development the token is the name.
fn by(server: &Server, name: &str, args: &[&str]) -> Run {
    server.macp(&[args, &["--token", name]].concat())
}

fn begin(server: &Server, session: &str, more: &[&str]) -> Run {
    let start = [
        "session",
        "start",
        session,
        "--sender",
        "alice",
        "--mode",
        DECISION,
        "--participants",
        "alice,bob",
        "--mode-version",
        "1.0.0",
        "--configuration-version",
        "c1",
        "--ttl",
        "10m",
    ];
    by(server, "alice", &[&start, more].concat())
}

fn say(server: &Server, session: &str, sender: &str, id: &str, kind: &str, payload: &Value) -> Run {
    let payload = payload.to_string();
    let send = [
        "--json",
        "session",
        "send",
        session,
        "--sender",
        sender,
        "--message-id",
        id,
        "--type",
        kind,
        "--proto-payload",
        &payload,
    ];
    by(server, sender, &send)
}

fn vote(server: &Server, session: &str, sender: &str, id: &str, vote: &str) {
    say(server, session, sender, id, "Vote", &json!({"proposal_id": "p1", "vote": vote})).exits(0);
}

fn propose(server: &Server, session: &str) {
    say(server, session, "bob", "p1", "Proposal", &json!({"proposal_id": "p1", "option": "Deploy"})).exits(0);
}

fn commit(server: &Server, session: &str, policy: &str) -> Run {
    let commitment = json!({
        "commitment_id": "c1", "action": "decision.selected", "authority_scope": "team", "reason": "agreed",
        "mode_version": "1.0.0", "configuration_version": "c1", "policy_version": policy,
    });
    say(server, session, "alice", "c1", "Commitment", &commitment)
}

#[test]
fn a_standard_session_is_lived_and_looked_at() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    let session = sid(1);
    let refused = run(command().args(["session", "start", &session, "--sender", "alice", "--mode", DECISION]).args([
        "--participants",
        "alice,bob",
        "--mode-version",
        "1.0.0",
        "--configuration-version",
        "c1",
        "--server",
        &server.uri(),
    ]))
    .exits(1);
    assert!(refused.stdout.contains("UNAUTHENTICATED") && refused.stderr.contains("--token alice"), "{refused:?}");
    begin(&server, &session, &["--context-id", "ticket-7"]).exits(0);
    propose(&server, &session);

    // Whoever may not look is told how to.
    for args in
        [["session", "show"], ["session", "log"], ["session", "tail"], ["replay", "-q"], ["verify", ""], ["export", ""]]
    {
        let args: Vec<&str> = args.into_iter().filter(|word| !word.is_empty()).chain([session.as_str()]).collect();
        let nameless = server.macp(&args).exits(2);
        assert!(nameless.stderr.contains("such as --token alice"), "{args:?}: {nameless:?}");
        let stranger = by(&server, "carol", &args).exits(2);
        assert!(stranger.stderr.contains("FORBIDDEN") && stranger.stderr.contains("--token"), "{args:?}: {stranger:?}");
    }

    let tail = Running::start(command().args([
        "--json",
        "session",
        "tail",
        &session,
        "--token",
        "bob",
        "--server",
        &server.uri(),
    ]));
    assert_eq!(tail.value()["type"], "SessionStart");
    assert_eq!(tail.value()["payload"]["option"], "Deploy");
    by(&server, "bob", &["session", "suspend", &session]).exits(1);
    by(&server, "alice", &["session", "suspend", &session, "--reason", "lunch"]).exits(0);
    let suspended = by(&server, "alice", &["session", "show", &session]).exits(0).stdout;
    for part in ["Suspended", "waits while suspended", "ticket-7", "policy.default"] {
        assert!(suspended.contains(part), "{part}: {suspended}");
    }
    let directory = data.path().to_str().unwrap();
    let read = macp(&["--json", "session", "show", &session, "--data", directory]).exits(0).value();
    assert!(read["suspension"]["since_unix_ms"].is_i64(), "{read}");
    by(&server, "alice", &["session", "resume", &session, "--reason", "back"]).exits(0);
    vote(&server, &session, "bob", "v1", "APPROVE");
    assert_eq!(tail.value()["payload"]["vote"], "APPROVE");
    by(&server, "bob", &["session", "cancel", &session]).exits(1);
    by(&server, "alice", &["session", "cancel", &session, "--reason", "enough"]).exits(0);
    // The pause is an entry in the middle, so positions and sequences part; the end is told all the same.
    let ended = json!({"state": "Cancelled", "type": "SessionCancel", "by": "alice", "reason": "enough"});
    assert_eq!(tail.value()["ended"], ended);
    tail.ends(0);
    let rest = by(&server, "bob", &["--json", "session", "tail", &session, "--after", "3"]).exits(0).values();
    assert_eq!(rest, [json!({"ended": ended})]);
    by(&server, "bob", &["session", "tail", &session, "--after", "4"]).exits(2);

    let log = by(&server, "bob", &["--json", "session", "log", &session]).exits(0).values();
    let types: Vec<_> = log.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["SessionStart", "Proposal", "SessionSuspend", "SessionResume", "Vote", "SessionCancel"]);
    assert_eq!((&log[0]["payload"]["context_id"], &log[2]["reason"]), (&json!("ticket-7"), &json!("lunch")));
    by(&server, "bob", &["replay", &session]).exits(0);
    by(&server, "bob", &["verify", &session]).exits(0);
    let missing = by(&server, "alice", &["--json", "session", "suspend", &sid(9)]).exits(1).value();
    assert_eq!(missing["error"]["code"], "SESSION_NOT_FOUND");
}

#[test]
fn a_receipt_proves_itself_away_from_the_server() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let seed = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";
    let key = file("key.jwk", &json!({"kty": "OKP", "crv": "Ed25519", "d": seed}).to_string());
    let base = ["serve", "--listen", "127.0.0.1:0", "--memory", "--receipt-signing-key-path", &key];
    for (more, expected) in [
        (["--receipt-signing-kid", "k1"].as_slice(), "set runtime_id"),
        (&["--runtime-id", "referee"], "needs a key id"),
    ] {
        let failed = run(command().args(base).args(more)).exits(2);
        assert!(failed.stderr.contains(expected) && !failed.stderr.contains(seed), "{failed:?}");
    }
    let server = Server::with(command().args(base).args(["--receipt-signing-kid", "k1", "--runtime-id", "referee"]));
    begin(&server, &sid(1), &[]).exits(0);
    propose(&server, &sid(1));
    let early = by(&server, "bob", &["receipt", "get", &sid(1)]).exits(1);
    assert!(early.stderr.contains("RECEIPT_UNAVAILABLE"), "{early:?}");
    assert_eq!(commit(&server, &sid(1), "").exits(0).value()["state"], "Resolved");
    let replayed = by(&server, "bob", &["replay", &sid(1)]).exits(0).stdout;
    assert!(replayed.contains(r#""commitment_id":"c1""#), "what it resolved to can be read: {replayed}");

    let receipt = by(&server, "bob", &["receipt", "get", &sid(1)]).exits(0).stdout;
    let document: Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!(document["issuer"], "runtime:referee");
    by(&server, "carol", &["receipt", "get", &sid(1)]).exits(2);
    let whole = file("receipt.json", &receipt);
    let published = server.macp(&["--json", "receipt", "verify", &whole, "--server-keys"]).exits(0).value();
    assert_eq!((&published["receipt"]["verdict"], &published["receipt"]["ok"]), (&json!("attested"), &json!(true)));
    server.kill();

    let own = ed25519_dalek::SigningKey::from_bytes(&std::array::from_fn(|index| u8::try_from(index + 1).unwrap()));
    let x = base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, own.verifying_key().as_bytes());
    let keys = |kid: &str| json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x}]}).to_string();
    let trusted = file("keys.json", &keys("k1"));
    let others = file("others.json", &keys("k2"));
    assert!(macp(&["receipt", "verify", &whole, "--keys", &trusted]).exits(0).stdout.starts_with("ATTESTED: "));
    assert!(macp(&["receipt", "verify", &whole]).exits(0).stdout.starts_with("INTEGRITY ONLY: "));
    let foreign = macp(&["receipt", "verify", &whole, "--keys", &others]).exits(1).stdout;
    assert!(foreign.contains("key k1 is not among the trusted keys"), "{foreign}");
    let forged = file("forged.json", &receipt.replace("agreed", "obeyed"));
    assert!(macp(&["receipt", "verify", &forged, "--keys", &trusted]).exits(1).stdout.starts_with("UNVERIFIED: "));
    macp(&["receipt", "verify", &file("text.json", "hello")]).exits(1);
    macp(&["receipt", "verify", "/nowhere.json"]).exits(2);
    let private = macp(&[
        "receipt",
        "verify",
        &whole,
        "--keys",
        &file("private.json", &json!({"keys": [{"d": seed}]}).to_string()),
    ]);
    assert!(private.exits(2).stderr.contains("private member `d`"));
}

#[test]
fn policies_come_from_a_directory_and_from_the_command_line() {
    let place = tempfile::tempdir().unwrap();
    let policies = place.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let write = |name: &str, text: &str| std::fs::write(policies.join(name), text).unwrap();
    let majority = json!({"policy_id": "team.majority", "mode": DECISION, "schema_version": 1, "description": "most win",
        "rules": {"voting": {"algorithm": "majority"}}});
    write("10-majority.json", &majority.to_string());
    write("README.md", "not a policy");
    let data = place.path().join("data");
    let serve = |more: &[&str]| {
        let mut command = command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).arg("--policies-dir").arg(&policies);
        command.args(more);
        command
    };
    let server = Server::with(&mut serve(&[]));
    let ids = |run: Run| run.values().iter().map(|it| it["policy_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let listed = ids(by(&server, "alice", &["--json", "policy", "list"]).exits(0));
    assert!(
        listed.contains(&"team.majority".to_owned()) && listed.contains(&"policy.default".to_owned()),
        "{listed:?}"
    );
    let human = by(&server, "alice", &["policy", "list", "--mode", DECISION]).exits(0).stdout;
    assert!(human.contains("most win"), "{human}");
    let shown = by(&server, "alice", &["policy", "show", "team.majority"]).exits(0).stdout;
    by(&server, "alice", &["policy", "show", "team.nothing"]).exits(2);

    // What was shown is a file that can be registered.
    let file = place.path().join("shown.json");
    let file = file.to_str().unwrap();
    std::fs::write(file, shown.replace("team.majority", "team.copy")).unwrap();
    by(&server, "alice", &["policy", "register", file]).exits(0);
    let twice = by(&server, "alice", &["policy", "register", file]).exits(1).stdout;
    assert!(twice.contains("already registered"), "{twice}");
    by(&server, "alice", &["policy", "unregister", "team.copy"]).exits(0);
    by(&server, "alice", &["policy", "unregister", "team.copy"]).exits(1);
    server.macp(&["policy", "unregister", "team.copy"]).exits(2);
    let modes = server.macp(&["--json", "mode", "list"]).exits(0).values();
    assert!(modes.iter().any(|mode| mode["mode"] == DECISION && mode["kind"] == "standard"), "{modes:?}");
    assert!(server.terminate().success());

    // The same again is fine, also beside what is stored; read-only is told as such.
    let server = Server::with(&mut serve(&["--policies-read-only"]));
    let refused = by(&server, "alice", &["--json", "policy", "register", file]).exits(1).value();
    assert_eq!(refused["error"]["code"], "REGISTRY_READ_ONLY");
    assert!(server.terminate().success());
    for (text, expected) in [
        (majority.to_string().replace("\"majority\"", "\"unanimous\""), "another definition"),
        (
            majority.to_string().replace("\"majority\"", "\"loudest\"").replace("team.majority", "x"),
            "INVALID_POLICY_DEFINITION",
        ),
        ("{".to_owned(), "no valid JSON"),
        (r#"{"policy_id":"x"}"#.to_owned(), "schema_version"),
    ] {
        write("20-bad.json", &text);
        let failed = run(&mut serve(&[])).exits(2);
        assert!(failed.stderr.contains("20-bad.json") && failed.stderr.contains(expected), "{expected}: {failed:?}");
    }
    let missing = run(command().args(["serve", "--memory", "--policies-dir", "/nowhere/at/all"])).exits(2);
    assert!(missing.stderr.contains("/nowhere/at/all"), "{missing:?}");
}

#[test]
fn what_if_tells_the_same_from_a_server_a_directory_and_a_file() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let server = Server::on(&data);
    let session = sid(1);
    begin(&server, &session, &[]).exits(0);
    propose(&server, &session);
    vote(&server, &session, "bob", "v1", "REJECT");
    assert_eq!(commit(&server, &session, "").exits(0).value()["state"], "Resolved");

    let policy = |name: &str, mode: &str, rules: Value| {
        let path = place.path().join(name);
        let policy = json!({"policy_id": name, "mode": mode, "schema_version": 1, "rules": rules});
        std::fs::write(&path, policy.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let strict = policy("strict", DECISION, json!({"voting": {"algorithm": "unanimous"}}));
    let loose = policy("loose", "*", json!({}));
    let foreign = policy("foreign", "macp.mode.task.v1", json!({}));
    let file = place.path().join("session.jsonl");
    let file = file.to_str().unwrap();
    by(&server, "bob", &["export", &session, "--out", file]).exits(0);
    let data = data.to_str().unwrap();
    let ways = |json: bool, policy: &str| -> [Run; 3] {
        let flags: &[&str] = if json { &["--json"] } else { &[] };
        let history: [&[&str]; 3] = [&[&session], &[&session, "--data", data], &[file]];
        let [server_args, directory_args, file_args] =
            history.map(|history| [flags, &["replay"], history, &["--what-if-policy", policy]].concat());
        [by(&server, "bob", &server_args), macp(&directory_args), macp(&file_args)]
    };
    let answers = ways(true, &strict).map(|run| run.exits(1).value());
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    let answer = &answers[0]["what_if"];
    assert_eq!((&answer["first_divergence"], &answer["recorded"]["state"]), (&json!(3), &json!("Resolved")));
    assert_eq!((&answer["candidate"]["state"], &answer["denials"][0]["message_id"]), (&json!("Open"), &json!("c1")));
    for run in ways(false, &strict) {
        let text = run.exits(1).stdout;
        assert!(text.starts_with("DIFFERENT from ordinal 4 on") && text.contains("refused POLICY_DENIED"), "{text}");
    }
    for run in ways(true, &loose) {
        assert_eq!(run.exits(0).value()["what_if"]["first_divergence"], Value::Null);
    }
    for run in ways(false, &foreign) {
        assert!(run.exits(2).stderr.contains("macp.mode.task.v1"));
    }
    by(&server, "bob", &["replay", &session, "--what-if-policy", "/nowhere.json"]).exits(2);

    // A policy's name alone says nothing of its rules.
    let by_name = ["replay", &session, "--what-if", "--policy-version", "policy.std.unanimous"];
    for run in [by(&server, "bob", &by_name), macp(&[by_name.as_slice(), &["--data", data]].concat())] {
        let text = run.exits(1).stdout;
        assert!(text.starts_with("REFUSED: ") && text.contains("--what-if-policy"), "{text}");
    }
    by(&server, "carol", &["replay", &session, "--what-if-policy", &loose]).exits(2);
}

#[test]
fn a_server_may_offer_one_profile_only() {
    let start = |profile: &str| {
        Server::with(command().args(["serve", "--listen", "127.0.0.1:0", "--memory", "--profile", profile]))
    };
    let standard = start("standard");
    begin(&standard, &sid(1), &[]).exits(0);
    standard.macp(&["session", "start", "c1", "--sender", "alice"]).exits(1);
    let classic = start("classic");
    classic.macp(&["session", "start", "c1", "--sender", "alice"]).exits(0);
}
