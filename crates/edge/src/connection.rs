//! One connection and its Sends, in one task.
//!
//! The transport would run every call as a task of its own: made for it, woken for its answer, and then waking the task
//! of the connection, which sends it. A commit answers dozens of Sends of a connection at once. Here they are polled one
//! after the other by the task that sends, and their answers leave together. What takes longer has a task of its own: a
//! hundred subscribers of one connection would hold up everything else that a thread has to do.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::drain::Drain;
use crate::front::{Door, Front};
use crate::greeting::SILENCE;
use crate::guard::{Caught, caught};

/// Flow control windows: a whole payload of the default limit fits into a stream's, some of them into a connection's,
/// so that no sender waits for an update in the middle of an envelope.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// How often a silent connection is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

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
    /// Whether the next call is brief.
    is_brief: bool,
}

impl Calls {
    /// The call that begins next takes no more than it takes to answer it. The transport asks the front about a call and
    /// begins it, before it asks about another.
    pub(crate) fn next_is_brief(&self) {
        self.lock().is_brief = true;
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
        if std::mem::take(&mut begun.is_brief) {
            begun.brief.push(Box::pin(call));
        } else {
            tokio::spawn(call);
        }
    }
}

/// Serves a connection to its end. A drain lets the calls finish that have begun, and no others begin. Calls end with
/// their connection: nobody is there to hear of them.
pub(crate) async fn run<C>(connection: C, front: Arc<Front>, streams_max: u32, drain: Drain)
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let calls = Calls::default();
    let transport = transport(calls.clone(), streams_max);
    let door = Door::new(front, calls.clone());
    let mut connection = pin!(transport.serve_connection(TokioIo::new(connection), door));
    let mut draining = pin!(drain.begun());
    let mut is_draining = false;
    let mut brief = FuturesUnordered::new();
    let ended = poll_fn(|cx| {
        if !is_draining && draining.as_mut().poll(cx).is_ready() {
            is_draining = true;
            connection.as_mut().graceful_shutdown();
        }
        loop {
            advance(&mut brief, cx);
            // Sends what the calls have answered, reads what has come, and begins calls.
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            let mut begun = calls.lock();
            if begun.brief.is_empty() {
                return Poll::Pending;
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
