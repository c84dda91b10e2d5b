//! A stream under the standard profile: it publishes and receives, and belongs to one session for its life.
//!
//! An accepted envelope is not acknowledged: it comes back on the session's feed, in its place. What is refused is
//! either told inline, and the stream goes on, or ends it. Envelopes are handed to the engine as they arrive.

use std::collections::VecDeque;
use std::pin::pin;

use macp_engine::{Snapshot, Subscription};
use macp_kernel::trace::TracedVerdict;
use macp_kernel::{SESSION_START, SignatureCheck, shape};
use macp_rpc::StreamFrame;
use macp_wire::codes::Code;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::stream_session_response::Response;
use macp_wire::v1::{Ack, Envelope, MacpError, SessionState};
use tonic::Status;

use super::inbound::Inbound;
use super::pipeline::{Answer, front, submit};
use super::{Frame, invalid, subscribe};
use crate::access::{Access, UNIDENTIFIED};
use crate::ack::{Refusal, Subject};
use crate::attached::Outlet;
use crate::context::Context;
use crate::metrics::Rpc;
use crate::runtime::{send, sessions};
use crate::status;

const PROGRESS: &str = "Progress";

/// Envelopes of one stream that may wait for their verdicts.
const PIPELINE_MAX: usize = 256;

/// The session a stream belongs to, and how far it has been delivered.
struct Bound {
    session_id: String,
    mode: String,
    feed: Subscription,
    /// Ordinal of the last delivery.
    position: u64,
}

/// What follows once the deliveries have come as far as the history was when the client asked.
enum Then {
    End,
    Replay { after_ordinal: u64 },
}

pub(super) async fn run(
    ctx: &Context,
    access: &Access,
    first: Frame,
    mut inbound: Inbound,
    outlet: &Outlet<StreamFrame>,
) -> Result<(), Status> {
    let mut stream = Stream {
        ctx,
        access,
        outlet,
        session_id: None,
        bound: None,
        unread_mode: None,
        starting: false,
        verdicts: VecDeque::new(),
        asked: None,
    };
    stream.take(first).await?;
    let mut reading = true;
    let mut drained = pin!(ctx.drain.begun());
    loop {
        if stream.follow_up(reading).await? {
            return Ok(());
        }
        tokio::select! {
            // In this order, a stream that is always readable still hears its verdicts and deliveries, and a delivery does
            // not look at all the rest first. A drain is heard when nothing is left to deliver.
            biased;
            verdict = front(&mut stream.verdicts) => {
                stream.verdicts.pop_front();
                stream.heard(verdict).await?;
            }
            delivery = delivery(&mut stream.bound) => outlet.send(delivery?).await,
            () = &mut drained => return Err(status::shutting_down()),
            frame = inbound.next(), if reading && stream.has_room() => match frame? {
                Some(frame) => stream.take(frame).await?,
                None => reading = false,
            },
        }
    }
}

/// The answer to an envelope of this stream.
#[derive(Default)]
struct Verdict {
    ack: Ack,
    /// The envelope was a SessionStart.
    is_start: bool,
    /// What comes back to a sender who may write to a session but not read it.
    echo: Option<Envelope>,
}

struct Stream<'a> {
    ctx: &'a Context,
    access: &'a Access,
    outlet: &'a Outlet<StreamFrame>,
    /// The one session this stream is about, once it is known.
    session_id: Option<String>,
    /// Its feed, once the caller is known to be allowed to read it.
    bound: Option<Bound>,
    /// The mode of a session the caller may not read: an envelope for it must name it all the same.
    unread_mode: Option<String>,
    /// A start of this stream is under way, and what follows it waits with it for the feed.
    starting: bool,
    /// Envelopes with the engine, oldest first.
    verdicts: VecDeque<Answer<'a, Verdict>>,
    /// The ordinal to reach, and what then.
    asked: Option<(u64, Then)>,
}

