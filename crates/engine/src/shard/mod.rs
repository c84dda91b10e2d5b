//! One ordering loop as a synchronous state machine: events in, effects out.
//!
//! A session's commands are decided here one after the other, on top of entries that may still be being written. What
//! is decided between two flushes becomes one append per session (a *flight*); answers, refusals, duplicates and reads
//! wait for the flight they were decided on. A flight that fails takes down what was decided on it: the answers turn
//! into errors, the session is forgotten and loaded again from what is really stored.
//!
//! ```text
//!            Request                      Appended(ok)
//!  absent ───────────▶ Loading ──▶ Resident ◀────────┐
//!   │ ▲                  ▲            │  flush       │
//!   │ │                  │            └────▶ flight ─┤
//!   │ └── evicted        └─────── Settling ◀─────────┘ Appended(failed)
//!   │                    ▲
//!   └────SessionStart────┴─ Presumed ──▶ Resident      Appended(conflict) or Appended(ok)
//! ```

mod abandon;
mod event;
mod eviction;
mod presume;
mod slot;
mod slots;
mod unloaded;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::trace::{self, TracedVerdict};
use macp_kernel::{Caller, Command, ID_BYTES_MAX, Input, Limits, Session, step};
use macp_ledger::{Append, AppendError, Head, IndexUpdate, Record};
use macp_wire::history::v1::{Entry, entry};
use prost::Message;

pub use event::{Answer, Effect, Event, Outgoing, Reply, Request, RequestKind, Snapshot};
use slot::{Flight, Loads, Resident, Slot, seal};
use slots::Slots;

use crate::loader::{Load, LoadResult};
use crate::{Error, Lifecycle, LifecycleEvent};

/// Requests that may wait for one session to be loaded; a longer line is refused as overload.
const WAITING_MAX: usize = 4096;

/// The state machine. `R` is where an answer goes: a channel in production, a number in the simulator.
#[derive(Debug)]
pub struct Shard<R> {
    slots: Slots<R>,
    /// Sessions with something decided since the last flush.
    unflushed: Vec<Arc<str>>,
    loads: Loads,
    /// Sessions in memory, in the order in which eviction looks at them.
    rounds: VecDeque<Arc<str>>,
    /// Sessions that ended in memory, in that order.
    ended: VecDeque<Arc<str>>,
    limits: Limits,
    keep: Keep,
    trace: bool,
}

/// How much a shard keeps in memory.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub sessions_max: usize,
    /// What all of them together may weigh; one session may weigh more.
    pub bytes_max: u64,
    /// How long an open session nobody touches stays.
    pub idle_ms_max: i64,
}

impl<R> Shard<R> {
    pub fn new(limits: Limits, keep: Keep, trace: bool) -> Self {
        Shard {
            slots: Slots::new(),
            unflushed: Vec::new(),
            loads: Loads::default(),
            rounds: VecDeque::new(),
            ended: VecDeque::new(),
            limits,
            keep: Keep { sessions_max: keep.sessions_max.max(1), ..keep },
            trace,
        }
    }

    /// Sessions in memory, those being loaded included.
    pub fn resident(&self) -> usize {
        self.slots.len()
    }

    /// Takes one event. What is decided stays inside until [`Shard::flush`].
    pub fn step(&mut self, event: Event<R>, now: i64, effects: &mut Vec<Effect<R>>) {
        match event {
            Event::Request(request) => self.request(request, now, effects),
            Event::Loaded { load, result } => self.loaded(load, result, now, effects),
            Event::Appended { session_id, result } => self.appended(session_id, result, now, effects),
            Event::Due(head) => self.due(head, now, effects),
            Event::Tick => self.evict_idle(now),
        }
    }

    /// Sends off what was decided since the last flush: one append per session.
    pub fn flush(&mut self, effects: &mut Vec<Effect<R>>) {
        for session_id in std::mem::take(&mut self.unflushed) {
            let Some(slot) = self.slots.weigh(&session_id) else {
                continue;
            };
            let Some(pending) = slot.pending_mut().map(std::mem::take) else {
                continue;
            };
            let Some(index) = pending.index else {
                continue;
            };
            effects.push(Effect::Append(Append {
                session_id,
                expected_sequence: pending.expected_sequence,
                expected_hash: pending.expected_hash,
                records: pending.records,
                index,
            }));
            slot.flights.push_back(Flight { outgoing: pending.outgoing });
        }
        self.evict_surplus();
    }

