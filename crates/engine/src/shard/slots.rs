//! The sessions of a shard, and what they weigh together.

use std::collections::HashMap;
use std::sync::Arc;

use macp_kernel::Session;

use super::slot::Slot;

/// Slots by session id. Weights are estimates, mostly from above, that cost nothing to keep: a part of a session's text is
/// in its history alone.
#[derive(Debug)]
pub(super) struct Slots<R> {
    slots: HashMap<Arc<str>, Slot<R>>,
    bytes: u64,
}

impl<R> Slots<R> {
    pub(super) fn new() -> Self {
        Slots { slots: HashMap::new(), bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// What all sessions weigh, as of when they were last weighed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn contains_key(&self, session_id: &str) -> bool {
        self.slots.contains_key(session_id)
    }

    pub(super) fn get(&self, session_id: &str) -> Option<&Slot<R>> {
        self.slots.get(session_id)
    }

    pub(super) fn get_mut(&mut self, session_id: &str) -> Option<&mut Slot<R>> {
        self.slots.get_mut(session_id)
    }

    pub(super) fn insert(&mut self, session_id: Arc<str>, slot: Slot<R>) {
        self.bytes += slot.weight;
        if let Some(replaced) = self.slots.insert(session_id, slot) {
            self.bytes -= replaced.weight;
        }
    }

    pub(super) fn remove(&mut self, session_id: &str) -> Option<(Arc<str>, Slot<R>)> {
        let removed = self.slots.remove_entry(session_id);
        if let Some((_, slot)) = &removed {
            self.bytes -= slot.weight;
        }
        removed
    }

    /// To be called when a session has come into memory or has grown; gives its slot.
    pub(super) fn weigh(&mut self, session_id: &str) -> Option<&mut Slot<R>> {
        let slot = self.slots.get_mut(session_id)?;
        let weight = slot.session().map_or(0, Session::weight);
        self.bytes = self.bytes - slot.weight + weight;
        slot.weight = weight;
        Some(slot)
    }
}
