//! A stream that subscribes: what a session accepted after an ordinal, then what it accepts from now on.
//!
//! Further subscribe frames for the same session replay it again. When one arrives, or the client has nothing more to
//! send, what is in the history at that moment is delivered first.

use std::pin::pin;

use macp_rpc::StreamFrame;
use tonic::Status;

use super::inbound::Inbound;
use super::{Frame, invalid, subscribe};
use crate::access::Access;
use crate::attached::Outlet;
use crate::context::Context;
use crate::runtime::sessions;
use crate::status;

/// What follows once the deliveries have come as far as the history was when the client asked.
#[derive(Debug)]
enum Then {
    End,
    Replay { after_ordinal: u64 },
}

pub(super) async fn run(
    ctx: &Context,
    access: &Access,
    session_id: &str,
    after_ordinal: u64,
    mut inbound: Inbound,
    outlet: &Outlet<StreamFrame>,
) -> Result<(), Status> {
    let session = sessions::readable(ctx, access, session_id).await?;
    // Who asks for what lies beyond the end gets whatever comes next.
    let after_ordinal = after_ordinal.min(session.ordinal);
    let mut subscription = subscribe(ctx, access, outlet, session_id, after_ordinal);
    // Of the last delivery; before the first, of what the client says it has.
    let mut position = after_ordinal;
    let mut asked: Option<(u64, Then)> = None;
    let mut drained = pin!(ctx.drain.begun());
    loop {
        if let Some((until, then)) = &asked
            && position >= *until
        {
            match then {
                Then::End => return Ok(()),
                Then::Replay { after_ordinal } => {
                    position = *after_ordinal;
                    subscription = subscribe(ctx, access, outlet, session_id, position);
                    asked = None;
                }
            }
        }
        tokio::select! {
            delivery = subscription.next() => {
                let delivery = delivery.map_err(|error| status::of_subscription(&error))?;
                position = delivery.ordinal;
                outlet.send(StreamFrame::Envelope(delivery.envelope)).await;
            }
            frame = inbound.next(), if asked.is_none() => {
                let then = match frame? {
                    None => Then::End,
                    Some(Frame::Subscribe { session_id: other, after_ordinal }) if other == session_id => {
                        Then::Replay { after_ordinal }
                    }
                    Some(Frame::Subscribe { .. }) => {
                        return Err(invalid("this stream is subscribed to another session"));
                    }
                    Some(Frame::Envelope(..)) => {
                        return Err(invalid("this stream subscribes; send envelopes on another"));
                    }
                };
                let newest = newest_ordinal(ctx, session_id).await?;
                let then = match then {
                    Then::Replay { after_ordinal } => Then::Replay { after_ordinal: after_ordinal.min(newest) },
                    Then::End => Then::End,
                };
                asked = Some((newest, then));
            }
            () = &mut drained => return Err(status::shutting_down()),
        }
    }
}

/// How many envelopes the session has accepted. Asking is a touch: a deadline that has passed is noticed.
async fn newest_ordinal(ctx: &Context, session_id: &str) -> Result<u64, Status> {
    let session = sessions::snapshot(ctx, session_id).await?;
    Ok(session.ok_or_else(|| status::session_not_found(session_id))?.ordinal)
}
