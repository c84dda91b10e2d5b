//! What is really durable, read back from the disk after every sync and judged record by record.
//!
//! Growing the truth *is* checking it: every new record goes through the ledger's checker and the kernel's replay, and
//! the index must agree with where that leads.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_engine::Snapshot;
use macp_kernel::{Profile, State, replay};
use macp_ledger::{Checker, Hash, Store};
use macp_wire::history::v1::{ExpiryCause, entry};

use crate::properties::timely::Clockwork;
use crate::properties::{Property, Violation, terminal};
use crate::transcript::Digest;

const PAGE_RECORDS: usize = 64;
const PAGE_BYTES: usize = 1 << 20;

/// Every durable session.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) sessions: BTreeMap<Arc<str>, Course>,
}

/// One session's history so far.
#[derive(Debug, Default)]
pub(crate) struct Course {
    checker: Checker,
    replayer: replay::Replayer,
    pub(crate) facts: Vec<Fact>,
    /// Where each accepted message id stands in `facts`.
    by_message_id: BTreeMap<String, usize>,
    clockwork: Clockwork,
}

/// One durable entry.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) hash: Hash,
    pub(crate) accepted_at_ms: i64,
    pub(crate) cause: Cause,
    /// After the entry.
    pub(crate) state: State,
    /// What a read right after the entry shows, as a digest.
    pub(crate) view: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Message {
        /// Nobody sent it: the session's mode said it by itself.
        synthetic: bool,
    },
    Control {
        kind: ControlKind,
        reason: String,
    },
    Expiry {
        /// It was suspended for too long.
        paused: bool,
    },
}

/// What is asked of a session from outside its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ControlKind {
    Cancel,
    Suspend,
    Resume,
}

/// A read, as a digest.
pub(crate) fn view(snapshot: &Snapshot) -> u64 {
    Digest::of(format_args!("{snapshot:?}"))
}

impl Course {
    pub(crate) fn sequence(&self) -> u64 {
        self.facts.len() as u64
    }

