//! A data directory that somebody wrote into by hand: what was changed is found and named, and nothing else suffers.

use std::process::Stdio;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::{Run, Server, command, decide, macp};

/// Runs a command whose output nobody reads any more.
fn unread(args: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command().args(args).stdout(writer).stderr(Stdio::null()).status().unwrap().code()
}

struct Directory {
    data: tempfile::TempDir,
}

impl Directory {
    /// Sessions a to c have ended, d is open.
    fn new() -> Directory {
        let data = tempfile::tempdir().unwrap();
        let server = Server::on(data.path());
        for session in ["a", "b", "c"] {
            decide(&server, session, true);
        }
        decide(&server, "d", false);
        assert!(server.terminate().success());
        Directory { data }
    }

    fn change(&self, sql: &str) {
        let database = Connection::open(self.data.path().join("macp.db")).unwrap();
        assert_eq!(database.execute(sql, []).unwrap(), 1, "{sql}");
    }

    fn macp(&self, args: &[&str]) -> Run {
        macp(&[args, &["--data", self.data.path().to_str().unwrap()]].concat())
    }

    /// What `verify --all` says of the bad ones, after all were looked at.
    fn bad(&self) -> Vec<Value> {
        let mut found = self.macp(&["--json", "verify", "--all"]).exits(1).values();
        let all = found.pop().unwrap();
        assert_eq!((&all["sessions"], &all["bad"]), (&json!(4), &json!(found.len())), "{all}");
        found
    }
}

#[test]
fn a_hash_of_the_wrong_size_is_named_and_the_others_are_checked() {
    let directory = Directory::new();
    directory.change(
        "UPDATE entries SET hash = x'00' WHERE sequence = 2 AND session = (SELECT key FROM sessions WHERE id = 'b')",
    );
    directory.change("UPDATE sessions SET hash = x'00' WHERE id = 'c'");
    let found = directory.bad();
    let named: Vec<_> = found.iter().map(|bad| (&bad["session_id"], &bad["bad_sequence"])).collect();
    assert_eq!(named, [(&json!("b"), &json!(2)), (&json!("c"), &json!(4))], "{found:?}");
    for bad in &found {
        assert!(bad["message"].as_str().unwrap().contains("something that is no hash"), "{bad}");
    }
    let listed = directory.macp(&["--json", "session", "list"]).exits(0).values();
    assert_eq!(listed.len(), 4, "{listed:?}");
}

/// The chain does not cover the index, but listings and deadlines come from it.
#[test]
fn a_row_that_says_something_else_than_the_history_is_found() {
    let directory = Directory::new();
    for (sql, undo, session, message) in [
        (
            "UPDATE sessions SET state = 3 WHERE id = 'a'",
            "UPDATE sessions SET state = 2 WHERE id = 'a'",
            "a",
            "says the session is EXPIRED, its history RESOLVED",
        ),
        (
            "UPDATE sessions SET open = 1 WHERE id = 'b'",
            "UPDATE sessions SET open = 0 WHERE id = 'b'",
            "b",
            "says the session has not ended, its history RESOLVED",
        ),
        (
            "UPDATE sessions SET deadline_ms = deadline_ms + 1 WHERE id = 'd'",
            "UPDATE sessions SET deadline_ms = deadline_ms - 1 WHERE id = 'd'",
            "d",
            "after its deadline",
        ),
        (
            "UPDATE summaries SET summary = CAST(replace(summary, 'bob', 'eve') AS BLOB)
             WHERE session = (SELECT key FROM sessions WHERE id = 'c')",
            "UPDATE summaries SET summary = CAST(replace(summary, 'eve', 'bob') AS BLOB)
             WHERE session = (SELECT key FROM sessions WHERE id = 'c')",
            "c",
            "another list of participants",
        ),
    ] {
        directory.change(sql);
        let found = directory.bad();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["session_id"], session, "{found:?}");
        assert!(found[0]["message"].as_str().unwrap().contains(message), "{found:?}");
        directory.change(undo);
        directory.macp(&["verify", "--all"]).exits(0);
    }
}

/// Whoever removes a row of the index hides a session from every listing. Its entries are still there.
#[test]
fn a_history_without_its_row_is_found() {
    let directory = Directory::new();
    for session in ["b", "d"] {
        directory.change(&format!("DELETE FROM sessions WHERE id = '{session}'"));
    }
    let mut found = directory.macp(&["--json", "verify", "--all"]).exits(1).values();
    let all = found.pop().unwrap();
    assert_eq!((&all["sessions"], &all["bad"]), (&json!(2), &json!(2)), "{all}");
    let named: Vec<_> = found.iter().map(|bad| (&bad["session_id"], &bad["entries"])).collect();
    assert_eq!(named, [(&json!("b"), &json!(4)), (&json!("d"), &json!(3))], "{found:?}");
    let told = directory.macp(&["verify", "--all"]).exits(1).stdout;
    let line = "BAD b at the history as a whole: 4 entries are stored, but the session index has no row with key 2";
    assert!(told.contains(line), "{told}");

    // Even without the entry that names the session.
    directory
        .change("DELETE FROM entries WHERE sequence = 1 AND session NOT IN (SELECT key FROM sessions) AND session < 4");
    let told = directory.macp(&["verify", "--all"]).exits(1).stdout;
    assert!(
        told.contains("BAD without a name") && told.contains("3 entries are stored") && told.contains("row with key 2"),
        "{told}"
    );
}

#[test]
fn what_was_found_does_not_depend_on_who_reads_it() {
    let directory = Directory::new();
    let data = directory.data.path().to_str().unwrap();
    let commands: [&[&str]; 3] = [
        &["verify", "b", "--data", data],
        &["--json", "verify", "b", "--data", data],
        &["verify", "--all", "--data", data],
    ];
    for args in commands {
        assert_eq!(unread(args), Some(0), "{args:?}");
    }
    directory.change("UPDATE sessions SET state = 3 WHERE id = 'b'");
    for args in commands {
        assert_eq!(unread(args), Some(1), "{args:?}");
    }
}
