//! Signals and Progress: passed on to those who watch, never history.
//!
//! What an envelope shows by itself is judged first. Only then is the session looked at that a Progress names: whoever
//! would be refused anyway must not learn from the answer whether it exists, nor have it loaded.

use std::time::Duration;

use macp_engine::{Signal, Snapshot};
use macp_kernel::trace::TracedVerdict;
use macp_kernel::{Caller, Rejection, SignatureCheck};
use macp_wire::codes::Code;
use macp_wire::v1::{Envelope, SessionState};

use super::send::Answered;
use crate::access::Access;
use crate::ack::{Refusal, Subject};
use crate::context::Context;

/// A Signal or Progress, and what is known of it before it is admitted.
pub(super) struct Offered<'a> {
    pub(super) envelope: &'a Envelope,
    pub(super) signature: &'a SignatureCheck,
    pub(super) caller: &'a Caller,
    /// When its sender may come again, if nothing is left of the share.
    pub(super) retry_after: Option<Duration>,
}

/// Passes on what was admitted, unless it is about a session its sender takes no part in.
pub(super) async fn relay(
    ctx: &Context,
    access: &Access,
    subject: Subject,
    offered: Offered<'_>,
    admitted: Result<Envelope, Rejection>,
) -> Answered {
    let Offered { envelope, signature, caller, retry_after } = offered;
    let (verdict, result) = match admitted {
        Err(rejection) => ((&rejection).into(), Err(Refusal::new(rejection, retry_after))),
        Ok(envelope) => match about(ctx, access, &envelope.session_id).await {
            Ok(about) => (TracedVerdict::Relayed, Ok((envelope, about))),
            // Who takes part depends on a session the trace need not hold, so it is marked as not to be compared.
            Err(refusal) => {
                (TracedVerdict::Rejected { code: refusal.code.as_str().to_owned(), operational: true }, Err(refusal))
            }
        },
    };
    ctx.engine.trace(envelope, signature, caller, verdict);
    let session_asked = result.is_ok();
    let ack = match result {
        Ok((envelope, about)) => {
            ctx.engine.signal(Signal { envelope, sender_authenticated: access.authenticated, about });
            ctx.metrics.relayed();
            subject.accepted(ctx.engine.now_ms(), SessionState::Open)
        }
        Err(refusal) => {
            ctx.metrics.rejected(refusal.code);
            subject.refused(refusal, SessionState::Unspecified)
        }
    };
    Answered { ack, session_asked }
}

/// The session a Progress is about. Where callers are known, it is for those who take part: an observer may read any
/// session, and say nothing in it.
async fn about(ctx: &Context, access: &Access, session_id: &str) -> Result<Option<Snapshot>, Refusal> {
    if access.local || session_id.is_empty() {
        return Ok(None);
    }
    let refused = |code, message: &str| Err(Refusal::new(Rejection::operational(code, message), None));
    match ctx.engine.session(session_id).await {
        Ok(Some(session)) if access.takes_part_in(&session) => Ok(Some(session)),
        Ok(Some(_)) => refused(Code::Forbidden, "Progress is for those who take part in the session"),
        Ok(None) => refused(Code::SessionNotFound, "there is no such session"),
        Err(error) => Err(Refusal::of_engine(&error)),
    }
}
