//! Plans executed by a real server against a real target, as an operator drives them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::plan::example;
use crate::support::{Run, Server, command, macp};
use crate::target::{Answer, Target};

const ORDERS: &str = include_str!("../../../../examples/plans/site/orders.json");

/// A server whose plans may call loopback.
pub(crate) fn serve(data: &Path) -> Server {
    Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--egress-allow-http"])
            .args(["--egress-allow-private-hosts", "127.0.0.1", "--data"])
            .arg(data),
    )
}

/// Freezes a plan beside the data.
pub(crate) fn freeze(place: &Path, name: &str, plan: &str) -> String {
    let (authored, frozen) = (place.join(format!("{name}.json")), place.join(format!("{name}.plan")));
    std::fs::write(&authored, plan).unwrap();
    let frozen = frozen.to_str().unwrap().to_owned();
    macp(&["plan", "freeze", authored.to_str().unwrap(), "-o", &frozen]).exits(0);
    frozen
}

/// The plan of the examples, aimed at a target.
fn orders(place: &Path, target: &Target) -> String {
    let plan = std::fs::read_to_string(example()).unwrap();
    freeze(place, "orders", &plan.replace("127.0.0.1:8000", &target.address.to_string()))
}

/// A plan that posts once per step; `dedupes` says whether the target recognises keys.
pub(crate) fn posts(place: &Path, name: &str, target: &Target, steps: usize, dedupes: bool) -> String {
    let steps: Vec<Value> = (0..steps)
        .map(|step| {
            let url = target.url(&format!("/{name}/{step}"));
            let parameters = json!({"method": "POST", "url": url, "body": {"n": step}, "target_dedupes": dedupes});
            json!({"step_id": format!("s{step}"), "skill_id": "http_call", "skill_version": "1.2.0",
                   "parameters": parameters})
        })
        .collect();
    let plan = json!({
        "plan_id": name, "agent_id": "poster", "goal": "Post", "steps": steps,
        "context": {"budget_cents": 5, "allowed_skills": ["http_call"]},
    });
    freeze(place, name, &plan.to_string())
}

/// The result at the end of what `run start --json` prints.
#[track_caller]
pub(crate) fn result(run: &Run) -> Value {
    run.values().pop().expect("a result")
}

