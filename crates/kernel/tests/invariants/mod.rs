//! What must hold for any sequence of inputs whatsoever. The property tests and the fuzz target both feed [`check`].

mod policies;
mod reader;
mod script;
mod standard;
mod what_if;

use std::collections::BTreeMap;

use macp_kernel::replay::{Options, Replayer};
use macp_kernel::trace::{self, Comparison, Event, TracedVerdict};
use macp_kernel::{Caller, Command, Input, Limits, Outcome, Session, Settled, State, ambient, decide, expire, step};
use macp_wire::codes::Code;
use macp_wire::history::v1::{Entry, ExpiryCause, entry};
use prost::Message;

pub use script::{Script, Step};

/// What a script did, so that a test can tell whether the scripts do anything worth checking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub accepted: u64,
    pub duplicates: u64,
    pub rejections: BTreeMap<&'static str, u64>,
    pub relayed: u64,
    pub ends: BTreeMap<String, u64>,
    /// Messages that modes said by themselves.
    pub synthetic: u64,
    /// Of them, those that stand although the message that woke them was refused.
    pub kept: u64,
    pub pauses: u64,
    /// Standard sessions that a candidate policy would have let go another way.
    pub what_ifs: u64,
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
        tally.what_ifs += u64::from(what_if::check(course, &script.candidate));
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
    let Input::Envelope { envelope, signature, .. } = &command.input else {
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
    // A clock that was set back does not count: no entry is dated before an earlier one.
    let now = course.entries.iter().map(|entry| entry.accepted_at_unix_ms).fold(now, i64::max);
    let touched = check_touch(before.as_ref(), now);
    check_outcome(before.as_ref(), course.slot.as_ref(), touched.as_ref(), command, now, &outcome);
    let synthetic = outcome.entries.iter().filter(|entry| entry.synthetic).count() as u64;
    tally.synthetic += synthetic;
    match &outcome.settled {
        Settled::Accepted { .. } => tally.accepted += 1,
        Settled::Duplicate { .. } => tally.duplicates += 1,
        Settled::Unchanged => {}
        Settled::Rejected(rejection) => {
            assert_ne!(rejection.code, Code::DuplicateMessage, "a duplicate is a success");
            *tally.rejections.entry(rejection.code.as_str()).or_default() += 1;
            tally.kept += synthetic;
        }
    }
    // What time made due comes first and leads to where a touch leads; the command's own entry comes last.
    let last = outcome.entries.len().saturating_sub(1);
    assert!(last <= 1, "{:?}", outcome.entries);
    for (at, entry) in outcome.entries.into_iter().enumerate() {
        let after = if at == last { course.slot.clone() } else { touched.clone() };
        let after = after.expect("an entry has a session");
        check_entry(course, &after, &entry, now);
        tally.pauses += u64::from(matches!(entry.input, Some(entry::Input::SessionResume(_))));
        course.entries.push(entry);
        course.sessions.push(after);
    }
    Decided { after_sequence: before.as_ref().map_or(0, Session::sequence), verdict: (&outcome.settled).into() }
}

/// A touch does something exactly when the position says so, and says so no more afterwards.
fn check_touch(before: Option<&Session>, now: i64) -> Option<Session> {
    let quiet = before.is_none_or(|session| now <= session.position().quiet_until_ms);
    let mut slot = before.cloned();
    let command = Command { caller: Caller::anonymous(), input: Input::Touch };
    let outcome = step(&mut slot, &command, now, &Limits::default());
    assert_eq!(outcome.entries.is_empty(), quiet, "at {now}: {:?}", before.map(Session::position));
    if quiet {
        assert_eq!(slot.as_ref(), before, "a look changed something");
    }
    let again = step(&mut slot, &command, now, &Limits::default());
    assert!(again.entries.is_empty(), "time did the same twice: {:?}", again.entries);
    slot
}

/// What a verdict says about the change from one session to the next. `touched` is what time alone makes of it.
fn check_outcome(
    before: Option<&Session>,
    after: Option<&Session>,
    touched: Option<&Session>,
    command: &Command,
    now: i64,
    outcome: &Outcome,
) {
    let Outcome { settled, entries } = outcome;
    if before.is_some_and(|session| session.state().is_terminal()) {
        assert_eq!(before, after, "what has ended never changes");
        assert!(entries.is_empty(), "what has ended gets no entry");
    }
    if let (Some(before), Some(expiry)) = (before, expire_of(entries)) {
        assert_eq!(expire(before.position(), now).as_ref(), Some(expiry), "the position is enough to expire");
    }
    let (due, own) = match settled {
        Settled::Accepted { accepted_at_ms } => {
            assert_eq!(*accepted_at_ms, now);
            match (&command.input, entries.split_last()) {
                // A touch has nothing of its own.
                (Input::Touch, _) => (entries.as_slice(), None),
                (_, Some((own, due))) => (due, Some(own)),
                (_, None) => panic!("nothing came of what was accepted"),
            }
        }
        Settled::Duplicate { accepted_at_ms } => {
            let Input::Envelope { envelope, .. } = &command.input else {
                panic!("only envelopes have ids");
            };
            let original = after.and_then(|session| session.accepted_at(&envelope.message_id));
            assert_eq!(original, Some(*accepted_at_ms), "a duplicate tells of its original");
            (entries.as_slice(), None)
        }
        Settled::Unchanged | Settled::Rejected(_) => (entries.as_slice(), None),
    };
    for entry in due {
        let expired = matches!(entry.input, Some(entry::Input::TtlExpired(_)));
        assert!(expired || entry.synthetic, "nobody asked for {entry:?}");
    }
    if let Some(own) = own {
        assert!(!own.synthetic, "{own:?}");
        return;
    }
    // Whatever did not become history changed nothing; at most it woke a session in which something was due.
    match due {
        [] => assert_eq!(before, after, "what was not accepted left a trace"),
        _ => assert_eq!(touched, after, "only what was due happened"),
    }
}

