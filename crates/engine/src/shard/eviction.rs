//! Letting go of sessions: bounded memory, and nothing is lost, because a history brings a session back at any time.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Keep, Shard};

/// Slots looked at in one go, so that a look takes no time to speak of however many sessions there are.
const LOOKED_AT_MAX: usize = 4096;

/// An ended session stays a moment for late votes and repeated requests.
const ENDED_IDLE_MS_MAX: i64 = 2_000;

/// Ended sessions that stay for that moment: on a busy server more would end in it than a processor's cache holds, and
/// every new session would begin in memory that is far away.
const ENDED_MAX: usize = 128;

/// Sessions longer than this take time to load and stay in memory longer.
const LONG_ENTRIES: u64 = 5_000;
const LONG_IDLE_FACTOR: i64 = 12;

/// Places in the rounds that need no tidying, however few sessions there are.
const SPARE_PLACES: usize = 64;

impl<R> Shard<R> {
    /// Forgets sessions nobody has touched for a while.
    pub(super) fn evict_idle(&mut self, now: i64) {
        for _ in 0..self.rounds.len().min(LOOKED_AT_MAX) {
            let Some(session_id) = self.rounds.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get(&session_id) else {
                continue;
            };
            let long = slot.session().is_some_and(|session| session.sequence() > LONG_ENTRIES);
            let idle_ms_max = match (slot.has_ended(), long) {
                (true, _) => ENDED_IDLE_MS_MAX.min(self.keep.idle_ms_max),
                (false, false) => self.keep.idle_ms_max,
                (false, true) => self.keep.idle_ms_max.saturating_mul(LONG_IDLE_FACTOR),
            };
            if slot.is_quiet() && now.saturating_sub(slot.touched_at_ms) > idle_ms_max {
                self.slots.remove(&session_id);
            } else {
                self.rounds.push_back(session_id);
            }
        }
    }

    /// A session's end is stored: the oldest ended one makes room for it.
    pub(super) fn note_end(&mut self, session_id: Arc<str>) {
        self.ended.push_back(session_id);
        if self.ended.len() <= ENDED_MAX {
            return;
        }
        let oldest = self.ended.pop_front().expect("there are more than none");
        if self.slots.get(&oldest).is_some_and(|slot| slot.is_quiet() && slot.has_ended()) {
            self.slots.remove(&oldest);
        }
    }

    /// Forgets sessions over the bound: round after round, whatever nobody touched since the round before.
    pub(super) fn evict_surplus(&mut self) {
        let mut looks = self.rounds.len().saturating_mul(2).min(LOOKED_AT_MAX);
        while self.is_over_bound() && looks > 0 {
            looks -= 1;
            let Some(session_id) = self.rounds.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get_mut(&session_id) else {
                continue;
            };
            if slot.is_quiet() && !std::mem::take(&mut slot.touched) {
                self.slots.remove(&session_id);
            } else {
                self.rounds.push_back(session_id);
            }
        }
    }

    /// A session that is too heavy by itself stays: it would be loaded again for its next message.
    fn is_over_bound(&self) -> bool {
        let Keep { sessions_max, bytes_max, .. } = self.keep;
        self.slots.len() > sessions_max || (self.slots.bytes() > bytes_max && self.slots.len() > 1)
    }

    /// A failed write takes a session out of memory and leaves its place in the rounds behind; when it is loaded again
    /// it gets another. Places left behind are cleared before they outnumber the sessions, so that a store that keeps
    /// failing costs no memory and does not hold up eviction.
    pub(super) fn tidy_rounds(&mut self) {
        if self.rounds.len() <= self.slots.len().saturating_mul(2).saturating_add(SPARE_PLACES) {
            return;
        }
        let slots = &self.slots;
        let mut kept = HashSet::with_capacity(slots.len());
        self.rounds.retain(|session_id| slots.contains_key(session_id) && kept.insert(Arc::clone(session_id)));
    }
}

#[cfg(test)]
mod tests {
    use macp_kernel::{Caller, Command, Credential, Input, Limits, PROTOCOL_VERSION, Registered, SignatureCheck, step};
    use macp_ledger::{Failure, FailureKind, Hash};
    use macp_wire::v1::Envelope;

    use super::super::{Effect, Event, Keep, Request, RequestKind, Shard};
    use super::{ENDED_MAX, SPARE_PLACES};
    use crate::loader::Loaded;

