//! What must hold for any sequence of inputs whatsoever. The property tests and the fuzz target both feed [`check`].

mod script;

use std::collections::BTreeMap;

use macp_kernel::mode::View;
use macp_kernel::replay::{Options, Replayer};
use macp_kernel::trace::{self, Comparison, Event, TracedVerdict};
use macp_kernel::{Caller, Command, Input, Limits, Session, Settled, State, ambient, decide, expire, step};
use macp_wire::codes::Code;
use macp_wire::history::v1::{Entry, entry};
use prost::Message;

pub use script::{Script, Step};

/// What a script did, so that a test can tell whether the scripts do anything worth checking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub accepted: u64,
    pub duplicates: u64,
    pub rejections: BTreeMap<&'static str, u64>,
    pub relayed: u64,
    pub ends: BTreeMap<&'static str, u64>,
}

/// A session with everything it has been through.
#[derive(Debug, Default)]
struct Course {
    slot: Option<Session>,
    entries: Vec<Entry>,
    /// The session after each entry.
    sessions: Vec<Session>,
}

/// Runs a script and checks every invariant at every step. Panics where one does not hold.
pub fn check(script: &Script) -> Tally {
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    let mut trace = Vec::new();
    let mut tally = Tally::default();
    for Step { at_ms, session_id, command } in &script.steps {
        let Decided { after_sequence, verdict } = match relayed(command, &script.limits) {
            Some(decided) => decided,
            None => {
                let course = courses.entry(session_id.clone()).or_default();
                check_step(course, command, *at_ms, &script.limits, &mut tally)
            }
        };
        if verdict == TracedVerdict::Relayed {
            tally.relayed += 1;
        }
        trace.push(Event::new(*at_ms, session_id, after_sequence, command, &script.limits, verdict));
    }
    for course in courses.values() {
        check_course(course, &mut tally);
    }
    check_trace(&trace);
    check_one_by_one(script, &courses);
    tally
}

/// One session after the other gives the same histories as all of them at once.
fn check_one_by_one(script: &Script, courses: &BTreeMap<String, Course>) {
    let mut steps = script.steps.clone();
    steps.sort_by(|a, b| a.session_id.cmp(&b.session_id));
    let histories = histories(&Script { steps, ..script.clone() });
    assert_eq!(histories.len(), courses.len());
    for (session_id, course) in courses {
        assert_eq!(histories[session_id], course.entries, "{session_id}");
    }
}

/// The entries of every session of a script.
pub fn histories(script: &Script) -> BTreeMap<String, Vec<Entry>> {
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    for Step { at_ms, session_id, command } in &script.steps {
        if relayed(command, &script.limits).is_none() {
            let course = courses.entry(session_id.clone()).or_default();
            course.entries.extend(step(&mut course.slot, command, *at_ms, &script.limits).entries);
        }
    }
    courses.into_iter().map(|(id, course)| (id, course.entries)).collect()
}

struct Decided {
    after_sequence: u64,
    verdict: TracedVerdict,
}

/// Signals and Progress are asked for before any session is.
fn relayed(command: &Command, limits: &Limits) -> Option<Decided> {
    let Input::Envelope { envelope, signature } = &command.input else {
        return None;
    };
    let verdict = match ambient(envelope, signature, &command.caller, limits)? {
        Ok(relayed) => {
            assert_eq!(relayed.payload, envelope.payload, "what is passed on is what came in");
            TracedVerdict::Relayed
        }
        Err(rejection) => (&rejection).into(),
    };
    Some(Decided { after_sequence: 0, verdict })
}

fn check_step(course: &mut Course, command: &Command, now: i64, limits: &Limits, tally: &mut Tally) -> Decided {
    let before = course.slot.clone();
    let decided = || format!("{:?}", decide(before.as_ref(), command, now, limits));
    assert_eq!(decided(), decided(), "the same question gets the same answer");

    let outcome = step(&mut course.slot, command, now, limits);
    check_outcome(before.as_ref(), course.slot.as_ref(), command, now, &outcome.settled, &outcome.entries);
    match &outcome.settled {
        Settled::Accepted { .. } => tally.accepted += 1,
        Settled::Duplicate { .. } => tally.duplicates += 1,
        Settled::Unchanged => {}
        Settled::Rejected(rejection) => {
            assert_ne!(rejection.code, Code::DuplicateMessage, "a duplicate is a success");
            *tally.rejections.entry(rejection.code.as_str()).or_default() += 1;
        }
    }
    for entry in &outcome.entries {
        check_entry(before.as_ref(), course, entry);
        course.entries.push(entry.clone());
    }
    // Entries of one step are at most an expiry and what comes after it, and nothing comes after an end.
    if !outcome.entries.is_empty() {
        assert_eq!(outcome.entries.len(), 1, "{:?}", outcome.entries);
        course.sessions.extend(course.slot.clone());
    }
    Decided { after_sequence: before.as_ref().map_or(0, Session::sequence), verdict: (&outcome.settled).into() }
}

