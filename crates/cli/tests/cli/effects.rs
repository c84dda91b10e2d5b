//! Effects: sent under keys, once, and never guessed about.

use serde_json::{Value, json};

use crate::plan::example;
use crate::runs::{Place, codes, freeze, posts, result, serve};
use crate::support::{Running, Server, command, macp};
use crate::target::{Answer, Target};

/// AOS-75, AOS-76: effects carry keys; a request with the same id is one run; a new epoch is another effect.
#[test]
fn effects_have_keys_and_requests_are_made_once() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = posts(place.path(), "keyed", &target, 2, true);
    let server = serve(&place.data());
    let start = |extra: &[&str]| server.macp(&[&["--json", "run", "start", &plan], extra].concat()).exits(0).values();
    let first = start(&["--request-id", "req-1"]);
    let again = start(&["--request-id", "req-1"]);
    assert_eq!((&again[0]["existing"], &again[0]["run_id"]), (&json!(true), &first[0]["run_id"]));
    let keys = target.keys();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|(key, times)| key.starts_with("aos1-") && *times == 1), "{keys:?}");

    // The same plan once more finds its effects done.
    let repeated = start(&[]);
    assert_eq!(codes(&repeated[1]), ["OK_SKIP_DUPLICATE", "OK_SKIP_DUPLICATE"]);
    assert_eq!(target.keys(), keys);
    // Deliberately, it can be repeated.
    let deliberate = start(&["--new-epoch", "2", "--reason", "the first delivery was lost"]);
    let shown = server.macp(&["run", "show", deliberate[0]["run_id"].as_str().unwrap()]).exits(0).stdout;
    assert!(shown.contains("the first delivery was lost"), "why it was repeated is kept: {shown}");
    assert_eq!(target.keys().len(), 4);
    server.macp(&["run", "start", &plan, "--new-epoch", "3"]).exits(2);
    let authored = server.macp(&["run", "start", example().to_str().unwrap()]).exits(1);
    assert!(authored.stderr.contains("macp plan freeze"), "{authored:?}");
    let unkept = server.macp(&["plan", "keep", example().to_str().unwrap()]).exits(1);
    assert!(unkept.stderr.contains("macp plan freeze") && unkept.stdout.is_empty(), "{unkept:?}");
}

