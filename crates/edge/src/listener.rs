//! The port: bound once, with clear errors, and accepting as long as the operating system gives connections.

use std::future::Future as _;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::TcpIncoming;

use crate::connections::{Admitted, Connections, Full};
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

/// How often refused connections are logged. A line for each would bury everything else.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Connections as they come in, each with its place among all.
///
/// An accept that fails is logged and tried again, never the end. A connection that is not admitted is closed at once:
/// each costs memory before its caller is known.
#[derive(Debug)]
pub(crate) struct Accepting {
    incoming: TcpIncoming,
    pause: Option<Pin<Box<Sleep>>>,
    connections: Arc<Connections>,
    refused: Refused,
}

/// Connections refused since they were last logged.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    logged: Option<Instant>,
}

impl Refused {
    /// Counts one. Returns how many to log, when it is time.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let due = self.logged.is_none_or(|logged| now.duration_since(logged) >= LOGGED_EVERY);
        due.then(|| {
            self.logged = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

impl Accepting {
    pub(crate) fn new(listener: TcpListener, connections: Arc<Connections>) -> Self {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE));
        Accepting { incoming, pause: None, connections, refused: Refused::default() }
    }

    /// Admits a connection. One whose peer is gone already has no address, and is dropped like one that is refused.
    fn admit(&mut self, stream: &TcpStream) -> Option<Admitted> {
        let peer = stream.peer_addr().ok()?;
        match self.connections.admit(peer) {
            Ok(admitted) => Some(admitted),
            Err(full) => {
                if let Some(refused) = self.refused.count(Instant::now()) {
                    let reason = match full {
                        Full::All => "max_connections are open, and none of them is idle without a credential",
                        Full::Network => "one address has max_connections_per_address without a credential",
                    };
                    tracing::warn!(refused, %peer, reason, "connections are refused");
                }
                None
            }
        }
    }
}

impl Stream for Accepting {
    type Item = (Gather<TcpStream>, Admitted);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match std::task::ready!(Pin::new(&mut self.incoming).poll_next(cx)) {
                Some(Ok(stream)) => {
                    if let Some(admitted) = self.admit(&stream) {
                        return Poll::Ready(Some((Gather::new(stream, Greeting::within(PATIENCE)), admitted)));
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
    fn refused_connections_are_logged_together() {
        let mut refused = Refused::default();
        let began = Instant::now();
        assert_eq!(refused.count(began), Some(1), "the first at once");
        assert_eq!(refused.count(began), None);
        assert_eq!(refused.count(began + LOGGED_EVERY / 2), None);
        assert_eq!(refused.count(began + LOGGED_EVERY), Some(3));
    }
}
