//! A bounded memory of stored sessions, so that an append to a busy session needs no lookup in the database.
//!
//! Sound because there is one writer: the directory lock keeps other processes out. Whoever is unsure of the stored
//! state, after a failed write, clears it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::plan::Stored;

/// Sessions per generation; twice as many are remembered at most, some 12 MiB.
const GENERATION_SESSIONS_MAX: usize = 32_768;

/// Two generations: what is used moves to the young one, and a full young one pushes out the old one whole.
#[derive(Default)]
pub(super) struct Known {
    young: HashMap<Arc<str>, Stored>,
    old: HashMap<Arc<str>, Stored>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({} + {} sessions)", self.young.len(), self.old.len())
    }
}

impl Known {
    pub(super) fn get(&self, id: &str) -> Option<Stored> {
        self.young.get(id).or_else(|| self.old.get(id)).copied()
    }

    pub(super) fn insert(&mut self, id: &Arc<str>, stored: Stored) {
        if let Some(known) = self.young.get_mut(id) {
            *known = stored;
            return;
        }
        if self.young.len() >= GENERATION_SESSIONS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(Arc::clone(id), stored);
    }

    /// A session that has ended is written to no more.
    pub(super) fn forget(&mut self, id: &str) {
        self.young.remove(id);
        self.old.remove(id);
    }

    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Hash;

    #[test]
    fn stays_bounded_and_never_answers_with_an_older_value() {
        let mut known = Known::default();
        let stored =
            |sequence| Stored { key: 1, sequence, hash: Hash::from_bytes([0; 32]), open: true, deadline_ms: 0 };
        let kept: Arc<str> = Arc::from("kept");
        for n in 0..5 * GENERATION_SESSIONS_MAX as u64 {
            known.insert(&Arc::from(n.to_string()), stored(n));
            if n % 1_000 == 0 {
                known.insert(&kept, stored(n));
            }
            assert!(known.young.len() + known.old.len() <= 2 * GENERATION_SESSIONS_MAX);
            assert_eq!(known.get("kept").map(|stored| stored.sequence), Some(n / 1_000 * 1_000));
        }
        assert!(known.get("0").is_none());
        known.forget("kept");
        assert!(known.get("kept").is_none(), "of either generation");
    }
}