pub(crate) fn codes(result: &Value) -> Vec<&str> {
    result["steps"].as_array().unwrap().iter().map(|step| step["final_code"].as_str().unwrap()).collect()
}

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Everything an operator does with the example of the tutorial.
#[test]
fn the_example_runs_and_proves_itself_everywhere() {
    let place = Place::new();
    let target = Target::start(|request, _| match request.path.as_str() {
        "/orders.json" => Answer::ok(ORDERS),
        "/notice-3.txt" => Answer::ok(&"Three orders: ship them together. ".repeat(1_000)),
        _ => Answer::status(404),
    });
    let plan = orders(place.path(), &target);
    let server = serve(&place.data());
    let kept = server.macp(&["--json", "plan", "keep", &plan]).exits(0).value();
    assert_eq!((&kept["ok"], kept["plan_hash"].is_string()), (&true.into(), true), "{kept}");
    let told = server.macp(&["run", "start", &plan]).exits(0).stdout;
    for part in ["started ", "✓ fetch  OK_HTTP_CALL", "succeeded  OK_HTTP_CALL", "nothing stopped the run"] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let listed = server.macp(&["--json", "run", "list", "--status", "succeeded"]).exits(0).value();
    let run = listed["run_id"].as_str().unwrap();
    assert_eq!((listed["steps_done"].as_u64(), listed["agent_id"].as_str()), (Some(3), Some("reporter")));
    for nothing in [["--agent", "other"], ["--code", "ERR_TIMEOUT"], ["--session", "s"], ["--plan", "other"]] {
        let none = server.macp(&[&["--json", "run", "list"], &nothing[..]].concat()).exits(0);
        assert!(none.values().is_empty(), "{nothing:?}: {none:?}");
    }

    let shown = server.macp(&["--json", "run", "show", run]).exits(0).value();
    assert_eq!(codes(&shown), ["OK_HTTP_CALL", "OK_JSON_TRANSFORM", "OK_HTTP_CALL"]);
    let outputs = server.macp(&["run", "show", run, "--outputs"]).exits(0).stdout;
    assert!(outputs.contains("total returned") && outputs.contains("\"cents\": 6250"), "{outputs}");
    // What is large is named in a result, and sent only to who asks for it.
    let details = &shown["steps"][2]["outcome"]["details"];
    assert!(details["output"].is_null() && details["output_ref"].is_string(), "{details}");
    assert!(outputs.contains("ship them together. Three orders"), "{outputs}");
    let whole = server.macp(&["--json", "run", "show", run, "--outputs"]).exits(0).value();
    let details = &whole["steps"][2]["outcome"]["details"];
    assert!(details["output"]["body"].is_string() && details["output_ref"].is_null(), "{details}");
    let log = server.macp(&["--json", "run", "log", run]).exits(0).values();
    assert_eq!((log[0]["type"].as_str(), log[0]["seq"].as_u64()), (Some("run_started"), Some(0)));
    assert_eq!(log.last().unwrap()["type"], "run_finished");
    let watched = server.macp(&["--json", "run", "watch", run]).exits(0).values();
    assert_eq!(watched, log, "what is watched is what is kept");
    let step = server.macp(&["--json", "run", "log", run, "--step", "total"]).exits(0).values();
    assert!(step.iter().all(|entry| entry["step_id"] == "total") && step.len() < log.len());

    let file = place.file("run.jsonl");
    server.macp(&["run", "export", run, "-o", &file]).exits(0);
    assert!(
        server.macp(&["run", "export", run, "-o", &file]).exits(1).stderr.contains("--force"),
        "nothing is replaced"
    );
    server.macp(&["run", "export", run, "-o", &file, "--force"]).exits(0);
    let data = place.data();
    let data = data.to_str().unwrap();
    // Server, directory beside it, and file give the same answers.
    let report = server.macp(&["--json", "run", "replay", run]).exits(0).value();
    assert_eq!((report["verdict"].as_str(), report["replay_mode"].as_str()), (Some("match"), Some("mock_replay")));
    assert!(report["behavior_match"].as_object().unwrap().values().all(|matches| *matches == true), "{report:#}");
    macp(&["run", "replay", run, "--data", data]).exits(0);
    assert!(macp(&["run", "replay", &file]).exits(0).stdout.starts_with("MATCH: "));
    let verified = macp(&["--json", "run", "verify", &file]).exits(0).value();
    assert_eq!(verified, macp(&["--json", "run", "verify", run, "--data", data]).exits(0).value());
    assert_eq!(verified, server.macp(&["--json", "run", "verify", run]).exits(0).value());
    assert_eq!(verified["entries"].as_u64(), Some(log.len() as u64));
    assert_eq!(macp(&["--json", "run", "log", &file]).exits(0).values(), log);
    assert_eq!(macp(&["--json", "run", "show", run, "--data", data]).exits(0).value()["steps"], shown["steps"]);
    let offline = macp(&["--json", "run", "list", "--data", data]).exits(0).value();
    assert_eq!(offline, listed);
    let against = macp(&["--json", "plan", "dry-run", &plan, "--against", &file]).exits(0).value();
    assert!(against["comparison"].as_array().unwrap().iter().all(|it| it["field"] != "status"), "{against:#}");

    // A replay against the world, which has not changed.
    let full = server.macp(&["--json", "run", "replay", run, "--mode", "full"]).exits(0).value();
    assert_eq!((full["verdict"].as_str(), full["conformance"].as_bool()), (Some("match"), Some(true)));
    let replay = full["replay_run_id"].as_str().unwrap();
    assert!(server.macp(&["run", "diff", run, replay]).exits(0).stdout.starts_with("SAME: "));
    let lineage = server.macp(&["--json", "run", "lineage", replay]).exits(0).values();
    let tree: Vec<_> = lineage.iter().map(|it| (it["depth"].as_u64(), it["run_id"].as_str().unwrap())).collect();
    assert_eq!(tree, [(Some(0), run), (Some(1), replay)]);
    assert_eq!(macp(&["--json", "run", "lineage", run, "--data", data]).exits(0).values(), lineage);

    let inside = macp(&["--json", "doctor", "--data", data]).exits(0).value();
    assert_eq!((&inside["runs"], &inside["unfinished_runs"]), (&json!(2), &json!(0)));

    // Another server takes the run over, once.
    let other = Server::on(&place.path().join("other"));
    assert_eq!(other.macp(&["--json", "run", "import", &file]).exits(0).value()["new"], true);
    assert_eq!(other.macp(&["--json", "run", "import", &file]).exits(0).value()["new"], false);
    other.macp(&["run", "replay", run]).exits(0);
    let copy = place.file("copy");
    macp(&["run", "import", &file, "--data", &copy]).exits(0);
    macp(&["run", "verify", run, "--data", &copy]).exits(0);
}