fn expire_of(entries: &[Entry]) -> Option<&Entry> {
    entries.iter().find(|entry| matches!(entry.input, Some(entry::Input::TtlExpired(_))))
}

/// Numbering, dates, the mark of the end, and the stored encoding. `after` is what the entry led to.
fn check_entry(course: &Course, after: &Session, entry: &Entry, now: i64) {
    let before = course.sessions.last();
    assert_eq!(entry.sequence, before.map_or(0, Session::sequence) + 1);
    assert_eq!(entry.sequence, course.entries.len() as u64 + 1);
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => {
            assert_eq!(entry.ordinal, before.map_or(0, Session::ordinal) + 1);
            assert!(!envelope.sender.is_empty(), "the sender is bound");
        }
        Some(_) => assert_eq!(entry.ordinal, 0),
        None => panic!("an entry holds its input"),
    }
    if entry.synthetic {
        let quiet_until_ms = before.expect("a mode speaks in a session").position().quiet_until_ms;
        assert_eq!(entry.accepted_at_unix_ms, quiet_until_ms + 1, "it is dated to when it was due");
        assert!(entry.accepted_at_unix_ms <= now);
    } else {
        assert_eq!(entry.accepted_at_unix_ms, now);
    }
    assert_eq!(entry.binding.is_some(), entry.sequence == 1);
    assert_eq!(after.sequence(), entry.sequence);
    assert_eq!(entry.terminal.is_some(), after.state().is_terminal());
    if let Some(terminal) = &entry.terminal {
        assert_eq!(State::from_wire(terminal.state), Some(after.state()));
        assert_eq!(after.state() == State::Resolved, after.resolution().is_some());
    }
    check_deadline(before, after, entry);
    let stored = Entry::decode(entry.encode_to_vec().as_slice());
    assert_eq!(stored.as_ref(), Ok(entry));
}

/// Only the end of a pause moves the deadline, by its length.
fn check_deadline(before: Option<&Session>, after: &Session, entry: &Entry) {
    let Some(before) = before else {
        return;
    };
    let pause_ms = match (&entry.input, before.suspension().since_ms) {
        (Some(entry::Input::SessionResume(_)), Some(since_ms)) => (entry.accepted_at_unix_ms - since_ms).max(0),
        _ => 0,
    };
    assert_eq!(after.position().deadline_ms, before.position().deadline_ms.saturating_add(pause_ms), "{entry:?}");
    assert_eq!(after.suspension().accumulated_ms, before.suspension().accumulated_ms + pause_ms);
    let suspended = matches!(entry.input, Some(entry::Input::SessionSuspend(_)));
    assert_eq!(after.state() == State::Suspended, suspended, "nothing but a suspension leaves it suspended");
}

/// Replay of what was accepted gives every session back, at every entry.
fn check_course(course: &Course, tally: &mut Tally) {
    let Some(live) = &course.slot else {
        assert!(course.entries.is_empty());
        return;
    };
    let semantic = live.binding().mode.spec().determinism.covers_outcome();
    let mut replayer = Replayer::new(Options { semantic, ..Options::default() });
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
        Some(entry::Input::TtlExpired(expired)) if expired.cause() == ExpiryCause::SuspensionTime => "overslept",
        Some(entry::Input::TtlExpired(_)) => "ttl",
        Some(entry::Input::SessionCancel(_)) => "cancelled",
        _ if live.state().is_open() => "open",
        _ if live.state() == State::Suspended => "suspended",
        _ => live.binding().mode_name(),
    };
    *tally.ends.entry(end.to_owned()).or_default() += 1;

    assert!(live.describe_mode().is_object());
    let metadata = live.metadata();
    let counted: u64 = metadata.participant_activity.iter().map(|activity| u64::from(activity.message_count)).sum();
    let synthetic = course.entries.iter().filter(|entry| entry.synthetic).count() as u64;
    assert_eq!(counted + synthetic + 1, live.ordinal(), "every message after the start is someone's or the mode's");
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
