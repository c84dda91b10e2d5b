//! Watchers of everything: each has a queue of its own, bounded by count and by bytes.
//!
//! A watcher that falls behind either bound gets an error and nothing more; the others are not affected. Queues grow as
//! they fill, so that a watcher of a quiet server takes next to nothing.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::task::coop::cooperative;

/// Bytes a watcher may fall behind: several of the largest messages there are, and many thousand usual ones.
const BYTES_BEHIND_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Watchers<T> {
    all: Mutex<Vec<Watcher<T>>>,
    /// How many there are, so that the common case of none costs no lock.
    count: AtomicUsize,
    buffer: usize,
}

/// The sending end of a queue.
#[derive(Debug)]
struct Watcher<T>(Arc<Mutex<Queue<T>>>);

/// Messages from when the watch began, in their order.
#[derive(Debug)]
pub struct Watch<T>(Arc<Mutex<Queue<T>>>);

/// Why a watch gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error("the watcher fell too far behind")]
    Lagged,
    #[error("the engine has stopped")]
    Closed,
}

#[derive(Debug)]
struct Queue<T> {
    /// Each with its size.
    messages: VecDeque<(Arc<T>, usize)>,
    bytes: usize,
    reader: Option<Waker>,
    /// Nothing more will come.
    end: Option<WatchError>,
}

impl<T> Queue<T> {
    fn take(&mut self) -> Result<Option<Arc<T>>, WatchError> {
        match (self.messages.pop_front(), self.end) {
            (Some((message, size)), _) => {
                self.bytes -= size;
                Ok(Some(message))
            }
            (None, Some(end)) => Err(end),
            (None, None) => Ok(None),
        }
    }
}

impl<T> Watch<T> {
    /// Waits for the next message.
    pub async fn recv(&mut self) -> Result<Arc<T>, WatchError> {
        cooperative(poll_fn(|cx| {
            let mut queue = lock(&self.0);
            match queue.take().transpose() {
                Some(taken) => Poll::Ready(taken),
                None => {
                    queue.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
        .await
    }

    /// Returns the next message if it is there already.
    pub fn try_recv(&mut self) -> Result<Option<Arc<T>>, WatchError> {
        lock(&self.0).take()
    }

    /// Returns how many messages are there.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.0).messages.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Watchers<T> {
    /// Each may fall `buffer` messages behind.
    pub(crate) fn new(buffer: usize) -> Self {
        Watchers { all: Mutex::default(), count: AtomicUsize::new(0), buffer: buffer.max(1) }
    }

    /// Everything from now on.
    pub(crate) fn join(&self) -> Watch<T> {
        let queue = Queue { messages: VecDeque::new(), bytes: 0, reader: None, end: None };
        let queue = Arc::new(Mutex::new(queue));
        let mut all = self.all();
        all.push(Watcher(Arc::clone(&queue)));
        self.count.store(all.len(), Ordering::SeqCst);
        Watch(queue)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Hands a message to every watcher there is.
    pub(crate) fn publish(&self, message: T, size: usize) {
        if self.is_empty() {
            return;
        }
        let message = Arc::new(message);
        let mut all = self.all();
        all.retain(|watcher| watcher.deliver(&message, size, self.buffer));
        self.count.store(all.len(), Ordering::SeqCst);
    }

    /// Forgets watchers that left without being noticed, because nothing happened.
    pub(crate) fn prune(&self) {
        if self.is_empty() {
            return;
        }
        let mut all = self.all();
        all.retain(|watcher| !watcher.has_left());
        self.count.store(all.len(), Ordering::SeqCst);
    }

    fn all(&self) -> MutexGuard<'_, Vec<Watcher<T>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Watcher<T> {
    /// Returns whether the watcher stays. One that is too far behind is freed of what it did not take.
    fn deliver(&self, message: &Arc<T>, size: usize, buffer: usize) -> bool {
        if self.has_left() {
            return false;
        }
        let mut queue = lock(&self.0);
        let fits = queue.bytes == 0 || queue.bytes.saturating_add(size) <= BYTES_BEHIND_MAX;
        if fits && queue.messages.len() < buffer {
            queue.messages.push_back((Arc::clone(message), size));
            queue.bytes += size;
        } else {
            (queue.messages, queue.bytes) = (VecDeque::new(), 0);
            queue.end = Some(WatchError::Lagged);
        }
        let stays = queue.end.is_none();
        let reader = queue.reader.take();
        drop(queue);
        if let Some(reader) = reader {
            reader.wake();
        }
        stays
    }

    fn has_left(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.end.get_or_insert(WatchError::Closed);
        let reader = queue.reader.take();
        drop(queue);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// Held for a few instructions only, and never while a task is woken.
fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn a_watcher_that_takes_everything_never_lags_and_a_slow_one_is_freed_by_bytes() {
        let watchers = Watchers::new(1024);
        let (mut quick, mut slow) = (watchers.join(), watchers.join());
        let first = Arc::new(());
        watchers.publish(Arc::clone(&first), MIB);
        for _ in 0..20 {
            assert!(matches!(quick.try_recv(), Ok(Some(_))));
            watchers.publish(Arc::new(()), MIB);
        }
        assert_eq!(slow.try_recv().map(drop), Err(WatchError::Lagged));
        assert_eq!(Arc::strong_count(&first), 1, "what a lagging watcher did not take is freed");
        assert!(matches!(quick.try_recv(), Ok(Some(_))));
        assert!(matches!(quick.try_recv(), Ok(None)));
    }

    #[test]
    fn a_message_larger_than_the_bound_passes_alone() {
        let watchers = Watchers::new(4);
        let mut watcher = watchers.join();
        watchers.publish((), 100 * MIB);
        assert!(matches!(watcher.try_recv(), Ok(Some(_))));
        watchers.publish((), 100 * MIB);
        assert!(matches!(watcher.try_recv(), Ok(Some(_))));
    }

    #[test]
    fn the_count_bounds_too() {
        let watchers = Watchers::new(4);
        let mut watcher = watchers.join();
        for _ in 0..5 {
            watchers.publish((), 1);
        }
        assert_eq!(watcher.try_recv().map(drop), Err(WatchError::Lagged));
    }

    #[tokio::test]
    async fn a_waiting_watcher_is_woken_by_a_message_and_by_the_end() {
        let watchers = Watchers::new(4);
        let mut watch = watchers.join();
        let waiting = tokio::spawn(async move {
            let first = watch.recv().await.map(|number| *number);
            (first, watch.recv().await.map(drop))
        });
        tokio::task::yield_now().await;
        watchers.publish(7, 1);
        tokio::task::yield_now().await;
        drop(watchers);
        assert_eq!(waiting.await.expect("no panic"), (Ok(7), Err(WatchError::Closed)));
    }

    #[test]
    fn those_who_left_are_forgotten() {
        let watchers = Watchers::<()>::new(4);
        drop(watchers.join());
        assert!(!watchers.is_empty());
        watchers.prune();
        assert!(watchers.is_empty());
        drop(watchers.join());
        watchers.publish((), 1);
        assert!(watchers.is_empty());
    }
}
