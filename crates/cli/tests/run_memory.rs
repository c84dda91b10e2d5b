//! Many runs of one agent with the outputs that take the most memory: a server stays within its budget for runs, shows
//! that they wait, and all of them end.
//!
//! `MACP_MEMORY_RUNS` sets how many runs there are, `MACP_MEMORY_ANSWER_BYTES` how large their answers are.

#![cfg(target_os = "linux")]

#[allow(dead_code)]
#[path = "crash/choices.rs"]
mod choices;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/target.rs"]
mod target;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use choices::number;
use serde_json::{Value, json};
use support::{Server, command, macp};
use target::{Answer, Target};

const RUNS_DEFAULT: u64 = 60;
/// Answers of small objects: values of more than 80 MiB, and little to compute.
const ANSWER_BYTES_DEFAULT: u64 = 900_000;
const MIB: u64 = 1024 * 1024;
/// Half of the default, so that what is beyond it shows. Sixty runs that each held one answer would take 4.7 GiB.
const BUDGET: u64 = 512 * MIB;
/// What a process takes in addition: journals, the database, connections, and pages its allocator has not returned.
const OVERHEAD: u64 = 160 * MIB;
/// While runs wait the outputs are in the store: a run takes its plan, its journal's end and its task.
const WAITING_RUN: u64 = MIB;

#[test]
fn runs_with_the_worst_outputs_stay_within_the_budget_and_all_end() {
    let runs = number("MACP_MEMORY_RUNS", || RUNS_DEFAULT);
    let answer_bytes = number("MACP_MEMORY_ANSWER_BYTES", || ANSWER_BYTES_DEFAULT);
    let place = tempfile::tempdir().unwrap();
    let body = worst(answer_bytes);
    // The first step gets its response when every run has called or waits. Every other call of the second step fails and
    // is retried, and meanwhile the first step's output is stored.
    let target = Target::start(move |request, before| match request.path.as_str() {
        "/fetch" => Answer::Held(200, body.clone()),
        "/again" if before % 2 == 0 => Answer::status(503),
        _ => Answer::ok("{}"),
    });
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--egress-allow-http"])
            .args(["--egress-allow-private-hosts", "127.0.0.1"])
            .args(["--run-max-memory-bytes", &BUDGET.to_string()])
            .args(["--agent-max-runs", &runs.to_string()])
            .arg("--data")
            .arg(place.path().join("data")),
    );
    let before = resident(&server, "VmRSS:");
    let plan = plan(place.path(), &target);
    let mut started = Vec::new();
    for _ in 0..runs {
        let run = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value();
        started.push(run["run_id"].as_str().unwrap().to_owned());
    }
    // As many calls are out as the budget lets out, and none is answered: all other runs wait for memory.
    let out = || target.requests().len() as u64;
    let settled = wait_until(|| out() + metric(&server, "aos_runs_awaiting_memory") >= runs);
    assert!(settled, "{} calls are out, {}", out(), scrape(&server));
    assert!(out() >= 2 && metric(&server, "aos_runs_awaiting_memory") > 0, "{} of {runs} calls are out", out());
    let show = |run: &String| server.macp(&["--json", "run", "show", run]).exits(0).value();
    let waiting = started.iter().find(|run| show(run)["at_work"]["doing"] == "awaiting_memory");
    let text = server.macp(&["run", "show", waiting.expect("some run waits")]).exits(0).stdout;
    assert!(text.contains("for memory that other runs have reserved"), "{text}");
    println!("{} MiB while runs wait", resident(&server, "VmRSS:") / MIB);
    target.release();
    for run in &started {
        // Its exit code is that of a run that succeeded.
        server.macp(&["--json", "run", "watch", run]).exits(0);
    }
    let peak = resident(&server, "VmHWM:");
    println!("{runs} runs: {} MiB before, {} MiB at the peak", before / MIB, peak / MIB);
    assert!(peak <= before + BUDGET + OVERHEAD + runs * WAITING_RUN, "{} MiB", peak / MIB);
    assert_eq!(metric(&server, "aos_run_memory_reserved_bytes"), 0, "everything was released");
    assert_eq!(metric(&server, "aos_runs_awaiting_memory"), 0);
    assert!(server.terminate().success());
}

/// An object whose members are as many small objects as are read as a value, and one long text for the rest.
fn worst(bytes: u64) -> String {
    let count = 115_000.min(bytes / 7);
    let objects = vec![r#"{"":0}"#; usize::try_from(count).unwrap()].join(",");
    let rest = usize::try_from(bytes.saturating_sub(7 * count)).unwrap();
    format!(r#"{{"first":{{"n":1}},"items":[{objects}],"text":"{}"}}"#, "x".repeat(rest))
}

fn plan(place: &Path, target: &Target) -> String {
    let get = |step_id: &str, path: &str| {
        json!({"step_id": step_id, "skill_id": "http_call", "skill_version": "1.2.0",
               "parameters": {"url": target.url(path), "timeout_ms": 30_000}})
    };
    let post = json!({"step_id": "post", "skill_id": "http_call", "skill_version": "1.2.0", "parameters": {
        "method": "POST", "target_dedupes": true, "url": target.url("/post"),
        "body": {"one": "{{fetch.body.first.n}}", "last": "{{fetch.body.items[9]}}"}}});
    let plan = json!({
        "plan_id": "worst", "agent_id": "hungry", "goal": "Take all memory",
        "steps": [get("fetch", "/fetch"), get("again", "/again"), post],
        "context": {"budget_cents": 100, "allowed_skills": ["http_call"]},
        "default_retry_policy": {"max_retries": 10, "backoff_base_ms": 100, "backoff_multiplier": 1,
            "jitter_enabled": false, "retryable_codes": ["ERR_HTTP_503", "ERR_HTTP_TIMEOUT"]},
    });
    let (authored, frozen) = (place.join("worst.json"), place.join("worst.plan"));
    std::fs::write(&authored, plan.to_string()).unwrap();
    macp(&["plan", "freeze", authored.to_str().unwrap(), "-o", frozen.to_str().unwrap()]).exits(0);
    frozen.to_str().unwrap().to_owned()
}

/// Waits until something holds; only a failing test waits to the end.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + support::PATIENCE;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A line of the server's status in /proc, in bytes.
fn resident(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn scrape(server: &Server) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a metric without labels.
fn metric(server: &Server, name: &str) -> u64 {
    let text = scrape(server);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("no {name} in {text}"))).unwrap();
    value.as_u64().unwrap()
}
