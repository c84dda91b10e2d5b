//! A panic around a run is that run's trouble: its task says so and ends, and every other goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// What is said of a run whose task or journal made us panic. The panic is reported where it happens; its text may hold
/// anything, and stays there.
pub(super) const PANICKED: &str = "a skill or the executor panicked over it; the server's log tells where";

/// Work that panicked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panicked;

/// Does something to its end, or to its panic. What is left half done is never looked at again.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(_reported) => Poll::Ready(Err(Panicked)),
    })
    .await
}
