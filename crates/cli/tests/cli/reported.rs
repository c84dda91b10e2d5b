//! AOS-113: a run is read from its execution session alone, and a lost store of runs is rebuilt from there.

use serde_json::{Value, json};

use crate::effects::{commit_to, open_decision};
use crate::runs::{Place, freeze, posts, serve};
use crate::support::{Server, macp};
use crate::target::{Answer, Target};

const SESSION: &str = "3f2504e0-4f89-41d3-9a0c-00000000000b";

/// Has a plan committed to, run and reported: the run and its execution session.
fn report(server: &Server, plan: &str) -> (String, String) {
    open_decision(server, SESSION);
    commit_to(server, SESSION, plan);
    let started = server.macp(&["--json", "run", "start", "--session", SESSION, "--token", "alice"]).exits(0).values();
    let run = started[0]["run_id"].as_str().unwrap().to_owned();
    let execution = macp_plan::session::execution_session_id(&run);
    let told = server.macp(&["--json", "session", "tail", &execution, "--token", "alice"]).exits(0).values();
    assert_eq!(told.last().unwrap()["ended"]["state"], "Resolved", "{told:#?}");
    (run, execution)
}

/// What two tellings of one run must agree on: everything but when it began and ended.
fn timeless(mut result: Value) -> Value {
    for time in ["started_at", "finished_at", "duration_ms"] {
        result[time] = Value::Null;
    }
    result
}

#[test]
fn a_lost_run_is_told_by_its_session_and_imported_again() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = posts(place.path(), "reported", &target, 2, true);
    let server = serve(&place.data());
    let (run, execution) = report(&server, &plan);
    let alice = |args: &[&str]| server.macp(&[args, &["--token", "alice"]].concat());
    let shown = alice(&["--json", "run", "show", &run]).exits(0).value();
    let log = alice(&["--json", "run", "log", &run]).exits(0).values();
    let (told, decided, kept) = (place.file("told.jsonl"), place.file("decided.jsonl"), place.file("run.jsonl"));
    alice(&["export", &execution, "-o", &told]).exits(0);
    alice(&["export", SESSION, "-o", &decided]).exits(0);
    alice(&["run", "export", &run, "-o", &kept]).exits(0);
    // By the id of the run or of the session, a server answers what the run itself says.
    for target in [&run, &execution] {
        let from = alice(&["--json", "run", "show", target, "--from-session"]).exits(0).value();
        assert_eq!(timeless(from), timeless(shown.clone()));
    }
    server.terminate();

    // The disk of the executor is gone.
    std::fs::remove_dir_all(place.data().join("plans")).unwrap();
    let data = place.data();
    let data = data.to_str().unwrap();
    macp(&["run", "show", &run, "--data", data]).exits(1);
    assert_eq!(macp(&["--json", "run", "log", &run, "--from-session", "--data", data]).exits(0).values(), log);
    let report = macp(&["--json", "run", "replay", &execution, "--from-session", "--data", data]).exits(0).value();
    assert_eq!((&report["verdict"], &report["original_run_id"]), (&json!("match"), &json!(run)));
    // Two exported sessions are as good, and so is the one with the frozen plan.
    for known in [&decided, &plan] {
        let verified = macp(&["--json", "run", "verify", &told, "--from-session", "--plan", known]).exits(0).value();
        assert_eq!(verified, macp(&["--json", "run", "verify", &kept]).exits(0).value());
        macp(&["run", "replay", &told, "--from-session", "--plan", known]).exits(0);
    }
    // Anyone may start a session that looks like one of the executor's.
    let args = ["run", "verify", &told, "--from-session", "--plan", &plan, "--reporter", "somebody-else"];
    let foreign = macp(&args).exits(1);
    assert!(format!("{foreign:?}").contains("no report of"), "{foreign:?}");
    let planless = macp(&["run", "show", &told, "--from-session"]).exits(1);
    assert!(planless.stderr.contains("--plan"), "{planless:?}");

    let rebuilt = place.file("rebuilt.jsonl");
    macp(&["run", "export", &run, "--from-session", "--data", data, "-o", &rebuilt]).exits(0);
    let lines = |file: &str| std::fs::read_to_string(file).unwrap().lines().count();
    assert_eq!(lines(&rebuilt), lines(&kept));
    // An import does not start a new database silently, which would forget the other runs.
    let refused = macp(&["run", "import", &rebuilt, "--data", data]).exits(1).stderr;
    assert!(refused.contains("is missing, but this data directory was used with it"), "{refused}");
    macp(&["accept-loss", "--data", data]).exits(0);
    macp(&["run", "import", &rebuilt, "--data", data]).exits(0);
    assert_eq!(macp(&["--json", "run", "log", &run, "--data", data]).exits(0).values(), log);
    let server = serve(&place.data());
    let again = server.macp(&["--json", "run", "show", &run, "--token", "alice"]).exits(0).value();
    assert_eq!(timeless(again), timeless(shown));
}

