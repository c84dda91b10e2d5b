//! How long to wait before trying again what something keeps from happening: longer every time, up to a limit.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    next: Duration,
    longest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self::up_to(Duration::from_secs(30))
    }
}

impl Patience {
    pub(crate) const fn up_to(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// How long to wait this time.
    pub(crate) fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(self.longest);
        next
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    /// What kept it from happening is gone.
    pub(crate) fn reset(&mut self) {
        *self = Self::up_to(self.longest);
    }
}
