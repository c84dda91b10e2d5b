//! A session's place in a shard: what is in memory of it, what is being written, who waits.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::{Command, Session};
use macp_ledger::{Hash, IndexUpdate, Record, record};
use macp_wire::history::v1::Entry;

use super::{Effect, Outgoing, Request, Snapshot};
use crate::loader::{Load, Loaded};

#[derive(Debug)]
pub(super) struct Slot<R> {
    phase: Phase<R>,
    /// Appends under way, oldest first.
    pub(super) flights: VecDeque<Flight<R>>,
    /// What the store had when time made something due that is not written yet. If it cannot be written, those who read
    /// meanwhile are told this.
    pub(super) before: Option<Box<Snapshot>>,
    /// Requests for when the session is in memory.
    pub(super) waiting: VecDeque<Request<R>>,
    /// Of the load it waits for, if it waits for one.
    load: u64,
    pub(super) touched_at_ms: i64,
    /// Touched since eviction last looked.
    pub(super) touched: bool,
    /// Of the session in memory, when it was last weighed.
    pub(super) weight: u64,
}

/// Numbers the loads of a shard.
#[derive(Debug, Default)]
pub(super) struct Loads(u64);

impl Loads {
    pub(super) fn next(&mut self, session_id: Arc<str>) -> Load {
        self.0 += 1;
        Load { session_id, number: self.0 }
    }
}

#[derive(Debug)]
enum Phase<R> {
    Loading,
    Resident(Box<Resident<R>>),
    /// Started without asking the store whether the session exists; the append of the start will tell. Nothing else is
    /// decided until then. The start is kept for the case that it does.
    Presumed {
        resident: Box<Resident<R>>,
        start: Box<Command>,
    },
    /// Not usable until every flight has landed or failed: a write failed, or the session expires without having
    /// been loaded.
    Settling(Pending<R>),
}

/// A session in memory, as of the last decision.
#[derive(Debug)]
pub(super) struct Resident<R> {
    /// None: no such session, so far.
    pub(super) session: Option<Session>,
    /// Chain hash of the last decided entry.
    pub(super) hash: Option<Hash>,
    pub(super) pending: Pending<R>,
}

/// Decided, and not yet sent off to be written.
#[derive(Debug)]
pub(super) struct Pending<R> {
    pub(super) expected_sequence: u64,
    pub(super) expected_hash: Option<Hash>,
    pub(super) records: Vec<Record>,
    /// None while there is nothing to write.
    pub(super) index: Option<IndexUpdate>,
    pub(super) outgoing: Vec<Outgoing<R>>,
}

/// What leaves when an append under way is durable.
#[derive(Debug)]
pub(super) struct Flight<R> {
    pub(super) outgoing: Vec<Outgoing<R>>,
}

impl<R> Default for Pending<R> {
    fn default() -> Self {
        Pending { expected_sequence: 0, expected_hash: None, records: Vec::new(), index: None, outgoing: Vec::new() }
    }
}

impl<R> Resident<R> {
    pub(super) fn new(loaded: Option<Box<Loaded>>) -> Self {
        let (session, hash) = loaded.map(|loaded| (loaded.session, loaded.hash)).unzip();
        Resident { session, hash, pending: Pending::default() }
    }
}

impl<R> Slot<R> {
    pub(super) fn loading(load: &Load, now: i64) -> Self {
        Slot { load: load.number, ..Slot::new(Phase::Loading, now) }
    }

    pub(super) fn presumed(resident: Resident<R>, start: Box<Command>, now: i64) -> Self {
        Slot::new(Phase::Presumed { resident: Box::new(resident), start }, now)
    }

    pub(super) fn settling(pending: Pending<R>, now: i64) -> Self {
        Slot::new(Phase::Settling(pending), now)
    }

    fn new(phase: Phase<R>, now: i64) -> Self {
        Slot {
            phase,
            flights: VecDeque::new(),
            before: None,
            waiting: VecDeque::new(),
            load: 0,
            touched_at_ms: now,
            touched: true,
            weight: 0,
        }
    }

    /// To be called before anything is decided: time may have made something due.
    pub(super) fn keep_before(&mut self, now: i64) {
        let Phase::Resident(resident) = &self.phase else {
            return;
        };
        let is_stored = self.flights.is_empty() && resident.pending.index.is_none();
        if let Some(session) = resident.session.as_ref().filter(|_| is_stored) {
            let position = session.position();
            let is_due = position.clamped(now) > position.quiet_until_ms;
            self.before = is_due.then(|| Box::new(Snapshot::of(session)));
        }
    }

