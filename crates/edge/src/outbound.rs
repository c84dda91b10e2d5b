//! Streams to clients: a bounded channel, and a producer that ends with the client, by its own result or its panic.
//!
//! A message counts in the memory of its caller from before it is made until the transport takes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::drain::Drain;
use crate::guard::{Panicked, caught};
use crate::replies::{Budgets, Charge};
use crate::status;

/// Messages made and not yet taken by the transport.
pub(crate) const BUFFER: usize = 64;

/// Where the messages of streams to one caller count.
pub(crate) type Memory = Arc<Budgets>;

/// The messages of a stream, as the transport takes them.
#[derive(Debug)]
pub(crate) struct Outbound<T> {
    messages: ReceiverStream<Queued<T>>,
}

impl<T> Stream for Outbound<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.messages).poll_next(cx).map(|queued| queued.map(|queued| *queued.message))
    }
}

/// A message in the channel, and the bytes that count for it.
#[derive(Debug)]
struct Queued<T> {
    /// In a box, because a channel makes room for dozens of messages with the first.
    message: Box<Result<T, Status>>,
    _charge: Option<Charge>,
}

/// Where a producer puts its messages.
#[derive(Clone, Debug)]
pub(crate) struct Sink<T> {
    sender: mpsc::Sender<Queued<T>>,
    memory: Memory,
}

impl<T: Message> Sink<T> {
    /// Waits while the client does not read. The error says that it left; a producer just passes it on.
    pub(crate) async fn send(&self, message: T) -> Result<(), Status> {
        let mut charge = self.reserve(message.encoded_len()).await;
        self.send_from(&mut charge, message).await
    }

    /// Waits for room to make messages of so many bytes.
    pub(crate) async fn reserve(&self, bytes: usize) -> Charge {
        self.memory.reserve(bytes).await
    }

    /// Sends a message for which room was reserved before it was made.
    pub(crate) async fn send_from(&self, reserved: &mut Charge, message: T) -> Result<(), Status> {
        let charge = Some(reserved.split(message.encoded_len()));
        self.sender.send(Queued { message: Box::new(Ok(message)), _charge: charge }).await.map_err(|_left| gone())
    }

    /// For a producer on a thread of its own.
    pub(crate) fn blocking(self, drain: Drain, patience: Duration) -> BlockingSink<T> {
        BlockingSink { sink: self, runtime: Handle::current(), drain, patience }
    }
}

/// A [`Sink`] for a producer on a thread of its own. A client that does not read must not hold that thread, nor what
/// the producer has taken out, so every wait ends: by the client, by a drain, or by patience running out.
#[derive(Debug)]
pub(crate) struct BlockingSink<T> {
    sink: Sink<T>,
    runtime: Handle,
    drain: Drain,
    patience: Duration,
}

impl<T: Message> BlockingSink<T> {
    pub(crate) fn send(&self, message: T) -> Result<(), Status> {
        if self.drain.has_begun() {
            return Err(status::shutting_down());
        }
        let Some(charge) = self.sink.memory.try_reserve(message.encoded_len()) else {
            return self.runtime.block_on(self.in_time(self.sink.send(message)));
        };
        match self.sink.sender.try_send(Queued { message: Box::new(Ok(message)), _charge: Some(charge) }) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(gone()),
            Err(TrySendError::Full(queued)) => self
                .runtime
                .block_on(self.in_time(async { self.sink.sender.send(queued).await.map_err(|_left| gone()) })),
        }
    }

    async fn in_time(&self, sending: impl Future<Output = Result<(), Status>>) -> Result<(), Status> {
        tokio::select! {
            sent = sending => sent,
            () = self.sink.sender.closed() => Err(gone()),
            () = self.drain.begun() => Err(status::shutting_down()),
            () = tokio::time::sleep(self.patience) => Err(status::lagged()),
        }
    }
}

/// The client does not read any more.
fn gone() -> Status {
    Status::cancelled("the client left")
}

/// Runs a producer until it ends, fails or the client leaves. Its error ends the stream as a status.
pub(crate) fn produce<T, F, P>(memory: &Memory, producer: P) -> Outbound<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
    P: FnOnce(Sink<T>) -> F,
{
    produce_buffered(BUFFER, memory, producer)
}