/// AOS-82: a cancelled run stops at the next boundary; the call that is out may finish.
#[test]
fn a_run_can_be_watched_and_cancelled() {
    let place = Place::new();
    let target = Target::start(|_, before| match before {
        0 => Answer::Held(200, "{}".to_owned()),
        _ => Answer::ok("{}"),
    });
    let plan = posts(place.path(), "held", &target, 3, true);
    let server = serve(&place.data());
    let started = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value();
    let run = started["run_id"].as_str().unwrap();
    target.wait_for(1);
    let watch = Running::start(command().args(["--json", "run", "watch", run, "--server", &server.uri()]));
    assert_eq!(watch.value()["type"], "run_started");
    let shown = server.macp(&["run", "show", run]).exits(0).stdout;
    assert!(shown.contains("running") && shown.contains("macp run watch"), "{shown}");
    // Which call is out, to whom and since when.
    let address = target.address.to_string();
    for part in ["s0", "calling", "the call of attempt 0", &address, " is out since 20"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let at_work = server.macp(&["--json", "run", "show", run]).exits(0).value()["at_work"].clone();
    assert_eq!((&at_work["step_id"], &at_work["doing"]), (&json!("s0"), &json!("calling")), "{at_work}");
    let beside = macp(&["run", "show", run, "--data", place.data().to_str().unwrap()]).exits(0).stdout;
    assert!(beside.contains("the call of attempt 0"), "{beside}");
    server.macp(&["run", "cancel", run, "--reason", "enough for today"]).exits(0);
    target.release();
    let mut last = Value::Null;
    while last["type"] != "run_finished" {
        last = watch.value();
    }
    watch.ends(1);
    assert_eq!(last["status"], "cancelled");
    assert_eq!(target.requests().len(), 1);
    let shown = server.macp(&["run", "show", run]).exits(0).stdout;
    assert!(shown.contains("enough for today"), "{shown}");
    let late = server.macp(&["--json", "run", "cancel", run, "--reason", "again"]).exits(1).value();
    assert_eq!(late["error"]["code"], "RUN_CONFLICT");
    server.macp(&["run", "cancel", run]).exits(2);
}

/// A watcher hears everything once, also over the death of the server; an effect its target recognises is sent again.
#[test]
fn a_watch_goes_on_where_a_killed_server_stopped() {
    let place = Place::new();
    let target = Target::start(|_, before| match before {
        1 => Answer::Held(200, "{}".to_owned()),
        _ => Answer::ok("{}"),
    });
    let plan = posts(place.path(), "restarted", &target, 3, true);
    let server = serve(&place.data());
    let started = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value();
    let run = started["run_id"].as_str().unwrap();
    let watch = Running::start(command().args(["--json", "run", "watch", run, "--server", &server.uri()]));
    let mut seen = vec![watch.value()];
    target.wait_for(2);
    let address = server.address.clone();
    server.kill();
    target.release();
    let server = Server::with(
        command()
            .args(["serve", "--listen", &address, "--egress-allow-http"])
            .args(["--egress-allow-private-hosts", "127.0.0.1", "--data"])
            .arg(place.data()),
    );
    while seen.last().unwrap()["type"] != "run_finished" {
        seen.push(watch.value());
    }
    watch.ends(0);
    assert_eq!(seen, server.macp(&["--json", "run", "log", run]).exits(0).values());
    let times: Vec<usize> =
        target.requests().iter().map(|request| target.keys()[request.key.as_ref().unwrap()]).collect();
    assert_eq!(times, [1, 2, 2, 1], "only the call whose answer was lost is made again, under the same key");
}

/// AOS-80: an effect whose answer is lost is never guessed; an operator settles it, and a retry goes by that.
#[test]
fn an_effect_in_doubt_waits_for_an_operator() {
    for (outcome, calls_in_all) in [("success", 2), ("failure", 3)] {
        let place = Place::new();
        let target = Target::start(|_, before| match before {
            0 => Answer::Held(200, "{}".to_owned()),
            _ => Answer::ok("{}"),
        });
        let plan = posts(place.path(), "doubt", &target, 2, false);
        let server = serve(&place.data());
        let started = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value();
        let run = started["run_id"].as_str().unwrap();
        target.wait_for(1);
        server.kill();
        target.release();

        let server = serve(&place.data());
        let ended = server.macp(&["run", "watch", run]).exits(1).stdout;
        for part in ["in_doubt", "ERR_EFFECT_IN_DOUBT", "its answer is lost", "macp run resolve"] {
            assert!(ended.contains(part), "{part}\n{ended}");
        }
        assert_eq!(target.requests().len(), 1, "nobody repeats what may have happened");
        assert_eq!(server.macp(&["--json", "run", "replay", run]).exits(0).value()["verdict"], "match");
        let refused = server.macp(&["run", "retry", run]).exits(1);
        assert!(refused.stdout.contains("in doubt") && refused.stdout.contains("macp run resolve"), "{refused:?}");
        server.macp(&["run", "resolve", run, "--step", "s1", "--as", outcome, "--note", "x"]).exits(1);
        server.macp(&["run", "resolve", run, "--step", "s0", "--as", outcome, "--note", "I asked"]).exits(0);
        let other = if outcome == "success" { "failure" } else { "success" };
        let stands = server.macp(&["--json", "run", "resolve", run, "--step", "s0", "--as", other, "--note", "no"]);
        let stands = stands.exits(1).value();
        assert_eq!((stands["as"].as_str(), stands["note"].as_str()), (Some(outcome), Some("I asked")));

        let retried = result(&server.macp(&["--json", "run", "retry", run]).exits(0));
        assert_eq!(retried["status"], "succeeded", "{retried:#}");
        assert_eq!(target.requests().len(), calls_in_all, "{outcome}");
        let lineage = server.macp(&["run", "lineage", run]).exits(0).stdout;
        assert!(lineage.contains("in_doubt") && lineage.contains("  retry  "), "{lineage}");
    }
}

/// AOS-42, AOS-80: a call that failed and may have taken effect is settled before anyone makes it again.
#[test]
fn a_failed_call_that_may_have_taken_effect_waits_for_an_operator() {
    let place = Place::new();
    let target = Target::start(|_, before| match before {
        0 => Answer::status(503),
        _ => Answer::ok("{}"),
    });
    let plan = posts(place.path(), "unanswered", &target, 2, false);
    let server = serve(&place.data());
    let ended = server.macp(&["--json", "run", "start", &plan]).exits(1);
    let told = result(&ended);
    assert_eq!((&told["status"], codes(&told)), (&json!("failed"), vec!["ERR_HTTP_503"]));
    assert_eq!(told["steps"][0]["outcome"]["details"]["effect"], "unknown");
    let run = told["run_id"].as_str().unwrap();
    let shown = server.macp(&["run", "show", run]).exits(0).stdout;
    let resolve = format!("macp run resolve {run} --step s0 --as success|failure");
    for part in ["ERR_HTTP_503", "may have taken effect all the same", &resolve] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert_eq!(server.macp(&["--json", "run", "replay", run]).exits(0).value()["verdict"], "match");
    let refused = server.macp(&["run", "retry", run]).exits(1);
    assert!(refused.stdout.contains("in doubt") && refused.stdout.contains("macp run resolve"), "{refused:?}");
    assert_eq!(target.requests().len(), 1);
    server.macp(&["run", "resolve", run, "--step", "s0", "--as", "success", "--note", "it is in their list"]).exits(0);
    let retried = result(&server.macp(&["--json", "run", "retry", run]).exits(0));
    assert_eq!(codes(&retried), ["OK_SKIP_DUPLICATE", "OK_HTTP_CALL"]);
    assert_eq!(target.requests().len(), 2, "what is settled as done is not made again");
}

/// Alice and Bob begin to decide on a plan.
pub(crate) fn open_decision(server: &Server, session: &str) {
    let start = ["session", "start", session, "--sender", "alice", "--mode", "macp.mode.decision.v1"];
    let bound = ["--participants", "alice,bob", "--mode-version", "1.0.0", "--configuration-version", "c1"];
    server.macp(&[&start[..], &bound[..], &["--ttl", "10m", "--token", "alice"]].concat()).exits(0);
}

/// Bob proposes a plan, and Alice commits to it.
pub(crate) fn commit_to(server: &Server, session: &str, plan: &str) {
    commit(server, session, plan, json!({}));
}

/// The same, with more in the Commitment.
fn commit(server: &Server, session: &str, plan: &str, more: Value) {
    let say = |sender: &str, id: &str, kind: &str, payload: &Value| {
        let (payload, send) =
            (payload.to_string(), ["session", "send", session, "--sender", sender, "--message-id", id]);
        let said = ["--type", kind, "--proto-payload", &payload, "--token", sender];
        server.macp(&[&send[..], &said[..]].concat()).exits(0)
    };
    let text = std::fs::read_to_string(plan).unwrap();
    let hash = macp(&["plan", "hash", plan]).exits(0).stdout;
    let proposal = json!({"proposal_id": "p1", "option": "run it", "supporting_data": text});
    say("bob", "m1", "Proposal", &proposal);
    let mut commitment = json!({
        "commitment_id": format!("aos-plan:{}", hash.trim()), "action": "decision.selected", "authority_scope": "team",
        "reason": "agreed", "mode_version": "1.0.0", "configuration_version": "c1", "outcome_positive": true,
    });
    for (name, value) in more.as_object().unwrap() {
        commitment[name] = value.clone();
    }
    say("alice", "m2", "Commitment", &commitment);
}

/// AOS-106, AOS-110, AOS-112: what a session committed to runs once, and is reported in a session that can be replayed.
#[test]
fn a_committed_plan_runs_once_and_is_reported() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = posts(place.path(), "committed", &target, 2, true);
    let server = serve(&place.data());
    let session = "3f2504e0-4f89-41d3-9a0c-00000000000a";
    let by = |name: &str, args: &[&str]| server.macp(&[args, &["--token", name]].concat());
    open_decision(&server, session);
    let early = by("alice", &["run", "start", "--session", session]).exits(1);
    assert!(
        early.stdout.starts_with("refused PLAN_REFUSED: ") && early.stdout.contains("only a RESOLVED"),
        "{early:?}"
    );
    commit_to(&server, session, &plan);
    let started = by("alice", &["--json", "run", "start", "--session", session]).exits(0).values();
    let again = by("alice", &["--json", "run", "start", "--session", session]).exits(0).values();
    assert_eq!((&again[0]["existing"], &again[0]["run_id"]), (&json!(true), &started[0]["run_id"]));
    assert_eq!(target.keys().len(), 2);
    let run = by("alice", &["--json", "run", "list", "--session", session]).exits(0).value();
    assert_eq!(run["run_id"], started[0]["run_id"]);

    // The report follows its run; following the session ends when it does.
    let execution = macp_plan::session::execution_session_id(started[0]["run_id"].as_str().unwrap());
    let told = by("alice", &["--json", "session", "tail", &execution]).exits(0).values();
    assert_eq!(told.last().unwrap()["ended"]["state"], "Resolved", "{told:#?}");
    let outcome = by("alice", &["replay", "--semantic", &execution]).exits(1).stdout;
    assert!(outcome.starts_with("REFUSED: "), "{outcome}");
    for course in [["--json", "replay", "--quiet"].as_slice(), &["--json", "replay", "--quiet", "--structural"]] {
        let report = by("alice", &[course, &[&*execution]].concat()).exits(0).value()["report"].clone();
        assert_eq!((&report["verdict"], &report["determinism_class"]), (&json!("match"), &json!("structural-only")));
        assert!(report["notes"][0].as_str().unwrap().contains("not that its outcome follows"), "{report}");
    }
    let data = place.data();
    macp(&["replay", "--structural", &execution, "--data", data.to_str().unwrap()]).exits(0);
    by("alice", &["replay", session]).exits(0);
}