    pub(super) fn touch(&mut self, now: i64) {
        self.touched_at_ms = now;
        self.touched = true;
    }

    pub(super) fn is_resident(&self) -> bool {
        matches!(self.phase, Phase::Resident(_))
    }

    /// Whether this load is the one it waits for.
    pub(super) fn awaits(&self, load: &Load) -> bool {
        matches!(self.phase, Phase::Loading) && self.load == load.number
    }

    pub(super) fn is_settling(&self) -> bool {
        matches!(self.phase, Phase::Settling(_))
    }

    /// Nothing is known of the session and nothing is under way.
    pub(super) fn is_absent(&self) -> bool {
        matches!(&self.phase, Phase::Resident(resident) if resident.session.is_none())
            && self.flights.is_empty()
            && self.waiting.is_empty()
    }

    /// In memory, and nothing would be lost or delayed by forgetting it.
    pub(super) fn is_quiet(&self) -> bool {
        match &self.phase {
            Phase::Resident(resident) => {
                self.flights.is_empty() && self.waiting.is_empty() && resident.pending.index.is_none()
            }
            Phase::Loading | Phase::Presumed { .. } | Phase::Settling(_) => false,
        }
    }

    pub(super) fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Resident(resident) => resident.session.as_ref(),
            Phase::Loading | Phase::Presumed { .. } | Phase::Settling(_) => None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.session().is_some_and(|session| session.state().is_terminal())
    }

    pub(super) fn resident_mut(&mut self) -> Option<&mut Resident<R>> {
        match &mut self.phase {
            Phase::Resident(resident) => Some(resident),
            Phase::Loading | Phase::Presumed { .. } | Phase::Settling(_) => None,
        }
    }

    pub(super) fn pending_mut(&mut self) -> Option<&mut Pending<R>> {
        match &mut self.phase {
            Phase::Resident(resident) | Phase::Presumed { resident, .. } => Some(&mut resident.pending),
            Phase::Settling(pending) => Some(pending),
            Phase::Loading => None,
        }
    }

    pub(super) fn become_resident(&mut self, resident: Resident<R>) {
        self.phase = Phase::Resident(Box::new(resident));
    }

    /// The append of the start was stored: the session is new, and the presumption was right.
    pub(super) fn confirm(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Presumed { resident, .. } => Phase::Resident(resident),
            other => other,
        };
    }

    /// The session exists after all: hands back the start, to be decided again once the session is loaded.
    pub(super) fn refute(&mut self) -> Option<Box<Command>> {
        match std::mem::replace(&mut self.phase, Phase::Loading) {
            Phase::Presumed { start, .. } => Some(start),
            other => {
                self.phase = other;
                None
            }
        }
    }

    pub(super) fn is_presumed(&self) -> bool {
        matches!(self.phase, Phase::Presumed { .. })
    }

    /// Lets what leaves wait for the entry it depends on: the one just decided, the newest being written, or none.
    pub(super) fn send(&mut self, outgoing: impl Iterator<Item = Outgoing<R>>, effects: &mut Vec<Effect<R>>) {
        if let Some(pending) = self.pending_mut()
            && pending.index.is_some()
        {
            pending.outgoing.extend(outgoing);
        } else if let Some(flight) = self.flights.back_mut() {
            flight.outgoing.extend(outgoing);
        } else {
            effects.extend(outgoing.map(Effect::Send));
        }
    }

    /// What is in memory no longer counts; what was decided and not sent off goes to whoever asks for `pending_mut`.
    pub(super) fn settle(&mut self) {
        let pending = self.pending_mut().map(std::mem::take).unwrap_or_default();
        self.phase = Phase::Settling(pending);
    }

    pub(super) fn reload(&mut self, load: &Load, now: i64) {
        self.phase = Phase::Loading;
        self.load = load.number;
        self.touch(now);
    }
}

/// Frames and chains an entry; the one that ends a session carries the hash of everything before it.
pub(super) fn seal(previous: Option<&Hash>, mut entry: Entry) -> Record {
    if let Some(terminal) = &mut entry.terminal {
        terminal.history_hash = previous.map_or_else(Bytes::new, |hash| Bytes::copy_from_slice(hash.as_bytes()));
    }
    record::seal(previous, &entry)
}
