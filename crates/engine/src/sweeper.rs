//! Time: finds open sessions past their deadline, wakes eviction, and probes the store.
//!
//! The store's index knows every deadline, so nothing needs to be armed: a short look a few times a second finds what
//! is due, however many sessions there are and whether or not they are in memory.
//!
//! The look gives ids alone. What the index says of a session, which may be a quarter of a megabyte, is read one by one,
//! and only so much of it is on its way to the shards per look.
//!
//! A session may end without being loaded, so the end of its history is checked first: the index must name the last
//! record, and that record must continue the one before it. What lies further back is found by a load or a
//! verification. And the index is not believed about the deadline: an entry that ends a session too early would not
//! replay. Where the deadline is not the one the first entry is bound to, or the session may be suspended, the session
//! is loaded and says itself what time has made of it. A session that fails the check gets no entry, and one whose entry cannot be written is not tried at
//! every look; neither holds up the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use macp_ledger::{Checker, Head, ReadError, Store, history};
use macp_wire::history::v1::{Entry, entry};
use macp_wire::v1::{SessionMetadata, SessionState};
use prost::Message;

use crate::commit::Health;
use crate::feed::Feed;
use crate::panic::contain;

/// How late the runtime may notice a deadline by itself. A touch notices it at once.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Sessions sent to expire per look: catching up after a long downtime must not crowd out live traffic.
const DUE_PER_LOOK: usize = 1_000;

/// Bytes of index rows sent per look: what waits in the shards' queues, when a great many long rosters expire at once,
/// must not be a matter of gigabytes.
const DUE_BYTES_PER_LOOK: usize = 16 * 1024 * 1024;

/// Looks per tick of eviction.
const LOOKS_PER_TICK: u32 = 5;

/// Looks per probe while all seems well, for what no commit shows: a log that can no longer be emptied.
const LOOKS_PER_PROBE: u32 = 50;

/// How long a session that was tried and is still due is left alone: at first time enough for a slow commit, then twice
/// as long each time.
const RETRY_MS_MIN: i64 = 1_000;
const RETRY_MS_MAX: i64 = 300_000;

/// Sessions remembered as tried. Damage to more of them than this needs an operator before anything else.
const TRIED_MAX: usize = 4_000;

#[derive(Debug)]
pub(crate) struct Sweeper {
    store: Arc<dyn Store>,
    health: Arc<Health>,
    feed: Arc<Feed>,
    tried: HashMap<Arc<str>, Tried>,
    was_healthy: bool,
    looks: u32,
}

/// A session that was due and has not ended since.
#[derive(Clone, Copy, Debug)]
struct Tried {
    again_at_ms: i64,
    wait_ms: i64,
}

impl Sweeper {
    pub(crate) fn new(store: Arc<dyn Store>, health: Arc<Health>, feed: Arc<Feed>) -> Self {
        Sweeper { store, health, feed, tried: HashMap::new(), was_healthy: true, looks: 0 }
    }

    /// Sweeps until `stop` closes.
    pub(crate) fn run(mut self, stop: &Receiver<()>, now: impl Fn() -> i64, expire: impl Fn(Head), tick: impl Fn()) {
        while stop.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            // The next look begins anew, and nothing here outlives a look but what is only remembered to save work.
            let _logged = contain("a look for expired sessions", None, || self.look(now(), &expire, &tick));
        }
    }

    fn look(&mut self, now: i64, expire: &impl Fn(Head), tick: &impl Fn()) {
        self.looks = self.looks.wrapping_add(1);
        self.expire_due(now, expire);
        if self.looks.is_multiple_of(LOOKS_PER_TICK) {
            tick();
            self.feed.prune();
        }
        if self.looks.is_multiple_of(if self.health.is_good() { LOOKS_PER_PROBE } else { LOOKS_PER_TICK }) {
            self.probe();
        }
    }

    fn expire_due(&mut self, now: i64, expire: &impl Fn(Head)) {
        // What failed while the store could not write is no fault of the sessions.
        let is_healthy = self.health.is_good();
        if is_healthy && !self.was_healthy {
            self.tried.clear();
        }
        self.was_healthy = is_healthy;
        // Those that were tried may all be at the front.
        let due = match self.store.due(now, DUE_PER_LOOK + self.tried.len()) {
            Ok(due) => due,
            Err(failure) => {
                tracing::warn!(%failure, "cannot look for expired sessions");
                return;
            }
        };
        let mut before = std::mem::take(&mut self.tried);
        let mut sent_bytes = 0;
        for session_id in due {
            let tried = before.remove(&session_id);
            if self.tried.len() + before.len() >= TRIED_MAX && tried.is_none() {
                continue;
            }
            if let Some(waiting) = tried.filter(|tried| now < tried.again_at_ms) {
                self.tried.insert(session_id, waiting);
                continue;
            }
            if sent_bytes >= DUE_BYTES_PER_LOOK {
                // The next look finds it again.
                self.tried.extend(tried.map(|tried| (session_id, tried)));
                continue;
            }
            let wait_ms = tried.map_or(RETRY_MS_MIN, |tried| tried.wait_ms.saturating_mul(2).min(RETRY_MS_MAX));
            let again = Tried { again_at_ms: now.saturating_add(wait_ms), wait_ms };
            match self.still_due(&session_id, now) {
                Ok(Some(head)) => {
                    sent_bytes += head.summary.len();
                    expire(head);
                }
                Ok(None) => continue,
                Err(error) if tried.is_none() => {
                    tracing::error!(session = &*session_id, %error, "session is past its deadline and cannot end");
                }
                Err(_logged_before) => {}
            }
            self.tried.insert(session_id, again);
        }
    }

    /// The index row of a session that was due a moment ago, unless it has moved on since.
    fn still_due(&self, session_id: &str, now: i64) -> Result<Option<Head>, ReadError> {
        let Some(head) = self.store.head(session_id)?.filter(|head| head.open && head.deadline_ms < now) else {
            return Ok(None);
        };
        let last = history::check_end(&*self.store, &head)?;
        if self.is_certain(&head, &last)? {
            return Ok(Some(head));
        }
        // A row without a state says nothing, so that the shard loads the session.
        Ok(Some(Head { state: SessionState::Unspecified.into(), ..head }))
    }

    /// Whether the deadline in the index is that of the first entry. Only pauses move deadlines, and nothing follows the
    /// entry that suspends a session before the one that resumes it.
    fn is_certain(&self, head: &Head, last: &Entry) -> Result<bool, ReadError> {
        let is_suspended = matches!(last.input, Some(entry::Input::SessionSuspend(_)));
        let Ok(summary) = SessionMetadata::decode(head.summary.clone()) else {
            return Ok(false);
        };
        let Some(record) = self.store.read(&head.session_id, 0, 1, usize::MAX)?.into_iter().next() else {
            return Ok(false);
        };
        let binding = Checker::new().check(&record)?.binding;
        let is_bound = binding.is_some_and(|binding| binding.deadline_unix_ms == summary.expires_at_unix_ms);
        Ok(is_bound && !is_suspended && head.state == i32::from(SessionState::Open))
    }

    fn probe(&self) {
        match (self.store.probe(), self.health.is_good()) {
            (Ok(()), false) => {
                tracing::info!("the store can write again");
                self.health.set(true);
            }
            (Err(failure), true) => {
                let cause = std::error::Error::source(&failure).map(ToString::to_string);
                tracing::error!(%failure, cause, code = failure.code(), "the store cannot write");
                self.health.set(false);
            }
            (Ok(()), true) | (Err(_), false) => {}
        }
    }
}

#[cfg(test)]
mod tests;
