//! Bytes handed to the transport and not yet written to the socket, by age.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Context;

use futures_util::task::AtomicWaker;

/// Ages that are told apart. Bytes are overdue once the clock has advanced through all of them.
pub(crate) const AGES: usize = 4;

/// Counts unwritten bytes by the time at which they were handed over.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    bytes: [AtomicUsize; AGES],
}

impl Unwritten {
    pub(super) fn add(&self, age: usize, bytes: usize) {
        self.bytes[age % AGES].fetch_add(bytes, Ordering::SeqCst);
    }

    pub(super) fn remove(&self, age: usize, bytes: usize) {
        self.bytes[age % AGES].fetch_sub(bytes, Ordering::SeqCst);
    }

    pub(super) fn total(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::SeqCst)).sum()
    }

    /// Returns whether bytes of this age are left.
    pub(super) fn has(&self, age: usize) -> bool {
        self.bytes[age % AGES].load(Ordering::SeqCst) > 0
    }
}

/// A reply whose call has a task of its own, so that it can be reset alone.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(super) unwritten: Unwritten,
    /// Wakes the body once bytes were written.
    pub(super) written: AtomicWaker,
    /// Wakes the task of the call.
    task: AtomicWaker,
    has_task: AtomicBool,
    is_reset: AtomicBool,
}

impl Reply {
    /// Notes that dropping the task of the call resets the reply.
    pub(crate) fn begin_task(&self) {
        self.has_task.store(true, Ordering::SeqCst);
    }

    /// Notes that the transport has the whole reply: it cannot be reset alone any more.
    pub(crate) fn end_task(&self) {
        self.has_task.store(false, Ordering::SeqCst);
    }

    /// Returns whether the call is to end now. If not, the task is woken when it is.
    pub(crate) fn poll_reset(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.is_reset.load(Ordering::SeqCst)
    }

    pub(super) fn was_reset(&self) -> bool {
        self.is_reset.load(Ordering::SeqCst)
    }

    /// Ends the call and so resets its reply. False if it has no task that could end.
    pub(super) fn reset(&self) -> bool {
        if !self.has_task.load(Ordering::SeqCst) {
            return false;
        }
        self.is_reset.store(true, Ordering::SeqCst);
        self.task.wake();
        true
    }
}
