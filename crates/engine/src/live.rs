//! The way of what is committed from the shard to one subscriber: a queue, bounded by count and by bytes.
//!
//! To put something into the queue and to wake its reader are two things. What a session commits goes to all of its
//! subscribers, many of whom share a connection: as soon as the first of them runs, they compete for it with who is
//! still handing out.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::task::coop::cooperative;

use crate::feed::Delivery;

/// Entries of one session a single commit may hold: what a shard takes before it hands over.
const COMMIT_ENTRIES_MAX: usize = 2 * crate::driver::EVENTS_PER_FLUSH_MAX;

/// Where the shard puts deliveries. Without it the subscriber gets what is in the queue, and then the end.
#[derive(Debug)]
pub(crate) struct Subscriber {
    queue: Arc<Mutex<Queue>>,
    /// Deliveries it may be behind when something new is committed.
    buffer: usize,
    /// Subscribers that share their way out have the same.
    pub(crate) neighbourhood: u64,
}

/// The receiving end of a session's live feed.
#[derive(Debug)]
pub(crate) struct Live {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    deliveries: VecDeque<Delivery>,
    /// Of the envelopes in it.
    bytes: usize,
    reader: Option<Waker>,
    has_lagged: bool,
    /// Nothing more will come.
    is_over: bool,
}

impl Queue {
    fn clear(&mut self) {
        self.deliveries.clear();
        self.bytes = 0;
    }
}

/// The two ends of a queue.
pub(crate) fn connect(buffer: usize, neighbourhood: u64) -> (Subscriber, Live) {
    let queue = Arc::new(Mutex::default());
    (Subscriber { queue: Arc::clone(&queue), buffer, neighbourhood }, Live { queue })
}

impl Subscriber {
    /// Whether the subscriber was close enough behind before the next commit. A commit may hold more entries than anyone
    /// may fall behind, and arrives in one go: nobody is slow for not having read what did not exist a moment ago. Only
    /// the bytes of a queue are bounded whatever came at once.
    pub(crate) fn keeps_up(&self, behind_max: usize) -> bool {
        let mut queue = lock(&self.queue);
        queue.has_lagged |= queue.deliveries.len() > self.buffer;
        if queue.bytes > behind_max {
            // Memory is short: what it did not take is freed at once.
            queue.has_lagged = true;
            queue.clear();
        }
        !queue.has_lagged
    }

    /// Whether the subscriber stays. It hears of the delivery when it is woken.
    pub(crate) fn deliver(&self, delivery: &Delivery, behind_max: usize) -> bool {
        if self.has_left() {
            return false;
        }
        let mut queue = lock(&self.queue);
        let bytes = queue.bytes.saturating_add(delivery.envelope.len());
        let count_max = self.buffer.saturating_add(COMMIT_ENTRIES_MAX);
        // One that is larger than all that anyone may be behind is delivered to whoever is not behind.
        let fits = queue.bytes == 0 || bytes <= behind_max;
        queue.has_lagged |= !fits || queue.deliveries.len() >= count_max;
        if queue.has_lagged {
            return false;
        }
        queue.bytes = bytes;
        queue.deliveries.push_back(delivery.clone());
        true
    }

    pub(crate) fn wake(&self) {
        let reader = lock(&self.queue).reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(crate) fn has_left(&self) -> bool {
        Arc::strong_count(&self.queue) == 1
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        lock(&self.queue).is_over = true;
        self.wake();
    }
}

impl Live {
    /// None when the feed has ended, or has dropped this subscriber: [`Live::has_lagged`] tells which.
    pub(crate) async fn next(&mut self) -> Option<Delivery> {
        cooperative(poll_fn(|cx| {
            let mut queue = lock(&self.queue);
            if let Some(delivery) = queue.deliveries.pop_front() {
                queue.bytes -= delivery.envelope.len();
                return Poll::Ready(Some(delivery));
            }
            if queue.is_over {
                return Poll::Ready(None);
            }
            match &mut queue.reader {
                Some(reader) => reader.clone_from(cx.waker()),
                reader => *reader = Some(cx.waker().clone()),
            }
            Poll::Pending
        }))
        .await
    }

