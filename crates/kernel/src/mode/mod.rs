//! What a mode is, and the register of all of them.
//!
//! The runtime provides the physics (order, time, deduplication, participants), a mode the logic. A mode is one module
//! that implements [`Mode`] and one line in the `modes!` register below; docs/MODES.md walks through adding one.
//! A mode looks at an immutable session and answers with a [`Response`]; its typed change is applied together with the
//! entry, so that the cost of a message does not grow with the age of the session.

pub mod classic;
mod extension;
mod spec;
pub mod standard;

use bytes::Bytes;
use macp_wire::v1::Envelope;

use crate::policy::Policy;
use crate::{Rejection, Roster, Suspension};

pub use extension::Extension;
pub use spec::{Determinism, Spec};

/// Full name of the decision mode, in both profiles.
pub const DECISION: &str = "macp.mode.decision.v1";

/// Full name of the classic multi-round mode.
pub const MULTI_ROUND: &str = "macp.mode.multi_round.v1";

/// What a mode may know when a session starts.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub initiator: &'a str,
    pub roster: &'a Roster,
    /// Of a classic start.
    pub context: &'a [u8],
}

/// What a mode may know when a message arrives.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub roster: &'a Roster,
    pub initiator: &'a str,
    /// As bound at the start.
    pub mode_version: &'a str,
    pub configuration_version: &'a str,
    /// What governs the session; classic sessions have the inert default.
    pub policy: &'a Policy,
    /// Of a session in an extension mode.
    pub extension: Option<&'a Extension>,
    pub suspension: &'a Suspension,
    /// When the message was accepted.
    pub now_ms: i64,
}

/// A message the mode itself will write into the history at a time, unless something happens first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    pub at_ms: i64,
    pub message_type: &'static str,
    pub message_id: String,
    pub sender: String,
    pub payload: Bytes,
}

/// A mode's answer to a message it accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum Response<C> {
    /// Part of history, changes nothing.
    NoOp,
    Persist(C),
    Resolve(Bytes),
    PersistAndResolve {
        change: C,
        resolution: Bytes,
    },
}

/// The logic of one kind of session.
pub trait Mode {
    /// What the mode remembers between messages.
    type State: Clone + std::fmt::Debug + PartialEq;
    /// What one message changes about it.
    type Change: std::fmt::Debug;

    const SPEC: Spec;

    /// Refuses a context the mode cannot work under. Asked before the session's existence.
    fn check_context(_start: &Start<'_>) -> Result<(), Rejection> {
        Ok(())
    }

