//! The body of a reply: counts its bytes, and hands them to the transport piece by piece.
//!
//! The transport takes a whole frame of a body as soon as the client allows it a single byte, and a reply that it has
//! taken to the end cannot be reset any more. So a frame is cut into pieces, and the next piece waits until what was
//! handed over has been written. Short replies leave at once, together with their end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tonic::codegen::http::HeaderMap;

use super::charge::Charge;
use super::connection::ConnectionReplies;
use super::unwritten::{Reply, Unwritten};
use crate::connections::{Connection, InProgress};
use crate::unary::Answer;

/// Most bytes of one reply that the transport holds.
const HANDED_OVER_MAX: usize = 64 * 1024;

/// Longest reply that leaves together with its end, and cannot be reset alone any more. The end of a longer one waits
/// until all before it was written.
const SHORT_MAX: usize = 16 * 1024;

/// What a piece costs beyond its bytes, in the transport and here.
const PIECE_BYTES: usize = 512;

/// A call from its request to the end of its reply.
#[derive(Debug)]
pub(crate) struct OpenCall {
    /// What it takes without its request and its reply.
    pub(crate) bytes: usize,
    /// Counts these bytes, once its caller is known.
    _memory: Option<Charge>,
    /// `None` for calls that do not keep their connection open.
    _in_progress: Option<InProgress>,
}

impl OpenCall {
    pub(crate) fn new(bytes: usize, in_progress: Option<InProgress>) -> Self {
        OpenCall { bytes, _memory: None, _in_progress: in_progress }
    }

    pub(crate) fn counted(self, memory: Charge) -> Self {
        OpenCall { _memory: Some(memory), ..self }
    }
}

/// A reply on its way to the transport.
pub(crate) struct ReplyBody {
    inner: Answer,
    connection: Arc<Connection>,
    /// `None` for a call that shares the task of its connection. Its reply is short.
    reply: Option<Arc<Reply>>,
    /// Reserved before the reply was made, then what was made and not handed over.
    charge: Charge,
    /// Whether messages follow the first as they come, each of which needs room before it is made.
    is_stream: bool,
    /// The call itself, until its reply is handed over.
    _call: OpenCall,
    made: Bytes,
    /// Whether what was made counts as long as any piece of it is left.
    is_counted_whole: bool,
    trailers: Option<HeaderMap>,
    /// Bytes of the reply so far.
    handed_over: usize,
    is_over: bool,
    /// Waits for room to make the next message.
    room: Option<BoxFuture<'static, ()>>,
}

impl ReplyBody {
    pub(crate) fn new(
        inner: Answer,
        connection: Arc<Connection>,
        reply: Option<Arc<Reply>>,
        charge: Charge,
        is_stream: bool,
        call: OpenCall,
    ) -> Self {
        ReplyBody {
            inner,
            connection,
            reply,
            charge,
            is_stream,
            _call: call,
            made: Bytes::new(),
            is_counted_whole: false,
            trailers: None,
            handed_over: 0,
            is_over: false,
            room: None,
        }
    }

    /// Makes the first frame of the reply if it can be made now, so that what is reserved becomes what it takes.
    pub(crate) fn begin(mut self, cx: &mut Context<'_>) -> Result<Self, Status> {
        match self.poll_inner(cx) {
            Poll::Ready(Err(status)) => return Err(status),
            // Nothing is made yet, or what was made counts with the piece it is.
            Poll::Pending | Poll::Ready(Ok(())) if self.made.is_empty() => self.charge.set(0),
            Poll::Pending | Poll::Ready(Ok(())) => {}
        }
        Ok(self)
    }

    fn replies(&self) -> &ConnectionReplies {
        &self.connection.replies
    }

