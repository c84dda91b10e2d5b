//! Streams whose producer runs in the task that sends them.
//!
//! A message that has come as far as a producer is sent a moment later. With a task of its own between, every delivery
//! to every subscriber would wake that task first, and the one that sends after it. So the two are one: whoever takes
//! the next message lets the producer run until it has one. A client that does not read stops its producer, and nobody
//! else. The transport asks for one more message after each it gets; a producer that nobody has called since it last ran
//! is not asked again, which would be to look at the client, the feed and the drain in vain.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use prost::Message;
use tokio_stream::Stream;
use tonic::Status;

use crate::bell::Bell;
use crate::guard::{Panicked, caught};
use crate::outbound::BUFFER;
use crate::status;

/// Bytes of messages that a producer makes before it waits; one more message may come on top.
const BYTES_MAX: usize = 64 * 1024;

/// Messages on their way to a client, and who makes them.
pub(crate) struct Attached<T> {
    messages: Messages<T>,
    producer: Option<Producer>,
    bell: Arc<Bell>,
    /// Rings the bell.
    called: Waker,
    /// The last words of a producer that failed. They come after everything it sent.
    failed: Option<Status>,
}

type Producer = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Made and not yet taken by the transport. A queue and no channel: both ends are in one task, which a channel would
/// wake for every message once more than there is something to do.
#[derive(Debug)]
struct Messages<T>(Arc<Mutex<Queue<T>>>);

