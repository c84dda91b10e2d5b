//! The runtime under test, as the runner sees it.

use bytes::Bytes;
use macp_wire::v1::{Envelope, PolicyDescriptor, SessionState};
use serde_json::Value;

/// Something that plays a runtime's part. Whatever a driver cannot show, it says so; the report then says it too.
pub trait Driver {
    /// Whether a script can set the runtime's clock.
    fn clock(&self) -> Clock;

    /// What the clock shows, for the timestamps of envelopes.
    fn now_ms(&self) -> i64;

    /// Makes a policy known, in place of one of the same name.
    fn register(&mut self, policy: &PolicyDescriptor) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Submits an envelope, as its sender.
    fn send(&mut self, submission: Submission) -> impl Future<Output = Result<Verdict, Trouble>> + Send;

    fn state(&mut self, session: &SessionRef) -> impl Future<Output = Result<SessionState, Trouble>> + Send;

    /// The accepted envelopes in order, the start included.
    fn history(&mut self, session: &SessionRef) -> impl Future<Output = Result<Vec<Envelope>, Trouble>> + Send;

    /// What the session resolved to.
    fn resolution(&mut self, session: &SessionRef) -> impl Future<Output = Result<Option<Bytes>, Trouble>> + Send;

    /// The state of the session's mode; none when this driver cannot see it.
    fn mode_state(&mut self, session: &SessionRef) -> impl Future<Output = Result<Option<Value>, Trouble>> + Send;

    /// Replays the stored history and tells what came out differently; none when this driver cannot replay.
    fn replay(&mut self, session: &SessionRef) -> impl Future<Output = Result<Option<Vec<String>>, Trouble>> + Send;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Each submission may say when it is decided.
    Controlled,
    /// The runtime has its own.
    Own,
}

/// An envelope on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    pub envelope: Envelope,
    /// When the runtime decides on it; only for a driver with a controlled clock.
    pub accepted_at_ms: Option<i64>,
}

/// The session a script is about, and who may look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRef {
    pub id: String,
    pub initiator: String,
}

/// What the runtime answers to an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// It was accepted before, and is welcome and without effect.
    Duplicate,
    Refused {
        code: String,
        message: String,
    },
}

/// The driver could not do its part, so that nothing can be said about the runtime.
#[derive(Debug, thiserror::Error)]
#[error("{context}: {source}")]
pub struct Trouble {
    context: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Trouble {
    pub fn new(context: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Trouble {
        Trouble { context: context.into(), source: source.into() }
    }
}