    /// Drops what has come so far.
    pub(crate) fn forget(&mut self) {
        lock(&self.queue).clear();
    }

    pub(crate) fn has_lagged(&self) -> bool {
        lock(&self.queue).has_lagged
    }
}

/// Held for a few instructions only, and never while anyone is woken.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;
    use crate::live_memory::BEHIND_MAX;

    fn delivery(ordinal: u64, bytes: usize) -> Delivery {
        Delivery { sequence: ordinal, ordinal, envelope: vec![0; bytes].into() }
    }

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_delivery_wakes_nobody_until_it_is_time() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Arc::clone(&woken).into();
        let mut cx = Context::from_waker(&waker);
        let (subscriber, mut live) = connect(10, 0);
        let mut next = pin!(live.next());
        assert!(next.as_mut().poll(&mut cx).is_pending());
        assert!(subscriber.deliver(&delivery(1, 1), BEHIND_MAX));
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        subscriber.wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(matches!(next.poll(&mut cx), Poll::Ready(Some(Delivery { ordinal: 1, .. }))));
        subscriber.wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "nobody waits");
    }

    #[tokio::test]
    async fn who_falls_behind_gets_what_was_queued_and_then_the_reason() {
        let (subscriber, mut live) = connect(2, 0);
        for ordinal in 1..=3 {
            assert!(subscriber.keeps_up(BEHIND_MAX));
            assert!(subscriber.deliver(&delivery(ordinal, 1), BEHIND_MAX));
        }
        assert!(!subscriber.keeps_up(BEHIND_MAX));
        drop(subscriber);
        for ordinal in 1..=3 {
            assert_eq!(live.next().await.expect("queued").ordinal, ordinal);
        }
        assert!(live.next().await.is_none() && live.has_lagged());
    }

    #[tokio::test]
    async fn a_queue_is_bounded_by_bytes_and_the_largest_envelope_still_goes_through_it() {
        let (subscriber, mut live) = connect(100, 0);
        assert!(subscriber.deliver(&delivery(1, BEHIND_MAX + 1), BEHIND_MAX));
        assert!(live.next().await.is_some());
        assert!(subscriber.deliver(&delivery(2, BEHIND_MAX), BEHIND_MAX));
        assert!(!subscriber.deliver(&delivery(3, 1), BEHIND_MAX));
        drop(subscriber);
        assert!(live.next().await.is_some() && live.next().await.is_none() && live.has_lagged());
    }

    #[tokio::test]
    async fn a_subscriber_further_behind_than_memory_allows_is_freed_at_once() {
        let (subscriber, mut live) = connect(100, 0);
        assert!(subscriber.deliver(&delivery(1, 100), BEHIND_MAX) && subscriber.keeps_up(100));
        assert!(!subscriber.keeps_up(99));
        drop(subscriber);
        assert!(live.next().await.is_none() && live.has_lagged());
    }

    #[test]
    fn a_commit_may_hold_more_than_anyone_may_be_behind() {
        let (subscriber, _live) = connect(0, 0);
        for ordinal in 0..COMMIT_ENTRIES_MAX as u64 {
            assert!(subscriber.deliver(&delivery(ordinal, 1), BEHIND_MAX));
        }
        assert!(!subscriber.deliver(&delivery(0, 1), BEHIND_MAX));
    }

    #[tokio::test]
    async fn both_ends_hear_when_the_other_is_gone() {
        let (subscriber, mut live) = connect(1, 0);
        let ended = tokio::spawn(async move { (live.next().await.is_none(), live.has_lagged()) });
        tokio::task::yield_now().await;
        drop(subscriber);
        assert_eq!(ended.await.expect("no panic"), (true, false));
        let (subscriber, live) = connect(1, 0);
        assert!(!subscriber.has_left());
        drop(live);
        assert!(subscriber.has_left() && !subscriber.deliver(&delivery(1, 1), BEHIND_MAX));
    }
}
