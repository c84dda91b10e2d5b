//! REPLAY-2 on files: recorded verdicts come out again, files are bounded, gaps are told.

mod common;

use std::path::Path;

use common::{AT, command, decision, envelope};
use macp_archive::{TraceError, TraceFound, TraceVerdict, TraceWriter, is_trace, replay_trace, replay_trace_with};
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
    let report = replay_trace(&path, &mut |finding| lines.push(finding.place.line)).expect("a trace");
    assert_eq!(report.different, 1);
    assert_eq!(lines, [7], "the header is line 1, the start of the server line 2");
}

#[test]
fn a_session_that_began_before_the_trace_is_not_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s").into_iter().skip(2));
    let report = replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!(report.earlier, report.events);
    assert_eq!(report.verdict(), TraceVerdict::NothingCompared);
}

/// Without line `number`, counted from 1.
fn cut(path: &Path, number: usize) {
    let text = std::fs::read_to_string(path).expect("text");
    let kept = text.split_inclusive('\n').enumerate().filter(|(at, _)| at + 1 != number).map(|(_, line)| line);
    std::fs::write(path, kept.collect::<String>()).expect("written");
}

#[test]
fn a_line_that_was_taken_out_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s").into_iter().chain(events("t")));
    let text = std::fs::read_to_string(&path).expect("text");
    let proposal = 1 + text
        .lines()
        .position(|line| line.contains(r#""after_sequence":1"#) && line.contains("accepted"))
        .expect("one");
    cut(&path, proposal);
    let mut found = Vec::new();
    let report = replay_trace(&path, &mut |finding| found.push(finding.clone())).expect("a trace");
    let [gap] = &found[..] else { panic!("{found:?}") };
    assert_eq!((gap.place.line, gap.session_id.as_str(), gap.after_sequence), (proposal as u64, "s", 2));
    assert!(matches!(gap.what, TraceFound::Gap(gap) if gap.sequence == 1 && gap.ordinal == 1 && !gap.told), "{gap}");
    assert_eq!((report.gaps, report.gaps_told, report.earlier), (1, 0, 0), "{report:?}");
    assert_eq!(report.same + report.behind, report.events);
    assert_eq!(report.verdict(), TraceVerdict::Incomplete);
}

#[test]
fn a_gap_that_the_trace_tells_of_is_no_finding_against_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let mut recorded = events("s");
    write(&path, recorded.drain(..1));
    let mut text = std::fs::read_to_string(&path).expect("text");
    text.push_str("{\"lost\":{\"lost\":2}}\n");
    let rest = directory.path().join("rest");
    // The early vote, and the proposal that became history.
    write(&rest, recorded.drain(2..));
    text.extend(std::fs::read_to_string(&rest).expect("text").lines().skip(2).flat_map(|line| [line, "\n"]));
    std::fs::write(&path, text).expect("written");
    let mut found = Vec::new();
    let report = replay_trace(&path, &mut |finding| found.push(finding.to_string())).expect("a trace");
    assert_eq!((report.gaps, report.gaps_told, report.lost), (0, 1, 2), "{report:?}");
    assert!(matches!(&found[..], [told] if told.contains("as the trace says itself")), "{found:?}");
    assert_eq!(report.verdict(), TraceVerdict::Match);
}

#[test]
fn rotated_files_are_read_as_one_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    // Side by side, so that each goes through all files.
    let [a, b, c] = ["a", "b", "c"].map(events);
    let recorded: Vec<Event> = a.into_iter().zip(b).zip(c).flat_map(|((a, b), c)| [a, b, c]).collect();
    let whole = directory.path().join("whole");
    write(&whole, recorded.iter().cloned());
    let bytes = std::fs::metadata(&whole).expect("there").len();
    let writer = TraceWriter::create(&path, bytes / 2, 4).expect("a file");
    recorded.iter().cloned().for_each(|event| writer.record(event));
    writer.finish();
    let report = replay_trace(&path, &mut |finding| panic!("{finding}")).expect("a trace");
    assert_eq!((report.files, report.events, report.same), (3, 24, 24), "{report:?}");

    // The last line of a file in the middle was torn by a crash, as older versions left it.
    let middle = directory.path().join("trace.jsonl.1");
    let mut torn = std::fs::read(&middle).expect("bytes");
    torn.extend_from_slice(br#"{"event":{"at_ms":"#);
    std::fs::write(&middle, torn).expect("written");
    let report = replay_trace(&path, &mut |finding| panic!("{finding}")).expect("a trace");
    assert_eq!((report.events, report.same, report.torn), (24, 24, 1), "{report:?}");

    // A file from the middle is missed.
    std::fs::copy(directory.path().join("trace.jsonl.2"), &middle).expect("copied");
    std::fs::remove_file(directory.path().join("trace.jsonl.2")).expect("removed");
    let report = replay_trace(&path, &mut |_| {}).expect("a trace");
    assert_eq!(report.verdict(), TraceVerdict::Incomplete, "{report:?}");
    assert!(report.gaps > 0, "{report:?}");
}

