//! What must hold whatever happens, one file per property.

pub(crate) mod acknowledged;
pub(crate) mod bounded;
pub(crate) mod controls;
pub(crate) mod duplicates;
pub(crate) mod durable;
pub(crate) mod fresh;
pub(crate) mod liveness;
pub(crate) mod published;
pub(crate) mod refused;
pub(crate) mod terminal;
pub(crate) mod timely;
pub(crate) mod traced;

use std::fmt;

/// The properties, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Nothing acknowledged is ever lost, and nothing is stored twice.
    Acknowledged,
    /// Nothing refused leaves a trace.
    Refused,
    /// Nothing leaves before what it depends on is durable.
    Durable,
    /// Every stored history passes the checker and replays to what it records. Checked wherever history is read.
    Replayable,
    /// A session ends once, for good, and the index says so.
    Terminal,
    /// A repeated message is answered as the duplicate it is, with the original time.
    Duplicates,
    /// Once faults end, everything is answered and whatever is due happens.
    Liveness,
    /// Subscribers get every record once, in order, after it is durable.
    Published,
    /// An answer knows everything that anyone was told before it was asked for.
    Fresh,
    /// Time does what it should when it should: pauses move deadlines, silence answers when its time is up.
    Timely,
    /// A recorded trace replays to the same verdicts.
    Traced,
    /// What nobody uses leaves memory.
    Bounded,
    /// The engine's own assertions.
    Panic,
}

impl Property {
    pub(crate) fn violated(self, detail: impl Into<String>) -> Violation {
        Violation { property: self, detail: detail.into() }
    }

    pub(crate) fn holds(self, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(self.violated(detail())) }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{property}: {detail}")]
pub struct Violation {
    pub property: Property,
    pub detail: String,
}