/// What a verdict says about the change from one session to the next.
fn check_outcome(
    before: Option<&Session>,
    after: Option<&Session>,
    command: &Command,
    now: i64,
    settled: &Settled,
    entries: &[Entry],
) {
    let was_open = before.is_some_and(|session| session.state().is_open());
    if before.is_some() && !was_open {
        assert_eq!(before, after, "what has ended never changes");
        assert!(entries.is_empty(), "what has ended gets no entry");
    }
    match settled {
        Settled::Accepted { accepted_at_ms } => {
            assert_eq!(*accepted_at_ms, now);
            assert_eq!(entries.len(), 1);
        }
        Settled::Duplicate { accepted_at_ms } => {
            let Input::Envelope { envelope, .. } = &command.input else {
                panic!("only envelopes have ids");
            };
            let original = before.and_then(|session| session.accepted_at(&envelope.message_id));
            assert_eq!(original, Some(*accepted_at_ms), "a duplicate tells of its original");
            assert!(entries.is_empty());
        }
        Settled::Unchanged | Settled::Rejected(_) => {}
    }
    if matches!(settled, Settled::Accepted { .. }) {
        return;
    }
    // Whatever did not become history changed nothing; at most it woke a session whose time was up.
    match entries {
        [] => assert_eq!(before, after, "what was not accepted left a trace"),
        [expiry] => {
            let before = before.expect("only a session expires");
            assert_eq!(expire(before.position(), now).as_ref(), Some(expiry));
            let mut slot = Some(before.clone());
            let command = Command { caller: Caller::anonymous(), input: Input::Expire };
            step(&mut slot, &command, now, &Limits::default());
            assert_eq!(slot.as_ref(), after, "only the expiry happened");
        }
        more => panic!("entries nobody asked for: {more:?}"),
    }
}

/// Numbering, the mark of the end, and the stored encoding.
fn check_entry(before: Option<&Session>, course: &Course, entry: &Entry) {
    let sequence = before.map_or(0, Session::sequence);
    let ordinal = before.map_or(0, Session::ordinal);
    assert_eq!(entry.sequence, sequence + 1);
    assert_eq!(entry.sequence, course.entries.len() as u64 + 1);
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => {
            assert_eq!(entry.ordinal, ordinal + 1);
            assert!(!envelope.sender.is_empty(), "the sender is bound");
        }
        Some(_) => assert_eq!(entry.ordinal, 0),
        None => panic!("an entry holds its input"),
    }
    assert_eq!(entry.binding.is_some(), entry.sequence == 1);
    let after = course.slot.as_ref().expect("an entry has a session");
    assert_eq!(after.sequence(), entry.sequence);
    assert_eq!(entry.terminal.is_some(), !after.state().is_open());
    if let Some(terminal) = &entry.terminal {
        assert_eq!(State::from_wire(terminal.state), Some(after.state()));
        assert_eq!(after.state() == State::Resolved, after.resolution().is_some());
    }
    let stored = Entry::decode(entry.encode_to_vec().as_slice());
    assert_eq!(stored.as_ref(), Ok(entry));
}

/// Replay of what was accepted gives every session back, at every entry.
fn check_course(course: &Course, tally: &mut Tally) {
    let Some(live) = &course.slot else {
        assert!(course.entries.is_empty());
        return;
    };
    let mut replayer = Replayer::new(Options { semantic: true, ..Options::default() });
    for (entry, session) in course.entries.iter().zip(&course.sessions) {
        let step = replayer.feed(entry).unwrap_or_else(|stop| panic!("{stop} at {entry:?}"));
        assert_eq!((step.sequence, step.state), (entry.sequence, session.state()));
        assert_eq!(replayer.session(), Some(session), "after entry {}", entry.sequence);
    }
    let report = replayer.finish().expect("the history is not empty");
    assert_eq!(report.entries, course.entries.len() as u64);
    assert_eq!((report.state, report.resolution.as_ref()), (live.state(), live.resolution()));
    assert_eq!(report.divergence, None);

    let end = match &course.entries.last().expect("a session has a start").input {
        Some(entry::Input::TtlExpired(_)) => "ttl",
        Some(entry::Input::SessionCancel(_)) => "cancelled",
        _ if live.state().is_open() => "open",
        _ => live.binding().mode.spec().name,
    };
    *tally.ends.entry(end).or_default() += 1;

    let view = View { roster: &live.binding().roster, initiator: &live.binding().initiator };
    assert!(live.mode_state().describe(&view).is_object());
    let metadata = live.metadata();
    let counted: u64 = metadata.participant_activity.iter().map(|activity| u64::from(activity.message_count)).sum();
    assert_eq!(counted + 1, live.ordinal(), "every message after the start is someone's");
}

/// The trace, by way of its JSON, gets the same verdicts again.
fn check_trace(trace: &[Event]) {
    let mut replayer = trace::Replayer::default();
    for event in trace {
        let line = serde_json::to_string(event).expect("an event is JSON");
        let event: Event = serde_json::from_str(&line).expect("and back");
        let operational = matches!(event.verdict, TracedVerdict::Rejected { operational: true, .. });
        let expected = if operational { Comparison::Operational } else { Comparison::Same };
        assert_eq!(replayer.feed(&event), Ok(expected), "{event:?}");
    }
}