/// A wait is told with what it waits for and until when.
#[test]
fn a_wait_for_the_next_attempt_is_shown() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::status(503));
    let step = json!({"step_id": "s0", "skill_id": "http_call", "skill_version": "1.2.0",
        "parameters": {"url": target.url("/")},
        "retry_policy": {"max_retries": 3, "backoff_base_ms": 600_000, "jitter_enabled": false}});
    let plan = json!({
        "plan_id": "waits", "agent_id": "waiter", "goal": "Wait", "steps": [step],
        "context": {"budget_cents": 5, "allowed_skills": ["http_call"]},
    });
    let plan = freeze(place.path(), "waits", &plan.to_string());
    let server = serve(&place.data());
    let run = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value()["run_id"].clone();
    let run = run.as_str().unwrap();
    let waiting = (0..600).find_map(|_| {
        let shown = server.macp(&["--json", "run", "show", run]).exits(0).value();
        let waits = shown["at_work"]["doing"] == "waiting" && shown["at_work"]["until"].is_string();
        if !waits {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        waits.then_some(shown)
    });
    let waiting = waiting.expect("it waits");
    assert!(waiting["final_code"].is_null() && waiting["budget"]["budget"] == 5_000_000, "{waiting:#}");
    let at_work = waiting["at_work"].clone();
    assert_eq!((&at_work["attempt"], &at_work["attempt_codes"]), (&json!(1), &json!(["ERR_HTTP_503"])), "{at_work}");
    let shown = server.macp(&["run", "show", run]).exits(0).stdout;
    let until = at_work["until"].as_str().unwrap();
    let told = format!("Step s0 waits until {until} before attempt 1 after ERR_HTTP_503.");
    assert!(shown.contains(&told) && shown.contains("waiting"), "{shown}");
    server.macp(&["run", "cancel", run, "--reason", "seen"]).exits(0);
}

