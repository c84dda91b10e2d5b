//! What `macp run show` tells an operator to do: only what works, in words that do not contradict each other.

use serde_json::{Value, json};

use crate::runs::{Place, freeze, result, serve};
use crate::support::{Server, command, macp};
use crate::target::{Answer, Target};

fn http_step(id: &str, parameters: &Value) -> Value {
    json!({"step_id": id, "skill_id": "http_call", "skill_version": "1.2.0", "parameters": parameters})
}

fn plan_of(name: &str, budget_cents: u64, steps: &[Value]) -> Value {
    json!({"plan_id": name, "agent_id": "a", "goal": "g", "steps": steps,
           "context": {"budget_cents": budget_cents, "allowed_skills": ["http_call"]}})
}

/// What is recommended works: no retry of what succeeded, of a replay, or of what needs an answer that nobody heard.
#[test]
fn only_what_works_is_recommended() {
    let place = Place::new();
    let target = Target::start(|request, _| match request.method.as_str() {
        "POST" => Answer::status(503),
        _ => Answer::ok("{}"),
    });
    let server = serve(&place.data());
    let post = |on_error: &str| {
        let mut post = http_step("charge", &json!({"method": "POST", "url": target.url("/charge"), "body": {"n": 1}}));
        post["on_error"] = json!(on_error);
        post
    };
    let get = |url: String| http_step("look", &json!({"url": url}));
    let run = |name: &str, steps: [Value; 2], exits: i32| {
        let plan = freeze(place.path(), name, &plan_of(name, 5, &steps).to_string());
        result(&server.macp(&["--json", "run", "start", &plan]).exits(exits))["run_id"].as_str().unwrap().to_owned()
    };
    let shown = |run: &str| server.macp(&["run", "show", run]).exits(0).stdout;
    let settle = |run: &str, outcome: &str| {
        let note = ["--as", outcome, "--note", "asked them"];
        server.macp(&[&["run", "resolve", run, "--step", "charge"], &note[..]].concat()).exits(0);
    };

    // A run that went on past the failure succeeded, and only the step itself can be made again.
    let lenient = run("lenient", [post("continue"), get(target.url("/"))], 0);
    let from = format!("macp run retry {lenient} --from charge");
    assert!(shown(&lenient).contains(&from) && !shown(&lenient).contains(&format!("retry {lenient}`")));
    server.macp(&["run", "retry", &lenient]).exits(1);
    settle(&lenient, "failure");
    let told = shown(&lenient);
    assert!(told.contains("did not take place: asked them") && !told.contains("macp run resolve"), "{told}");
    let retry = ["run", "retry", &lenient, "--from", "charge"];
    let timeless = server.macp(&[&retry[..], &["--deadline", "0s"]].concat()).exits(2);
    assert!(timeless.stderr.contains("needs some time"), "{timeless:?}");
    let detached = server.macp(&[&retry[..], &["--detach"]].concat()).exits(0);
    server.macp(&["run", "show", detached.stdout.trim_end()]).exits(0);

    // Whoever needs the answer that was lost cannot go on from it.
    let needs = run("needs", [post("abort"), get(format!("{}{{{{charge.body.id}}}}", target.url("/")))], 1);
    assert!(shown(&needs).contains("macp run resolve"));
    settle(&needs, "success");
    let told = shown(&needs);
    assert!(told.contains("It cannot be tried again: step look refers to what step charge returned"), "{told}");
    assert!(!told.contains("macp run retry"), "{told}");

    // Whoever does not can.
    let free = run("free", [post("abort"), get(target.url("/"))], 1);
    // Nor does another run of the plan before it is said, and nothing that could repeat the effect is recommended.
    let other = run("free", [post("abort"), get(target.url("/"))], 1);
    let told = shown(&other);
    assert!(told.contains(&format!("macp run resolve {free} --step charge")) && !told.contains("epoch"), "{told}");
    assert!(told.contains(&format!("Once that is said, `macp run retry {other}`")), "{told}");
    settle(&free, "success");
    server.macp(&["run", "retry", &other]).exits(0);
    assert!(shown(&free).contains(&format!("`macp run retry {free}` tries the rest again")), "{}", shown(&free));
    server.macp(&["run", "retry", &free]).exits(0);

    // What asks an answer for what is not in it asks in vain.
    let mut vain = get(format!("{}{{{{look.body.nope}}}}", target.url("/")));
    vain["step_id"] = json!("vain");
    let told = shown(&run("vain", [get(target.url("/")), vain], 1));
    assert!(told.contains("To try it again would end the same way") && !told.contains("macp run retry"), "{told}");

    // A replay is compared, and never tried again.
    let report = server.macp(&["--json", "run", "replay", &free, "--mode", "full", "--allow-step", "charge"]);
    let replay = report.values().pop().unwrap()["replay_run_id"].as_str().unwrap().to_owned();
    assert!(!shown(&replay).contains("macp run retry"), "{}", shown(&replay));
}

