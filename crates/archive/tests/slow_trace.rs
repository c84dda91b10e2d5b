//! A trace that is recorded faster than it can be written.
//!
//! A process of its own: it starts another, which has all files of this one open until it runs, and their locks with
//! them.
#![cfg(unix)]

mod common;

use common::{command, envelope};
use macp_archive::TraceWriter;
use macp_kernel::trace::{Event, TracedVerdict};
use macp_kernel::{Limits, SignatureCheck};

/// A pipe that nobody reads is a disk that does not keep up.
#[test]
fn events_waiting_for_a_slow_disk_are_bounded_in_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    let (open, opened) = std::sync::mpsc::channel();
    let (go, may_read) = std::sync::mpsc::channel::<()>();
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || {
            let mut pipe = std::fs::File::open(path).expect("a pipe");
            open.send(()).expect("the test listens");
            may_read.recv().expect("the test says when");
            let mut text = String::new();
            std::io::Read::read_to_string(&mut pipe, &mut text).expect("text");
            text
        })
    };
    let writer = TraceWriter::create(&path, u64::MAX, 1).expect("a file");
    opened.recv().expect("the reader is there");
    let payload = vec![b'x'; 1024 * 1024];
    let sent = 100;
    for number in 0..sent {
        let command = command(envelope("s", "Vote", &format!("m{number}"), "bob", &payload), SignatureCheck::Absent);
        let verdict = TracedVerdict::Rejected { code: "SESSION_NOT_FOUND".into(), operational: false };
        writer.record(Event::new(number, "s", 0, &command, &Limits::default(), verdict));
    }
    // In hex each is above 2 MiB, of 64 MiB that may wait; a few are in the hands of the writer.
    let dropped = writer.dropped();
    assert!((60..80).contains(&dropped), "{dropped}");
    go.send(()).expect("the reader listens");
    writer.finish();
    let text = reader.join().expect("the reader ends");
    let (mut recorded, mut told) = (0, 0);
    for line in text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line")) {
        if let Some(lost) = line["lost"]["lost"].as_i64() {
            told += lost;
        }
        if let Some(number) = line["event"]["at_ms"].as_i64() {
            assert_eq!(recorded + told, number, "whatever was lost before it is told before it, and no more");
            recorded += 1;
        }
    }
    assert_eq!(u64::try_from(told).expect("no less than none"), dropped, "the gap is not told");
    assert_eq!(recorded, sent - told);
}