#[test]
fn a_trace_goes_on_after_a_restart_and_tells_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let recorded = events("s");
    for event in &recorded {
        write(&path, [event.clone()]);
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("readable").count(), 1, "starting costs no file");
    let report = replay_trace(&path, &mut |finding| panic!("{finding}")).expect("a trace");
    assert_eq!((report.files, report.events, report.same), (1, 8, 8), "{report:?}");

    // A kill loses what was not written yet, and whoever reads on learns of the start.
    let other = directory.path().join("other.jsonl");
    write(&other, recorded[..1].to_vec());
    write(&other, recorded[3..].to_vec());
    let report = replay_trace(&other, &mut |_| {}).expect("a trace");
    assert_eq!((report.gaps, report.gaps_told), (0, 1), "{report:?}");
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
fn an_event_larger_than_a_file_may_be_is_left_out_and_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let writer = TraceWriter::create(&path, 10_000, 2).expect("a file");
    let large = command(envelope("s", "Vote", "large", "bob", &[b'x'; 20_000]), SignatureCheck::Absent);
    let verdict = TracedVerdict::Rejected { code: "SESSION_NOT_FOUND".into(), operational: false };
    let large = Event::new(AT, "s", 0, &large, &Limits::default(), verdict);
    let mut recorded = events("s");
    recorded.truncate(4);
    for event in &recorded {
        writer.record(large.clone());
        writer.record(event.clone());
    }
    writer.finish();
    assert_eq!(writer.dropped(), 4);
    let sizes =
        std::fs::read_dir(directory.path()).expect("readable").map(|entry| entry.unwrap().metadata().unwrap().len());
    let sizes: Vec<u64> = sizes.collect();
    assert!(sizes.len() <= 2 && sizes.iter().all(|size| *size <= 10_000), "{sizes:?}");
    let report = replay_trace(&path, &mut |finding| panic!("{finding}")).expect("a trace");
    assert_eq!((report.same, report.lost), (4, 4), "{report:?}");
}

#[test]
fn other_files_are_no_traces() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("no-trace");
    std::fs::write(&path, "hello\n").expect("written");
    assert!(!is_trace(&path).expect("readable"));
    assert!(matches!(replay_trace(&path, &mut |_| {}), Err(TraceError::Format { .. })));
    std::fs::write(&path, "{\"format\":\"macp-trace/9\"}\n").expect("written");
    assert!(is_trace(&path).expect("readable"), "a trace, and of another version");
    let error = replay_trace(&path, &mut |_| {}).expect_err("it is not known");
    assert!(matches!(&error, TraceError::Version { found, .. } if found == "macp-trace/9"), "{error}");
}

#[test]
fn a_line_cut_off_by_a_kill_is_told_and_the_rest_replays() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s"));
    let whole = std::fs::read(&path).expect("readable");
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    for end in [last + 1, last + 20, whole.len() - 2] {
        std::fs::write(&path, &whole[..end]).expect("written");
        let report = replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
        assert_eq!((report.events, report.same, report.torn), (7, 7, 1), "cut at {end}");
    }
    // Only the end of its line is missing.
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("written");
    let report = replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!((report.events, report.torn), (8, 0));
    // In the middle it is no accident of that kind.
    let mut damaged = whole[..last + 20].to_vec();
    damaged.push(b'\n');
    std::fs::write(&path, damaged).expect("written");
    assert!(matches!(replay_trace(&path, &mut |_| {}), Err(TraceError::Line { line: 10, .. })));
}

#[test]
fn progress_reaches_the_length_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s"));
    let mut heard = Vec::new();
    replay_trace_with(&path, &mut |bytes| heard.push(bytes), &mut |_| {}).expect("a trace");
    assert!(heard.is_sorted());
    assert_eq!(heard.last().copied(), Some(std::fs::metadata(&path).expect("there").len()));
}

#[cfg(unix)]
#[test]
fn only_the_owner_reads_a_trace() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write(&path, events("s"));
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
