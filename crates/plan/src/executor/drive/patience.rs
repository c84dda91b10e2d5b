//! How long to wait before looking again at what keeps a run waiting: longer every time, up to a limit.

use std::time::Duration;

/// The first wait, and the longest.
const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub(in crate::executor) struct Patience {
    next: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { next: MIN }
    }
}

impl Patience {
    pub(in crate::executor) fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(MAX);
        next
    }

    /// What kept the run waiting is gone.
    pub(in crate::executor) fn reset(&mut self) {
        *self = Self::default();
    }
}