    /// The state a session starts with. Asked last, after the context was found good.
    fn start(start: &Start<'_>) -> Result<Self::State, Rejection>;

    /// Whether the sender may send such a message at all. Asked before anything else about it.
    fn authorize(_view: &View<'_>, _state: &Self::State, _envelope: &Envelope) -> Result<(), Rejection> {
        Ok(())
    }

    /// What only the runtime may send: refuses a client's message that pretends to be one. Not asked of the runtime's
    /// own messages.
    fn check_client(_envelope: &Envelope) -> Result<(), Rejection> {
        Ok(())
    }

    /// Names what [`Mode::scheduled`] is about. As long as it has the same name, only a pause can move its time, so that
    /// nobody has to ask for it again.
    fn awaited(_state: &Self::State) -> Option<usize> {
        None
    }

    /// What the mode will say by itself, and when.
    fn scheduled(_view: &View<'_>, _state: &Self::State) -> Option<Scheduled> {
        None
    }

    /// Looks at a message and never touches anything.
    fn judge(view: &View<'_>, state: &Self::State, envelope: &Envelope) -> Result<Response<Self::Change>, Rejection>;

    /// Touches the state and never refuses.
    fn apply(state: &mut Self::State, change: Self::Change);

    /// The state for people and tools, with stable member names.
    fn describe(view: &View<'_>, state: &Self::State) -> serde_json::Value;
}

/// Declares the register: one line a mode. From it come the closed enums of kinds, states and changes, so that a state
/// stays a typed value in memory and a change cannot meet the state of another mode.
macro_rules! modes {
    ($($kind:ident: $mode:ty,)+) => {
        /// Names a registered mode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($kind,)+ }

        /// State of a session's mode.
        #[derive(Clone, Debug, PartialEq)]
        pub enum State { $($kind(<$mode as Mode>::State),)+ }

        /// What one message changes about a [`State`].
        #[derive(Debug)]
        pub enum Change { $($kind(<$mode as Mode>::Change),)+ }

        /// Every registered mode, in the order of the register.
        pub const ALL: &[Kind] = &[$(Kind::$kind,)+];

        impl Kind {
            pub fn spec(self) -> &'static Spec {
                match self { $(Kind::$kind => const { &<$mode as Mode>::SPEC },)+ }
            }

            pub(crate) fn check_context(self, start: &Start<'_>) -> Result<(), Rejection> {
                match self { $(Kind::$kind => <$mode as Mode>::check_context(start),)+ }
            }

            pub(crate) fn check_client(self, envelope: &Envelope) -> Result<(), Rejection> {
                match self { $(Kind::$kind => <$mode as Mode>::check_client(envelope),)+ }
            }

            pub(crate) fn start(self, start: &Start<'_>) -> Result<State, Rejection> {
                match self { $(Kind::$kind => <$mode as Mode>::start(start).map(State::$kind),)+ }
            }
        }

        impl State {
            pub(crate) fn authorize(&self, view: &View<'_>, envelope: &Envelope) -> Result<(), Rejection> {
                match self { $(State::$kind(state) => <$mode as Mode>::authorize(view, state, envelope),)+ }
            }

            pub(crate) fn awaited(&self) -> Option<usize> {
                match self { $(State::$kind(state) => <$mode as Mode>::awaited(state),)+ }
            }

            pub(crate) fn scheduled(&self, view: &View<'_>) -> Option<Scheduled> {
                match self { $(State::$kind(state) => <$mode as Mode>::scheduled(view, state),)+ }
            }

            pub(crate) fn judge(
                &self,
                view: &View<'_>,
                envelope: &Envelope,
            ) -> Result<Response<Change>, Rejection> {
                match self {
                    $(State::$kind(state) => {
                        <$mode as Mode>::judge(view, state, envelope).map(|response| response.map(Change::$kind))
                    })+
                }
            }

            /// A change is made by `judge` of the same state, so the kinds agree.
            pub(crate) fn apply(&mut self, change: Change) {
                match (self, change) {
                    $((State::$kind(state), Change::$kind(change)) => <$mode as Mode>::apply(state, change),)+
                    (state, change) => unreachable!("a change {change:?} met the state {state:?} of another mode"),
                }
            }

            pub fn describe(&self, view: &View<'_>) -> serde_json::Value {
                match self { $(State::$kind(state) => <$mode as Mode>::describe(view, state),)+ }
            }
        }
    };
}

modes! {
    ClassicDecision: classic::decision::Decision,
    ClassicMultiRound: classic::multi_round::MultiRound,
    Decision: standard::decision::Decision,
    Proposal: standard::proposal::Proposal,
    Task: standard::task::Task,
    Handoff: standard::handoff::Handoff,
    Quorum: standard::quorum::Quorum,
    MultiRound: standard::multi_round::MultiRound,
    Extension: standard::extension::PassThrough,
}

impl<C> Response<C> {
    fn map<D>(self, wrap: impl FnOnce(C) -> D) -> Response<D> {
        match self {
            Response::NoOp => Response::NoOp,
            Response::Persist(change) => Response::Persist(wrap(change)),
            Response::Resolve(resolution) => Response::Resolve(resolution),
            Response::PersistAndResolve { change, resolution } => {
                Response::PersistAndResolve { change: wrap(change), resolution }
            }
        }
    }
}

/// The classic mode behind a name or alias; the empty name is the decision mode.
pub fn find_classic(name: &str) -> Option<Kind> {
    let name = if name.is_empty() { DECISION } else { name };
    ALL.iter().copied().find(|kind| {
        let spec = kind.spec();
        spec.profile == crate::Profile::Classic && (spec.name == name || spec.aliases.contains(&name))
    })
}

/// The built-in mode of the standard profile behind a name.
pub fn find_standard(name: &str) -> Option<Kind> {
    ALL.iter().copied().find(|kind| {
        let spec = kind.spec();
        spec.profile == crate::Profile::Standard && *kind != Kind::Extension && spec.name == name
    })
}

/// Whether a name belongs to a built-in mode of either profile.
pub fn is_builtin(name: &str) -> bool {
    find_standard(name).is_some() || find_classic(name).is_some()
}

/// Whether only the classic profile knows the name.
pub(crate) fn is_classic_only(name: &str) -> bool {
    name != DECISION && find_classic(name).is_some()
}
