//! REPLAY-2 on files: recorded verdicts come out again, files are bounded, gaps are told.

mod common;

use std::path::Path;

use common::{AT, command, decision, envelope};
use macp_archive::{TraceWriter, is_trace, replay_trace};
use macp_kernel::trace::{Event, TracedVerdict};
use macp_kernel::{Command, Limits, Session, SignatureCheck, step};

/// Accepted, refused and repeated messages of one session, with their verdicts.
fn events(session: &str) -> Vec<Event> {
    let limits = Limits::default();
    let mut envelopes = decision(session);
    envelopes.insert(1, envelope(session, "Vote", "early", "bob", b"{}"));
    envelopes.insert(3, envelope(session, "Proposal", "m2", "alice", b"a repetition"));
    envelopes.insert(4, envelope(session, "Proposal", "torn", "alice", b"{"));
    envelopes.push(envelope(session, "Vote", "late", "bob", b"{}"));
    let mut slot: Option<Session> = None;
    envelopes
        .into_iter()
        .map(|envelope| {
            let command: Command = command(envelope, SignatureCheck::Absent);
            let after = slot.as_ref().map_or(0, Session::sequence);
            let settled = step(&mut slot, &command, AT, &limits).settled;
            Event::new(AT, session, after, &command, &limits, (&settled).into())
        })
        .collect()
}

fn write(path: &Path, events: impl IntoIterator<Item = Event>) {
    let writer = TraceWriter::create(path, 1 << 20, 3).expect("a file");
    events.into_iter().for_each(|event| writer.record(event));
    writer.finish();
    assert_eq!(writer.dropped(), 0);
}

#[test]
fn the_same_verdicts_come_out_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s").into_iter().chain(events("t")));
    assert!(is_trace(&path).expect("readable"));
    let report = replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!((report.events, report.same, report.different), (16, 16, 0));
}

#[test]
fn a_changed_verdict_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let mut events = events("s");
    events[4].verdict = TracedVerdict::Accepted;
    write(&path, events);
    let mut lines = Vec::new();
    let report = replay_trace(&path, &mut |difference| lines.push(difference.line)).expect("a trace");
    assert_eq!(report.different, 1);
    assert_eq!(lines, [6], "the header is line 1");
}

#[test]
fn a_session_that_began_before_the_trace_is_not_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s").into_iter().skip(2));
    let report = replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!(report.incomplete, report.events);
}

#[test]
fn operational_refusals_are_not_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let mut events = events("s");
    events[1].verdict = TracedVerdict::Rejected { code: "RATE_LIMITED".into(), operational: true };
    write(&path, events);
    let report = replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!(report.operational, 1);
}

#[test]
fn a_flood_cannot_fill_the_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let writer = TraceWriter::create(&path, 10_000, 3).expect("a file");
    for round in 0..50 {
        events(&format!("s{round}")).into_iter().for_each(|event| writer.record(event));
    }
    writer.finish();
    let sizes: Vec<u64> = std::fs::read_dir(directory.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").metadata().expect("readable").len())
        .collect();
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 10_000), "{sizes:?}");
}

#[test]
fn other_files_are_no_traces() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("no-trace");
    std::fs::write(&path, "hello\n").expect("written");
    assert!(!is_trace(&path).expect("readable"));
    assert!(replay_trace(&path, &mut |_| {}).is_err());
}
