//! Send: one envelope in, one Ack out. The same way is taken by the envelopes of a stream.

use std::time::Duration;

use macp_engine::Error;
use macp_kernel::{
    Command, Door, Input, Rejection, SESSION_START, SignatureCheck, ambient, door, over_rate, stated_deadline,
};
use macp_wire::codes::Code;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::{Ack, Envelope, SendRequest, SendResponse, SessionState};
use tonic::Status;

use super::relay::{Offered, relay};
use crate::access::Access;
use crate::ack::{Refusal, Subject};
use crate::context::Context;
use crate::metrics::Rpc;
use crate::quota::Outcome;
use crate::rate::Kind;
use crate::status;

/// What a request may be longer than the longest payload. The envelope's other fields and a signature need little of
/// it; the rest lets payloads well over their limit reach the rules, so that they are refused in the Ack and do not end
/// a stream. Only what is longer still is refused by the transport.
pub(crate) const DECODE_SLACK_BYTES: usize = 4 * 1024 * 1024;

pub(super) async fn send(ctx: &Context, access: &Access, request: SendRequest) -> Result<SendResponse, Status> {
    let _timer = ctx.metrics.time(Rpc::Send);
    let SendRequest { envelope, signature } = request;
    let envelope = envelope.ok_or_else(|| status::coded(Code::InvalidEnvelope, "the request holds no envelope"))?;
    let received = receive(ctx, access, &envelope).await;
    let ack = answer(ctx, access, received, envelope, signature).await;
    Ok(SendResponse { ack: Some(ack) })
}

/// What an envelope has met before its session is asked.
#[derive(Debug)]
pub(super) struct Received {
    /// Whatever session it names, and whether there is one.
    refused: Option<Rejection>,
    /// When its sender may come again, if nothing is left of the share.
    retry_after: Option<Duration>,
    place: Place,
}

/// A place among the sessions its sender may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// None is needed.
    Free,
    Claimed,
    Full,
}

/// Looks at an envelope and its caller, takes it out of the sender's share and claims a place for a start whose sender
/// may have so many sessions open and no more. The last may take a while, and what follows on a stream must not
/// overtake the start.
pub(super) async fn receive(ctx: &Context, access: &Access, envelope: &Envelope) -> Received {
    let mut received = Received { refused: None, retry_after: None, place: Place::Free };
    match door(envelope, &access.caller, ctx.engine.limits()) {
        Door::Refused(rejection) => {
            received.refused = Some(rejection);
            return received;
        }
        // Its session refuses it. A start that is malformed opens none, and needs no place.
        Door::Unclear => return received,
        Door::Passed(sender) => {
            if let Err(retry_after) = take_rate(ctx, sender, envelope) {
                (received.refused, received.retry_after) = (Some(over_rate()), Some(retry_after));
                return received;
            }
        }
    }
    if let Some(open_max) = access.open_sessions_max
        && envelope.message_type == SESSION_START
    {
        // Boxed like the other waits that few requests have, so that a request does not carry the room for them.
        match Box::pin(claim(ctx, access, open_max, &envelope.session_id)).await {
            Ok(place) => received.place = place,
            Err(rejection) => received.refused = Some(rejection),
        }
    }
    received
}

async fn claim(ctx: &Context, access: &Access, open_max: u64, session_id: &str) -> Result<Place, Rejection> {
    let Some(identity) = access.identity() else {
        return Ok(Place::Free);
    };
    match ctx.quotas.claim(ctx.engine.store(), identity, open_max, session_id, ctx.engine.now_ms()).await {
        Ok(true) => Ok(Place::Claimed),
        Ok(false) => Ok(Place::Full),
        Err(failure) => {
            tracing::error!(%failure, "cannot count a sender's open sessions");
            Err(Rejection::operational(Code::InternalError, "cannot count the sender's open sessions"))
        }
    }
}

