//! What a client says on its stream.
//!
//! A subscriber says one thing and then listens. Each delivery makes its task run, and to look each time whether it has
//! said something more would be to ask the connection, which all of its streams share and wait for each other at.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use macp_wire::codes::Code;
use macp_wire::v1::StreamSessionRequest;
use tonic::{Code as Grpc, Status, Streaming};

use super::{Frame, invalid};
use crate::status;

/// The frames of a stream, looked at when the transport says that there is something to see.
pub(super) struct Inbound {
    frames: Streaming<StreamSessionRequest>,
    sign: Arc<Sign>,
    waker: Waker,
}

/// Remembers that the transport gave a sign.
struct Sign {
    given: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Sign {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.given.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Inbound {
    pub(super) fn new(frames: Streaming<StreamSessionRequest>) -> Self {
        // The first look is for free.
        let sign = Arc::new(Sign { given: AtomicBool::new(true), task: AtomicWaker::new() });
        Inbound { frames, waker: Waker::from(Arc::clone(&sign)), sign }
    }

    /// The next frame; none when the client has nothing more to send. To stop waiting for it loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, Status> {
        let request = poll_fn(|cx| {
            self.sign.task.register(cx.waker());
            if !self.sign.given.swap(false, Ordering::AcqRel) {
                return Poll::Pending;
            }
            let request = pin!(self.frames.message()).poll(&mut Context::from_waker(&self.waker));
            if request.is_ready() {
                // There may be more behind it.
                self.sign.given.store(true, Ordering::Release);
            }
            request
        });
        let Some(request) = request.await.map_err(unreadable)? else {
            return Ok(None);
        };
        let StreamSessionRequest { envelope, subscribe_session_id, after_sequence, signature } = request;
        match (envelope, subscribe_session_id.is_empty()) {
            (Some(envelope), true) => Ok(Some(Frame::Envelope(Box::new(envelope), signature))),
            (None, false) => {
                Ok(Some(Frame::Subscribe { session_id: subscribe_session_id, after_ordinal: after_sequence }))
            }
            (Some(_), false) => Err(invalid("a frame holds an envelope or subscribes, not both")),
            (None, true) => Err(invalid("a frame holds an envelope or subscribes to a session")),
        }
    }
}

/// The transport calls a frame it cannot decode an internal error and one too long out of range; the client's frame is
/// what is wrong.
fn unreadable(error: Status) -> Status {
    match error.code() {
        Grpc::Internal => invalid(error.message()),
        Grpc::OutOfRange => status::coded(Code::PayloadTooLarge, error.message()),
        _ => error,
    }
}
