//! A disk without room: nothing is acknowledged that is not kept, and the server stays.
#![cfg(unix)]

use std::process::Command;

use serde_json::json;

use crate::support::{Server, command, macp, send};

/// Blocks of 512 or 1,024 bytes, by the shell's taste, that a file of the server may have.
const FILE_BLOCKS: u32 = 1_024;

/// Enough to fill such a file several times.
const MESSAGES_MAX: usize = 200;

/// A server whose files may not grow beyond a limit: a write fails as it does on a full disk.
fn on_a_small_disk(arguments: &[&str]) -> Server {
    let script = format!("ulimit -f {FILE_BLOCKS}; exec \"$0\" \"$@\"");
    let program = command();
    let mut shell = Command::new("sh");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Server::with(shell.arg("-c").arg(script).arg(program.get_program()).args(arguments))
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let trace = place.path().join("trace.jsonl");
    let (data, trace) = (data.to_str().unwrap(), trace.to_str().unwrap());
    let mut server = on_a_small_disk(&["serve", "--listen", "127.0.0.1:0", "--data", data, "--audit", trace]);
    server.macp(&["session", "start", "s1", "--sender", "alice", "--ttl", "1h"]).exits(0);

    let text = "x".repeat(60_000);
    let mut acknowledged = Vec::new();
    let propose = |server: &Server, number: usize| {
        let payload = format!(r#"{{"proposal_id":"p{number}","option":"{text}"}}"#);
        send(server, "s1", &format!("m{number}"), "alice", "Proposal", &payload)
    };
    let refused = (0..MESSAGES_MAX)
        .find_map(|number| {
            let run = propose(&server, number);
            if run.code == Some(0) {
                acknowledged.push(format!("m{number}"));
                return None;
            }
            Some((number, run.exits(1).value()))
        })
        .expect("the disk fills up");
    let (number, answer) = refused;
    assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!("INTERNAL_ERROR")), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("disk"), "{message}");
    assert!(!acknowledged.is_empty(), "there was room for something");

    // Reads go on, beside further refusals.
    let kept = |run: crate::support::Run| -> Vec<String> {
        let log = run.exits(0).values();
        log.iter().skip(1).map(|entry| entry["message_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kept(server.macp(&["--json", "session", "log", "s1"])), acknowledged);
    propose(&server, number).exits(1);
    server.macp(&["verify", "s1"]).exits(0);
    server.macp(&["replay", "s1", "--quiet"]).exits(0);
    assert!(server.is_alive());
    let trouble = server.wait_for("trace cannot be written");
    assert_eq!(trouble["path"], trace, "{trouble}");
    server.kill();

    // With room again everything acknowledged is there, and what was refused can be sent again.
    let server = Server::on(data.as_ref());
    assert_eq!(kept(server.macp(&["--json", "session", "log", "s1"])), acknowledged);
    let again = propose(&server, number).exits(0).value();
    assert_eq!(again["duplicate"], false);
    server.macp(&["verify", "s1"]).exits(0);
    server.macp(&["replay", "s1", "--quiet"]).exits(0);

    // The trace ran into the same limit and holds whole lines only.
    let report = macp(&["--json", "replay", trace]).exits(0).value();
    assert_eq!(report["report"]["trace"]["torn"], 0, "{report}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_cannot_be_written_holds_up_nothing() {
    let place = tempfile::tempdir().unwrap();
    let ready = place.path().join("ready");
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--log", "debug", "--ready-file"]).arg(&ready);
    serve.arg("--data").arg(place.path().join("data"));
    serve.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let mut server = serve.spawn().unwrap();
    let address = (0..600).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        std::fs::read_to_string(&ready).ok().filter(|address| !address.is_empty())
    });
    let accepted = address.as_ref().map(|address| {
        let uri = format!("http://{}", address.trim());
        let start = ["session", "start", "s1", "--sender", "alice", "--ttl", "1h", "--server"];
        macp(&[&start[..], &[&uri]].concat()).code
    });
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(accepted, Some(Some(0)), "{address:?}");
}