/// A code is the taxonomy's, and told as the author of the plan wrote it wherever the run is looked at.
#[test]
fn codes_are_told_as_the_author_wrote_them() {
    let place = Place::new();
    // The first step gets through at its second attempt; the other one never does.
    let target = Target::start(|request, before| match request.path.as_str() {
        "/s0" if before > 0 => Answer::ok("{}"),
        _ => Answer::status(503),
    });
    let spelt = |id: &str, code: &str| {
        let mut step = http_step(id, &json!({"url": target.url(&format!("/{id}"))}));
        step["retry_policy"] = json!({"max_retries": 1, "backoff_base_ms": 1, "retryable_codes": [code]});
        step
    };
    let steps = [spelt("s0", "ERR_HTTP_503"), spelt("s1", "ERR_HTTP_503_BUSY")];
    let plan = freeze(place.path(), "spelt", &plan_of("spelt", 5, &steps).to_string());
    let server = serve(&place.data());
    let told = result(&server.macp(&["--json", "run", "start", &plan]).exits(1));
    assert_eq!(told["aliases"], json!({"s1": {"ERR_HTTP_503_BUSY": "ERR_HTTP_503"}}), "{told:#}");
    assert_eq!(told["steps"][1]["attempts"][0]["code"], "ERR_HTTP_503", "{told:#}");
    let run = told["run_id"].as_str().unwrap();
    let file = place.file("spelt.jsonl");
    server.macp(&["run", "export", run, "-o", &file]).exits(0);
    for (verb, code) in [("show", 0), ("log", 0), ("watch", 1)] {
        let told = server.macp(&["run", verb, run]).exits(code).stdout;
        assert!(told.contains("ERR_HTTP_503 (written ERR_HTTP_503_BUSY)"), "{verb}: {told}");
        assert!(told.lines().any(|line| line.contains("s0") && line.contains("ERR_HTTP_503")), "{verb}: {told}");
        assert!(!told.lines().any(|line| line.contains("s0") && line.contains("(written")), "{verb}: {told}");
    }
    assert!(macp(&["run", "show", &file]).exits(0).stdout.contains("(written ERR_HTTP_503_BUSY)"));
    macp(&["run", "replay", &file]).exits(0);
}

/// Every run has the budget of its plan, and so has the one that goes on after a stop for it; where no budget is enough
/// for a step, to go on is not recommended.
#[test]
fn a_budget_stop_says_what_going_on_costs() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::ok("{}"));
    let card = place.file("card.json");
    let prices = json!({"id": "dear", "skills": {"http_call@1.2.0": {"base": 600_000}}});
    std::fs::write(&card, prices.to_string()).unwrap();
    let server = serve(&place.data());
    let stopped = |name: &str, budget_cents: u64| {
        let steps = ["one", "two"].map(|id| http_step(id, &json!({"url": target.url(&format!("/{id}"))})));
        let (authored, plan) = (place.file("authored.json"), place.file("dear.plan"));
        std::fs::write(&authored, plan_of(name, budget_cents, &steps).to_string()).unwrap();
        let freeze = ["plan", "freeze", &authored, "-o", &plan, "--rate-card", &card, "--card", "dear"];
        macp(&[&freeze[..], &["--embed-rate-card"]].concat()).exits(0);
        let told = result(&server.macp(&["--json", "run", "start", &plan]).exits(1));
        assert_eq!(told["status"], "budget_exceeded", "{told:#}");
        let run = told["run_id"].as_str().unwrap().to_owned();
        let shown = server.macp(&["run", "show", &run]).exits(0).stdout;
        (run, shown)
    };
    let (run, shown) = stopped("dear", 1);
    let advice =
        format!("`macp run retry {run}` tries the rest again and calls no finished step twice, with the plan's");
    assert!(shown.contains(&advice), "{shown}");
    let went_on = result(&server.macp(&["--json", "run", "retry", &run]).exits(0));
    assert_eq!(went_on["total_cost_microcents"], 600_000, "{went_on:#}");

    let (_, shown) = stopped("too-dear", 0);
    assert!(shown.contains("To try it again would end the same way") && !shown.contains("macp run retry"), "{shown}");
}