#[derive(Debug)]
struct Queue<T> {
    /// Each with its size.
    messages: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Messages<T> {
    fn take(&self) -> Option<T> {
        let mut queue = self.lock();
        let (message, size) = queue.messages.pop_front()?;
        queue.bytes -= size;
        Some(message)
    }

    /// Never contended: one task has both ends.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an attached producer puts its messages. Only for use inside the producer: nobody is woken by it.
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    messages: Messages<T>,
    connection: u64,
}

impl<T: Message> Outlet<T> {
    /// The number of the connection that the messages leave by.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// Waits while there is no room. Whoever takes messages lets the producer run again once all are taken.
    pub(crate) async fn send(&self, message: T) {
        poll_fn(|cx| {
            let queue = self.messages.lock();
            if queue.messages.len() < BUFFER && queue.bytes < BYTES_MAX {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let size = message.encoded_len();
        let mut queue = self.messages.lock();
        queue.messages.push_back((message, size));
        queue.bytes += size;
    }
}

/// A stream of what a producer sends. Its error, or its panic, ends the stream as a status.
pub(crate) fn attach<T, F>(connection: u64, producer: impl FnOnce(Outlet<T>) -> F) -> Attached<T>
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let messages = Arc::new(Mutex::new(Queue { messages: VecDeque::new(), bytes: 0 }));
    let outlet = Outlet { messages: Messages(Arc::clone(&messages)), connection };
    let producing = caught(producer(outlet));
    let producer = async move {
        producing.await.unwrap_or_else(|Panicked| Err(status::internal("the stream failed in a way it should not")))
    };
    let bell = Bell::rung();
    let called = Waker::from(Arc::clone(&bell));
    Attached { messages: Messages(messages), producer: Some(Box::pin(producer)), bell, called, failed: None }
}

impl<T> Attached<T> {
    /// A message that was made when the producer last ran.
    pub(crate) fn made(&self) -> Option<T> {
        self.messages.take()
    }
}

impl<T> Stream for Attached<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(message) = self.messages.take() {
            return Poll::Ready(Some(Ok(message)));
        }
        let this = &mut *self;
        if let Some(producer) = &mut this.producer
            && this.bell.has_rung(cx)
            && let Poll::Ready(end) = producer.as_mut().poll(&mut Context::from_waker(&this.called))
        {
            this.producer = None;
            this.failed = end.err();
        }
        // What it sent while it ran. If that was nothing, the producer waits for something that wakes this task.
        match self.messages.take() {
            Some(message) => Poll::Ready(Some(Ok(message))),
            None if self.producer.is_some() => Poll::Pending,
            None => Poll::Ready(self.failed.take().map(Err)),
        }
    }
}

impl<T> std::fmt::Debug for Attached<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("produces", &self.producer.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn everything_that_was_sent_arrives_before_the_end() {
        for count in [0, 1, BUFFER as u64, 5 * BUFFER as u64] {
            let stream = attach(0, |outlet| async move {
                for number in 0..count {
                    outlet.send(number).await;
                }
                Err(Status::aborted("enough"))
            });
            let messages: Vec<_> = stream.collect().await;
            let (end, sent) = messages.split_last().expect("an end");
            assert!(sent.iter().map(|message| message.as_ref().ok().copied()).eq((0..count).map(Some)));
            assert_eq!(end.as_ref().map_err(Status::code), Err(Code::Aborted));
        }
    }

    #[tokio::test]
    async fn a_producer_waits_while_large_messages_are_not_taken() {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let mut stream = attach(0, |outlet| async move {
            for _ in 0..10 {
                outlet.send(vec![0_u8; BYTES_MAX / 2]).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        assert!(stream.next().await.expect("a message").is_ok());
        assert_eq!(made.load(Ordering::SeqCst), 2, "the third is not made before those are taken");
        assert_eq!(stream.collect::<Vec<_>>().await.len(), 9);
    }

    #[tokio::test]
    async fn a_panic_ends_the_stream_with_a_status() {
        let stream = attach(0, |outlet| async move {
            outlet.send(1).await;
            panic!("a bug")
        });
        let messages: Vec<_> = stream.collect().await;
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[1].as_ref().map_err(Status::code), Err(Code::Internal));
    }

    #[tokio::test]
    async fn a_producer_ends_with_its_client() {
        let (held, released) = tokio::sync::oneshot::channel::<()>();
        let mut stream: Attached<()> = attach(0, |_outlet| async move {
            let _held = held;
            std::future::pending().await
        });
        tokio::select! {
            biased;
            _ = stream.next() => panic!("nothing was sent"),
            () = std::future::ready(()) => {}
        }
        drop(stream);
        assert!(released.await.is_err(), "the producer was dropped and what it held with it");
    }

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_producer_runs_when_it_is_called_and_not_before() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Arc::clone(&woken).into();
        let mut cx = Context::from_waker(&waker);
        let runs = Arc::new(AtomicUsize::new(0));
        let (counted, (call, mut called)) = (Arc::clone(&runs), tokio::sync::mpsc::unbounded_channel());
        let mut stream = attach(0, |outlet| async move {
            loop {
                let number = poll_fn(|cx| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    called.poll_recv(cx)
                });
                outlet.send(number.await.ok_or_else(|| Status::aborted("enough"))?).await;
            }
        });
        let mut poll = || Pin::new(&mut stream).poll_next(&mut cx);
        assert!(poll().is_pending() && poll().is_pending());
        assert_eq!(runs.load(Ordering::SeqCst), 1, "once, to learn what it waits for");
        call.send(7).expect("it waits");
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "who called it has called the task");
        assert!(matches!(poll(), Poll::Ready(Some(Ok(7)))));
        assert!(poll().is_pending() && poll().is_pending());
        assert_eq!(runs.load(Ordering::SeqCst), 3, "for the message, and to learn that there is no other");
    }

    #[test]
    fn a_message_does_not_wake_the_task_that_sends_it() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Arc::clone(&woken).into();
        let mut cx = Context::from_waker(&waker);
        let mut stream = attach(0, |outlet| async move {
            outlet.send(1).await;
            outlet.send(2).await;
            std::future::pending().await
        });
        let mut poll = || Pin::new(&mut stream).poll_next(&mut cx);
        assert!(matches!(poll(), Poll::Ready(Some(Ok(1)))));
        assert!(matches!(poll(), Poll::Ready(Some(Ok(2)))));
        assert!(poll().is_pending());
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    }
}