/// As [`produce`], for messages so large or so small that their number matters.
pub(crate) fn produce_buffered<T, F, P>(buffer: usize, memory: &Memory, producer: P) -> Outbound<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
    P: FnOnce(Sink<T>) -> F,
{
    let (sender, receiver) = mpsc::channel(buffer);
    let producing = caught(producer(Sink { sender: sender.clone(), memory: Arc::clone(memory) }));
    tokio::spawn(async move {
        let end = tokio::select! {
            () = sender.closed() => return,
            end = producing => end.unwrap_or_else(|Panicked| Err(status::internal("the stream failed in a way it should not"))),
        };
        if let Err(status) = end {
            let _left = sender.send(Queued { message: Box::new(Err(status)), _charge: None }).await;
        }
    });
    Outbound { messages: ReceiverStream::new(receiver) }
}

/// As [`produce`], for producers that have no end of their own: a drain ends them.
pub(crate) fn produce_until_drained<T, F, P>(drain: &Drain, memory: &Memory, producer: P) -> Outbound<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
    P: FnOnce(Sink<T>) -> F,
{
    produce_buffered_until_drained(BUFFER, drain, memory, producer)
}

/// As [`produce_until_drained`], for messages so large that their number matters.
pub(crate) fn produce_buffered_until_drained<T, F, P>(
    buffer: usize,
    drain: &Drain,
    memory: &Memory,
    producer: P,
) -> Outbound<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Status>> + Send + 'static,
    P: FnOnce(Sink<T>) -> F,
{
    let drain = drain.clone();
    produce_buffered(buffer, memory, |sink| {
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
    use tokio::sync::oneshot;
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;
    use crate::replies::CallMemory;

    fn memory() -> Memory {
        Arc::clone(&CallMemory::new(1 << 20, 1 << 20).connection().of_caller(None).queued)
    }

    #[tokio::test]
    async fn a_producer_ends_with_its_result_or_its_panic() {
        let stream = produce(&memory(), |sink| async move { sink.send(1).await });
        assert_eq!(stream.collect::<Vec<_>>().await.len(), 1);

        let stream = produce(&memory(), |sink| async move {
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
        let stream: Outbound<()> = produce(&memory(), |_sink| async move {
            let _held = held;
            std::future::pending().await
        });
        drop(stream);
        assert!(released.await.is_err(), "the producer was dropped and what it held with it");
    }

    /// A producer on a thread of its own that sends until it is stopped, and the word of how it was.
    fn endless(drain: &Drain, patience: Duration) -> (Outbound<()>, oneshot::Receiver<Status>) {
        let (stopped, stop) = oneshot::channel();
        let drain = drain.clone();
        let stream = produce(&memory(), |sink| async move {
            let sink = sink.blocking(drain, patience);
            let sending = tokio::task::spawn_blocking(move || {
                let status = loop {
                    if let Err(status) = sink.send(()) {
                        break status;
                    }
                };
                let _nobody_waits = stopped.send(status.clone());
                Err(status)
            });
            sending.await.expect("the thread does not panic")
        });
        (stream, stop)
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_does_not_hold_a_thread() {
        let (stream, stop) = endless(&Drain::new(), Duration::from_millis(20));
        let status = stop.await.expect("the thread lets go");
        assert_eq!(status.metadata().get(status::ERROR_CODE).expect("a code"), "STREAM_LAGGED");
        let messages: Vec<_> = stream.collect().await;
        assert_eq!(messages.len(), BUFFER + 1, "what was made before comes first");
        assert!(messages[BUFFER].is_err());
    }

    #[tokio::test]
    async fn a_drain_and_a_leave_free_a_waiting_thread() {
        const FOR_EVER: Duration = Duration::from_secs(1_000_000);
        let drain = Drain::new();
        let (mut stream, stop) = endless(&drain, FOR_EVER);
        assert!(stream.next().await.expect("a message").is_ok());
        drain.begin();
        assert_eq!(stop.await.expect("the thread lets go").code(), Code::Unavailable);

        let (mut stream, stop) = endless(&Drain::new(), FOR_EVER);
        assert!(stream.next().await.expect("a message").is_ok());
        drop(stream);
        assert_eq!(stop.await.expect("the thread lets go").code(), Code::Cancelled);
    }

    #[tokio::test]
    async fn a_drain_ends_what_has_no_end() {
        let drain = Drain::new();
        let stream: Outbound<()> = produce_until_drained(&drain, &memory(), |_sink| std::future::pending());
        drain.begin();
        let messages: Vec<_> = stream.collect().await;
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].as_ref().map_err(Status::code), Err(Code::Unavailable));
    }
}
