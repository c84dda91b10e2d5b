//! Those who watch everything: each has a queue of its own, bounded by count and by bytes.
//!
//! A watcher that falls behind either bound hears that it lagged, and loses what it did not take; the others notice
//! nothing. So a client that stops reading costs at most its own queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

/// Bytes a watcher may fall behind: several of the largest messages there are, and many thousand usual ones.
const BYTES_BEHIND_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Watchers<T> {
    all: Mutex<Vec<Watcher<T>>>,
    /// How many there are, so that the common case of none costs no lock.
    count: AtomicUsize,
    buffer: usize,
}

#[derive(Debug)]
struct Watcher<T> {
    sender: broadcast::Sender<Arc<T>>,
    /// Sizes of what it has not taken yet, oldest first.
    sizes: VecDeque<usize>,
    bytes: usize,
}

impl<T> Watchers<T> {
    /// Each may fall `buffer` messages behind.
    pub(crate) fn new(buffer: usize) -> Self {
        Watchers { all: Mutex::default(), count: AtomicUsize::new(0), buffer: buffer.max(1) }
    }

    /// Everything from now on.
    pub(crate) fn join(&self) -> broadcast::Receiver<Arc<T>> {
        let (sender, receiver) = broadcast::channel(self.buffer);
        let mut all = self.all();
        all.push(Watcher { sender, sizes: VecDeque::new(), bytes: 0 });
        self.count.store(all.len(), Ordering::SeqCst);
        receiver
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Nobody watching is not an error.
    pub(crate) fn tell(&self, message: T, size: usize) {
        if self.is_empty() {
            return;
        }
        let message = Arc::new(message);
        let mut all = self.all();
        all.retain_mut(|watcher| watcher.tell(&message, size, self.buffer));
        self.count.store(all.len(), Ordering::SeqCst);
    }

    /// Forgets watchers that left without being noticed, because nothing happened.
    pub(crate) fn prune(&self) {
        if self.is_empty() {
            return;
        }
        let mut all = self.all();
        all.retain(|watcher| watcher.sender.receiver_count() > 0);
        self.count.store(all.len(), Ordering::SeqCst);
    }

    fn all(&self) -> MutexGuard<'_, Vec<Watcher<T>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Watcher<T> {
    /// Whether the watcher stays.
    fn tell(&mut self, message: &Arc<T>, size: usize, buffer: usize) -> bool {
        while self.sizes.len() > self.sender.len() {
            self.bytes -= self.sizes.pop_front().expect("it is not empty");
        }
        let fits = self.bytes == 0 || self.bytes.saturating_add(size) <= BYTES_BEHIND_MAX;
        if !fits {
            // Overruns the queue with one and the same message: what was in it is freed at once, and the next thing the
            // watcher hears is that it lagged.
            for _ in 0..=buffer.next_power_of_two() {
                let _left = self.sender.send(Arc::clone(message));
            }
            return false;
        }
        self.sizes.push_back(size);
        self.bytes += size;
        self.sender.send(Arc::clone(message)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn a_watcher_that_takes_everything_never_lags_and_a_slow_one_is_freed_by_bytes() {
        let watchers = Watchers::new(1024);
        let (mut quick, mut slow) = (watchers.join(), watchers.join());
        let first = Arc::new(());
        watchers.tell(Arc::clone(&first), MIB);
        for _ in 0..20 {
            assert!(quick.try_recv().is_ok());
            watchers.tell(Arc::new(()), MIB);
        }
        assert!(matches!(slow.try_recv(), Err(TryRecvError::Lagged(_))));
        assert_eq!(Arc::strong_count(&first), 1, "what a lagging watcher did not take is freed");
        assert!(quick.try_recv().is_ok());
        assert!(matches!(quick.try_recv(), Err(TryRecvError::Empty)));
    }

    #[test]
    fn a_message_larger_than_the_bound_passes_alone() {
        let watchers = Watchers::new(4);
        let mut watcher = watchers.join();
        watchers.tell((), 100 * MIB);
        assert!(watcher.try_recv().is_ok());
        watchers.tell((), 100 * MIB);
        assert!(watcher.try_recv().is_ok());
    }

    #[test]
    fn the_count_bounds_too() {
        let watchers = Watchers::new(4);
        let mut watcher = watchers.join();
        for _ in 0..5 {
            watchers.tell((), 1);
        }
        assert!(matches!(watcher.try_recv(), Err(TryRecvError::Lagged(1))));
    }

    #[test]
    fn those_who_left_are_forgotten() {
        let watchers = Watchers::<()>::new(4);
        drop(watchers.join());
        assert!(!watchers.is_empty());
        watchers.prune();
        assert!(watchers.is_empty());
        drop(watchers.join());
        watchers.tell((), 1);
        assert!(watchers.is_empty());
    }
}
