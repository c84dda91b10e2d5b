//! StreamSession: the first frame says whether a stream carries envelopes or subscribes to a session.

mod envelopes;
mod inbound;
mod pipeline;
mod standard;
mod subscription;

use std::pin::Pin;
use std::sync::Arc;

use macp_engine::{PageMemory, Subscription};
use macp_kernel::{Profile, SESSION_START, start_profile};
use macp_rpc::StreamFrame;
use macp_wire::codes::Code;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::{Envelope, StreamSessionRequest};
use tonic::{Status, Streaming};

use self::inbound::Inbound;
use super::sessions;
use crate::access::Access;
use crate::attached::{Attached, Outlet, attach};
use crate::context::Context;
use crate::outbound;
use crate::requests::MessageBytes;
use crate::status;

/// What a request frame asks for.
#[derive(Debug)]
enum Frame {
    Envelope(Box<Envelope>, Option<EnvelopeSignature>),
    Subscribe { session_id: String, after_ordinal: u64 },
}

pub(super) fn open(
    ctx: &Arc<Context>,
    access: Access,
    frames: Streaming<StreamSessionRequest>,
    message: MessageBytes,
) -> Attached<StreamFrame> {
    let ctx = Arc::clone(ctx);
    attach(access.connection, |outlet| async move {
        let mut inbound = Inbound::new(frames, message);
        let first = tokio::select! {
            frame = inbound.next() => frame?,
            () = ctx.drain.begun() => return Err(status::shutting_down()),
        };
        let Some(first) = first else {
            return Ok(());
        };
        match (profile(&ctx, &access, &first).await?, first) {
            (Profile::Standard, first) => standard::run(&ctx, &access, first, inbound, &outlet).await,
            (Profile::Classic, Frame::Envelope(envelope, signature)) => {
                envelopes::run(&ctx, &access, (envelope, signature), inbound, &outlet).await
            }
            (Profile::Classic, Frame::Subscribe { session_id, after_ordinal }) => {
                subscription::run(&ctx, &access, &session_id, after_ordinal, inbound, &outlet).await
            }
        }
    })
}

/// The first frame fixes the rules of a stream: those its start chooses, those of the session it names, or, where it
/// names none, those a caller with or without a credential gets.
async fn profile(ctx: &Context, access: &Access, first: &Frame) -> Result<Profile, Status> {
    let session_id = match first {
        Frame::Envelope(envelope, _) if envelope.message_type == SESSION_START => {
            let registered = ctx.registry.look_up(envelope);
            return Ok(start_profile(envelope, &access.caller.credential, &registered, ctx.engine.limits()));
        }
        Frame::Envelope(envelope, _) => &envelope.session_id,
        Frame::Subscribe { session_id, .. } => session_id,
    };
    let by_credential = || if access.identity().is_some() { Profile::Standard } else { Profile::Classic };
    match (sessions::snapshot(ctx, session_id).await, first) {
        (Ok(session), _) => Ok(session.map_or_else(by_credential, |session| session.profile)),
        // Without a credential the stream is a classic one: the envelope meets the same failure and is answered with it,
        // and the stream goes on after that. Otherwise only the session could tell.
        (Err(_met_again), Frame::Envelope(..)) if access.identity().is_none() => Ok(Profile::Classic),
        (Err(failure), _) => Err(failure),
    }
}

/// Subscribes to a session for a stream. Pages of its history count in the memory of the caller.
fn subscribe(
    ctx: &Context,
    access: &Access,
    outlet: &Outlet<StreamFrame>,
    session_id: &str,
    after_ordinal: u64,
) -> Subscription {
    let memory = Arc::new(Pages(Arc::clone(&access.memory.queued)));
    ctx.engine.subscribe(session_id, after_ordinal).beside(outlet.connection()).counted(memory)
}

#[derive(Debug)]
struct Pages(outbound::Memory);

impl PageMemory for Pages {
    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>> {
        let memory = Arc::clone(&self.0);
        Box::pin(async move { Box::new(memory.reserve(bytes).await) as Box<dyn Send> })
    }
}

fn invalid(message: &str) -> Status {
    status::coded(Code::InvalidEnvelope, message)
}
