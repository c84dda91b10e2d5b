//! Streams to clients: a bounded channel, and a producer that ends with the client, by its own result or its panic.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::drain::Drain;
use crate::guard::{Panicked, caught};
use crate::status;

/// Messages made and not yet taken by the transport.
const BUFFER: usize = 64;

pub(crate) type Outbound<T> = ReceiverStream<Result<T, Status>>;

/// Where a producer puts its messages.
#[derive(Clone, Debug)]
pub(crate) struct Sink<T> {
    sender: mpsc::Sender<Result<T, Status>>,
}

impl<T> Sink<T> {
    /// Waits while the client does not read. The error says that it left; a producer just passes it on.
    pub(crate) async fn send(&self, message: T) -> Result<(), Status> {
        self.sender.send(Ok(message)).await.map_err(|_left| gone())
    }

    /// As [`Sink::send`], for producers on a thread of their own.
    pub(crate) fn blocking_send(&self, message: T) -> Result<(), Status> {
        self.sender.blocking_send(Ok(message)).map_err(|_left| gone())
    }
}

/// Nobody is there to read it.
fn gone() -> Status {
    Status::cancelled("the client left")
}

/// Runs a producer until it ends, fails or the client leaves. Its error ends the stream as a status.
pub(crate) fn produce<T, F, P>(producer: P) -> Outbound<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
    P: FnOnce(Sink<T>) -> F,
{
    let (sender, receiver) = mpsc::channel(BUFFER);
    let producing = caught(producer(Sink { sender: sender.clone() }));
    tokio::spawn(async move {
        let end = tokio::select! {
            () = sender.closed() => return,
            end = producing => end.unwrap_or_else(|Panicked| Err(status::internal("the stream failed in a way it should not"))),
        };
        if let Err(status) = end {
            let _left = sender.send(Err(status)).await;
        }
    });
    ReceiverStream::new(receiver)
}

/// As [`produce`], for producers that have no end of their own: a drain ends them.
pub(crate) fn produce_until_drained<T, F, P>(drain: &Drain, producer: P) -> Outbound<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
    P: FnOnce(Sink<T>) -> F,
{
    let drain = drain.clone();
    produce(|sink| {
        let producing = producer(sink);
        async move {
            tokio::select! {
                end = producing => end,
                () = drain.begun() => Err(status::shutting_down()),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_producer_ends_with_its_result_or_its_panic() {
        let stream = produce(|sink| async move { sink.send(1).await });
        assert_eq!(stream.collect::<Vec<_>>().await.len(), 1);

        let stream = produce(|sink| async move {
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
        let stream: Outbound<()> = produce(|_sink| async move {
            let _held = held;
            std::future::pending().await
        });
        drop(stream);
        assert!(released.await.is_err(), "the producer was dropped and what it held with it");
    }

    #[tokio::test]
    async fn a_drain_ends_what_has_no_end() {
        let drain = Drain::new();
        let stream: Outbound<()> = produce_until_drained(&drain, |_sink| std::future::pending());
        drain.begin();
        let messages: Vec<_> = stream.collect().await;
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].as_ref().map_err(Status::code), Err(Code::Unavailable));
    }
}
