//! A start that was presumed to be new, driven by hand: what the append says decides.

use macp_kernel::{Caller, Command, Limits, PROTOCOL_VERSION, Registered, SignatureCheck};
use macp_ledger::{AppendError, Failure, FailureKind, Hash, Head};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::{Envelope, SessionState};
use prost::Message;

use super::*;
use crate::loader::{Load, Loaded};
use crate::{Error, Event, Keep};

fn command(message_type: &str, message_id: &str) -> Command {
    let payload = SessionStartPayload { ttl_ms: 60_000, ..SessionStartPayload::default() };
    let envelope = Envelope {
        macp_version: PROTOCOL_VERSION.into(),
        message_type: message_type.into(),
        message_id: message_id.into(),
        session_id: "s".into(),
        sender: "alice".into(),
        payload: payload.encode_to_vec().into(),
        ..Envelope::default()
    };
    Command {
        caller: Caller::anonymous(),
        input: Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() },
    }
}

/// A shard whose replies are numbers.
struct Bench {
    shard: Shard<u32>,
}

/// What came out of one step and the flush after it.
#[derive(Default)]
struct Out {
    answers: Vec<(u32, Result<Answer, Error>)>,
    appends: usize,
    loads: usize,
    load: Option<Load>,
    published: usize,
    lifecycle: usize,
}

impl Bench {
    fn new() -> Self {
        Bench {
            shard: Shard::new(
                Limits::default(),
                Keep { sessions_max: 10, bytes_max: u64::MAX, idle_ms_max: 1_000 },
                false,
            ),
        }
    }

    fn step(&mut self, event: Event<u32>) -> Out {
        self.step_at(event, 1_000)
    }

    fn step_at(&mut self, event: Event<u32>, now: i64) -> Out {
        let mut effects = Vec::new();
        self.shard.step(event, now, &mut effects);
        self.shard.flush(&mut effects);
        let mut out = Out::default();
        for effect in effects {
            match effect {
                Effect::Load(load) => {
                    out.loads += 1;
                    out.load = Some(load);
                }
                Effect::Append(_) => out.appends += 1,
                Effect::Publish { .. } => out.published += 1,
                Effect::Send(Outgoing::Answer(reply, answer)) => out.answers.push((reply, answer)),
                Effect::Send(Outgoing::Lifecycle(_)) => out.lifecycle += 1,
                Effect::Send(Outgoing::Trace(_)) => panic!("tracing is off"),
            }
        }
        out
    }

    fn send(&mut self, reply: u32, message_type: &str, message_id: &str) -> Out {
        let kind = RequestKind::Command(Box::new(command(message_type, message_id)));
        self.step(Event::Request(Request { session_id: "s".into(), kind, reply }))
    }

    /// Sends a start that is written without a load and without an answer.
    fn presume(&mut self, reply: u32, message_id: &str) {
        let out = self.send(reply, SESSION_START, message_id);
        assert_eq!((out.appends, out.loads, out.answers.len()), (1, 0, 0));
    }

    fn appended(&mut self, result: Result<(), AppendError>) -> Out {
        self.step(Event::Appended { session_id: "s".into(), result: result.map(|()| Vec::new()) })
    }

    /// The start conflicts with a session that was started with `message_id`.
    fn conflict(&mut self, message_id: &str) -> Out {
        let out = self.appended(Err(AppendError::Conflict { expected: 0, found: 1 }));
        assert_eq!(
            (out.loads, out.published, out.lifecycle, out.answers.len()),
            (1, 0, 0, 0),
            "nobody has heard of it"
        );
        let mut session = None;
        step(&mut session, &command(SESSION_START, message_id), 500, &Limits::default());
        let loaded = Loaded { session: session.expect("started"), hash: Hash::from_bytes([7; 32]) };
        self.step(Event::Loaded { load: out.load.expect("a load"), result: Ok(Some(Box::new(loaded))) })
    }
}

/// The settled verdicts by reply, in the order in which they left.
fn settled(out: Out) -> Vec<(u32, Settled)> {
    let settled = |(reply, answer)| match answer {
        Ok(Answer::Verdict(verdict)) => (reply, verdict.settled),
        other => panic!("{reply} got no verdict: {other:?}"),
    };
    out.answers.into_iter().map(settled).collect()
}

#[test]
fn a_repeated_start_is_a_duplicate() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    let out = bench.conflict("m1");
    assert_eq!(out.appends, 0);
    let settled = settled(out);
    assert!(matches!(settled[..], [(1, Settled::Duplicate { .. })]), "{settled:?}");
}

#[test]
fn a_second_start_is_refused() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    let out = bench.conflict("another");
    assert_eq!(out.appends, 0);
    let settled = settled(out);
    assert!(matches!(settled[..], [(1, Settled::Rejected(_))]), "{settled:?}");
}