    fn request(&mut self, request: Request<R>, now: i64, effects: &mut Vec<Effect<R>>) {
        if request.session_id.is_empty() || request.session_id.len() > ID_BYTES_MAX {
            // No such session can exist, so there is nothing to load and nothing to keep.
            effects.extend(decide_absent(request, now, &self.limits, self.trace));
            return;
        }
        match self.slots.get_mut(&request.session_id) {
            Some(slot) if slot.is_resident() => {
                slot.touch(now);
                self.decide(request, now, effects);
            }
            Some(slot) if slot.waiting.len() < WAITING_MAX => slot.waiting.push_back(request),
            Some(_) => effects.push(request.failed(Error::Overloaded)),
            None => {
                let Some(request) = self.presume(request, now) else {
                    return;
                };
                let load = self.loads.next(Arc::clone(&request.session_id));
                let mut slot = Slot::loading(&load, now);
                slot.waiting.push_back(request);
                self.slots.insert(Arc::clone(&load.session_id), slot);
                effects.push(Effect::Load(load));
            }
        }
    }

    fn loaded(&mut self, load: Load, result: LoadResult, now: i64, effects: &mut Vec<Effect<R>>) {
        let Some(slot) = self.slots.get_mut(&load.session_id).filter(|slot| slot.awaits(&load)) else {
            // Of a session that was abandoned meanwhile: what is in memory by now is newer.
            return;
        };
        let session_id = load.session_id;
        let waiting = std::mem::take(&mut slot.waiting);
        match result {
            Ok(loaded) => {
                slot.touch(now);
                slot.become_resident(Resident::new(loaded));
                for request in waiting {
                    self.decide(request, now, effects);
                }
                self.touch(&session_id, now);
                self.keep(session_id);
            }
            Err(error) => {
                let code = error.store_code();
                tracing::error!(session = &*session_id, %error, code, "session cannot be loaded");
                self.slots.remove(&session_id);
                effects.extend(waiting.into_iter().map(|request| request.failed(error.clone())));
            }
        }
    }

    /// A session that exists enters the rounds of eviction; one that does not, and was not started either, costs
    /// nothing from here on.
    fn keep(&mut self, session_id: Arc<str>) {
        if self.slots.get(&session_id).is_some_and(Slot::is_absent) {
            self.slots.remove(&session_id);
        } else {
            self.slots.weigh(&session_id);
            self.rounds.push_back(session_id);
            self.tidy_rounds();
        }
    }

    /// Decides a request on a resident session.
    fn decide(&mut self, request: Request<R>, now: i64, effects: &mut Vec<Effect<R>>) {
        let slot = self.slots.get_mut(&request.session_id).expect("the session is resident");
        slot.keep_before(now);
        let resident = slot.resident_mut().expect("the session is resident");
        let Request { session_id, kind, reply } = request;
        let (command, reads) = match kind {
            RequestKind::Command(command) => (command, false),
            // A read touches the session: what time made due happens first.
            RequestKind::Read => (Box::new(touch()), true),
        };
        let after_sequence = resident.session.as_ref().map_or(0, Session::sequence);
        let outcome = step(&mut resident.session, &command, now, &self.limits);
        let decided_something = !outcome.entries.is_empty();
        let was_unflushed = resident.pending.index.is_some();
        let lifecycle = record(resident, outcome.entries, now);
        let session = resident.session.as_ref();
        let answer = if reads {
            Answer::Read(session.map(|session| Box::new(Snapshot::of(session))))
        } else {
            Answer::Verdict(Reply::new(outcome.settled, session, &command.caller))
        };
        let traced = self.trace.then(|| match &answer {
            Answer::Verdict(reply) => Some((&reply.settled).into()),
            // A read is no input of its own, unless it was the touch that noticed the deadline.
            Answer::Read(_) => decided_something.then_some(TracedVerdict::Accepted),
        });
        let trace = traced.flatten().map(|verdict| {
            let limits = &self.limits;
            Box::new(trace::Event::new(now, &session_id, after_sequence, &command, limits, verdict))
        });
        let answer = std::iter::once(Outgoing::Answer(reply, Ok(answer)));
        slot.send(
            lifecycle.into_iter().map(Outgoing::lifecycle).chain(trace.map(Outgoing::Trace)).chain(answer),
            effects,
        );
        if decided_something && !was_unflushed {
            self.unflushed.push(session_id);
        }
    }

