//! What goes into a shard and what comes out of it.

use std::sync::Arc;

use macp_kernel::{Caller, Command, Profile, Session, Settled, State, trace};
use macp_ledger::{Append, AppendError, Head, Record};
use macp_wire::v1::SessionMetadata;

use crate::loader::{Load, LoadResult};
use crate::{Error, Lifecycle};

/// Every cause of work in a shard.
#[derive(Debug)]
pub enum Event<R> {
    Request(Request<R>),
    /// Answers [`Effect::Load`].
    Loaded {
        load: Load,
        result: LoadResult,
    },
    /// Answers [`Effect::Append`], in the order of the appends of a session, with the records if they are durable.
    Appended {
        session_id: Arc<str>,
        result: Result<Vec<Record>, AppendError>,
    },
    /// The store knows that time has something to do in this session.
    Due(Head),
    /// Time passed; a chance to let go of what nobody touches.
    Tick,
}

/// Someone wants something of a session.
#[derive(Debug)]
pub struct Request<R> {
    pub session_id: Arc<str>,
    pub kind: RequestKind,
    pub reply: R,
}

#[derive(Debug)]
pub enum RequestKind {
    Command(Box<Command>),
    /// What the session is like now.
    Read,
}

impl<R> Event<R> {
    /// The session it concerns; none if it concerns them all.
    pub(crate) fn session_id(&self) -> Option<&Arc<str>> {
        match self {
            Event::Request(request) => Some(&request.session_id),
            Event::Loaded { load, .. } => Some(&load.session_id),
            Event::Appended { session_id, .. } => Some(session_id),
            Event::Due(head) => Some(&head.session_id),
            Event::Tick => None,
        }
    }
}

impl<R> Request<R> {
    pub(super) fn failed(self, error: Error) -> Effect<R> {
        Effect::Send(Outgoing::Answer(self.reply, Err(error)))
    }
}

/// What the outside does for a shard.
#[derive(Debug)]
pub enum Effect<R> {
    Load(Load),
    Append(Append),
    /// These records are durable: subscribers may have them.
    Publish {
        session_id: Arc<str>,
        records: Vec<Record>,
    },
    Send(Outgoing<R>),
}

/// What leaves, once the entry it depends on is durable.
#[derive(Debug)]
pub enum Outgoing<R> {
    Answer(R, Result<Answer, Error>),
    Lifecycle(Box<Lifecycle>),
    Trace(Box<trace::Event>),
}

impl<R> Outgoing<R> {
    /// Boxed, because few entries have one, and everything that leaves would be moved about at its size.
    pub(super) fn lifecycle(lifecycle: Lifecycle) -> Self {
        Outgoing::Lifecycle(Box::new(lifecycle))
    }
}

#[derive(Debug)]
pub enum Answer {
    Verdict(Reply),
    /// None: there is no such session.
    Read(Option<Box<Snapshot>>),
}

/// A verdict and the session's state after it; no state when there is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub settled: Settled,
    pub state: Option<State>,
    /// The rules it was decided by; none when there is no session.
    pub profile: Option<Profile>,
    /// Whether the caller may know how the session stands.
    pub concerns_caller: bool,
}

impl Reply {
    pub(super) fn new(settled: Settled, session: Option<&Session>, caller: &Caller) -> Self {
        Reply {
            settled,
            state: session.map(Session::state),
            profile: session.map(|session| session.binding().profile),
            concerns_caller: session.is_some_and(|session| session.shows_itself_to(caller)),
        }
    }
}

/// A session as it was when it was asked about.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub profile: Profile,
    pub metadata: SessionMetadata,
    pub sequence: u64,
    pub ordinal: u64,
}

impl Snapshot {
    pub fn of(session: &Session) -> Self {
        Snapshot {
            profile: session.binding().profile,
            metadata: session.metadata(),
            sequence: session.sequence(),
            ordinal: session.ordinal(),
        }
    }
}
