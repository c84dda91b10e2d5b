//! Lets the answers of one commit leave a connection together.
//!
//! A commit answers many requests at once, and each handler that wakes up hands its answer to the task of its
//! connection. The runtime runs a task that was just woken before all others, so that every answer would be written on
//! its own, with a system call here and a wake-up of the client for each. A connection that is about to write little
//! therefore lets the tasks that are ready go first, once, and finds their answers beside its own when its turn comes.
//! On an idle server its turn comes at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tonic::transport::server::Connected;

/// What is worth a write of its own, in bytes.
const ENOUGH_BYTES: usize = 8 * 1024;

/// A connection that gives way once before it writes.
#[derive(Debug)]
pub(crate) struct Gather<C> {
    connection: C,
    gave_way: bool,
    /// A place among the connections there may be, given back with this one.
    _place: Option<OwnedSemaphorePermit>,
}

impl<C> Gather<C> {
    pub(crate) fn new(connection: C, place: Option<OwnedSemaphorePermit>) -> Self {
        Gather { connection, gave_way: false, _place: place }
    }

    /// Ready when it is time to write. A task that wakes itself goes to the end of the line.
    fn poll_turn(&mut self, bytes: usize, cx: &Context<'_>) -> Poll<()> {
        self.gave_way = !self.gave_way && bytes < ENOUGH_BYTES;
        if self.gave_way {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Gather<C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Gather<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_turn(bytes.len(), cx));
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_turn(slices.iter().map(|slice| slice.len()).sum(), cx));
        Pin::new(&mut self.connection).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

impl<C: Connected> Connected for Gather<C> {
    type ConnectInfo = C::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_small_write_lets_other_tasks_go_first_and_a_large_one_does_not() {
        let (near, mut far) = duplex(2 * ENOUGH_BYTES);
        let mut near = Gather::new(near, None);
        let large = vec![1; ENOUGH_BYTES];
        for (bytes, turns) in [(&b"small"[..], 2), (&large, 1), (b"more", 2)] {
            let mut polls = 0;
            let written = poll_fn(|cx| {
                polls += 1;
                Pin::new(&mut near).poll_write(cx, bytes)
            });
            assert_eq!((written.await.expect("written"), polls), (bytes.len(), turns));
        }
        near.shutdown().await.expect("closed");
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.expect("read");
        assert_eq!(read, [b"small", &large[..], b"more"].concat());
    }
}