    fn appended(
        &mut self,
        session_id: Arc<str>,
        result: Result<Vec<Record>, AppendError>,
        now: i64,
        effects: &mut Vec<Effect<R>>,
    ) {
        let slot = self.slots.get_mut(&session_id).expect("a session with a flight has a slot");
        let flight = slot.flights.pop_front().expect("an append answers a flight");
        match result {
            Ok(records) => {
                slot.before = None;
                // Whoever waits for an answer sends nothing more before it; subscribers can be many.
                effects.extend(flight.outgoing.into_iter().map(Effect::Send));
                effects.push(Effect::Publish { session_id: Arc::clone(&session_id), records });
                if slot.is_presumed() {
                    self.confirm(session_id, now, effects);
                    return;
                }
                if slot.has_ended() && slot.flights.is_empty() {
                    self.note_end(session_id);
                    return;
                }
            }
            Err(AppendError::Conflict { .. }) if slot.is_presumed() => {
                self.refute(session_id, flight, now, effects);
                return;
            }
            Err(error) => {
                // A conflict shows that somebody else wrote: what is in memory is not true any more.
                let before = slot.before.take().filter(|_| matches!(error, AppendError::Failed(_)));
                let error = Error::Write(write_failure(&error));
                slot.settle();
                effects.extend(fail(flight.outgoing, &error, before.as_deref()));
                // What was decided on top and not yet sent off falls with it.
                if let Some(pending) = slot.pending_mut().map(std::mem::take) {
                    effects.extend(fail(pending.outgoing, &error, before.as_deref()));
                }
            }
        }
        if slot.is_settling() && slot.flights.is_empty() {
            if slot.waiting.is_empty() {
                self.slots.remove(&session_id);
            } else {
                let load = self.loads.next(session_id);
                slot.reload(&load, now);
                effects.push(Effect::Load(load));
            }
        }
    }

    /// The sweeper found a session in which time has something to do. A session in memory takes its usual way; one that
    /// is not and has run out of time ends without being loaded, from what the index says of it.
    fn due(&mut self, head: Head, now: i64, effects: &mut Vec<Effect<R>>) {
        let session_id = Arc::clone(&head.session_id);
        if self.slots.contains_key(&session_id) {
            // Where it is not in memory, whatever it waits for will touch it, or the sweeper comes again.
            self.touch(&session_id, now);
            return;
        }
        match unloaded::expire(&head, now) {
            Some(mut pending) => {
                pending.outgoing.extend(self.traced_touch(&session_id, head.sequence, now));
                self.slots.insert(Arc::clone(&session_id), Slot::settling(pending, now));
                self.unflushed.push(session_id);
            }
            None => {
                // Its mode has something to say, and only the session itself knows what.
                let load = self.loads.next(session_id);
                self.slots.insert(Arc::clone(&load.session_id), Slot::loading(&load, now));
                effects.push(Effect::Load(load));
            }
        }
    }

    /// Lets what time has made due happen to a session in memory.
    fn touch(&mut self, session_id: &Arc<str>, now: i64) {
        let Some(slot) = self.slots.get_mut(session_id) else {
            return;
        };
        slot.keep_before(now);
        let Some(resident) = slot.resident_mut() else {
            return;
        };
        let Some(session) = &resident.session else {
            return;
        };
        let position = session.position();
        if position.clamped(now) <= position.quiet_until_ms {
            return;
        }
        let after_sequence = session.sequence();
        let was_unflushed = resident.pending.index.is_some();
        let entries = step(&mut resident.session, &touch(), now, &self.limits).entries;
        if entries.is_empty() {
            return;
        }
        let lifecycle = record(resident, entries, now);
        resident.pending.outgoing.extend(lifecycle.into_iter().map(Outgoing::lifecycle));
        let traced = self.traced_touch(session_id, after_sequence, now);
        let resident = self.slots.get_mut(session_id).and_then(Slot::resident_mut).expect("looked at above");
        resident.pending.outgoing.extend(traced);
        if !was_unflushed {
            self.unflushed.push(Arc::clone(session_id));
        }
    }

