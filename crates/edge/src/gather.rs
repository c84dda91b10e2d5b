//! Lets the answers of one commit leave a connection together.
//!
//! A commit answers many requests at once, one after the other, and hands deliveries to many streams. The runtime runs a
//! task that was just woken before all others, so that the first answer and every delivery would be written on its own,
//! with a system call here and a wake-up of the client for each. A connection that is about to write little
//! therefore lets the tasks that are ready go first, once, and finds their answers beside its own when its turn comes.
//! One on which a single client asks one thing at a time never finds any: it learns that, and writes at once, trying now
//! and then whether it is still alone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::greeting::Greeting;

/// What is worth a write of its own, in bytes.
const ENOUGH_BYTES: usize = 8 * 1024;

/// Times in a row that giving way was in vain before a connection stops doing it.
const IN_VAIN_MAX: u8 = 4;

/// Writes at once before a connection that stopped giving way tries again.
const TRY_EVERY: u8 = 16;

/// A connection that gives way once before it writes.
#[derive(Debug)]
pub(crate) struct Gather<C> {
    connection: C,
    /// What was there to write when it gave way, in bytes.
    gave_way: Option<usize>,
    /// Times in a row that nothing was added meanwhile.
    in_vain: u8,
    /// Writes since it last gave way.
    at_once: u8,
    greeting: Greeting,
}

impl<C> Gather<C> {
    pub(crate) fn new(connection: C, greeting: Greeting) -> Self {
        Gather { connection, gave_way: None, in_vain: 0, at_once: 0, greeting }
    }

    /// Ready when it is time to write. A task that wakes itself goes to the end of the line.
    fn poll_turn(&mut self, bytes: usize, cx: &Context<'_>) -> Poll<()> {
        if let Some(before) = self.gave_way.take() {
            self.in_vain = if bytes > before { 0 } else { self.in_vain.saturating_add(1) };
            return Poll::Ready(());
        }
        let alone = self.in_vain >= IN_VAIN_MAX && self.at_once < TRY_EVERY;
        if alone || bytes >= ENOUGH_BYTES {
            self.at_once = self.at_once.saturating_add(1);
            return Poll::Ready(());
        }
        (self.gave_way, self.at_once) = (Some(bytes), 0);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Gather<C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.connection).poll_read(cx, buffer);
        self.greeting.heard(buffer.filled().len() - before);
        match read {
            Poll::Pending => self.greeting.poll_silence(cx).map(Err),
            ready => ready,
        }
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn patient() -> Greeting {
        Greeting::within(Duration::from_secs(3_600))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_is_not_waited_for() {
        let whole = "GET /healthz HTTP/1.1\r\n\r\n";
        for (first, seconds) in [("", 30), ("PRI * HTTP/2.0", 30), (whole, 90)] {
            let (near, mut far) = duplex(64);
            let mut near = Gather::new(near, Greeting::within(Duration::from_secs(30)));
            let began = tokio::time::Instant::now();
            far.write_all(first.as_bytes()).await.expect("written");
            let mut read = vec![0; first.len()];
            near.read_exact(&mut read).await.expect("read");
            let error = near.read_u8().await.expect_err("nothing more comes");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{first:?}");
            assert_eq!(began.elapsed().as_secs(), seconds, "{first:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_gives_signs_of_life_stays() {
        let (near, mut far) = duplex(64);
        let mut near = Gather::new(near, Greeting::within(Duration::from_secs(30)));
        far.write_all(&[1; 24]).await.expect("written");
        near.read_exact(&mut [0; 24]).await.expect("read");
        for _ in 0..10 {
            let sign = async {
                tokio::time::sleep(Duration::from_secs(80)).await;
                far.write_u8(1).await
            };
            let (heard, said) = tokio::join!(near.read_u8(), sign);
            assert_eq!((heard.expect("heard"), said.expect("said")), (1, ()));
        }
    }

    #[tokio::test]
    async fn a_small_write_lets_other_tasks_go_first_and_a_large_one_does_not() {
        let (near, mut far) = duplex(2 * ENOUGH_BYTES);
        let mut near = Gather::new(near, patient());
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

    /// How often a connection is polled for a write, when so much more is there each time it is polled again.
    fn polls(gather: &mut Gather<tokio::io::Empty>, added: usize) -> usize {
        let cx = Context::from_waker(Waker::noop());
        let polls = (0..3).find(|polls| gather.poll_turn(100 + polls * added, &cx).is_ready());
        polls.expect("it gives way once") + 1
    }

    #[tokio::test]
    async fn a_connection_that_is_alone_stops_giving_way_until_it_is_not() {
        let mut gather = Gather::new(tokio::io::empty(), patient());
        for _ in 0..IN_VAIN_MAX {
            assert_eq!(polls(&mut gather, 0), 2);
        }
        for _ in 0..TRY_EVERY {
            assert_eq!(polls(&mut gather, 0), 1);
        }
        assert_eq!(polls(&mut gather, 0), 2, "it tries again");
        for _ in 0..TRY_EVERY {
            assert_eq!(polls(&mut gather, 0), 1);
        }
        assert_eq!(polls(&mut gather, 100), 2, "and finds that it is alone no more");
        assert_eq!(polls(&mut gather, 100), 2);
    }
}