/// AOS-109: what another commitment took the place of is not tried again, and nobody is told to, also where the run had
/// ended before.
#[test]
fn a_superseded_run_is_not_recommended_to_be_tried_again() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::status(404));
    let server = serve(&place.data());
    let plan = posts(place.path(), "superseded", &target, 2, true);
    let (first, second) = ("3f2504e0-4f89-41d3-9a0c-00000000000b", "3f2504e0-4f89-41d3-9a0c-00000000000c");
    open_decision(&server, first);
    commit_to(&server, first, &plan);
    let by_alice = |args: &[&str]| server.macp(&[args, &["--token", "alice"]].concat());
    let failed = result(&by_alice(&["--json", "run", "start", "--session", first]).exits(1));
    let run = failed["run_id"].as_str().unwrap();
    let shown = || by_alice(&["run", "show", run]).exits(0).stdout;
    assert!(shown().contains(&format!("macp run retry {run}")), "{}", shown());
    open_decision(&server, second);
    let supersedes = json!({"session_id": first, "commitment_hash": failed["session"]["commitment_hash"]});
    commit(&server, second, &plan, json!({"supersedes": supersedes}));
    let told = (0..600).map(|_| shown()).find(|told| {
        let is_told = told.contains("It cannot be tried again: the commitment is superseded");
        if !is_told {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        is_told
    });
    let told = told.expect("the session is watched");
    assert!(told.contains(second) && !told.contains("macp run retry"), "{told}");
    by_alice(&["run", "retry", run]).exits(1);
}