/// AOS-43, AOS-81: retries are seen while they happen, and a failed run is tried again without repeating its steps.
#[test]
fn a_failure_says_why_and_a_retry_calls_no_finished_step() {
    let place = Place::new();
    let target = Target::start(|request, before| match request.path.as_str() {
        "/orders.json" if before == 0 => Answer::status(503),
        "/orders.json" => Answer::ok(ORDERS),
        _ => Answer::status(404),
    });
    // The notice may be missing, unless the plan insists.
    let plan = std::fs::read_to_string(example()).unwrap().replace("127.0.0.1:8000", &target.address.to_string());
    let strict = freeze(place.path(), "strict", &plan.replace("\"on_error\": \"continue\"", "\"on_error\": \"abort\""));
    let server = serve(&place.data());
    let told = server.macp(&["run", "start", &strict]).exits(1).stdout;
    for part in
        ["↻ fetch  ERR_HTTP_503; attempt 1 in ", "✗ notice  ERR_HTTP_404", "which stopped the run", "macp run retry"]
    {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert_eq!(target.requests().len(), 3);
    let failed = server.macp(&["--json", "run", "list"]).exits(0).value();
    let run = failed["run_id"].as_str().unwrap();
    assert_eq!((failed["status"].as_str(), failed["retry_count"].as_u64()), (Some("failed"), Some(1)));
    assert_eq!(server.macp(&["--json", "run", "replay", run]).exits(0).value()["verdict"], "match");

    let retried = result(&server.macp(&["--json", "run", "retry", run]).exits(1));
    assert_eq!(codes(&retried), ["OK_SKIP_DUPLICATE", "OK_SKIP_DUPLICATE", "ERR_HTTP_404"]);
    assert_eq!(target.requests().len(), 4, "only the step that failed is called again");
    assert_eq!(retried["parent_run_id"], run);
    let from = result(&server.macp(&["--json", "run", "retry", run, "--from", "fetch"]).exits(1));
    assert_eq!(codes(&from)[0], "OK_HTTP_CALL");

    let lenient = freeze(place.path(), "lenient", &plan.replace("orders-of-the-day", "lenient"));
    let past = server.macp(&["run", "start", &lenient]).exits(0).stdout;
    assert!(past.contains("went on past failures at notice"), "{past}");
}

/// AOS-92, AOS-96, AOS-99, AOS-100: the verdicts of a replay and their exit codes.
#[test]
fn replays_tell_the_world_from_the_runtime() {
    let place = Place::new();
    let target = Target::start(|request, before| match request.path.as_str() {
        "/orders.json" => Answer::ok(ORDERS),
        _ if before == 1 => Answer::ok("first"),
        _ => Answer::status(404),
    });
    let plan = orders(place.path(), &target);
    let server = serve(&place.data());
    let run = server.macp(&["--json", "run", "start", &plan]).exits(0).values()[0]["run_id"].clone();
    let run = run.as_str().unwrap();
    let explained = server.macp(&["--json", "run", "replay", run, "--mode", "full"]).exits(11).value();
    assert_eq!(explained["verdict"], "explained");
    assert!(!explained["inputs_changed"].as_array().unwrap().is_empty(), "{explained:#}");
    let causes = explained["mismatches"].as_array().unwrap().iter().all(|mismatch| mismatch["cause"] == "external");
    assert!(causes, "{explained:#}");
    let replay = explained["replay_run_id"].as_str().unwrap();
    let diff = server.macp(&["run", "diff", run, replay]).exits(1).stdout;
    assert!(diff.starts_with("DIFFERENT: ") && diff.contains("the world: "), "{diff}");

    let what_if = server.macp(&["--json", "run", "replay", run, "--what-if", "taxonomy=1.0.0"]);
    assert!(matches!(what_if.code, Some(10 | 12)), "a what-if never says match: {what_if:?}");
    assert_eq!(what_if.value()["what_if"], true);
    // A pin that does not exist is no pin to decide under; what exists is told.
    let data = place.data();
    for (pin, exists) in [
        ("taxonomy=7", "1.0.0, 1.1.0"),
        ("skill=http_call@9.9.9", "1.2.0"),
        ("skill=llm_invoke@2.0.0", "http_call, json_transform"),
        ("card=/nowhere.json", "/nowhere.json"),
    ] {
        let asked = ["run", "replay", run, "--what-if", pin];
        for told in [server.macp(&asked), macp(&[&asked[..], &["--data", data.to_str().unwrap()]].concat())] {
            let told = told.exits(2);
            assert!(told.stderr.contains(exists) && told.stdout.is_empty(), "{pin}: {told:?}");
        }
    }
    let card = place.file("card.json");
    let prices = json!({"id": "dear", "skills": {"http_call@1.2.0": {"base": 2_000_000},
                        "json_transform@2.0.0": {"per_kib": 1000}}});
    std::fs::write(&card, prices.to_string()).unwrap();
    let dear = server.macp(&["run", "replay", run, "--what-if", &format!("card={card}")]).exits(10).stdout;
    assert!(dear.contains("✗ cost_cents") && dear.contains("what if: rate_card is dear"), "{dear}");

    // Usage is 2, everything else is 1.
    server.macp(&["run", "replay", run, "--what-if", "nonsense"]).exits(2);
    server.macp(&["run", "replay", run, "--mode", "half"]).exits(2);
    server.macp(&["run", "replay", run, "--allow-step", "fetch"]).exits(2);
    server.macp(&["run", "replay", run, "--mode", "full", "--what-if", "taxonomy=1.0.0"]).exits(2);
    server.macp(&["run", "replay", "nowhere"]).exits(1);
    macp(&["run", "replay", "nowhere", "--server", "http://127.0.0.1:1"]).exits(1);

    // A changed byte is found, and where it is.
    let file = place.file("run.jsonl");
    server.macp(&["run", "export", run, "-o", &file]).exits(0);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, whole.replacen("\"status\":200", "\"status\":503", 1)).unwrap();
    let changed = whole.lines().position(|line| line.contains("\"status\":200")).unwrap();
    let seq = whole.lines().take(changed).filter(|line| line.contains("\"entry\":{")).count();
    let bad = macp(&["run", "verify", &file]).exits(1).stdout;
    assert!(bad.starts_with(&format!("BAD at entry {seq}: ")), "{bad}");
    assert_eq!(macp(&["--json", "run", "verify", &file]).exits(1).value()["bad_seq"], seq);
    assert_eq!(macp(&["--json", "run", "replay", &file]).exits(12).value()["verdict"], "not_comparable");
    macp(&["run", "import", &file, "--data", &place.file("copy")]).exits(1);
    macp(&["run", "show", &file]).exits(1);
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert!(macp(&["run", "verify", &file]).exits(1).stdout.contains("cut off"));
}

