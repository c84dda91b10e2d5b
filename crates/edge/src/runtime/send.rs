//! Send: one envelope in, one Ack out. The same way is taken by the envelopes of a stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use macp_engine::{Error, Reply, Submission};
use macp_kernel::{
    Command, Door, Input, Rejection, SESSION_START, SignatureCheck, ambient, door, over_rate, stated_deadline,
};
use macp_wire::codes::Code;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::{Ack, Envelope, SendRequest, SendResponse, SessionState};
use tonic::Status;

use super::relay::{Offered, relay};
use super::standing;
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

/// Not `async`, and neither is what it calls where nearly all requests pass: what an `async` function takes stays in
/// its future beside what was made of it, and hundreds of requests wait at a time.
pub(super) fn send<'a>(
    ctx: &'a Context,
    access: &'a Access,
    request: SendRequest,
) -> impl Future<Output = Result<SendResponse, Status>> + Send + use<'a> {
    let timer = ctx.metrics.time(Rpc::Send);
    let SendRequest { envelope, signature } = request;
    let way = envelope.map(|envelope| {
        let received = meet(ctx, access, &envelope);
        if received.wants_place.is_none() {
            return answer(ctx, access, received, envelope, signature);
        }
        Way::Waiting(Box::pin(async move {
            let received = received.with_place(ctx, access, &envelope.session_id).await;
            answer(ctx, access, received, envelope, signature).await
        }))
    });
    async move {
        let _timer = timer;
        let way = way.ok_or_else(|| status::coded(Code::InvalidEnvelope, "the request holds no envelope"))?;
        let Answered { mut ack, session_asked } = way.await;
        if !session_asked {
            let state = Box::pin(standing::state(ctx, access, &ack.session_id)).await;
            ack.session_state = state.into();
        }
        Ok(SendResponse { ack: Some(ack) })
    }
}

