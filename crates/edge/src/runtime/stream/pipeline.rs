//! Answers under way, in the order in which they were asked for.
//!
//! An answer's future is polled once when its envelope arrives, which is when the engine takes it: the order of arrival
//! is the order of submission.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// An answer on its way, or here.
pub(super) enum Answer<'a, T> {
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
    Ready(T),
}

/// Sets the answering off before it returns.
pub(super) async fn submit<'a, T>(answering: impl Future<Output = T> + Send + 'a) -> Answer<'a, T> {
    let mut answering: Pin<Box<dyn Future<Output = T> + Send + 'a>> = Box::pin(answering);
    match poll_fn(|cx| Poll::Ready(answering.as_mut().poll(cx))).await {
        Poll::Ready(answer) => Answer::Ready(answer),
        Poll::Pending => Answer::Pending(answering),
    }
}

/// Waits for the oldest answer, and for ever while there is none. The answer stays in its place until it is popped, so
/// that giving up the wait loses nothing.
pub(super) async fn front<T: Default>(answers: &mut VecDeque<Answer<'_, T>>) -> T {
    poll_fn(|cx| {
        let Some(oldest) = answers.front_mut() else {
            return Poll::Pending;
        };
        match oldest {
            Answer::Ready(answer) => Poll::Ready(std::mem::take(answer)),
            Answer::Pending(answering) => answering.as_mut().poll(cx),
        }
    })
    .await
}
