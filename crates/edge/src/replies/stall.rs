//! Notices replies that are not read.
//!
//! A piece of a reply of at most 64 KiB must be written to the socket within the timeout, whatever else the client sends
//! meanwhile: that is the minimum rate. The timer runs only while a connection has calls or replies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::connection::ConnectionReplies;
use super::unwritten::AGES;

/// The timer of one connection.
#[derive(Debug)]
pub(crate) struct StallTimer {
    every: Duration,
    sleep: Pin<Box<Sleep>>,
    is_armed: bool,
}

impl StallTimer {
    /// Finds a piece that is not written within the timeout, at the latest after a third of it more.
    pub(crate) fn new(timeout: Duration) -> Self {
        let every = timeout / (AGES as u32 - 1);
        StallTimer { every, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), is_armed: false }
    }

    /// Ready when the connection is stuck and must be closed. Single replies that are stuck are reset.
    pub(crate) fn poll_stuck(&mut self, replies: &ConnectionReplies, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if !self.is_armed {
                if !replies.is_active() {
                    return Poll::Pending;
                }
                self.is_armed = true;
                self.sleep.as_mut().reset(Instant::now() + self.every);
            }
            std::task::ready!(self.sleep.as_mut().poll(cx));
            self.is_armed = false;
            if replies.advance() {
                return Poll::Ready(());
            }
        }
    }
}
