//! REPLAY-6 away from home: an export proves itself, and one changed byte is found.

mod common;

use std::path::Path;

use common::{decision, export, store_with, verify_file};
use macp_archive::{ExportFile, FileError, ImportError, Imported, Replay, Source, Unreadable, replay};
use macp_kernel::replay::Options;
use macp_kernel::{SignatureCheck, State};
use macp_ledger::contract::Around;
use macp_ledger::{Append, Failure, FailureKind, History, MemoryStore, Record, Store};

fn import(path: &Path, store: &dyn Store) -> Result<Imported, ImportError> {
    let checked = macp_archive::check_import(ExportFile::open(path).expect("an export"), &mut |_| {})?;
    macp_archive::import(checked, store)
}

#[test]
fn an_export_verifies_and_replays_offline() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    std::fs::write(&path, export(&store_with("s", 4), "s")).expect("written");
    let found = verify_file(&path).expect("readable");
    assert!(found.ok(), "{found:?}");
    assert_eq!((found.entries, found.sealed), (4, true));
    let mut steps = Vec::new();
    let mut source = Source::File(ExportFile::open(&path).expect("an export"));
    let options = Options { semantic: true, ..Options::default() };
    match replay(&mut source, options, &mut |step| steps.push(step.message_type.clone())) {
        Replay::Match(report) => {
            assert_eq!(report.state, State::Resolved);
            assert_eq!(report.resolution.as_deref(), Some(&br#"{"commitment_id":"c","action":"go"}"#[..]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(steps, ["SessionStart", "Proposal", "Vote", "Commitment"]);
}

#[test]
fn every_changed_byte_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    let good = export(&store_with("s", 4), "s");
    for at in 0..good.len() {
        for bit in [0x01, 0x20, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            std::fs::write(&path, &bad).expect("written");
            if let Ok(found) = verify_file(&path) {
                assert!(
                    !found.ok(),
                    "byte {at} ({:?} -> {:?}) changed unnoticed",
                    char::from(good[at]),
                    char::from(bad[at])
                );
            }
        }
    }
}

#[test]
fn a_missing_or_additional_line_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    let good = String::from_utf8(export(&store_with("s", 4), "s")).expect("text");
    let lines: Vec<&str> = good.lines().collect();
    for missing in 1..lines.len() {
        let kept: Vec<&str> =
            lines.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, line)| *line).collect();
        std::fs::write(&path, kept.join("\n")).expect("written");
        let bad = verify_file(&path).expect("readable").bad.expect("a bad entry");
        assert_eq!(bad.sequence, missing as u64, "{bad:?}");
    }
    std::fs::write(&path, format!("{good}{}\n", lines[4])).expect("written");
    assert_eq!(verify_file(&path).expect("readable").bad.expect("a bad entry").sequence, 5);
}

#[test]
fn import_takes_ended_sessions_once_and_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    std::fs::write(&path, export(&store_with("s", 4), "s")).expect("written");
    let store = MemoryStore::new();
    assert_eq!(import(&path, &store).expect("imported"), Imported::New { session_id: "s".into(), entries: 4 });
    assert_eq!(import(&path, &store).expect("the same"), Imported::AlreadyThere { session_id: "s".into() });
    let head = store.head("s").expect("readable").expect("there");
    assert!(!head.open);
    assert_eq!(export(&store, "s"), std::fs::read(&path).expect("readable"), "not the same bytes");

    let other = MemoryStore::new();
    let mut envelopes = decision("s");
    envelopes[1].message_id = "another".into();
    common::write(&other, "s", envelopes.into_iter().map(|it| common::command(it, SignatureCheck::Absent)).collect());
    assert!(matches!(import(&path, &other), Err(ImportError::Differs(id)) if id == "s"));
}

#[test]
fn import_refuses_open_sessions_and_forged_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    std::fs::write(&path, export(&store_with("s", 3), "s")).expect("written");
    let store = MemoryStore::new();
    assert!(matches!(import(&path, &store), Err(ImportError::Open(_))));

    // A good chain over a commitment without a vote: nobody changed a byte, and still it never happened.
    let forged = {
        use macp_wire::history::v1::{Terminal, entry::Input};
        let honest = store_with("s", 4);
        let records = honest.read("s", 0, 10, usize::MAX).expect("readable");
        let mut entries: Vec<_> =
            records.iter().map(|record| macp_ledger::record::open(&record.bytes).expect("an entry")).collect();
        entries.remove(2);
        let mut sealed: Vec<macp_ledger::Record> = Vec::new();
        for (at, mut entry) in entries.into_iter().enumerate() {
            entry.sequence = at as u64 + 1;
            entry.ordinal = entry.sequence;
            assert!(matches!(entry.input, Some(Input::Envelope(_))));
            let previous = sealed.last().map(|record| record.hash);
            if let (Some(Terminal { history_hash, .. }), Some(hash)) = (&mut entry.terminal, &previous) {
                *history_hash = hash.as_bytes().to_vec().into();
            }
            sealed.push(macp_ledger::record::seal(previous.as_ref(), &entry));
        }
        let store = MemoryStore::new();
        let index = macp_ledger::IndexUpdate { open: false, deadline_ms: 0, state: 2, summary: None };
        let append = macp_ledger::Append {
            session_id: "s".into(),
            expected_sequence: 0,
            expected_hash: None,
            records: sealed,
            index,
        };
        store.append(&[append]).remove(0).expect("stored");
        export(&store, "s")
    };
    std::fs::write(&path, forged).expect("written");
    assert!(verify_file(&path).expect("readable").ok(), "the chain is good");
    assert!(matches!(import(&path, &store), Err(ImportError::Replay(_))));
    assert!(store.head("s").expect("readable").is_none(), "a refused import left a trace");
}

