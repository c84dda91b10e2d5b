//! Ends connections on which nobody says anything.
//!
//! What comes first on a connection tells which protocol it speaks, and until then nothing watches over it: a client
//! that connects and keeps silent, or stops in the middle of its first words, would keep its place among the connections
//! there may be for as long as it likes. Under TLS its first words are those of the handshake, and it could fall silent
//! after them. So one that has said enough to begin with must go on to be heard: clients of HTTP/2 are asked for a sign
//! of life, and answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Bytes after which the protocol is known: HTTP/2 begins with so many.
const BYTES: usize = 24;

/// How long a client may take for them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long nothing may come after them. Longer than the wait for a sign of life and the wait for its answer.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);

/// Listens whether a client is still there.
#[derive(Debug)]
pub(crate) struct Greeting {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
    heard_at: Instant,
}

impl Greeting {
    pub(crate) fn within(patience: Duration) -> Self {
        let heard_at = Instant::now();
        Greeting { deadline: Box::pin(tokio::time::sleep_until(heard_at + patience)), bytes: 0, heard_at }
    }

    /// So many bytes have come.
    pub(crate) fn heard(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes = self.bytes.saturating_add(bytes);
            self.heard_at = Instant::now();
        }
    }

    /// Nothing is there to read: fails when that has gone on for too long.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            std::task::ready!(self.deadline.as_mut().poll(cx));
            let until = self.heard_at + SILENCE;
            if self.bytes < BYTES || Instant::now() >= until {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            // Set anew when it goes off, not with every byte that comes.
            self.deadline.as_mut().reset(until);
        }
    }
}