/// What is not in the session is not made up, and what is no report is told from one that is damaged.
#[test]
fn what_a_session_does_not_hold_is_said() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok(&json!({"text": "long ".repeat(10_000)}).to_string()));
    let steps = json!([
        {"step_id": "fetch", "skill_id": "http_call", "skill_version": "1.2.0",
         "parameters": {"url": target.url("/long"), "expect_json": true}},
        {"step_id": "size", "skill_id": "json_transform", "skill_version": "2.0.0",
         "parameters": {"input": "{{fetch.body}}", "expression": "length(text)"}},
    ]);
    let plan = json!({
        "plan_id": "long", "agent_id": "reader", "goal": "Read", "steps": steps,
        "context": {"budget_cents": 5, "allowed_skills": ["http_call", "json_transform"]},
    });
    let plan = freeze(place.path(), "long", &plan.to_string());
    let server = serve(&place.data());
    let (run, execution) = report(&server, &plan);
    let alice = |args: &[&str]| server.macp(&[args, &["--token", "alice"]].concat());
    let report = alice(&["--json", "run", "replay", &run, "--from-session"]).exits(12).value();
    assert_eq!((&report["verdict"], &report["mismatches"]), (&json!("not_comparable"), &json!([])));
    assert!(report["skipped"].as_array().unwrap().iter().all(|it| it["step_id"] == "size"), "{report:#}");
    let export = alice(&["run", "export", &run, "--from-session", "-o", &place.file("none")]).exits(1);
    assert!(export.stderr.contains("kept apart"), "{export:?}");

    let decision = alice(&["run", "verify", "aos-exec-none", "--from-session"]).exits(1);
    assert!(decision.stderr.contains("aos-exec-none"), "{decision:?}");
    let (told, decided) = (place.file("told.jsonl"), place.file("decided.jsonl"));
    alice(&["export", &execution, "-o", &told]).exits(0);
    alice(&["export", SESSION, "-o", &decided]).exits(0);
    let other = macp(&["run", "verify", &decided, "--from-session", "--plan", &plan]).exits(1);
    assert!(other.stderr.contains("not one in which a run is reported"), "{other:?}");
    let foreign = posts(place.path(), "foreign", &target, 1, true);
    let bad = macp(&["--json", "run", "verify", &told, "--from-session", "--plan", &foreign]).exits(1).value();
    assert!(bad["message"].as_str().unwrap().contains("the run is of plan"), "{bad}");
    let whole = std::fs::read_to_string(&told).unwrap();
    let cut: Vec<&str> = whole.lines().enumerate().filter(|(at, _)| *at != 5).map(|(_, line)| line).collect();
    std::fs::write(&told, cut.join("\n") + "\n").unwrap();
    macp(&["run", "verify", &told, "--from-session", "--plan", &plan]).exits(1);
}
