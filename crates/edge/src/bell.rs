//! Remembers that somebody called, so that a task which runs for many reasons looks only where there is something to see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};

use futures_util::task::AtomicWaker;

/// Passes a call on to the task, and remembers it. Its waker is for the one thing that is looked at when it has rung.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Bell {
    /// For a first look nobody needs to call.
    pub(crate) fn rung() -> Arc<Self> {
        Arc::new(Bell { rung: AtomicBool::new(true), task: AtomicWaker::new() })
    }

    /// Whether it has been rung since this was last asked. If not, the task hears of it when it is.
    pub(crate) fn has_rung(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// There may be more to see.
    pub(crate) fn leave_rung(&self) {
        self.rung.store(true, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.leave_rung();
        self.task.wake();
    }
}
