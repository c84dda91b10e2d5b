//! Streams whose producer runs in the task that sends them.
//!
//! A message that has come as far as a producer is sent a moment later. With a task of its own between, every delivery
//! to every subscriber would wake that task first, and the one that sends after it. So the two are one: whoever takes
//! the next message lets the producer run until it has one. A client that does not read stops its producer, and nobody
//! else.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc::{self, Receiver};
use tokio_stream::Stream;
use tonic::Status;

use crate::guard::{Panicked, caught};
use crate::outbound::{BUFFER, Sink};
use crate::status;

/// Messages on their way to a client, and who makes them.
pub(crate) struct Attached<T> {
    messages: Receiver<Result<T, Status>>,
    producer: Option<Producer>,
    /// The last words of a producer that failed. They come after everything it sent.
    failed: Option<Status>,
}

type Producer = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// A stream of what a producer sends. Its error, or its panic, ends the stream as a status.
pub(crate) fn attach<T, F>(producer: impl FnOnce(Sink<T>) -> F) -> Attached<T>
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let (sender, messages) = mpsc::channel(BUFFER);
    let producing = caught(producer(Sink::new(sender)));
    let producer = async move {
        producing.await.unwrap_or_else(|Panicked| Err(status::internal("the stream failed in a way it should not")))
    };
    Attached { messages, producer: Some(Box::pin(producer)), failed: None }
}

impl<T> Stream for Attached<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.messages.poll_recv(cx) {
                Poll::Ready(Some(message)) => return Poll::Ready(Some(message)),
                Poll::Ready(None) if self.producer.is_none() => return Poll::Ready(self.failed.take().map(Err)),
                Poll::Ready(None) | Poll::Pending => {}
            }
            let Some(producer) = &mut self.producer else {
                return Poll::Pending;
            };
            match producer.as_mut().poll(cx) {
                Poll::Ready(end) => {
                    self.producer = None;
                    self.failed = end.err();
                }
                // What it sent while it ran, if anything; otherwise the channel and the producer know whom to wake.
                Poll::Pending => {
                    return match self.messages.poll_recv(cx) {
                        Poll::Ready(Some(message)) => Poll::Ready(Some(message)),
                        Poll::Ready(None) | Poll::Pending => Poll::Pending,
                    };
                }
            }
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
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn everything_that_was_sent_arrives_before_the_end() {
        for count in [0, 1, BUFFER, 5 * BUFFER] {
            let stream = attach(|sink| async move {
                for number in 0..count {
                    sink.send(number).await?;
                }
                Err(Status::aborted("enough"))
            });
            let messages: Vec<_> = stream.collect().await;
            assert_eq!(messages.len(), count + 1);
            assert!(messages.iter().take(count).enumerate().all(|(at, message)| message.as_ref().ok() == Some(&at)));
            assert_eq!(messages[count].as_ref().map_err(Status::code), Err(Code::Aborted));
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_stream_with_a_status() {
        let stream = attach(|sink| async move {
            sink.send(1).await?;
            panic!("a bug")
        });
        let messages: Vec<_> = stream.collect().await;
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[1].as_ref().map_err(Status::code), Err(Code::Internal));
    }

    #[tokio::test]
    async fn a_producer_ends_with_its_client() {
        let (held, released) = tokio::sync::oneshot::channel::<()>();
        let mut stream: Attached<()> = attach(|_sink| async move {
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
}