/// The resolution is the mode's word, which the entries alone do not show: a false hash of it in a chain made anew is whole
/// to `verify`, and replay finds it.
#[test]
fn a_forged_resolution_is_for_replay_to_find() {
    let honest = store_with("s", 4);
    let records = honest.read("s", 0, 10, usize::MAX).expect("readable");
    let mut sealed: Vec<Record> = Vec::new();
    for record in &records {
        let mut entry = macp_ledger::record::open(&record.bytes).expect("an entry");
        if let Some(terminal) = &mut entry.terminal {
            terminal.resolution_sha256 = vec![0xfe; 32].into();
        }
        sealed.push(macp_ledger::record::seal(sealed.last().map(|record| &record.hash), &entry));
    }
    let store = MemoryStore::new();
    let index = macp_ledger::IndexUpdate { open: false, deadline_ms: 0, state: 2, summary: None };
    let append = Append { session_id: "s".into(), expected_sequence: 0, expected_hash: None, records: sealed, index };
    store.append(&[append]).remove(0).expect("stored");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    std::fs::write(&path, export(&store, "s")).expect("written");

    assert!(verify_file(&path).expect("readable").ok(), "the chain is good");
    let mut source = Source::File(ExportFile::open(&path).expect("an export"));
    match replay(&mut source, Options::default(), &mut |_| {}) {
        Replay::Diverged { divergence, .. } => {
            assert_eq!((divergence.sequence, divergence.field.as_str()), (4, "terminal"));
            let forged = format!("Resolved, resolution of SHA-256 {}", "fe".repeat(32));
            assert_eq!(divergence.expected, forged);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(import(&path, &MemoryStore::new()), Err(ImportError::Replay(_))));
}

#[test]
fn import_refuses_a_suspended_session() {
    const SESSION: &str = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e5f";
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    let (home, store) = (MemoryStore::new(), MemoryStore::new());
    let session = common::write(&home, SESSION, common::suspended(SESSION));
    assert_eq!(session.state(), State::Suspended);
    assert!(home.head(SESSION).expect("readable").expect("there").open, "time still acts on it");
    std::fs::write(&path, export(&home, SESSION)).expect("written");
    assert!(matches!(import(&path, &store), Err(ImportError::Open(id)) if id == SESSION));
    assert!(store.head(SESSION).expect("readable").is_none(), "a refused import left a trace");
}

#[test]
fn a_history_under_another_name_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    let text = String::from_utf8(export(&store_with("s", 4), "s")).expect("text");
    std::fs::write(&path, text.replacen(r#""session_id":"s""#, r#""session_id":"t""#, 1)).expect("written");
    assert_eq!(verify_file(&path).expect("readable").bad.expect("found").sequence, 1);
}

#[test]
fn a_damaged_header_is_told_from_a_file_of_another_kind() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    let good = export(&store_with("s", 4), "s");
    let header = good.iter().position(|byte| *byte == b'\n').expect("a line");
    let mut damaged = 0;
    for at in 0..header {
        let mut bad = good.clone();
        bad[at] ^= 0x01;
        std::fs::write(&path, &bad).expect("written");
        match ExportFile::open(&path) {
            Err(error @ FileError::Header { .. }) => {
                assert_eq!(error.bad_sequence(), Some(0));
                damaged += 1;
            }
            Err(error) => panic!("byte {at}: {error:?}"),
            Ok(_) => assert!(!verify_file(&path).expect("readable").ok(), "byte {at}"),
        }
    }
    assert!(damaged > 0);
    for other in [&b"hello\n"[..], b"", b"{}\n", &[b'x'; 100_000]] {
        std::fs::write(&path, other).expect("written");
        let error = ExportFile::open(&path).expect_err("no export");
        assert!(matches!(error, FileError::Format { .. }), "{error:?}");
        assert_eq!(error.bad_sequence(), None);
    }
}

/// A store whose device gives nothing back.
#[derive(Debug)]
struct Broken(MemoryStore);

impl Around for Broken {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn read(&self, _: &str, _: u64, _: usize, _: usize) -> Result<Vec<Record>, Failure> {
        Err(Failure::new(FailureKind::Io, "read"))
    }
}

#[test]
fn a_failing_read_is_no_refusal() {
    let store = Broken(store_with("s", 4));
    let history = History::open(&store, "s").expect("readable").expect("there");
    match replay(&mut Source::Store(history), Options::default(), &mut |_| {}) {
        Replay::Failed(Unreadable::Store(failure)) => assert_eq!(failure.kind(), FailureKind::Io),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_read_in_pages_of_bounded_size() {
    let store = MemoryStore::new();
    let mut envelopes = vec![decision("s").remove(0)];
    let text = "x".repeat(1_000_000);
    for number in 0..10 {
        let payload = format!(r#"{{"proposal_id":"p{number}","option":"o","padding":"{text}"}}"#);
        envelopes.push(common::envelope("s", "Proposal", &format!("p{number}"), "alice", payload.as_bytes()));
    }
    let commands = envelopes.into_iter().map(|it| common::command(it, SignatureCheck::Absent)).collect();
    common::write(&store, "s", commands);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s.jsonl");
    std::fs::write(&path, export(&store, "s")).expect("written");

    let mut source = Source::File(ExportFile::open(&path).expect("an export"));
    let mut pages = Vec::new();
    loop {
        let page = source.next_page().expect("whole");
        if page.is_empty() {
            break;
        }
        pages.push((page.len(), page.iter().map(|(record, _)| record.bytes.len()).sum::<usize>()));
    }
    assert_eq!(pages.iter().map(|(entries, _)| entries).sum::<usize>(), 11);
    assert!(pages.iter().all(|(_, bytes)| *bytes < 8 * 1024 * 1024), "{pages:?}");
}
