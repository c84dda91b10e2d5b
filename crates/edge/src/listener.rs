//! The port: bound once, with clear errors, and accepting as long as the operating system gives connections.

use std::future::Future as _;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::TcpIncoming;

use crate::gather::Gather;

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

/// Connections as they come in. An accept that fails is logged and tried again, never the end.
#[derive(Debug)]
pub(crate) struct Connections {
    incoming: TcpIncoming,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connections {
    pub(crate) fn new(listener: TcpListener) -> Self {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE));
        Connections { incoming, pause: None }
    }
}

impl Stream for Connections {
    type Item = io::Result<Gather<TcpStream>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match std::task::ready!(Pin::new(&mut self.incoming).poll_next(cx)) {
                Some(Ok(connection)) => return Poll::Ready(Some(Ok(Gather::new(connection)))),
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}