#[test]
fn those_who_wait_behind_a_conflicting_start_are_decided_after_it() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    assert!(bench.send(2, SESSION_START, "m2").answers.is_empty());
    assert!(bench.send(3, "Message", "m3").answers.is_empty());
    let loaded = bench.conflict("m1");
    // The last was accepted on top, so that its answer waits for its entry.
    assert_eq!(loaded.appends, 1);
    let first = settled(loaded);
    assert!(matches!(first[..], [(1, Settled::Duplicate { .. }), (2, Settled::Rejected(_))]), "{first:?}");
    let second = settled(bench.appended(Ok(())));
    assert!(matches!(second[..], [(3, Settled::Accepted { .. })]), "{second:?}");
}

#[test]
fn a_failed_append_fails_the_start_and_lets_those_who_wait_find_no_session() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    assert!(bench.send(2, "Message", "m2").answers.is_empty());
    let out = bench.appended(Err(Failure::new(FailureKind::DiskFull, "append").into()));
    assert_eq!((out.loads, out.published, out.lifecycle), (1, 0, 0));
    assert!(matches!(out.answers[..], [(1, Err(Error::Write(_)))]), "{:?}", out.answers);
    let rest = settled(bench.step(Event::Loaded { load: out.load.expect("a load"), result: Ok(None) }));
    assert!(matches!(rest[..], [(2, Settled::Rejected(_))]), "{rest:?}");
    assert_eq!(bench.shard.resident(), 0);
}

#[test]
fn a_failed_append_with_nobody_waiting_leaves_nothing() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    let out = bench.appended(Err(Failure::new(FailureKind::Io, "append").into()));
    assert_eq!(out.loads, 0);
    assert!(matches!(out.answers[..], [(1, Err(Error::Write(_)))]), "{:?}", out.answers);
    assert_eq!(bench.shard.resident(), 0);
    bench.presume(2, "m1");
}

#[test]
fn those_who_wait_are_decided_once_the_start_is_stored() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    assert!(bench.send(2, "Message", "m2").answers.is_empty());
    assert!(bench.send(3, SESSION_START, "m1").answers.is_empty());
    let out = bench.appended(Ok(()));
    assert_eq!((out.loads, out.published, out.lifecycle, out.appends), (0, 1, 1, 1));
    let first = settled(out);
    assert!(matches!(first[..], [(1, Settled::Accepted { .. })]), "{first:?}");
    let second = settled(bench.appended(Ok(())));
    assert!(matches!(second[..], [(2, Settled::Accepted { .. }), (3, Settled::Duplicate { .. })]), "{second:?}");
}

#[test]
fn a_start_that_is_abandoned_is_answered_and_its_append_still_lands() {
    let mut bench = Bench::new();
    bench.presume(1, "m1");
    assert!(bench.send(2, "Message", "m2").answers.is_empty());
    let mut effects = Vec::new();
    bench.shard.abandon("s", &mut effects);
    let internal = |effect: &Effect<u32>| matches!(effect, Effect::Send(Outgoing::Answer(2, Err(Error::Internal))));
    assert!(matches!(&effects[..], [effect] if internal(effect)), "{effects:?}");
    let landed = settled(bench.appended(Ok(())));
    assert!(matches!(landed[..], [(1, Settled::Accepted { .. })]), "{landed:?}");
    assert_eq!(bench.shard.resident(), 0, "what comes next reads the history");
}

/// That the time has run out is so once it is written; if it cannot be, what was true before still is. It makes no
/// difference who found it out: a read, or the sweeper.
#[test]
fn a_read_that_finds_the_time_run_out_is_answered_whether_or_not_that_can_be_written() {
    let late = 100_000;
    let full = || AppendError::Failed(Failure::new(FailureKind::DiskFull, "append"));
    let read = |reply| Event::Request(Request { session_id: "s".into(), kind: RequestKind::Read, reply });
    let head = Head {
        session_id: "s".into(),
        sequence: 1,
        hash: Hash::from_bytes([7; 32]),
        open: true,
        deadline_ms: 61_000,
        state: 1,
        summary: bytes::Bytes::new(),
    };
    for swept in [false, true] {
        let conflict = AppendError::Conflict { expected: 1, found: 2 };
        for (result, expected) in [
            (Ok(()), Some(SessionState::Expired)),
            (Err(full()), Some(SessionState::Open)),
            // Somebody else has written, and what is in memory is not true any more.
            (Err(conflict), None),
        ] {
            let mut bench = Bench::new();
            bench.presume(1, "m1");
            assert_eq!(bench.appended(Ok(())).answers.len(), 1);
            let first = if swept { Event::Due(head.clone()) } else { read(2) };
            assert_eq!(bench.step_at(first, late).appends, 1);
            let out = bench.step_at(read(3), late);
            assert_eq!((out.appends, out.answers.len()), (0, 0), "it waits for the end to be written");
            let out =
                bench.step_at(Event::Appended { session_id: "s".into(), result: result.map(|()| Vec::new()) }, late);
            assert_eq!(out.answers.len(), if swept { 1 } else { 2 });
            for (_, answer) in &out.answers {
                let state = match answer {
                    Ok(Answer::Read(Some(snapshot))) => Some(snapshot.metadata.state()),
                    Ok(other) => panic!("not a session: {other:?}"),
                    Err(_) => None,
                };
                assert_eq!(state, expected);
            }
        }
    }
}