/// A whole file proves that nobody changed it since it was written, and not that it tells what happened: a run is taken
/// over, and kept in a corpus, only if its decisions follow from its inputs.
#[test]
fn a_forged_run_is_neither_imported_nor_kept_in_a_corpus() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = posts(place.path(), "forged", &target, 1, true);
    let server = serve(&place.data());
    let run = server.macp(&["--json", "run", "start", &plan]).exits(0).values()[0]["run_id"].clone();
    let run = run.as_str().unwrap();
    let (file, corpus) = (place.file("run.jsonl"), place.file("corpus"));
    server.macp(&["run", "export", run, "-o", &file]).exits(0);
    let honest = std::fs::read_to_string(&file).unwrap();
    macp(&["run", "corpus", "add", &file, "--dir", &corpus]).exits(0);

    // The target answered 200, the file has it refused, and every chain in it is whole.
    let forged = resealed(&honest.replacen("\"status\":200", "\"status\":404", 1));
    std::fs::write(&file, forged).unwrap();
    macp(&["run", "verify", &file]).exits(0);
    macp(&["run", "replay", &file]).exits(10);
    let elsewhere = serve(&place.path().join("elsewhere"));
    for refused in [
        elsewhere.macp(&["run", "import", &file]),
        macp(&["run", "import", &file, "--data", &place.file("copy")]),
        macp(&["run", "corpus", "add", &file, "--dir", &place.file("other")]),
    ] {
        let refused = refused.exits(1);
        assert!(refused.stdout.starts_with("not ") && refused.stdout.contains("replay"), "{refused:?}");
    }
    let refused = elsewhere.macp(&["--json", "run", "import", &file]).exits(1).value();
    assert_eq!((&refused["ok"], &refused["error"]["code"]), (&json!(false), &json!("RUN_CONFLICT")), "{refused:#}");
    assert!(!Path::new(&place.file("other")).exists());
    assert!(elsewhere.macp(&["--json", "run", "list"]).exits(0).values().is_empty());
    std::fs::write(&file, honest).unwrap();
    elsewhere.macp(&["run", "import", &file]).exits(0);
    elsewhere.macp(&["run", "replay", run]).exits(0);
}

