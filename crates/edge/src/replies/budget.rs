//! A bound on bytes that many tasks reserve from, in the order in which they came.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify};

/// Reservations up to this size pass those that wait: acknowledgements must not queue behind a page of a listing.
const SMALL_BYTES: usize = 8 * 1024;

/// Bytes in use, and their bound.
///
/// One reservation larger than the bound passes while nothing else is reserved, so that every request makes progress.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    used: AtomicUsize,
    /// Tasks that wait, so that a release costs nothing while there are none.
    waiting: AtomicUsize,
    /// Held by the first task that waits; the others queue for it in their order.
    turn: Mutex<()>,
    released: Notify,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Budget {
            max,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            turn: Mutex::new(()),
            released: Notify::new(),
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns whether nothing more may be made before some of it is released.
    pub(crate) fn is_full(&self) -> bool {
        self.used.load(Ordering::SeqCst) >= self.max
    }

    /// Reserves if there is room now and no earlier reservation waits for it.
    pub(crate) fn try_reserve(&self, bytes: usize) -> bool {
        let is_first = bytes <= SMALL_BYTES || self.waiting.load(Ordering::SeqCst) == 0;
        is_first && self.take(bytes)
    }

    /// Reserves, waiting for room behind the reservations that came before.
    pub(crate) async fn reserve(&self, bytes: usize) {
        if !self.try_reserve(bytes) {
            self.wait_until(|| self.take(bytes)).await;
        }
    }

    /// Waits until the budget is not full.
    pub(crate) async fn room(&self) {
        if self.is_full() {
            self.wait_until(|| !self.is_full()).await;
        }
    }

    /// Adds bytes that exist already, beyond the bound if need be.
    pub(crate) fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.released.notify_waiters();
        }
    }

    fn take(&self, bytes: usize) -> bool {
        // Never more than fits, not even for a moment: a task that waits would miss room that another one gives up.
        let fits = |used: usize| (used == 0 || used.saturating_add(bytes) <= self.max).then(|| used + bytes);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    async fn wait_until(&self, done: impl Fn() -> bool) {
        let _counted = Waiting::begin(&self.waiting);
        let _turn = self.turn.lock().await;
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // Registered before the check, so that no release between the two is missed.
            released.as_mut().enable();
            if done() {
                return;
            }
            released.await;
        }
    }
}

/// Counts a waiting task until it is dropped, however it ends.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;

    async fn is_ready(future: Pin<&mut impl Future>) -> bool {
        let mut future = future;
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    const LARGE: usize = SMALL_BYTES + 1;

    #[tokio::test]
    async fn reservations_wait_in_order_and_small_ones_pass() {
        let budget = Budget::new(4 * LARGE);
        budget.reserve(3 * LARGE).await;
        let mut first = pin!(budget.reserve(2 * LARGE));
        let mut second = pin!(budget.reserve(LARGE));
        assert!(!is_ready(first.as_mut()).await);
        assert!(!is_ready(second.as_mut()).await, "there is room, but the first comes first");
        assert!(budget.try_reserve(1), "an acknowledgement passes");
        budget.release(1);
        budget.release(LARGE);
        assert!(is_ready(first.as_mut()).await);
        assert!(!is_ready(second.as_mut()).await);
        budget.release(2 * LARGE);
        assert!(is_ready(second.as_mut()).await);
        assert_eq!(budget.used(), 3 * LARGE);
    }

    #[tokio::test]
    async fn a_reservation_above_the_bound_passes_alone() {
        let budget = Budget::new(10);
        budget.reserve(LARGE).await;
        assert!(!budget.try_reserve(1));
        assert!(budget.is_full());
        budget.release(LARGE);
        assert!(budget.try_reserve(10));
        let mut room = pin!(budget.room());
        assert!(!is_ready(room.as_mut()).await);
        budget.release(1);
        assert!(is_ready(room.as_mut()).await);
    }

    #[tokio::test]
    async fn a_task_that_stops_waiting_leaves_the_queue() {
        let budget = Budget::new(LARGE);
        budget.reserve(LARGE).await;
        {
            let mut gives_up = pin!(budget.reserve(LARGE));
            assert!(!is_ready(gives_up.as_mut()).await);
        }
        budget.release(LARGE);
        assert!(budget.try_reserve(LARGE), "no one waits any more");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_release_is_missed_between_threads() {
        let budget = std::sync::Arc::new(Budget::new(LARGE));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let budget = std::sync::Arc::clone(&budget);
                tokio::spawn(async move {
                    for _ in 0..500 {
                        budget.reserve(LARGE).await;
                        tokio::task::yield_now().await;
                        budget.release(LARGE);
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(std::time::Duration::from_secs(30), task).await.expect("in time").expect("no panic");
        }
        assert_eq!(budget.used(), 0);
    }
}
