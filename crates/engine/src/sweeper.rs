//! Time: finds open sessions past their deadline, wakes eviction, and probes a store that failed.
//!
//! The store's index knows every deadline, so nothing needs to be armed: a short look a few times a second finds what
//! is due, however many sessions there are and whether or not they are in memory.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use macp_ledger::{Head, Store};

use crate::feed::Feed;
use crate::writer::Health;

/// How late the runtime may notice a deadline by itself. A touch notices it at once.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Sessions sent to expire per look: catching up after a long downtime must not crowd out live traffic.
const DUE_PER_LOOK: usize = 1_000;

/// Looks per tick of eviction.
const LOOKS_PER_TICK: u32 = 5;

/// Sweeps until `stop` closes.
pub(crate) fn run(
    store: Arc<dyn Store>,
    health: Arc<Health>,
    feed: Arc<Feed>,
    stop: Receiver<()>,
    now: impl Fn() -> i64,
    expire: impl Fn(Head),
    tick: impl Fn(),
) {
    let mut looks: u32 = 0;
    loop {
        match stop.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        match store.due(now(), DUE_PER_LOOK) {
            Ok(due) => due.into_iter().for_each(&expire),
            Err(failure) => tracing::warn!(%failure, "cannot look for expired sessions"),
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_PER_TICK) {
            tick();
            feed.prune();
            if !health.is_good() && store.probe().is_ok() {
                tracing::info!("the store can write again");
                health.set(true);
            }
        }
    }
}