/// A run is refused in the same words, and with the same code, wherever it was to go.
#[test]
fn a_run_under_way_is_not_imported() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::Held(200, "{}".to_owned()));
    let plan = posts(place.path(), "held", &target, 1, true);
    let server = serve(&place.data());
    let run = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value()["run_id"].clone();
    target.wait_for(1);
    let file = place.file("run.jsonl");
    server.macp(&["run", "export", run.as_str().unwrap(), "-o", &file]).exits(0);
    let elsewhere = serve(&place.path().join("elsewhere"));
    for refused in
        [elsewhere.macp(&["run", "import", &file]), macp(&["run", "import", &file, "--data", &place.file("copy")])]
    {
        let refused = refused.exits(1);
        assert!(refused.stdout.starts_with("not imported: ") && refused.stdout.contains("not finished"), "{refused:?}");
    }
    // What is not about the run is a failure of the command: here the file is not taken for its length.
    let mut command = command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--max-import-bytes", "1024", "--data"]);
    let narrow = Server::with(command.arg(place.path().join("narrow")));
    let failed = narrow.macp(&["run", "import", &file]).exits(1);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("PAYLOAD_TOO_LARGE"), "{failed:?}");
    target.release();
}

/// An export with both its chains computed again, as whoever makes one up would.
fn resealed(export: &str) -> String {
    let digest =
        |label: &str, previous: &str, text: &str| hex::encode(Sha256::digest(format!("{label}:{previous}:{text}")));
    let (mut check, mut head, mut lines) = (String::new(), String::new(), String::new());
    for line in export.lines() {
        let mut rest = line.split_once(',').unwrap().1.strip_suffix('}').unwrap().to_owned();
        if let Some(entry) = rest.strip_prefix("\"entry\":") {
            let (text, _) = entry.rsplit_once(",\"hash\":").unwrap();
            head = digest("aos-journal/1", &head, text);
            rest = format!("\"entry\":{text},\"hash\":\"{head}\"");
        } else if rest.starts_with("\"footer\":") {
            let (before, _) = rest.split_once("\"head\":\"").unwrap();
            rest = format!("{before}\"head\":\"{head}\"}}");
        }
        check = digest("aos-run-export/1", &check, &rest);
        lines.push_str(&format!("{{\"check\":\"{check}\",{rest}}}\n"));
    }
    lines
}

/// AOS-30, AOS-99: a journal that was changed where it is stored is not believed, and the entry is named.
#[test]
fn damage_in_the_store_is_found_offline_and_by_the_server() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = posts(place.path(), "stored", &target, 1, true);
    let server = serve(&place.data());
    let run = server.macp(&["--json", "run", "start", &plan]).exits(0).values()[0]["run_id"].clone();
    let run = run.as_str().unwrap();
    let log = server.macp(&["--json", "run", "log", run]).exits(0).values();
    let seq = log.iter().position(|entry| entry["type"] == "attempt_observed").unwrap();
    assert!(server.terminate().success());
    let (was, becomes) =
        (&b"\"kind\":\"http_status\",\"status\":200"[..], &b"\"kind\":\"http_status\",\"status\":299"[..]);
    let mut changes = 0;
    for file in std::fs::read_dir(place.data().join("plans")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(was.len()).position(|window| window == was) {
            bytes[at..at + was.len()].copy_from_slice(becomes);
            changes += 1;
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(changes > 0, "the entry is stored as it is written");

    let data = place.data();
    let data = data.to_str().unwrap();
    assert_eq!(macp(&["--json", "run", "verify", run, "--data", data]).exits(1).value()["bad_seq"], seq);
    macp(&["run", "replay", run, "--data", data]).exits(12);
    let offline = macp(&["--json", "run", "replay", run, "--data", data]).exits(12).value();
    let out = place.file("out.jsonl");
    macp(&["run", "export", run, "-o", &out, "--data", data]).exits(1);
    assert!(!Path::new(&out).exists());
    let server = serve(&place.data());
    assert_eq!(server.macp(&["--json", "run", "verify", run]).exits(1).value()["bad_seq"], seq);
    let report = server.macp(&["--json", "run", "replay", run]).exits(12).value();
    assert_eq!(report["pin_violations"][0]["kind"], "journal", "{report:#}");
    // AOS-95: who reads reports reads this one, wherever it was made.
    let keys = |report: &Value| report.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&offline), keys(&report));
    assert_eq!(offline["behavior_match"], report["behavior_match"]);
    assert_eq!(offline["pin_violations"][0]["subject"], format!("entry {seq}"));
    assert_eq!(report["pin_violations"][0]["subject"], format!("entry {seq}"));
}

