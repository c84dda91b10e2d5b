//! Serves every connection until the drain, and those that are open to their end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

use crate::connection::{self, Bounds};
use crate::connections::{Admitted, Connection};
use crate::drain::Drain;
use crate::front::Front;
use crate::listener::Accepting;
use crate::tls::Handshake;

/// Accepts until the drain begins, then waits for the connections that are open. To drop it cuts them off.
pub(crate) async fn serve(
    mut accepting: Accepting,
    handshake: Option<Handshake>,
    front: Arc<Front>,
    bounds: Bounds,
    drain: Drain,
) {
    let handshake = handshake.map(Arc::new);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accepting.next() => {
                let Some((stream, admitted)) = accepted else {
                    break;
                };
                let (front, drain) = (Arc::clone(&front), drain.clone());
                match &handshake {
                    None => open.spawn(run(stream, admitted, front, bounds, drain)),
                    Some(handshake) => {
                        let handshake = Arc::clone(handshake);
                        open.spawn(async move {
                            let shaken = tokio::select! {
                                shaken = handshake.shake(stream) => shaken,
                                // There is no call to finish on it.
                                () = drain.begun() => return,
                                () = closing(&admitted.connection) => return,
                            };
                            match shaken {
                                Ok(stream) => run(stream, admitted, front, bounds, drain).await,
                                Err(error) => tracing::debug!(%error, "a handshake of TLS failed"),
                            }
                        })
                    }
                };
            }
            Some(ended) = open.join_next() => log_panic(ended),
            () = drain.begun() => break,
        }
    }
    // New connections are refused by the operating system from here on.
    drop(accepting);
    while let Some(ended) = open.join_next().await {
        log_panic(ended);
    }
}

/// Serves one connection, which keeps its place among all until it ends.
async fn run<C>(stream: C, admitted: Admitted, front: Arc<Front>, bounds: Bounds, drain: Drain)
where
    C: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    connection::run(stream, Arc::clone(&admitted.connection), front, bounds, drain).await;
}

/// Waits until a connection must close for a new one.
async fn closing(connection: &Connection) {
    poll_fn(|cx| if connection.poll_ending(cx).is_some() { Poll::Ready(()) } else { Poll::Pending }).await;
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the task of a connection panicked");
    }
}
