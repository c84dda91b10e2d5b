//! Pauses of a session: while it is suspended its deadline stands still, up to a cap.

/// Completed pauses a session may have; one more ends it.
pub const SUSPENSIONS_MAX: usize = 1024;

/// How long and when a session stood still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Most time it may be suspended altogether; bound at the start.
    pub cap_ms: i64,
    /// Total of the completed pauses.
    pub accumulated_ms: i64,
    /// Since when it is suspended, if it is.
    pub since_ms: Option<i64>,
    /// The completed pauses, in order: from, to.
    pub intervals: Vec<(i64, i64)>,
}

impl Suspension {
    pub fn new(cap_ms: i64) -> Self {
        Suspension { cap_ms, accumulated_ms: 0, since_ms: None, intervals: Vec::new() }
    }

    /// The last moment at which the present pause is within the cap.
    pub(crate) fn limit_ms(&self) -> Option<i64> {
        self.since_ms.map(|since| since.saturating_add(self.cap_ms.saturating_sub(self.accumulated_ms)))
    }

    pub(crate) fn begin(&mut self, now: i64) {
        self.since_ms = Some(now);
    }

    /// Ends the present pause; returns how long it was.
    pub(crate) fn end(&mut self, now: i64) -> i64 {
        let Some(since) = self.since_ms.take() else {
            return 0;
        };
        let pause_ms = now.saturating_sub(since).max(0);
        self.accumulated_ms = self.accumulated_ms.saturating_add(pause_ms);
        self.intervals.push((since, now));
        pause_ms
    }
}