/// What is not allowed is not reached, and a plan that cannot run here says everything that is missing.
#[test]
fn nothing_is_reached_unless_it_is_allowed() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let plan = orders(place.path(), &target);
    let closed = Server::on(&place.path().join("closed"));
    let told = closed.macp(&["run", "start", &plan]).exits(1).stdout;
    assert!(told.contains("ERR_POLICY_VIOLATION"), "{told}");
    assert!(target.requests().is_empty());

    let disabled = Server::with(
        command().args(["serve", "--listen", "127.0.0.1:0", "--memory"]).env("MACP_DISABLED_SKILLS", "http_call"),
    );
    let rejected = result(&disabled.macp(&["--json", "run", "start", &plan]).exits(1));
    assert_eq!((&rejected["status"], &rejected["final_code"]), (&json!("rejected"), &json!("ERR_SKILL_DISABLED")));
    let live = disabled.macp(&["--json", "plan", "skills", "--live"]).exits(0).values();
    let enabled: Vec<_> = live.iter().map(|skill| skill["enabled"].as_bool().unwrap()).collect();
    assert_eq!(enabled, [false, true, true]);

    // AOS-68: a skill has the permissions it is granted, and where a plan needs more nothing is frozen or called.
    let withheld = Server::with(command().args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--memory",
        "--skill-permissions",
        "files:read",
    ]));
    let rejected = result(&withheld.macp(&["--json", "run", "start", &plan]).exits(1));
    assert_eq!((&rejected["status"], &rejected["final_code"]), (&json!("rejected"), &json!("ERR_PERMISSION_DENIED")));
    assert_eq!(rejected["findings"][0]["reason"], "permission_missing", "{rejected:#}");
    assert!(target.requests().is_empty());
    let authored = place.file("orders.json");
    let found = macp(&["--json", "plan", "freeze", &authored, "--skill-permission", "files:read"]).exits(1).value();
    assert_eq!(found["findings"][0]["code"], "ERR_PERMISSION_DENIED", "{found:#}");
    macp(&["plan", "lint", &authored, "--skill-permission", "files:read,network:outbound"]).exits(0);
    macp(&["plan", "lint", &authored, "--skill-permission", ""]).exits(1);
    let by_variable = |text: &str| {
        let mut lint = command();
        crate::support::run(lint.args(["plan", "lint", &authored]).env("MACP_SKILL_PERMISSIONS", text))
    };
    by_variable("files:read").exits(1);
    by_variable("").exits(0);

    let off = Server::with(command().args(["serve", "--listen", "127.0.0.1:0", "--memory", "--plans=false"]));
    off.macp(&["run", "start", &plan]).exits(1);
    off.macp(&["session", "list"]).exits(0);
    let bad =
        macp(&["serve", "--memory", "--egress-allow-hosts", "*.10.0.0.1", "--egress-allow-networks", "ten"]).exits(2);
    for part in ["--egress-allow-hosts: `*.10.0.0.1`", "--egress-allow-networks: "] {
        assert!(bad.stderr.contains(part), "{part}: {bad:?}");
    }
}

