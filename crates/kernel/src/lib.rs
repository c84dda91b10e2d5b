//! The rules of MACP as pure functions: what is admitted, what it changes, what time makes due.
//!
//! Everything that can change a session is a [`Command`]; three functions do the rest:
//!
//! ```text
//!  Command ──▶ decide(session, command, now, limits) ──▶ Verdict   looks, never touches
//!  Entry   ──▶ apply(&mut session, entry, change)                   touches, never refuses
//!  now     ──▶ due(position, now) ──▶ commands                      what time alone makes happen
//! ```
//!
//! Live traffic, recovery, replay, what-if and the simulator all go through them, so they cannot drift apart.
//! Nothing here knows a clock, a disk, a network, a thread or a random number: time and limits are arguments.

mod admission;
mod binding;
mod command;
pub mod commitment;
mod decide;
mod lengths;
mod lifecycle;
mod limits;
pub mod mode;
pub mod policy;
mod profile;
mod rejection;
pub mod replay;
mod roster;
mod session;
mod session_id;
pub mod signature;
mod suspension;
pub mod trace;

pub use admission::{Door, SESSION_START, ambient, door, over_rate, shape, stated_deadline};
pub use binding::{Binding, Labels, PROTOCOL_VERSION, SCHEMA_MAJOR, SEMANTICS_REVISION};
pub use command::{Caller, Command, Credential, Input, Registered, Scope, SignatureCheck};
pub use decide::{Accepted, Change, Outcome, Settled, Verdict, apply, decide, due, expire, step};
pub use limits::{
    ACTIVITY_SHOWN_MAX, CONTRIBUTION_BYTES_MAX, HANDOFF_ID_BYTES_MAX, ID_BYTES_MAX, LABEL_BYTES_MAX, Limits,
    PARTICIPANTS_MAX, REASON_BYTES_MAX, STANDARD_MESSAGE_ID_BYTES_MAX, SUSPEND_MS_DEFAULT, SignatureRule,
    TEXT_BYTES_MAX, TTL_MS_DEFAULT, TTL_MS_MAX,
};
pub use profile::{Profile, ProfileSetting, start_profile};
pub use rejection::Rejection;
pub use roster::Roster;
pub use session::{Activity, Position, Session, State};
pub use suspension::{SUSPENSIONS_MAX, Suspension};
