//! The real server, killed with SIGKILL while sessions are decided and plans post: then bits are flipped in the logs it
//! left behind, in the database of sessions and in that of runs.
//!
//! Every flip is reported by `verify` and `doctor` and refused by `serve`, or no acknowledged data is missing. The kill
//! alone is reported by none of them.
//!
//! `MACP_LOG_FLIPS` sets how many bits are flipped in every log, `MACP_CRASH_SEED` repeats the choices of an earlier run.
#![cfg(unix)]

#[path = "crash/choices.rs"]
mod choices;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/target.rs"]
mod target;

use std::path::{Path, PathBuf};

use choices::{Choices, number};
use serde_json::{Value, json};
use support::{Server, command, decide, macp, run};
use target::{Answer, Target};

const FLIPS_DEFAULT: u64 = 24;
/// One in so many flips is also shown to `doctor` and `serve`.
const SERVED_ONE_IN: u64 = 4;
/// A server that is idle empties its log: it is killed again until both logs hold something.
const KILLS_MAX: u64 = 20;
const STEPS: u64 = 40;
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24 + 4_096;

/// Where the two databases are in a data directory.
const DATABASES: [&str; 2] = [".", "plans"];

#[test]
fn a_flip_in_the_log_of_a_killed_server_is_found() {
    let flips = number("MACP_LOG_FLIPS", || FLIPS_DEFAULT);
    let seed = number("MACP_CRASH_SEED", || uuid::Uuid::new_v4().as_u64_pair().0);
    println!("MACP_CRASH_SEED={seed} MACP_LOG_FLIPS={flips}");
    let mut choices = Choices(seed);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    killed(place.path(), &data);
    let whole = stored(&data);
    for database in DATABASES {
        let log = log_path(&data, database);
        let bytes = std::fs::read(&log).unwrap();
        let frames = commits(&bytes);
        let (mut reported, mut harmless) = (0, 0);
        for _ in 0..flips {
            let at = flip_at(&mut choices, frames.len());
            let bit = choices.below(8);
            let copy = copy(&data);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            std::fs::write(log_path(copy.path(), database), flipped).unwrap();
            let directory = copy.path().to_str().unwrap();
            let found = macp(&["--json", "verify", "--all", "--data", directory]);
            if found.code == Some(0) {
                // A commit may have been synced and not acknowledged when the server was killed: the last one.
                let begin_of_last = frames
                    .iter()
                    .rposition(|is_commit| *is_commit)
                    .and_then(|last| frames[..last].iter().rposition(|is_commit| *is_commit).map(|before| before + 1));
                let is_last = at >= HEADER_BYTES + begin_of_last.unwrap_or(0) * FRAME_BYTES;
                assert!(is_last || stored(copy.path()) == whole, "{database}: byte {at}, bit {bit}: silently lost");
                harmless += 1;
                continue;
            }
            reported += 1;
            let all = found.exits(1).value();
            assert_eq!(all["ok"], false);
            let text = all["missing"][0].as_str().unwrap().to_owned();
            assert!(text.contains("write-ahead log") && text.contains("is damaged"), "{all}");
            if choices.one_in(SERVED_ONE_IN) {
                refused(copy.path(), database, &text);
            }
        }
        println!("{database}: {} frames, {reported} flips reported, {harmless} harmless", frames.len());
        assert!(reported > harmless, "{database}");
    }
    accepts(&data, &mut choices);

    // What was not damaged is served as it is.
    let server = serve(&data);
    server.macp(&["session", "list"]).exits(0);
    assert!(server.terminate().success());
    macp(&["verify", "--all", "--data", data.to_str().unwrap()]).exits(0);
}

fn serve(data: &Path) -> Server {
    Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--egress-allow-http"])
            .args(["--egress-allow-private-hosts", "127.0.0.1", "--data"])
            .arg(data),
    )
}

/// Kills servers in the middle of their work until both logs hold several commits. None of it is taken for damage.
fn killed(place: &Path, data: &Path) {
    let target = Target::start(|_, _| Answer::ok("{}"));
    for round in 0..KILLS_MAX {
        let server = serve(data);
        let before = target.requests().len();
        let plan = plan(place, &format!("p{round}"), &target);
        decide(&server, &format!("s{round}-a"), true);
        decide(&server, &format!("s{round}-b"), false);
        server.macp(&["run", "start", &plan, "--detach"]).exits(0);
        target.wait_for(before + 5);
        server.kill();
        macp(&["verify", "--all", "--data", data.to_str().unwrap()]).exits(0);
        macp(&["doctor", "--data", data.to_str().unwrap()]).exits(0);
        let held = |database| {
            let log = std::fs::read(log_path(data, database)).unwrap_or_default();
            commits(&log).iter().filter(|is_commit| **is_commit).count()
        };
        if DATABASES.iter().all(|database| held(database) >= 5) {
            return;
        }
    }
    panic!("the logs were empty after every kill");
}