/// The start that had a place is answered. A write that failed may be stored after all, so only a refusal gives the
/// place back.
async fn settle(ctx: &Context, access: &Access, ack: &Ack) {
    let outcome = match &ack.error {
        Some(error) if error.code != Code::InternalError.as_str() => Outcome::Refused,
        Some(_) | None => Outcome::MayStand,
    };
    ctx.quotas.settle(access.identity().unwrap_or_default(), &ack.session_id, outcome).await;
}

/// Takes an envelope to its verdict. The engine has it when this is first polled, so that whoever polls in the order of
/// arrival keeps that order; only Progress about a session waits for that session first.
pub(super) async fn answer(
    ctx: &Context,
    access: &Access,
    received: Received,
    envelope: Envelope,
    signature: Option<EnvelopeSignature>,
) -> Ack {
    let subject = Subject { session_id: envelope.session_id.clone(), message_id: envelope.message_id.clone() };
    let Received { refused, retry_after, place } = received;
    let mut caller = access.caller.clone();
    caller.over_rate = retry_after.is_some();
    caller.over_quota = place == Place::Full;
    let signature = match signature {
        Some(signature) => ctx.keys().check(&envelope, Some(&signature)),
        None => SignatureCheck::Absent,
    };
    if let Some(admitted) = ambient(&envelope, &signature, &caller, ctx.engine.limits()) {
        let offered = Offered { envelope: &envelope, signature: &signature, caller: &caller, retry_after };
        return Box::pin(relay(ctx, access, subject, offered, admitted)).await;
    }
    if let Some(rejection) = refused {
        ctx.metrics.rejected(rejection.code);
        ctx.engine.trace(&envelope, &signature, &caller, (&rejection).into());
        return subject.refused(Refusal::new(rejection, retry_after), SessionState::Unspecified);
    }
    let deadline_ms = stated_deadline(&envelope);
    let registered = ctx.registry.look_up(&envelope);
    let command = Command { caller, input: Input::Envelope { envelope, signature, registered } };
    let result = ctx.engine.submit(&subject.session_id, command).await;
    if let Err(error) = &result {
        report(&subject.session_id, error);
    }
    let ack = subject.answered(result, access.sees_all(), retry_after, ctx.engine.now_ms());
    count(ctx, &ack);
    if place == Place::Claimed {
        Box::pin(settle(ctx, access, &ack)).await;
    }
    if let Some(deadline_ms) = deadline_ms {
        warn_if_past(deadline_ms, &ack);
    }
    ack
}

/// Overload and failed writes are counted, and the engine logs the first; a line for every request that meets them
/// would bury it. An unreadable session is known only here.
pub(super) fn report(session_id: &str, error: &Error) {
    match error {
        Error::Overloaded | Error::ShuttingDown | Error::Write(_) => {
            tracing::debug!(session = session_id, %error, "no verdict");
        }
        _ => tracing::warn!(session = session_id, error = status::with_causes(error), "no verdict"),
    }
}

/// Takes an envelope out of its sender's share, or tells how long to wait if nothing is left of it.
fn take_rate(ctx: &Context, sender: &str, envelope: &Envelope) -> Result<(), Duration> {
    let Some(limiter) = &ctx.limiter else {
        return Ok(());
    };
    let kind = if envelope.message_type == SESSION_START { Kind::Start } else { Kind::Message };
    limiter.take(sender, kind, ctx.uptime()).map_err(|exhausted| exhausted.retry_after)
}

fn count(ctx: &Context, ack: &Ack) {
    match &ack.error {
        None if ack.duplicate => ctx.metrics.duplicate(),
        None => ctx.metrics.accepted(),
        Some(error) => {
            let code = Code::parse(&error.code).expect("only codes of the registry are sent");
            ctx.metrics.rejected(code);
        }
    }
}

/// A client whose clock is wrong starts sessions that are over at once, which looks like a fault of the server.
fn warn_if_past(deadline_ms: i64, ack: &Ack) {
    if ack.ok && !ack.duplicate && deadline_ms < ack.accepted_at_unix_ms {
        tracing::warn!(
            session = ack.session_id,
            deadline_ms,
            accepted_at_ms = ack.accepted_at_unix_ms,
            "the session was past its deadline when it started; is the client's clock right?"
        );
    }
}
