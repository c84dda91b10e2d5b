//! Letting go of sessions: bounded memory, and nothing is lost, because a history brings a session back at any time.

use super::Shard;

/// Slots looked at in one go, so that a look takes no time to speak of however many sessions there are.
const LOOKED_AT_MAX: usize = 4096;

/// An ended session stays a moment for late votes and repeated requests.
const ENDED_IDLE_MS_MAX: i64 = 2_000;

/// Sessions longer than this take time to load and stay in memory longer.
const LONG_ENTRIES: u64 = 5_000;
const LONG_IDLE_FACTOR: i64 = 12;

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
                (true, _) => ENDED_IDLE_MS_MAX.min(self.idle_ms_max),
                (false, false) => self.idle_ms_max,
                (false, true) => self.idle_ms_max.saturating_mul(LONG_IDLE_FACTOR),
            };
            if slot.is_quiet() && now.saturating_sub(slot.touched_at_ms) > idle_ms_max {
                self.slots.remove(&session_id);
            } else {
                self.rounds.push_back(session_id);
            }
        }
    }

    /// Forgets sessions over the bound: round after round, whatever nobody touched since the round before.
    pub(super) fn evict_surplus(&mut self) {
        let mut looks = self.rounds.len().saturating_mul(2).min(LOOKED_AT_MAX);
        while self.slots.len() > self.resident_max && looks > 0 {
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
}