/// `doctor` reports it, `serve` refuses it, and neither changes the damaged database.
fn refused(data: &Path, database: &str, text: &str) {
    let directory = data.to_str().unwrap();
    let before = files(&data.join(database));
    let found = macp(&["--json", "doctor", "--data", directory]).exits(1).value();
    assert_eq!(found["missing"][0], text, "{found}");
    let refused = run(command().args(["serve", "--listen", "127.0.0.1:0", "--data", directory])).exits(2);
    assert!(refused.stderr.contains(text), "{refused:?}");
    assert!(files(&data.join(database)) == before, "{database} was changed");
}

/// With the loss accepted a server starts.
fn accepts(data: &Path, choices: &mut Choices) {
    let copy = copy(data);
    let directory = copy.path().to_str().unwrap();
    for database in DATABASES {
        let log = log_path(copy.path(), database);
        let mut bytes = std::fs::read(&log).unwrap();
        let frame = commits(&bytes).len() as u64 / 2;
        bytes[HEADER_BYTES + frame as usize * FRAME_BYTES + choices.below(4_096) as usize] ^= 1;
        std::fs::write(&log, bytes).unwrap();
    }
    let warning = macp(&["session", "list", "--data", directory]).exits(0).stderr;
    assert!(warning.starts_with("warning: write-ahead log"), "{warning}");
    let busy = serve(data);
    macp(&["accept-loss", "--data", data.to_str().unwrap()]).exits(2);
    busy.kill();
    let accepted = macp(&["--json", "accept-loss", "--data", directory]).exits(0).value();
    let names: Vec<_> = accepted["accepted"].as_array().unwrap().iter().map(|loss| &loss["of"]).collect();
    assert_eq!(names, ["sessions", "runs"], "{accepted}");
    let again = macp(&["accept-loss", "--data", directory]).exits(0).stdout;
    assert!(again.starts_with("nothing is missing"), "{again}");
    macp(&["verify", "--all", "--data", directory]).exits(0);
    let server = serve(copy.path());
    server.macp(&["session", "list"]).exits(0);
    assert!(server.terminate().success());
}

/// A place in a log of so many frames: in its header, in one of a frame, or in a page.
fn flip_at(choices: &mut Choices, frames: usize) -> usize {
    let frame = HEADER_BYTES + choices.below(frames as u64) as usize * FRAME_BYTES;
    match choices.below(5) {
        0 => choices.below(HEADER_BYTES as u64) as usize,
        1 | 2 => frame + choices.below(24) as usize,
        _ => frame + 24 + choices.below(4_096) as usize,
    }
}

/// For every frame with the salts of the header, whether it ends a commit.
fn commits(log: &[u8]) -> Vec<bool> {
    let salts = log.get(16..24).unwrap_or_default();
    let frames = log.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(FRAME_BYTES);
    frames.take_while(|frame| &frame[8..16] == salts).map(|frame| frame[4..8] != [0; 4]).collect()
}

/// How much is stored, in both databases.
fn stored(data: &Path) -> Vec<Value> {
    let data = data.to_str().unwrap();
    let runs = macp(&["--json", "run", "list", "--data", data]).exits(0).values();
    let logs = runs.iter().map(|run| {
        let log = macp(&["--json", "run", "log", run["run_id"].as_str().unwrap(), "--data", data]).exits(0);
        json!(log.values().len())
    });
    let sessions = macp(&["--json", "session", "list", "--data", data]).exits(0).values();
    let entries = macp(&["--json", "verify", "--all", "--data", data]).exits(0).values();
    logs.chain(sessions).chain(entries).collect()
}

fn files(directory: &Path) -> Vec<Vec<u8>> {
    let names = ["macp.db", "macp.db-wal", "macp.position"];
    names.map(|name| std::fs::read(directory.join(name)).unwrap_or_default()).into()
}

fn log_path(data: &Path, database: &str) -> PathBuf {
    data.join(database).join("macp.db-wal")
}

fn copy(data: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("plans")).unwrap();
    for database in DATABASES {
        for name in ["macp.db", "macp.db-wal", "macp.position"] {
            std::fs::copy(data.join(database).join(name), copy.path().join(database).join(name)).unwrap();
        }
    }
    copy
}

/// A plan of many posts, so that its run is under way for a while.
fn plan(place: &Path, name: &str, target: &Target) -> String {
    let steps: Vec<Value> = (0..STEPS)
        .map(|step| {
            let url = target.url(&format!("/{name}/{step}"));
            json!({"step_id": format!("s{step}"), "skill_id": "http_call", "skill_version": "1.2.0",
                   "parameters": {"method": "POST", "url": url, "body": {"n": step}, "target_dedupes": true}})
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