    fn command(message_type: &str) -> Command {
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.into(),
            message_type: message_type.into(),
            message_id: message_type.into(),
            session_id: "s1".into(),
            sender: "alice".into(),
            ..Envelope::default()
        };
        Command {
            caller: Caller::anonymous(),
            input: Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() },
        }
    }

    /// Brings a session into memory by a read.
    fn load(shard: &mut Shard<()>, session_id: &str) {
        let mut effects = Vec::new();
        let read = Request { session_id: session_id.into(), kind: RequestKind::Read, reply: () };
        shard.step(Event::Request(read), 1, &mut effects);
        let Some(Effect::Load(load)) = effects.pop() else { panic!("no load of {session_id}") };
        let mut session = None;
        step(&mut session, &command("SessionStart"), 1, &Limits::default());
        let loaded = Loaded { session: session.expect("started"), hash: Hash::from_bytes([0; 32]) };
        shard.step(Event::Loaded { load, result: Ok(Some(Box::new(loaded))) }, 1, &mut effects);
        shard.flush(&mut effects);
    }

    #[test]
    fn sessions_that_are_too_heavy_together_are_let_go_and_one_stays() {
        for (bytes_max, stay) in [(u64::MAX, 8), (7_000, 3), (1, 1), (0, 1)] {
            let keep = Keep { sessions_max: 8, bytes_max, idle_ms_max: 1_000 };
            let mut shard = Shard::new(Limits::default(), keep, false);
            for number in 0..20 {
                load(&mut shard, &format!("s{number}"));
            }
            assert_eq!(shard.resident(), stay, "{bytes_max}");
            let weight = shard.slots.bytes();
            assert!(weight <= bytes_max.max(4_096) && weight > 2_048 * stay as u64, "{weight}");
        }
    }

    #[test]
    fn of_many_sessions_that_end_at_once_the_last_ones_stay() {
        let keep = Keep { sessions_max: 1_000, bytes_max: u64::MAX, idle_ms_max: 1_000 };
        let mut shard = Shard::new(Limits::default(), keep, false);
        let many = ENDED_MAX + 10;
        for number in 0..many {
            load(&mut shard, &format!("s{number}"));
        }
        assert_eq!(shard.resident(), many, "open ones stay");
        for number in 0..many {
            let caller = Caller { credential: Credential::Identity("alice".into()), ..Caller::default() };
            let kind =
                RequestKind::Command(Box::new(Command { caller, input: Input::Cancel { reason: String::new() } }));
            let mut effects = Vec::new();
            shard.step(
                Event::Request(Request { session_id: format!("s{number}").into(), kind, reply: () }),
                1,
                &mut effects,
            );
            shard.flush(&mut effects);
            let Some(Effect::Append(append)) = effects.pop() else { panic!("s{number} did not end") };
            let stored = Event::Appended { session_id: append.session_id, result: Ok(append.records) };
            shard.step(stored, 1, &mut effects);
        }
        assert_eq!(shard.resident(), ENDED_MAX);
        assert!(!shard.slots.contains_key("s0") && shard.slots.contains_key(&format!("s{}", many - 1)));
    }

    #[test]
    fn a_store_that_keeps_failing_costs_no_memory() {
        let mut session = None;
        step(&mut session, &command("SessionStart"), 1, &Limits::default());
        let session = session.expect("started");
        let mut shard =
            Shard::new(Limits::default(), Keep { sessions_max: 10, bytes_max: u64::MAX, idle_ms_max: 1_000 }, false);
        for _ in 0..1_000 {
            let mut effects = Vec::new();
            let kind = RequestKind::Command(Box::new(command("Message")));
            shard.step(Event::Request(Request { session_id: "s1".into(), kind, reply: () }), 1, &mut effects);
            let loaded = Loaded { session: session.clone(), hash: Hash::from_bytes([0; 32]) };
            let result = Ok(Some(Box::new(loaded)));
            let load = effects.iter().find_map(|effect| match effect {
                Effect::Load(load) => Some(load.clone()),
                _ => None,
            });
            shard.step(Event::Loaded { load: load.expect("a load"), result }, 1, &mut effects);
            shard.flush(&mut effects);
            assert!(effects.iter().any(|effect| matches!(effect, Effect::Append(_))));
            let failure = Failure::new(FailureKind::DiskFull, "appending");
            shard.step(Event::Appended { session_id: "s1".into(), result: Err(failure.into()) }, 1, &mut effects);
        }
        assert_eq!(shard.resident(), 0);
        assert!(shard.rounds.len() <= 2 + SPARE_PLACES, "{} places for no session", shard.rounds.len());
    }
}
