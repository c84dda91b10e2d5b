//! The port: bound once, with clear errors, and accepting as long as the operating system gives connections.

use std::future::Future as _;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::TcpIncoming;

use crate::gather::Gather;
use crate::greeting::{Greeting, PATIENCE};

/// Wait after a failed accept. Without it, having no file descriptor left would keep a processor busy.
const PAUSE: Duration = Duration::from_millis(50);

/// Finds out that a peer is gone although nothing is sent.
const KEEPALIVE: Duration = Duration::from_secs(60);

pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// What to do about a failed bind.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "another process listens there; stop it or choose another port",
        ErrorKind::AddrNotAvailable => "this machine has no such address; choose one it has",
        ErrorKind::PermissionDenied => "this user may not listen there; ports below 1024 need a privilege",
        _ => "check the address",
    }
}

/// How often it is told that connections are refused. A line for each would bury everything else.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Connections as they come in. An accept that fails is logged and tried again, never the end. One too many is closed
/// at once: each costs memory before anyone knows whose it is.
#[derive(Debug)]
pub(crate) struct Connections {
    incoming: TcpIncoming,
    pause: Option<Pin<Box<Sleep>>>,
    places: Arc<Semaphore>,
    connections_max: usize,
    refused: Refused,
}

/// Connections refused since it was last told.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    told: Option<Instant>,
}

impl Refused {
    /// Counts one; how many there are to tell of, when it is time.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let due = self.told.is_none_or(|told| now.duration_since(told) >= TOLD_EVERY);
        due.then(|| {
            self.told = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

impl Connections {
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Self {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE));
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Connections { incoming, pause: None, places, connections_max, refused: Refused::default() }
    }
}

impl Stream for Connections {
    type Item = Gather<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match std::task::ready!(Pin::new(&mut self.incoming).poll_next(cx)) {
                Some(Ok(connection)) => {
                    if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                        return Poll::Ready(Some(Gather::new(connection, Greeting::within(PATIENCE), Some(place))));
                    }
                    drop(connection);
                    if let Some(refused) = self.refused.count(Instant::now()) {
                        let connections_max = self.connections_max;
                        tracing::warn!(
                            refused,
                            connections_max,
                            "connections are refused: there are as many as may be"
                        );
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_of_together() {
        let mut refused = Refused::default();
        let began = Instant::now();
        assert_eq!(refused.count(began), Some(1), "the first at once");
        assert_eq!(refused.count(began), None);
        assert_eq!(refused.count(began + TOLD_EVERY / 2), None);
        assert_eq!(refused.count(began + TOLD_EVERY), Some(3));
    }
}
