//! Runs under way while the server is killed with SIGKILL, again and again (AOS-80, AOS-81).
//!
//! After each kill the journals are read from the dead server's directory: no effect that is finished there is ever
//! sent again, which the target counts by Idempotency-Key. At the end every run has succeeded, every effect was sent,
//! and every journal replays.
//!
//! `MACP_CRASH_ROUNDS` sets how often the server is killed, `MACP_CRASH_SEED` repeats the choices of an earlier run.

#[path = "crash/choices.rs"]
mod choices;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/target.rs"]
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use choices::{Choices, number};
use serde_json::{Value, json};
use support::{Server, command, macp};
use target::{Answer, Target};

const ROUNDS_DEFAULT: u64 = 5;
const RUNS_PER_ROUND: u64 = 4;
const STEPS: u64 = 12;
/// The server is killed after this many requests of a round, give or take: fewer than its runs make, so that it dies
/// in the middle.
const REQUESTS_MIN: u64 = 4;
const REQUESTS_SPREAD: u64 = 24;

fn serve(data: &Path) -> Server {
    Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--egress-allow-http"])
            .args(["--egress-allow-private-hosts", "127.0.0.1", "--data"])
            .arg(data),
    )
}

#[test]
fn aos_80_no_finished_effect_is_repeated_and_none_is_lost() {
    let rounds = number("MACP_CRASH_ROUNDS", || ROUNDS_DEFAULT);
    let seed = number("MACP_CRASH_SEED", || uuid::Uuid::new_v4().as_u64_pair().0);
    println!("MACP_CRASH_SEED={seed} MACP_CRASH_ROUNDS={rounds}");
    let mut choices = Choices(seed);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    // One in a few attempts is told to come again, so that retries are under way too.
    let target = Target::start(|_, before| match before % 5 {
        3 => Answer::status(503),
        _ => Answer::ok("{}"),
    });
    let mut runs = BTreeSet::new();
    let mut frozen_counts = BTreeMap::new();
    let mut server = serve(&data);
    for round in 0..rounds {
        let wanted = target.requests().len() + (REQUESTS_MIN + choices.below(REQUESTS_SPREAD)) as usize;
        for one in 0..RUNS_PER_ROUND {
            let plan = plan(place.path(), &format!("r{round}-{one}"), &target);
            let started = server.macp(&["--json", "run", "start", &plan, "--detach"]).exits(0).value();
            runs.insert(started["run_id"].as_str().unwrap().to_owned());
        }
        target.wait_for(wanted);
        // Most often without a chance to tidy up; a server that is told to stop leaves its runs to the next one too.
        if choices.one_in(4) {
            assert!(server.terminate().success());
        } else {
            server.kill();
        }
        let finished = finished(&data, &runs);
        let seen = target.keys();
        for (key, times) in &frozen_counts {
            assert_eq!(seen.get(key), Some(times), "round {round}: the finished effect {key} was sent again");
        }
        frozen_counts = finished.iter().map(|key| (key.clone(), seen.get(key).copied().unwrap_or_default())).collect();
        assert!(frozen_counts.values().all(|times| *times > 0), "finished, and never sent");
        println!("round {round}: {} effects finished, {} keys seen", finished.len(), seen.len());
        server = serve(&data);
    }
    for run in &runs {
        server.macp(&["--json", "run", "watch", run]).exits(0);
    }
    let seen = target.keys();
    for (key, times) in &frozen_counts {
        assert_eq!(seen.get(key), Some(times), "the finished effect {key} was sent again");
    }
    assert_eq!(seen.len() as u64, rounds * RUNS_PER_ROUND * STEPS, "every effect was sent, under one key each");
    server.kill();
    let data = data.to_str().unwrap();
    for run in &runs {
        macp(&["run", "verify", run, "--data", data]).exits(0);
        let report = macp(&["--json", "run", "replay", run, "--data", data]).exits(0).value();
        assert_eq!(report["verdict"], "match", "{report:#}");
    }
}

fn plan(place: &Path, name: &str, target: &Target) -> String {
    let policy = json!({"max_retries": 5, "backoff_base_ms": 1, "backoff_multiplier": 1, "jitter_enabled": false,
                        "retryable_codes": ["ERR_HTTP_503"]});
    let steps: Vec<Value> = (0..STEPS)
        .map(|step| {
            let url = target.url(&format!("/{name}/{step}"));
            json!({"step_id": format!("s{step}"), "skill_id": "http_call", "skill_version": "1.2.0",
                   "parameters": {"method": "POST", "url": url, "body": {"n": step}, "target_dedupes": true},
                   "retry_policy": policy})
        })
        .collect();
    let plan = json!({
        "plan_id": name, "agent_id": "poster", "goal": "Post", "steps": steps,
        "context": {"budget_cents": 5, "allowed_skills": ["http_call"]},
    });
    let (authored, frozen) = (place.join(format!("{name}.json")), place.join(format!("{name}.plan")));
    std::fs::write(&authored, plan.to_string()).unwrap();
    macp(&["plan", "freeze", authored.to_str().unwrap(), "-o", frozen.to_str().unwrap()]).exits(0);
    frozen.to_str().unwrap().to_owned()
}

/// The keys of all effects whose steps are finished, as the dead server's directory tells them.
fn finished(data: &Path, runs: &BTreeSet<String>) -> BTreeSet<String> {
    let data = data.to_str().unwrap();
    let mut finished = BTreeSet::new();
    for run in runs {
        let log = macp(&["--json", "run", "log", run, "--data", data]).exits(0).values();
        let steps: BTreeSet<&str> = log
            .iter()
            .filter(|entry| entry["type"] == "step_finished")
            .map(|entry| entry["step_id"].as_str().unwrap())
            .collect();
        let intents = log.iter().filter(|entry| entry["type"] == "effect_intent");
        let done = intents.filter(|entry| steps.contains(entry["step_id"].as_str().unwrap()));
        finished.extend(done.map(|entry| entry["effect_key"].as_str().unwrap().to_owned()));
    }
    finished
}
