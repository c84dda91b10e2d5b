//! Bounds what envelopes hold in memory that subscribers of all sessions have not taken yet.
//!
//! Subscribers of one session share its envelopes, so that only a total over all sessions says what is in memory. The
//! less of it is left, the less a subscriber may fall behind before it ends as lagged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes of envelopes that all subscribers together may be behind.
const TOTAL_MAX: usize = 64 * 1024 * 1024;

/// Bytes one subscriber may be behind while there is enough left; several of the largest envelopes.
pub(crate) const BEHIND_MAX: usize = 8 * 1024 * 1024;

/// Bytes one subscriber may be behind in any case, so that one which reads never lags for what others do not read.
pub(crate) const BEHIND_MIN: usize = 64 * 1024;

/// The envelopes of all live feeds.
#[derive(Debug, Default)]
pub(crate) struct LiveMemory {
    used: AtomicUsize,
}

impl LiveMemory {
    /// Returns the bytes as ones that count until the last copy of them is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        self.used.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Held { bytes, memory: Arc::clone(self) })
    }

    /// Returns how many bytes a subscriber may be behind now.
    pub(crate) fn behind_max(&self) -> usize {
        let left = TOTAL_MAX.saturating_sub(self.used.load(Ordering::Relaxed));
        (left / (TOTAL_MAX / BEHIND_MAX)).clamp(BEHIND_MIN, BEHIND_MAX)
    }
}

struct Held {
    bytes: Vec<u8>,
    memory: Arc<LiveMemory>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_less_a_subscriber_may_be_behind() {
        let memory = Arc::new(LiveMemory::default());
        assert_eq!(memory.behind_max(), BEHIND_MAX);
        let half = memory.hold(vec![0; TOTAL_MAX / 2]);
        let copy = half.clone();
        assert_eq!(memory.behind_max(), BEHIND_MAX / 2);
        drop(half);
        assert_eq!(memory.behind_max(), BEHIND_MAX / 2, "the copy counts");
        let more = memory.hold(vec![0; TOTAL_MAX]);
        assert_eq!(memory.behind_max(), BEHIND_MIN);
        drop((copy, more));
        assert_eq!(memory.behind_max(), BEHIND_MAX);
    }
}
