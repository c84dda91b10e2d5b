//! Starting a session without asking the store whether it exists.
//!
//! Nearly every SessionStart names a new session, and the append of a first entry finds out anyway: it conflicts when
//! there is a history already. So a start that would be accepted on a new session is written at once. If it conflicts,
//! nobody has heard of it yet: the session is loaded and the start is decided again on what is really there.

use std::sync::Arc;

use macp_kernel::trace;
use macp_kernel::{Input, SESSION_START, Settled, step};

use super::slot::{Flight, Resident, Slot};
use super::{Answer, Effect, Outgoing, Reply, Request, RequestKind, Shard, record};

impl<R> Shard<R> {
    /// Takes a start that a new session would accept; gives back any other request.
    pub(super) fn presume(&mut self, request: Request<R>, now: i64) -> Option<Request<R>> {
        let RequestKind::Command(command) = &request.kind else {
            return Some(request);
        };
        if !matches!(&command.input, Input::Envelope { envelope, .. } if envelope.message_type == SESSION_START) {
            return Some(request);
        }
        let mut resident = Resident::new(None);
        let outcome = step(&mut resident.session, command, now, &self.limits);
        if !matches!(outcome.settled, Settled::Accepted { .. }) {
            // Whether the session exists decides which refusal it gets, or none.
            return Some(request);
        }
        let Request { session_id, kind, reply } = request;
        let RequestKind::Command(command) = kind else {
            unreachable!("looked at above");
        };
        let lifecycle = record(&mut resident, outcome.entries, now);
        let trace = self.trace.then(|| {
            let verdict = (&outcome.settled).into();
            Box::new(trace::Event::new(now, &session_id, 0, &command, &self.limits, verdict))
        });
        let answer = Answer::Verdict(Reply::new(outcome.settled, resident.session.as_ref(), &command.caller));
        let outgoing = &mut resident.pending.outgoing;
        outgoing.extend(lifecycle.map(Outgoing::lifecycle));
        outgoing.extend(trace.map(Outgoing::Trace));
        outgoing.push(Outgoing::Answer(reply, Ok(answer)));
        self.slots.insert(Arc::clone(&session_id), Slot::presumed(resident, command, now));
        self.unflushed.push(session_id);
        None
    }

    /// The start was stored: whoever came after it can be decided.
    pub(super) fn confirm(&mut self, session_id: Arc<str>, now: i64, effects: &mut Vec<Effect<R>>) {
        let slot = self.slots.get_mut(&session_id).expect("a session being started has a slot");
        slot.confirm();
        for request in std::mem::take(&mut slot.waiting) {
            self.decide(request, now, effects);
        }
        self.keep(session_id);
    }

    /// The session exists already: the start waits, first in line, for it to be loaded.
    pub(super) fn refute(&mut self, session_id: Arc<str>, flight: Flight<R>, now: i64, effects: &mut Vec<Effect<R>>) {
        let slot = self.slots.get_mut(&session_id).expect("a session being started has a slot");
        let command = slot.refute().expect("the session was presumed to be new");
        let reply = flight.outgoing.into_iter().find_map(|outgoing| match outgoing {
            Outgoing::Answer(reply, _) => Some(reply),
            Outgoing::Lifecycle(_) | Outgoing::Trace(_) => None,
        });
        let reply = reply.expect("a start has someone who waits for its answer");
        let kind = RequestKind::Command(command);
        slot.waiting.push_front(Request { session_id: Arc::clone(&session_id), kind, reply });
        let load = self.loads.next(session_id);
        slot.reload(&load, now);
        effects.push(Effect::Load(load));
    }
}

#[cfg(test)]
mod tests;