/// AOS-106: a commitment that may not run is refused, and a rejected run says why to everybody who looks.
#[test]
fn a_commitment_that_may_not_run_is_listed_as_rejected() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = posts(place.path(), "rejected", &target, 1, true);
    let settings = place.file("macp.toml");
    std::fs::write(&settings, "[scopes.team]\nagents = [\"somebody-else\"]\nskills = [\"http_call\"]\n").unwrap();
    let egress = ["--egress-allow-http", "--egress-allow-private-hosts", "127.0.0.1"];
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--config", &settings]).args(egress);
    let server = Server::with(serve.arg("--data").arg(place.data()));
    let session = "3f2504e0-4f89-41d3-9a0c-00000000000d";
    open_decision(&server, session);
    commit_to(&server, session, &plan);
    let by_alice = |args: &[&str]| server.macp(&[args, &["--token", "alice"]].concat());
    let refused = by_alice(&["run", "start", "--session", session]).exits(1).stdout;
    assert!(refused.starts_with("refused POLICY_DENIED: ") && refused.contains("recorded as run"), "{refused}");
    by_alice(&["run", "start", "--session", session]).exits(1);
    let listed = by_alice(&["--json", "run", "list", "--session", session]).exits(0).values();
    assert_eq!((listed.len(), &listed[0]["status"]), (1, &json!("rejected")), "{listed:#?}");
    let run = listed[0]["run_id"].as_str().unwrap();
    let shown = by_alice(&["run", "show", run]).exits(0).stdout;
    for part in ["Nothing was called", "\"poster\" has no right", "ERR_PERMISSION_DENIED", "macp run start --session"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    by_alice(&["run", "replay", run]).exits(0);
    by_alice(&["run", "retry", run]).exits(1);
    assert!(target.requests().is_empty());
}
