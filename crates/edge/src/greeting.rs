//! Ends connections on which nobody says anything.
//!
//! What comes first on a connection tells which protocol it speaks, and until then nothing watches over it: a client
//! that connects and keeps silent, or stops in the middle of its first words, would keep its place among the connections
//! there may be for as long as it likes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// Bytes after which the protocol is known: HTTP/2 begins with so many, and no request of HTTP/1.1 is shorter.
const BYTES: usize = 24;

/// How long a client may take for them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the first words of a connection.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// None once they are there.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Greeting {
    pub(crate) fn within(patience: Duration) -> Self {
        Greeting { waiting: Some(Waiting { deadline: Box::pin(tokio::time::sleep(patience)), bytes: 0 }) }
    }

    /// So many bytes have come.
    pub(crate) fn heard(&mut self, bytes: usize) {
        if let Some(waiting) = &mut self.waiting {
            waiting.bytes += bytes;
            if waiting.bytes >= BYTES {
                self.waiting = None;
            }
        }
    }

    /// Nothing is there to read: fails when that has gone on for too long.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.waiting {
            Some(waiting) => waiting.deadline.as_mut().poll(cx).map(|()| io::ErrorKind::TimedOut.into()),
            None => Poll::Pending,
        }
    }
}