    pub(crate) fn at(&self, sequence: u64) -> Option<&Fact> {
        self.facts.get(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }

    pub(crate) fn state(&self) -> Option<State> {
        self.facts.last().map(|fact| fact.state)
    }

    pub(crate) fn profile(&self) -> Option<Profile> {
        self.replayer.session().map(|session| session.binding().profile)
    }

    /// Up to when time alone changes nothing; none once the session has ended.
    pub(crate) fn quiet_until_ms(&self) -> Option<i64> {
        let position = self.replayer.session()?.position();
        (!position.state.is_terminal()).then_some(position.quiet_until_ms)
    }

    /// The first entry after which the session was in a state.
    pub(crate) fn first(&self, state: State) -> Option<u64> {
        self.facts.iter().position(|fact| fact.state == state).map(|at| at as u64 + 1)
    }

    /// How often the same thing, with the same reason, was asked of the session and granted.
    pub(crate) fn controls(&self, kind: ControlKind, reason: &str) -> impl Iterator<Item = (u64, &Fact)> {
        (1..).zip(&self.facts).filter(move |(_, fact)| {
            matches!(&fact.cause, Cause::Control { kind: found, reason: stated } if *found == kind && stated == reason)
        })
    }

    /// Sequence and entry of a message.
    pub(crate) fn message(&self, message_id: &str) -> Option<(u64, &Fact)> {
        self.by_message_id.get(message_id).map(|at| (*at as u64 + 1, &self.facts[*at]))
    }

    /// Reads and judges what the store has beyond this course.
    fn grow(&mut self, store: &dyn Store, session_id: &str) -> Result<(), Violation> {
        let broken = |detail: String| Property::Replayable.violated(format!("session {session_id}: {detail}"));
        loop {
            let page = store
                .read(session_id, self.sequence(), PAGE_RECORDS, PAGE_BYTES)
                .map_err(|failure| broken(failure.to_string()))?;
            if page.is_empty() {
                break;
            }
            for record in page {
                let entry = self.checker.check(&record).map_err(|corruption| broken(corruption.to_string()))?;
                self.replayer.feed(&entry).map_err(|stop| broken(stop.to_string()))?;
                let session = self.replayer.session().ok_or_else(|| broken("replays to no session".into()))?;
                self.clockwork.tick(session_id, &entry, session)?;
                let synthetic = entry.synthetic;
                let control = |kind, reason| Cause::Control { kind, reason };
                let cause = match entry.input {
                    Some(entry::Input::Envelope(envelope)) => {
                        let earlier = self.by_message_id.insert(envelope.message_id.clone(), self.facts.len());
                        if let Some(earlier) = earlier {
                            let (first, second) = (earlier + 1, record.sequence);
                            let id = envelope.message_id;
                            return Err(Property::Acknowledged.violated(format!(
                                "session {session_id}: message {id} is stored as {first} and {second}"
                            )));
                        }
                        Cause::Message { synthetic }
                    }
                    Some(entry::Input::SessionCancel(cancel)) => control(ControlKind::Cancel, cancel.reason),
                    Some(entry::Input::SessionSuspend(suspend)) => control(ControlKind::Suspend, suspend.reason),
                    Some(entry::Input::SessionResume(resume)) => control(ControlKind::Resume, resume.reason),
                    Some(entry::Input::TtlExpired(expired)) => {
                        Cause::Expiry { paused: expired.cause() == ExpiryCause::SuspensionTime }
                    }
                    None => return Err(broken(format!("entry {} has no input", record.sequence))),
                };
                self.facts.push(Fact {
                    hash: record.hash,
                    accepted_at_ms: entry.accepted_at_unix_ms,
                    cause,
                    state: session.state(),
                    view: view(&Snapshot::of(session)),
                });
            }
        }
        terminal::check_course(session_id, self)?;
        let session = self.replayer.session().ok_or_else(|| broken("is listed and has no entry".into()))?;
        let head = store.head(session_id).map_err(|failure| broken(failure.to_string()))?;
        terminal::check_index(session_id, head.as_ref(), session, self.checker.head())
    }
}

impl Truth {
    /// Takes in what a sync added to a session.
    pub(crate) fn grow(&mut self, store: &dyn Store, session_id: &Arc<str>) -> Result<(), Violation> {
        self.sessions.entry(Arc::clone(session_id)).or_default().grow(store, session_id)
    }

    /// Reads everything the store has, as after a restart.
    pub(crate) fn read(store: &dyn Store) -> Result<Self, Violation> {
        let heads = store
            .list(None, usize::MAX, macp_ledger::Filter::All)
            .map_err(|failure| Property::Replayable.violated(failure.to_string()))?;
        let mut truth = Truth::default();
        for head in heads {
            truth.grow(store, &head.session_id)?;
        }
        Ok(truth)
    }

    pub(crate) fn session(&self, session_id: &str) -> Option<&Course> {
        self.sessions.get(session_id)
    }

    pub(crate) fn sequence(&self, session_id: &str) -> u64 {
        self.session(session_id).map_or(0, Course::sequence)
    }

    pub(crate) fn state(&self, session_id: &str) -> Option<State> {
        self.session(session_id).and_then(Course::state)
    }

    pub(crate) fn message(&self, session_id: &str, message_id: &str) -> Option<(u64, &Fact)> {
        self.session(session_id)?.message(message_id)
    }

    /// When time next has something to do in any session.
    pub(crate) fn quiet_until_ms(&self) -> Option<i64> {
        self.sessions.values().filter_map(Course::quiet_until_ms).min()
    }

    pub(crate) fn count(&self, counts: impl Fn(&Fact) -> bool) -> u64 {
        self.sessions.values().flat_map(|course| &course.facts).filter(|fact| counts(fact)).count() as u64
    }

    pub(crate) fn entries(&self) -> u64 {
        self.sessions.values().map(Course::sequence).sum()
    }
}