    /// Makes the next frame.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    self.is_counted_whole = data.len() > HANDED_OVER_MAX;
                    self.made = if self.is_counted_whole {
                        // The pieces share one allocation, which counts until the last of them is written. It was
                        // doubled until the frame fitted.
                        self.charge.set(data.len().next_power_of_two());
                        let charge = self.charge.split(data.len().next_power_of_two());
                        Bytes::from_owner(Counted { data, _charge: charge })
                    } else {
                        self.charge.set(data.len() + PIECE_BYTES);
                        data
                    };
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            },
            Some(Err(status)) => return Poll::Ready(Err(status)),
            None => self.is_over = true,
        }
        Poll::Ready(Ok(()))
    }

    /// Hands over a piece of what was made.
    fn piece(&mut self) -> Bytes {
        let size = self.made.len().min(HANDED_OVER_MAX);
        self.handed_over = self.handed_over.saturating_add(size);
        let data = self.made.split_to(size);
        let bytes = if self.is_counted_whole { PIECE_BYTES } else { size + PIECE_BYTES };
        let mut charge = self.charge.split(bytes);
        charge.set(bytes);
        let age = self.replies().age();
        let piece =
            Piece { data, _charge: charge, connection: Arc::clone(&self.connection), reply: self.reply.clone(), age };
        piece.unwritten().add(age, size);
        Bytes::from_owner(piece)
    }

    /// Most bytes that may be unwritten when the end is handed over.
    fn unwritten_at_end(&self) -> usize {
        if self.handed_over <= SHORT_MAX { SHORT_MAX } else { 0 }
    }

    /// Waits until the transport has no more than so many bytes of this reply.
    fn poll_written(&self, bytes_max: usize, cx: &Context<'_>) -> Poll<()> {
        let Some(reply) = &self.reply else {
            return Poll::Ready(());
        };
        if reply.unwritten.total() <= bytes_max {
            return Poll::Ready(());
        }
        reply.written.register(cx.waker());
        // Something may have been written in between.
        if reply.unwritten.total() <= bytes_max { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until there is room to make another message.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.room.is_none() {
            if !self.charge.budgets().are_full() {
                return Poll::Ready(());
            }
            self.room = Some(Box::pin(Arc::clone(self.charge.budgets()).room()));
        }
        if let Some(room) = &mut self.room {
            ready!(room.as_mut().poll(cx));
        }
        self.room = None;
        Poll::Ready(())
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            if !this.made.is_empty() {
                let next = this.made.len().min(HANDED_OVER_MAX);
                ready!(this.poll_written(HANDED_OVER_MAX - next, cx));
                return Poll::Ready(Some(Ok(Frame::data(this.piece()))));
            }
            if this.trailers.is_some() {
                ready!(this.poll_written(this.unwritten_at_end(), cx));
                this.is_over = true;
                this.reply = None;
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            if this.is_over {
                ready!(this.poll_written(this.unwritten_at_end(), cx));
                return Poll::Ready(None);
            }
            if this.is_stream {
                ready!(this.poll_written(HANDED_OVER_MAX - 1, cx));
                ready!(this.poll_room(cx));
            }
            if let Err(status) = ready!(this.poll_inner(cx)) {
                return Poll::Ready(Some(Err(status)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_handed_over = self.made.is_empty() && self.trailers.is_none();
        let can_end = self.reply.as_ref().is_none_or(|reply| reply.unwritten.total() <= self.unwritten_at_end());
        is_handed_over && can_end && (self.is_over || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.made.is_empty() && self.trailers.is_none() {
            return self.inner.size_hint();
        }
        // A reply that is whole keeps its length, which HTTP/1.1 tells in a header.
        match self.inner.is_end_stream() && self.trailers.is_none() {
            true => SizeHint::with_exact(self.made.len() as u64),
            false => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyBody")
            .field("made", &self.made.len())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

/// Data that counts until it is dropped.
struct Counted {
    data: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Bytes that the transport has until it drops them, which is when they are written.
struct Piece {
    data: Bytes,
    _charge: Charge,
    connection: Arc<Connection>,
    reply: Option<Arc<Reply>>,
    age: usize,
}

impl Piece {
    fn unwritten(&self) -> &Unwritten {
        self.reply.as_ref().map_or(&self.connection.replies.brief, |reply| &reply.unwritten)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.unwritten().remove(self.age, self.data.len());
        if let Some(reply) = &self.reply {
            reply.written.wake();
        }
    }
}