impl Stream<'_> {
    fn has_room(&self) -> bool {
        self.verdicts.len() < PIPELINE_MAX && self.asked.is_none()
    }

    /// Does what was asked for once the deliveries have come far enough; true when the stream is over.
    async fn follow_up(&mut self, reading: bool) -> Result<bool, Status> {
        if !reading && self.asked.is_none() && self.verdicts.is_empty() {
            let Some(bound) = &self.bound else {
                return Ok(true);
            };
            let newest = sessions::snapshot(self.ctx, &bound.session_id).await?.map_or(0, |session| session.ordinal);
            self.asked = Some((newest, Then::End));
        }
        let (Some((until, then)), Some(bound)) = (&self.asked, &mut self.bound) else {
            return Ok(false);
        };
        if bound.position < *until {
            return Ok(false);
        }
        match then {
            Then::End => Ok(true),
            Then::Replay { after_ordinal } => {
                bound.position = *after_ordinal;
                bound.feed = subscribe(self.ctx, self.access, self.outlet, &bound.session_id, *after_ordinal);
                self.asked = None;
                Ok(false)
            }
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Status> {
        match frame {
            Frame::Envelope(envelope, signature) => self.publish(*envelope, signature).await,
            Frame::Subscribe { session_id, after_ordinal } => self.subscribe(session_id, after_ordinal).await,
        }
    }

    async fn publish(&mut self, envelope: Envelope, signature: Option<EnvelopeSignature>) -> Result<(), Status> {
        if let Err(rejection) = shape(&envelope, self.ctx.engine.limits()) {
            self.note_refusal(&envelope, signature.as_ref(), rejection.code);
            let subject = Subject { session_id: envelope.session_id, message_id: envelope.message_id };
            let ack = subject.refused(Refusal::new(rejection, None), SessionState::Unspecified);
            self.verdicts.push_back(Answer::Ready(Verdict { ack, ..Verdict::default() }));
            return Ok(());
        }
        if let Err((code, message)) = self.check_frame(&envelope).await? {
            self.note_refusal(&envelope, signature.as_ref(), code);
            return Err(status::coded(code, message));
        }
        let is_start = envelope.message_type == SESSION_START;
        let (ctx, access) = (self.ctx, self.access);
        // What is passed on to watchers and never history comes back to nobody.
        let echo = (self.bound.is_none() && !is_start && envelope.message_type != PROGRESS).then(|| {
            let sender = access.identity().unwrap_or_default().to_owned();
            Envelope { sender, ..envelope.clone() }
        });
        let received = send::receive(ctx, access, &envelope).await;
        let verdict = submit(async move {
            let _timer = ctx.metrics.time(Rpc::StreamSession);
            let ack = send::answer(ctx, access, received, envelope, signature).await.ack;
            Verdict { ack, is_start, echo }
        });
        self.verdicts.push_back(verdict.await);
        Ok(())
    }

    /// What ends a stream before an envelope is judged, with its code.
    async fn check_frame(&mut self, envelope: &Envelope) -> Result<Result<(), (Code, &'static str)>, Status> {
        let refused = |code, message| Ok(Err((code, message)));
        if envelope.session_id.is_empty() {
            return refused(Code::InvalidEnvelope, "an envelope on a stream names a session and its mode");
        }
        if self.session_id.as_ref().is_some_and(|session_id| *session_id != envelope.session_id) {
            return refused(Code::InvalidEnvelope, "this stream belongs to another session");
        }
        if !envelope.sender.is_empty() && self.access.identity() != Some(&envelope.sender) {
            let message = match self.access.identity() {
                Some(_) => "sender differs from the authenticated identity",
                None => UNIDENTIFIED,
            };
            return refused(Code::Unauthenticated, message);
        }
        if self.bound.is_none() && !self.starting {
            self.bind(envelope).await?;
        }
        let mode = self.bound.as_ref().map(|bound| &bound.mode).or(self.unread_mode.as_ref());
        if envelope.message_type != SESSION_START && mode.is_some_and(|mode| *mode != envelope.mode) {
            return refused(Code::InvalidEnvelope, "the session's mode is another one");
        }
        Ok(Ok(()))
    }

    /// A refusal that never reaches the engine is counted and traced here. What the stream belongs to is not in the
    /// trace, so it is marked as not to be compared.
    fn note_refusal(&self, envelope: &Envelope, signature: Option<&EnvelopeSignature>, code: Code) {
        let ctx = self.ctx;
        ctx.metrics.rejected(code);
        let signature = signature.map_or(SignatureCheck::Absent, |given| ctx.keys().check(envelope, Some(given)));
        let verdict = TracedVerdict::Rejected { code: code.as_str().to_owned(), operational: true };
        ctx.engine.trace(envelope, &signature, &self.access.caller, verdict);
    }

    /// Joins the session's feed from here on, if the session exists and the sender may read it. One that is yet to be
    /// started is joined when the start is accepted.
    async fn bind(&mut self, envelope: &Envelope) -> Result<(), Status> {
        match sessions::snapshot(self.ctx, &envelope.session_id).await? {
            Some(session) if self.access.check_read(&session).is_ok() => {
                self.join(envelope.session_id.clone(), session.metadata.mode, session.ordinal);
            }
            Some(session) => {
                self.session_id = Some(envelope.session_id.clone());
                self.unread_mode = Some(session.metadata.mode);
            }
            None if envelope.message_type == SESSION_START => {
                self.starting = true;
                self.session_id = Some(envelope.session_id.clone());
            }
            None => {}
        }
        Ok(())
    }

    /// Joins a session this stream has started, from its start on.
    async fn join_started(&mut self, session_id: &str) -> Result<(), Status> {
        let Some(session) = sessions::snapshot(self.ctx, session_id).await? else {
            return Ok(());
        };
        if self.bound.is_none() && self.access.check_read(&session).is_ok() {
            self.join(session_id.to_owned(), session.metadata.mode, 0);
        }
        Ok(())
    }

    fn join(&mut self, session_id: String, mode: String, position: u64) {
        self.session_id = Some(session_id.clone());
        let feed = subscribe(self.ctx, self.access, self.outlet, &session_id, position);
        self.bound = Some(Bound { session_id, mode, feed, position });
    }

    async fn subscribe(&mut self, session_id: String, after_ordinal: u64) -> Result<(), Status> {
        if self.session_id.as_ref().is_some_and(|bound| *bound != session_id) {
            return Err(invalid("this stream belongs to another session"));
        }
        let session = sessions::snapshot(self.ctx, &session_id).await?;
        let session: Snapshot = session.ok_or_else(|| status::session_not_found(&session_id))?;
        if let Err(refused) = self.access.check_read(&session) {
            // Without a credential nothing on this stream would be better received.
            if self.access.identity().is_none() {
                return Err(refused);
            }
            let error = MacpError {
                code: Code::Forbidden.as_str().to_owned(),
                message: refused.message().to_owned(),
                session_id: self.bound_id(),
                ..MacpError::default()
            };
            self.outlet.send(Response::Error(error).into()).await;
            return Ok(());
        }
        // Who asks for what lies beyond the end gets whatever comes next.
        let after_ordinal = after_ordinal.min(session.ordinal);
        if self.bound.is_some() {
            self.asked = Some((session.ordinal, Then::Replay { after_ordinal }));
        } else {
            self.join(session_id, session.metadata.mode, after_ordinal);
        }
        Ok(())
    }

    /// Tells of a refusal, or ends the stream by it.
    async fn heard(&mut self, verdict: Verdict) -> Result<(), Status> {
        let Verdict { ack, is_start, echo } = verdict;
        self.starting &= !is_start;
        let Some(error) = ack.error else {
            if ack.duplicate {
                if !is_start && ack.session_state != i32::from(SessionState::Open) {
                    return Err(status::coded(Code::SessionNotOpen, "the session is not open"));
                }
                return Ok(());
            }
            if is_start {
                return self.join_started(&ack.session_id).await;
            }
            // Delivered by the feed, if the stream has joined it since.
            if let Some(echo) = echo.filter(|_| self.bound.is_none()) {
                self.outlet.send(Response::Envelope(echo).into()).await;
            }
            return Ok(());
        };
        if is_start && self.bound.is_none() {
            self.session_id = None;
        }
        let code = Code::parse(&error.code).expect("only codes of the registry are sent");
        if ends_stream(code) {
            return Err(status::with_details(code, error.message, error.details));
        }
        let error = MacpError { session_id: self.bound_id(), ..error };
        self.outlet.send(Response::Error(error).into()).await;
        Ok(())
    }

    fn bound_id(&self) -> String {
        self.session_id.clone().unwrap_or_default()
    }
}

/// The next delivery; for ever none while the stream belongs to no session.
async fn delivery(bound: &mut Option<Bound>) -> Result<StreamFrame, Status> {
    let Some(bound) = bound else {
        return std::future::pending().await;
    };
    let delivery = bound.feed.next().await.map_err(|error| status::of_subscription(&error))?;
    bound.position = delivery.ordinal;
    Ok(StreamFrame::Envelope(delivery.envelope))
}

/// Refusals after which a client that goes on would only meet more of them.
fn ends_stream(code: Code) -> bool {
    matches!(
        code,
        Code::Unauthenticated
            | Code::PayloadTooLarge
            | Code::RateLimited
            | Code::InternalError
            | Code::InvalidSessionId
            | Code::InvalidPolicyDefinition
            | Code::SessionAlreadyExists
            | Code::SessionNotOpen
    )
}