    fn traced_touch(&self, session_id: &str, after_sequence: u64, now: i64) -> Option<Outgoing<R>> {
        self.trace.then(|| {
            let verdict = TracedVerdict::Accepted;
            let event = trace::Event::new(now, session_id, after_sequence, &touch(), &self.limits, verdict);
            Outgoing::Trace(Box::new(event))
        })
    }
}

/// A look at a session, at which what time made due happens first.
fn touch() -> Command {
    Command { caller: Caller::anonymous(), input: Input::Touch }
}

/// Seals new entries into what the session has pending; returns what watchers will hear of it.
fn record<R>(resident: &mut Resident<R>, entries: Vec<Entry>, now: i64) -> Option<Lifecycle> {
    let first = entries.first()?;
    let session = resident.session.as_ref().expect("an entry belongs to a session");
    let pending = &mut resident.pending;
    if pending.index.is_none() {
        pending.expected_sequence = first.sequence - 1;
        pending.expected_hash = resident.hash;
    }
    let event = entries.iter().rev().find_map(LifecycleEvent::of);
    let resolved_by = entries.last().filter(|_| event == Some(LifecycleEvent::Resolved)).and_then(payload);
    for entry in entries {
        let record = seal(resident.hash.as_ref(), entry);
        resident.hash = Some(record.hash);
        pending.records.push(record);
    }
    let position = session.position();
    // What is told of a session when it begins changes only when a pause has moved its deadline.
    let summary = match event {
        Some(LifecycleEvent::Created | LifecycleEvent::Resumed) => Some(session.summary().encode_to_vec().into()),
        _ => pending.index.take().and_then(|index| index.summary),
    };
    pending.index = Some(IndexUpdate {
        open: !position.state.is_terminal(),
        deadline_ms: position.quiet_until_ms,
        state: position.state.to_wire().into(),
        summary,
    });
    event.map(|event| Lifecycle {
        event,
        session: session.metadata(),
        observed_at_ms: position.clamped(now),
        resolved_by,
    })
}

fn payload(entry: &Entry) -> Option<Bytes> {
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => Some(envelope.payload.clone()),
        _ => None,
    }
}

/// Decides a request whose session cannot exist.
fn decide_absent<R>(request: Request<R>, now: i64, limits: &Limits, trace: bool) -> Vec<Effect<R>> {
    let Request { session_id, kind, reply } = request;
    let mut effects = Vec::new();
    let answer = match kind {
        RequestKind::Read => Answer::Read(None),
        RequestKind::Command(command) => {
            let mut nothing = None;
            let settled = step(&mut nothing, &command, now, limits).settled;
            if trace {
                let event = trace::Event::new(now, &session_id, 0, &command, limits, (&settled).into());
                effects.push(Effect::Send(Outgoing::Trace(Box::new(event))));
            }
            Answer::Verdict(Reply::new(settled, None, &command.caller))
        }
    };
    effects.push(Effect::Send(Outgoing::Answer(reply, Ok(answer))));
    effects
}

/// Turns answers into errors, but for reads where it is known what was true before: that still is. What watchers and
/// traces would have heard never happened.
fn fail<R>(outgoing: Vec<Outgoing<R>>, error: &Error, before: Option<&Snapshot>) -> impl Iterator<Item = Effect<R>> {
    outgoing.into_iter().filter_map(move |outgoing| {
        let (reply, answer) = match outgoing {
            Outgoing::Answer(reply, answer) => (reply, answer),
            Outgoing::Lifecycle(_) | Outgoing::Trace(_) => return None,
        };
        let answer = match (answer, before) {
            (Ok(Answer::Read(_)), Some(before)) => Ok(Answer::Read(Some(Box::new(before.clone())))),
            _ => Err(error.clone()),
        };
        Some(Effect::Send(Outgoing::Answer(reply, answer)))
    })
}

/// With the cause: an operator must see that the disk is full, not that something failed.
fn write_failure(error: &AppendError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