/// Where nobody knows whether an effect took place, nothing says in the same breath to try it again.
#[test]
fn an_unknown_effect_is_not_told_to_be_retried() {
    let place = Place::new();
    let target = Target::start(|_, _| Answer::Held(200, "{}".to_owned()));
    let mut step = http_step("charge", &json!({"method": "POST", "url": target.url("/"), "body": {"n": 1}}));
    step["timeout_ms"] = json!(300);
    let plan = freeze(place.path(), "late", &plan_of("late", 5, &[step]).to_string());
    let server = serve(&place.data());
    let run = result(&server.macp(&["--json", "run", "start", &plan]).exits(1))["run_id"].clone();
    let shown = server.macp(&["run", "show", run.as_str().unwrap()]).exits(0).stdout;
    assert!(shown.contains("ended with ERR_HTTP_TIMEOUT") && shown.contains("so nobody does"), "{shown}");
    assert!(!shown.contains("Retry with") && !shown.contains("tries the rest again"), "{shown}");
    target.release();
}

/// An output keeps what was taken out of it, so that whoever needs that asks in vain, however often.
#[test]
fn a_withheld_secret_is_not_told_to_be_retried() {
    let place = Place::new();
    let echo = r#"{"echo": "s3cr3t-value"}"#;
    let target = Target::start(move |request, before| match request.path.as_str() {
        // The only call before it is that of the first run.
        "/refused" if before == 1 => Answer::Status(404, echo.to_owned()),
        "/refused" => Answer::ok(r#"{"echo": "hello"}"#),
        _ => Answer::ok(echo),
    });
    std::fs::create_dir(place.path().join("secrets")).unwrap();
    std::fs::write(place.path().join("secrets/token"), "s3cr3t-value").unwrap();
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--egress-allow-http"])
            .args(["--egress-allow-private-hosts", "127.0.0.1", "--secrets-dir", &place.file("secrets"), "--data"])
            .arg(place.data()),
    );
    let login = http_step("login", &json!({"url": target.url("/"), "headers": {"x-token": "secret://token"}}));
    let headers = json!({"x-echo": "{{login.body.echo}}"});
    let pass_on = http_step("pass_on", &json!({"url": target.url("/"), "headers": headers}));
    let plan = freeze(place.path(), "leak", &plan_of("leak", 5, &[login.clone(), pass_on.clone()]).to_string());
    let told = result(&server.macp(&["--json", "run", "start", &plan]).exits(1));
    assert_eq!(told["steps"][1]["outcome"]["details"]["secret_withheld"], "token", "{told:#}");
    let shown = server.macp(&["run", "show", told["run_id"].as_str().unwrap()]).exits(0).stdout;
    assert!(shown.contains("was taken out of an output") && !shown.contains("s3cr3t-value"), "{shown}");
    assert!(shown.contains("To try it again would end the same way") && !shown.contains("macp run retry"), "{shown}");

    // A step that failed is called again, and may answer otherwise then.
    let mut refused = login;
    refused["parameters"]["url"] = json!(target.url("/refused"));
    refused["on_error"] = json!("continue");
    let plan = freeze(place.path(), "again", &plan_of("again", 5, &[refused, pass_on]).to_string());
    let run = result(&server.macp(&["--json", "run", "start", &plan]).exits(1))["run_id"].as_str().unwrap().to_owned();
    let shown = server.macp(&["run", "show", &run]).exits(0).stdout;
    assert!(shown.contains(&format!("`macp run retry {run}`")), "{shown}");
    server.macp(&["run", "retry", &run]).exits(0);
}
