//! Giving up what is in memory of a session after a step on it panicked.
//!
//! What was decided and not sent off is answered as an internal error; what is being written lands as usual. Then the
//! session is read again from its history, which is what it really is. No other session is concerned.

use super::{Effect, Shard, fail};
use crate::Error;

impl<R> Shard<R> {
    /// Lets go of a session whose slot may be half changed.
    pub(crate) fn abandon(&mut self, session_id: &str, effects: &mut Vec<Effect<R>>) {
        let Some((session_id, mut slot)) = self.slots.remove(session_id) else {
            return;
        };
        slot.settle();
        if let Some(pending) = slot.pending_mut().map(std::mem::take) {
            effects.extend(fail(pending.outgoing, &Error::Internal, None));
        }
        effects.extend(slot.waiting.drain(..).map(|request| request.failed(Error::Internal)));
        if !slot.flights.is_empty() {
            self.slots.insert(session_id, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use macp_kernel::Limits;

    use super::super::{Answer, Event, Keep, Outgoing, Request, RequestKind};
    use super::*;
    use crate::loader::{Load, LoadResult};

    /// Lets a request wait for its session; returns the load it waits for.
    fn read(shard: &mut Shard<u32>, reply: u32) -> Load {
        let mut effects = Vec::new();
        let request = Request { session_id: "s".into(), kind: RequestKind::Read, reply };
        shard.step(Event::Request(request), 1, &mut effects);
        match effects.pop() {
            Some(Effect::Load(load)) => load,
            other => panic!("{other:?}"),
        }
    }

    fn loaded(shard: &mut Shard<u32>, load: &Load, result: LoadResult) -> Vec<Effect<u32>> {
        let mut effects = Vec::new();
        shard.step(Event::Loaded { load: load.clone(), result }, 1, &mut effects);
        effects
    }

    #[test]
    fn what_a_load_of_before_still_brings_is_not_taken() {
        let mut shard =
            Shard::new(Limits::default(), Keep { sessions_max: 10, bytes_max: u64::MAX, idle_ms_max: 1_000 }, false);
        let stale = read(&mut shard, 1);
        let mut effects = Vec::new();
        shard.abandon("s", &mut effects);
        let internal = |effect: &Effect<u32>| matches!(effect, Effect::Send(Outgoing::Answer(1, Err(Error::Internal))));
        assert!(matches!(&effects[..], [effect] if internal(effect)), "{effects:?}");
        // Nobody asks for the session any more.
        assert!(loaded(&mut shard, &stale, Ok(None)).is_empty());

        let fresh = read(&mut shard, 2);
        assert_ne!(stale, fresh);
        assert!(loaded(&mut shard, &stale, Err(Error::Internal)).is_empty(), "the load is still under way");
        let effects = loaded(&mut shard, &fresh, Ok(None));
        let read = |effect: &Effect<u32>| matches!(effect, Effect::Send(Outgoing::Answer(2, Ok(Answer::Read(None)))));
        assert!(matches!(&effects[..], [effect] if read(effect)), "{effects:?}");
        assert!(loaded(&mut shard, &stale, Ok(None)).is_empty());
        assert_eq!(shard.resident(), 0);
    }
}