/// What an envelope has met before its session is asked.
#[derive(Debug)]
pub(super) struct Received {
    /// Whatever session it names, and whether there is one.
    refused: Option<Rejection>,
    /// When its sender may come again, if nothing is left of the share.
    retry_after: Option<Duration>,
    /// How many sessions its sender may have open, if it would open one more.
    wants_place: Option<u64>,
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

/// Looks at an envelope and its caller, and takes it out of the sender's share.
fn meet(ctx: &Context, access: &Access, envelope: &Envelope) -> Received {
    let mut received = Received { refused: None, retry_after: None, wants_place: None, place: Place::Free };
    match door(envelope, &access.caller, ctx.engine.limits()) {
        Door::Refused(rejection) => received.refused = Some(rejection),
        // Its session refuses it. A start that is malformed opens none, and needs no place.
        Door::Unclear => {}
        Door::Passed(sender) => match take_rate(ctx, sender, envelope) {
            Ok(()) if envelope.message_type == SESSION_START => received.wants_place = access.open_sessions_max,
            Ok(()) => {}
            Err(retry_after) => (received.refused, received.retry_after) = (Some(over_rate()), Some(retry_after)),
        },
    }
    received
}

impl Received {
    /// Claims a place for a start whose sender may have so many sessions open and no more.
    async fn with_place(mut self, ctx: &Context, access: &Access, session_id: &str) -> Self {
        if let Some(open_max) = self.wants_place.take() {
            match claim(ctx, access, open_max, session_id).await {
                Ok(place) => self.place = place,
                Err(rejection) => self.refused = Some(rejection),
            }
        }
        self
    }
}

/// All that happens to an envelope before its session is asked. To claim a place may take a while, and what follows on a
/// stream must not overtake the start.
pub(super) async fn receive(ctx: &Context, access: &Access, envelope: &Envelope) -> Received {
    let received = meet(ctx, access, envelope);
    if received.wants_place.is_none() {
        return received;
    }
    Box::pin(received.with_place(ctx, access, &envelope.session_id)).await
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

/// What an envelope is answered with.
pub(super) struct Answered {
    pub(super) ack: Ack,
    /// If not, it says nothing of how the session stands.
    pub(super) session_asked: bool,
}

/// An envelope on its way to its Ack.
pub(super) enum Way<'a> {
    /// Its session was not asked.
    Refused(Box<Ack>),
    Submitted(Submitted<'a>),
    /// For what few envelopes wait for, so that the others do not carry the room for it.
    Waiting(Pin<Box<dyn Future<Output = Answered> + Send + 'a>>),
}

/// The engine has it.
pub(super) struct Submitted<'a> {
    ctx: &'a Context,
    access: &'a Access,
    submission: Submission<'a>,
    subject: Subject,
    retry_after: Option<Duration>,
    place: Place,
    deadline_ms: Option<i64>,
}

/// Sends an envelope on its way: the engine has it when this returns, so that whoever calls in the order of arrival
/// keeps that order. Only Progress about a session waits for that session first.
pub(super) fn answer<'a>(
    ctx: &'a Context,
    access: &'a Access,
    received: Received,
    envelope: Envelope,
    signature: Option<EnvelopeSignature>,
) -> Way<'a> {
    let subject = Subject { session_id: envelope.session_id.clone(), message_id: envelope.message_id.clone() };
    let Received { refused, retry_after, place, .. } = received;
    let mut caller = access.caller.clone();
    caller.over_rate = retry_after.is_some();
    caller.over_quota = place == Place::Full;
    let signature = match signature {
        Some(signature) => ctx.keys().check(&envelope, Some(&signature)),
        None => SignatureCheck::Absent,
    };
    if let Some(admitted) = ambient(&envelope, &signature, &caller, ctx.engine.limits()) {
        return Way::Waiting(Box::pin(async move {
            let offered = Offered { envelope: &envelope, signature: &signature, caller: &caller, retry_after };
            relay(ctx, access, subject, offered, admitted).await
        }));
    }
    if let Some(rejection) = refused {
        ctx.metrics.rejected(rejection.code);
        ctx.engine.trace(&envelope, &signature, &caller, (&rejection).into());
        let refusal = Refusal::new(rejection, retry_after);
        return Way::Refused(Box::new(subject.refused(refusal, SessionState::Unspecified)));
    }
    let deadline_ms = stated_deadline(&envelope);
    let registered = ctx.registry.look_up(&envelope);
    let command = Command { caller, input: Input::Envelope { envelope, signature, registered } };
    let submission = ctx.engine.submit(&subject.session_id, command);
    Way::Submitted(Submitted { ctx, access, submission, subject, retry_after, place, deadline_ms })
}

impl Future for Way<'_> {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Answered> {
        loop {
            match &mut *self {
                Way::Refused(ack) => {
                    return Poll::Ready(Answered { ack: std::mem::take(&mut **ack), session_asked: false });
                }
                Way::Waiting(waiting) => return waiting.as_mut().poll(cx),
                Way::Submitted(submitted) => {
                    let result = ready!(Pin::new(&mut submitted.submission).poll(cx));
                    let (ctx, access, place) = (submitted.ctx, submitted.access, submitted.place);
                    let answered = submitted.answered(result);
                    if place != Place::Claimed {
                        return Poll::Ready(answered);
                    }
                    *self = Way::Waiting(Box::pin(async move {
                        settle(ctx, access, &answered.ack).await;
                        answered
                    }));
                }
            }
        }
    }
}

impl Submitted<'_> {
    fn answered(&mut self, result: Result<Reply, Error>) -> Answered {
        let session_asked = result.is_ok();
        if let Err(error) = &result {
            report(&self.subject.session_id, error);
        }
        let subject = std::mem::take(&mut self.subject);
        let ack = subject.answered(result, self.access.sees_all(), self.retry_after, self.ctx.engine.now_ms());
        count(self.ctx, &ack);
        if let Some(deadline_ms) = self.deadline_ms {
            warn_if_past(deadline_ms, &ack);
        }
        Answered { ack, session_asked }
    }
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