/// AOS-68: whoever reads findings need not know who found them.
#[test]
fn a_server_tells_findings_in_the_shape_they_have_here() {
    let place = Place::new();
    let server = serve(&place.data());
    let mut plan: Value = serde_json::from_str(&std::fs::read_to_string(example()).unwrap()).unwrap();
    plan["steps"][0]["skill_version"] = json!("9.9.9");
    let authored = place.file("bad.json");
    std::fs::write(&authored, plan.to_string()).unwrap();
    let freeze = ["plan", "freeze", &authored, "--live"];
    let (here, there) = (macp(&freeze[..3]).exits(1), server.macp(&freeze).exits(1));
    assert_eq!(there.stdout, here.stdout);
    for part in ["error ", "[AOS-", "fix: ", "available: 1.2.0"] {
        assert!(there.stdout.contains(part), "{part}: {there:?}");
    }
    let (here, there) = (
        macp(&[&["--json"], &freeze[..3]].concat()).exits(1).value(),
        server.macp(&[&["--json"], &freeze[..]].concat()).exits(1).value(),
    );
    assert_eq!(there["findings"][0]["available"], json!(["1.2.0"]), "{there:#}");
    assert_eq!(there, here);
}

/// AOS-99: what another build of a skill does is told as such, at the start and by a replay; a server pins its own.
#[test]
fn another_build_of_a_skill_is_told() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok(ORDERS));
    let plan = orders(place.path(), &target);
    let server = serve(&place.data());
    let authored = place.file("orders.json");
    let (live, here) = (place.file("live.plan"), place.file("here.plan"));
    server.macp(&["plan", "freeze", &authored, "--live", "-o", &live]).exits(0);
    macp(&["plan", "freeze", &authored, "--pin-builds", "-o", &here]).exits(0);
    let pins =
        |file: &str| serde_json::from_str::<Value>(&std::fs::read_to_string(file).unwrap()).unwrap()["pins"].clone();
    assert_eq!(pins(&live), pins(&here), "the same program has the same builds");
    server.macp(&["plan", "freeze", &authored, "--live", "--pin-builds"]).exits(2);
    let same = result(&server.macp(&["--json", "run", "start", &live]).exits(0));
    assert!(same.get("findings").is_none(), "{same:#}");

    let mut other: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    other["plan_id"] = json!("another-build");
    other["pins"]["skill_builds"] = json!({"http_call@1.2.0": format!("sha256:{}", "ab".repeat(32))});
    let other = freeze(place.path(), "other", &other.to_string());
    let run = result(&server.macp(&["--json", "run", "start", &other]).exits(0));
    assert_eq!(run["findings"][0]["reason"], "skill_build_changed", "{run:#}");
    let told = server.macp(&["run", "show", run["run_id"].as_str().unwrap()]).exits(0).stdout;
    assert!(told.contains("Warning: ") && told.contains("http_call@1.2.0"), "{told}");
    let report = server.macp(&["--json", "run", "replay", run["run_id"].as_str().unwrap()]).exits(0).value();
    let violation = &report["pin_violations"][0];
    assert_eq!((&violation["kind"], &violation["subject"]), (&json!("skill_build_changed"), &json!("http_call@1.2.0")));
}

/// AOS-84: recorded runs, kept and replayed on every change.
#[test]
fn a_corpus_is_checked_without_a_server() {
    let place = Place::new();
    let target = Target::start(|request, before| match request.path.as_str() {
        "/orders.json" if before == 0 => Answer::status(503),
        "/orders.json" => Answer::ok(ORDERS),
        _ => Answer::status(404),
    });
    let plan = orders(place.path(), &target);
    let server = serve(&place.data());
    let corpus = place.file("corpus");
    let run = server.macp(&["--json", "run", "start", &plan]).exits(0).values()[0]["run_id"].clone();
    let run = run.as_str().unwrap();
    let added = server.macp(&["--json", "run", "corpus", "add", run, "--dir", &corpus]).exits(0).value();
    let file = added["file"].as_str().unwrap().to_owned();
    let secret = json!({
        "plan_id": "leaky", "agent_id": "a", "goal": "g",
        "steps": [{"step_id": "s", "skill_id": "http_call", "skill_version": "1.2.0",
                   "parameters": {"url": target.url("/orders.json"), "headers": {"authorization": "Bearer hunter2"}}}],
        "context": {"budget_cents": 1, "allowed_skills": ["http_call"]},
    });
    let secret = freeze(place.path(), "secret", &secret.to_string());
    let leaky = server.macp(&["--json", "run", "start", &secret]).exits(0).values()[0]["run_id"].clone();
    let refused = server.macp(&["run", "corpus", "add", leaky.as_str().unwrap(), "--dir", &corpus]).exits(1);
    assert!(refused.stdout.contains("not added") && !refused.stdout.contains("hunter2"), "{refused:?}");
    drop(server);

    let checked = macp(&["--json", "run", "corpus", "check", "--dir", &corpus]).exits(0).values();
    assert_eq!(checked.last().unwrap()["summary"], json!({"runs": 1, "match": 1, "verdict": "match"}));
    assert_eq!(macp(&["--json", "run", "corpus", "list", "--dir", &corpus]).exits(0).value()["run_id"], run);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, whole.replacen("ERR_HTTP_503", "ERR_HTTP_500", 1)).unwrap();
    let damaged = macp(&["run", "corpus", "check", "--dir", &corpus]).exits(12).stdout;
    assert!(damaged.starts_with("DAMAGED: "), "{damaged}");
    std::fs::remove_file(&file).unwrap();
    macp(&["run", "corpus", "check", "--dir", &corpus]).exits(1);
    macp(&["run", "corpus", "check", "--dir", &place.file("nowhere")]).exits(1);
}

