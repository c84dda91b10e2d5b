//! One changed byte is found, and named.

use serde_json::json;

use crate::support::{Server, decide, macp};

fn export() -> (tempfile::TempDir, String, Vec<u8>) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    decide(&server, "s1", true);
    let file = data.path().join("s1.jsonl").to_str().unwrap().to_owned();
    server.macp(&["export", "s1", "--out", &file]).exits(0);
    let bytes = std::fs::read(&file).unwrap();
    (data, file, bytes)
}

#[test]
fn replay_6_a_flipped_byte_of_an_entry_is_found_and_named() {
    let (_data, file, bytes) = export();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut at = lines[0].len();
    for (sequence, line) in (1_u64..).zip(&lines[1..]) {
        let record = line.windows(10).position(|window| window == b"\"record\":\"").unwrap() + 10;
        let mut changed = bytes.clone();
        let place = at + record + (line.len() - record) / 2;
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        std::fs::write(&file, &changed).unwrap();

        let found = macp(&["--json", "verify", &file]).exits(1).value();
        assert_eq!((&found["ok"], &found["bad_sequence"]), (&json!(false), &json!(sequence)), "{found}");
        let human = macp(&["verify", &file]).exits(1).stdout;
        assert!(human.starts_with("BAD ") && human.contains(&format!("at entry {sequence}")), "{human}");
        let replayed = macp(&["--json", "replay", &file]).exits(1).values().pop().unwrap();
        assert_eq!(replayed["report"]["verdict"], "refused");
        at += line.len();
    }
}

/// Whatever byte it is, also in the header and between the values.
#[test]
fn no_byte_of_an_export_can_change_unnoticed() {
    let (_data, file, bytes) = export();
    // A step that is coprime to most structures visits every kind of place without running for minutes.
    for place in (0..bytes.len()).step_by(37) {
        let mut changed = bytes.clone();
        changed[place] ^= 0x01;
        std::fs::write(&file, &changed).unwrap();
        let found = macp(&["verify", &file]);
        assert_eq!(found.code, Some(1), "byte {place}: {found:?}");
    }
    // And a cut tail, at a line and within one.
    let last_line = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in [last_line, bytes.len() - 20] {
        std::fs::write(&file, &bytes[..end]).unwrap();
        macp(&["verify", &file]).exits(1);
    }
    let typo = macp(&["verify", "/nowhere/s1.jsonl", "--server", "127.0.0.1:1"]).exits(2).stderr;
    assert!(typo.contains(r#"there is no file "/nowhere/s1.jsonl""#) && typo.contains("cannot connect"), "{typo}");
    macp(&["verify", "--file", "/nowhere/s1.jsonl"]).exits(2);
}

#[test]
fn damage_is_a_finding_and_another_file_a_failure() {
    let (data, file, bytes) = export();
    let target = data.path().join("target").to_str().unwrap().to_owned();
    let commands: [&[&str]; 3] = [&["verify", &file], &["replay", &file], &["import", &file, "--data", &target]];
    let everywhere = |code: i32| {
        for args in commands {
            macp(args).exits(code);
        }
    };
    for other in ["hello\n", "", "{}\n"] {
        std::fs::write(&file, other).unwrap();
        everywhere(2);
    }
    assert!(!std::path::Path::new(&target).exists(), "a refused file leaves no directory");
    std::fs::write(&file, String::from_utf8(bytes.clone()).unwrap().replacen("macp-export/1", "macp-export/0", 1))
        .unwrap();
    everywhere(1);
    let human = macp(&["verify", &file]).exits(1).stdout;
    assert!(human.starts_with(&format!("BAD {file} at the history as a whole: ")), "{human}");
    std::fs::write(&file, &bytes[..bytes.len() - 20]).unwrap();
    everywhere(1);
    std::fs::remove_file(&file).unwrap();
    for args in [["verify", "--file", &file].as_slice(), &["replay", "--file", &file], commands[2]] {
        macp(args).exits(2);
    }
}

/// One byte of a stored record is changed behind the back of the program.
#[test]
fn a_damaged_history_is_not_exported() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_str().unwrap();
    let server = Server::on(data.path());
    decide(&server, "s1", true);
    assert!(server.terminate().success());
    damage(data.path());

    let file = data.path().join("s1.jsonl");
    let out = file.to_str().unwrap();
    let verified = macp(&["--json", "verify", "s1", "--data", directory]).exits(1).value();
    let found = macp(&["--json", "export", "s1", "--data", directory, "--out", out]).exits(1).value();
    assert_eq!((&found["ok"], &found["bad_sequence"]), (&json!(false), &verified["bad_sequence"]), "{found}");
    let told = macp(&["export", "s1", "--data", directory]).exits(1).stderr;
    assert!(told.starts_with("not exported, the history is damaged at entry 2: "), "{told}");

    for verb in ["log", "show"] {
        let told = macp(&["session", verb, "s1", "--data", directory]).exits(1).stderr;
        assert!(told.starts_with("the history is damaged at entry 2: "), "{verb}: {told}");
    }

    let server = Server::on(data.path());
    for verb in ["log", "show"] {
        let told = server.macp(&["session", verb, "s1"]).exits(1).stderr;
        assert!(told.starts_with("the history is damaged at entry 2: "), "{verb}: {told}");
        let found = server.macp(&["--json", "session", verb, "s1"]).exits(1).stderr;
        assert!(found.contains(r#""bad_sequence":2"#), "{verb}: {found}");
        server.macp(&["session", verb, "nowhere"]).exits(2);
    }
    let remote = server.macp(&["--json", "export", "s1", "--out", out]).exits(1).value();
    assert_eq!(remote, found);
    assert!(!file.exists());
}

/// Finds the proposal in the file of the database and changes a letter of it.
fn damage(directory: &std::path::Path) {
    let mut changed = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        let words = br#""option":"Deploy""#;
        while let Some(at) = bytes.windows(words.len()).position(|window| window == words) {
            bytes[at + 10] = b'X';
            changed += 1;
            std::fs::write(&path, &bytes).unwrap();
        }
    }
    assert_eq!(changed, 1, "the record is in the database once");
}
