//! Serves every connection until the drain, and those that are open to their end.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

use crate::connection;
use crate::drain::Drain;
use crate::front::Front;
use crate::listener::Connections;
use crate::tls::Handshake;

/// Accepts until the drain begins, then waits for the connections that are open. To drop it cuts them off.
pub(crate) async fn serve(
    mut connections: Connections,
    handshake: Option<Handshake>,
    front: Arc<Front>,
    streams_max: u32,
    drain: Drain,
) {
    let handshake = handshake.map(Arc::new);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connections.next() => {
                let Some(connection) = accepted else {
                    break;
                };
                let (front, drain) = (Arc::clone(&front), drain.clone());
                match &handshake {
                    None => open.spawn(connection::run(connection, front, streams_max, drain)),
                    Some(handshake) => {
                        let handshake = Arc::clone(handshake);
                        open.spawn(async move {
                            let shaken = tokio::select! {
                                shaken = handshake.shake(connection) => shaken,
                                // There is no call to finish on it.
                                () = drain.begun() => return,
                            };
                            match shaken {
                                Ok(connection) => connection::run(connection, front, streams_max, drain).await,
                                Err(error) => tracing::debug!(%error, "a handshake of TLS failed"),
                            }
                        })
                    }
                };
            }
            Some(ended) = open.join_next() => told(ended),
            () = drain.begun() => break,
        }
    }
    // Nobody connects to a server that goes down.
    drop(connections);
    while let Some(ended) = open.join_next().await {
        told(ended);
    }
}

fn told(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection failed in a way it should not");
    }
}