/// A stop is told with what led to it, not with what its code means in general alone.
#[test]
fn a_stop_is_told_with_its_reason() {
    let place = Place::new();
    let transform = |id: &str, input: Value| {
        json!({"step_id": id, "skill_id": "json_transform", "skill_version": "2.0.0",
               "parameters": {"input": input, "expression": "a"}})
    };
    let plan = json!({
        "plan_id": "reasons", "agent_id": "reader", "goal": "Read",
        "steps": [transform("first", json!({"a": {"b": 1}})), transform("second", json!("{{first.result.nope}}"))],
        "context": {"budget_cents": 5, "allowed_skills": ["json_transform"]},
    });
    let plan = freeze(place.path(), "reasons", &plan.to_string());
    let server = serve(&place.data());
    let run = result(&server.macp(&["--json", "run", "start", &plan]))["run_id"].as_str().unwrap().to_owned();
    let shown = server.macp(&["run", "show", &run]).exits(0).stdout;
    assert!(shown.contains("Step second ended with ERR_VALIDATION_FAILED"), "{shown}");
    assert!(shown.contains("`first.result.nope` cannot be resolved: there is no member"), "{shown}");
    assert_eq!(shown.matches("did not pass a check").count(), 1, "{shown}");
}

/// AOS-18, AOS-64: what people are to hear of a budget is told wherever they look, the threshold and every refusal apart.
#[test]
fn budget_alerts_are_told() {
    let place = Place::new();
    let steps = ["one", "two"].map(|id| {
        json!({"step_id": id, "skill_id": "json_transform", "skill_version": "2.0.0",
               "parameters": {"input": 1, "expression": "@"}})
    });
    let plan = json!({
        "plan_id": "soft", "agent_id": "reader", "goal": "Read", "steps": steps,
        "context": {"budget_cents": 0, "allowed_skills": ["json_transform"], "budget_policy": {"hard_limit": false}},
    });
    let plan = freeze(place.path(), "soft", &plan.to_string());
    let server = serve(&place.data());
    let told = result(&server.macp(&["--json", "run", "start", &plan]).exits(0));
    let alerts = told["alerts"].as_array().unwrap().iter().map(|alert| &alert["refused"]["step_id"]);
    assert_eq!(alerts.collect::<Vec<_>>(), [&json!("one"), &Value::Null, &json!("two")], "{told}");
    let run = told["run_id"].as_str().unwrap();
    let shown = server.macp(&["run", "show", run]).exits(0).stdout;
    assert!(shown.contains("An alert was due at 80 % of the budget: 0.001 ¢ were spent."), "{shown}");
    assert!(shown.contains("2 checks the budget refused went on all the same, at one, two."), "{shown}");
    for journal in [server.macp(&["run", "log", run]), server.macp(&["run", "watch", run])] {
        let journal = journal.exits(0).stdout;
        assert_eq!(journal.matches("went on past the budget: needs 0.001 ¢").count(), 2, "{journal}");
        assert_eq!(journal.matches("80 % of the budget or more").count(), 1, "{journal}");
    }
}
