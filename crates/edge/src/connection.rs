//! One connection and its Sends, in one task.
//!
//! The transport would run every call as a task of its own: made for it, woken for its answer, and then waking the task
//! of the connection, which sends it. A commit answers dozens of Sends of a connection at once. Here they are polled one
//! after the other by the task that sends, and their answers leave together. What takes longer has a task of its own: a
//! hundred subscribers of one connection would hold up everything else that a thread has to do.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connections::{Connection, Ending};
use crate::drain::Drain;
use crate::front::{Door, Front};
use crate::greeting::SILENCE;
use crate::guard::{Caught, caught};
use crate::replies::{Reply, StallTimer};

/// Flow control windows: a whole payload of the default limit fits, so that no sender waits for an update in the middle
/// of an envelope. A connection whose calls wait may have its whole window in memory, so it is no larger.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// How often a silent connection is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client of HTTP/1.1 may take for the head of a request: one that sends a byte now and then is never silent.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection that must close for a new one may take to say so to its client.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

// Who answers every sign of life that is asked for is not taken for silent.
const _: () = assert!(SILENCE.as_secs() > PING_EVERY.as_secs() + PING_TIMEOUT.as_secs());

/// A call from its request to the last byte of its answer.
type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the calls of a connection begin. The transport takes it for its executor.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Begun>>);

#[derive(Default)]
struct Begun {
    /// For the task of the connection.
    brief: Vec<Call>,
    next: Next,
}

/// How the next call is run.
#[derive(Default)]
enum Next {
    #[default]
    Alone,
    /// By the task of its connection.
    Brief,
    /// In a task of its own, which ends if its reply is not read.
    Supervised(Arc<Reply>),
}

impl Calls {
    /// Runs the next call in the task of the connection. HTTP/2 hands a call to the front and then begins it, before it
    /// hands over another; HTTP/1.1 has one call at a time and begins none.
    pub(crate) fn next_is_brief(&self) {
        self.lock().next = Next::Brief;
    }

    /// Runs the next call in a task that ends if the reply is not read.
    pub(crate) fn next_is_supervised(&self, reply: Arc<Reply>) {
        self.lock().next = Next::Supervised(reply);
    }

    /// Never contended: one task has all ends.
    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        let mut begun = self.lock();
        match std::mem::take(&mut begun.next) {
            Next::Brief => begun.brief.push(Box::pin(call)),
            Next::Alone => drop(tokio::spawn(call)),
            Next::Supervised(reply) => {
                reply.begin_task();
                tokio::spawn(supervise(reply, call));
            }
        }
    }
}

/// Runs a call to its end, or until its reply is reset: the transport resets the stream of a call that is dropped.
async fn supervise(reply: Arc<Reply>, call: impl Future<Output = ()>) {
    let mut call = pin!(call);
    poll_fn(|cx| {
        if reply.poll_reset(cx) {
            tracing::debug!("a reply is reset: it is not read");
            return Poll::Ready(());
        }
        let ended = call.as_mut().poll(cx);
        if ended.is_ready() {
            reply.end_task();
        }
        ended
    })
    .await;
}

/// What bounds every connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) streams_max: u32,
    /// How long a piece of a reply may wait to be read.
    pub(crate) reply_timeout: Duration,
}

/// Serves a connection to its end. A drain lets the calls finish that have begun, and no others begin. Calls end with
/// their connection, nobody being there to hear of them: brief ones with this task, the others when the transport tells
/// them.
pub(crate) async fn run<C>(stream: C, state: Arc<Connection>, front: Arc<Front>, bounds: Bounds, drain: Drain)
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let calls = Calls::default();
    let transport = transport(calls.clone(), bounds.streams_max);
    let door = Door::new(front, calls.clone(), Arc::clone(&state));
    let mut connection = pin!(transport.serve_connection(TokioIo::new(stream), door));
    let mut draining = pin!(drain.begun());
    let mut is_draining = false;
    let mut stalled = StallTimer::new(bounds.reply_timeout);
    let mut closing = None;
    let mut brief = FuturesUnordered::new();
    let ended = poll_fn(|cx| {
        if !is_draining && draining.as_mut().poll(cx).is_ready() {
            is_draining = true;
            connection.as_mut().graceful_shutdown();
        }
        match state.poll_ending(cx) {
            Some(Ending::Closing) if closing.is_none() => {
                connection.as_mut().graceful_shutdown();
                closing = Some(Box::pin(tokio::time::sleep(CLOSING_PATIENCE)));
            }
            Some(Ending::CutOff) => return Poll::Ready(Ok(())),
            Some(Ending::Closing) | None => {}
        }
        if closing.as_mut().is_some_and(|patience| patience.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Ok(()));
        }
        loop {
            advance(&mut brief, cx);
            // Sends what the calls have answered, reads what has come, and begins calls.
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            let mut begun = calls.lock();
            if begun.brief.is_empty() {
                drop(begun);
                ready!(stalled.poll_stuck(&state.replies, cx));
                tracing::debug!("a connection is closed: its client does not read the replies");
                return Poll::Ready(Ok(()));
            }
            brief.extend(begun.brief.drain(..).map(caught));
        }
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended with an error");
    }
}

/// Lets every call go on that can. One that panics is over, and its panic told by the hook: the others go on.
fn advance(calls: &mut FuturesUnordered<Caught<Call>>, cx: &mut Context<'_>) {
    while let Poll::Ready(Some(_ended)) = calls.poll_next_unpin(cx) {}
}

fn transport(calls: Calls, streams_max: u32) -> auto::Builder<Calls> {
    let mut builder = auto::Builder::new(calls);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Answers of gRPC have no use for a date, and it would change their headers every second.
        .auto_date_header(false)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(streams_max);
    builder
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::service::service_fn;
    use tokio::io::{AsyncWriteExt as _, duplex};
    use tokio::time::Instant;
    use tonic::codegen::http::Response;

    use super::*;
    use crate::unary::Answer;

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_in_ends_its_connection() {
        let (mut client, server) = duplex(1_024);
        let transport = transport(Calls::default(), 1);
        let service = service_fn(async |_request| Ok::<_, Infallible>(Response::new(Answer::Ended)));
        let connection = transport.serve_connection(TokioIo::new(server), service);
        let began = Instant::now();
        client.write_all(b"GET / HTTP/1.1\r\nx-slowly: ").await.expect("written");
        let dripping = async {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(HEAD_PATIENCE / 3).await;
            }
        };
        let (ended, ()) = tokio::join!(connection, dripping);
        ended.expect_err("the head never came");
        assert!(began.elapsed() < HEAD_PATIENCE * 2, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn brief_calls_wait_for_their_connection_and_the_others_run_by_themselves() {
        let calls = Calls::default();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let call = |name: &'static str| {
            let told = told.clone();
            async move { told.send(name).expect("heard") }
        };
        calls.next_is_brief();
        calls.execute(call("brief"));
        calls.execute(call("long"));
        assert_eq!(heard.recv().await, Some("long"));
        let brief = calls.lock().brief.drain(..).collect::<Vec<_>>();
        assert_eq!(brief.len(), 1);
        for call in brief {
            call.await;
        }
        assert_eq!(heard.recv().await, Some("brief"));
    }
}
