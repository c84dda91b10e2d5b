//! Giving up what is in memory of a session after a step on it panicked.
//!
//! What was decided and not sent off is answered as an internal error; what is being written lands as usual. Then the
//! session is read again from its history, which is what it really is. No other session is concerned.

use super::{Effect, Shard, fail};
use crate::Error;

impl<R> Shard<R> {
    /// Lets go of a session whose slot may be half changed.
    pub(crate) fn abandon(&mut self, session_id: &str, effects: &mut Vec<Effect<R>>) {
        let Some((session_id, mut slot)) = self.slots.remove_entry(session_id) else {
            return;
        };
        slot.settle();
        if let Some(pending) = slot.pending_mut().map(std::mem::take) {
            effects.extend(fail(pending.outgoing, &Error::Internal));
        }
        effects.extend(slot.waiting.drain(..).map(|request| request.failed(Error::Internal)));
        if !slot.flights.is_empty() {
            self.slots.insert(session_id, slot);
        }
    }
}
