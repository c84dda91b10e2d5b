//! What a client says on its stream.
//!
//! A subscriber says one thing and then listens. Each delivery makes its task run, and to look each time whether it has
//! said something more would be to ask the connection, which all of its streams share and wait for each other at.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use macp_wire::codes::Code;
use macp_wire::v1::StreamSessionRequest;
use tonic::{Code as Grpc, Status, Streaming};

use super::{Frame, invalid};
use crate::bell::Bell;
use crate::requests::MessageBytes;
use crate::status;

/// The frames of a stream, looked at when the transport says that there is something to see.
pub(super) struct Inbound {
    frames: Streaming<StreamSessionRequest>,
    /// Counts the frame that is being received.
    message: MessageBytes,
    bell: Arc<Bell>,
    /// Rings the bell.
    called: Waker,
}

impl Inbound {
    pub(super) fn new(frames: Streaming<StreamSessionRequest>, message: MessageBytes) -> Self {
        let bell = Bell::rung();
        Inbound { frames, message, called: Waker::from(Arc::clone(&bell)), bell }
    }

    /// The next frame; none when the client has nothing more to send. To stop waiting for it loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, Status> {
        let request = poll_fn(|cx| {
            if !self.bell.has_rung(cx) {
                return Poll::Pending;
            }
            let request = pin!(self.frames.message()).poll(&mut Context::from_waker(&self.called));
            if request.is_ready() {
                self.message.release();
                self.bell.leave_rung();
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
