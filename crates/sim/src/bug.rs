//! Mistakes that can be planted into the simulated surroundings of the engine, to show that the oracle finds them.
//!
//! None of them touches production code: they live in the simulator's writer, loader, sweeper, driver and disk.

use std::fmt;
use std::str::FromStr;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The writer reports an append as stored before the disk was synced.
    AckBeforeSync,
    /// The writer reports a failed append as stored.
    LostFlight,
    /// The writer leaves an append out of its batch and reports it as stored.
    DroppedAppend,
    /// The disk appends without comparing where the session ends.
    IgnoredConflict,
    /// The driver publishes records when they are handed over, not when they are durable.
    EarlyPublish,
    /// The loader brings a session back as it was at an earlier load.
    StaleReload,
    /// The writer forgets to report an append.
    LostReport,
    /// Nobody looks for sessions past their deadline.
    SleepingSweeper,
    /// The driver answers a duplicate with the current time.
    RewrittenDuplicate,
    /// The driver answers a failed write, whose outcome is unknown, as a refusal.
    ErrorAsRefusal,
    /// The disk keeps listing a session as open after its end was stored.
    StaleIndex,
    /// A restart forgets the last append although it was synced.
    ForgetfulRestart,
    /// Nobody tells the shards that time passed.
    LostTicks,
    /// The sweeper looks for sessions past their deadline only, not for what their modes wait for.
    DeafSweeper,
    /// A restart writes an accept of the runtime's own once more.
    RepeatedAccept,
    /// The disk keeps listing the deadline a session had before a pause moved it.
    UnmovedDeadline,
}

impl Bug {
    pub const ALL: [Bug; 16] = [
        Bug::AckBeforeSync,
        Bug::LostFlight,
        Bug::DroppedAppend,
        Bug::IgnoredConflict,
        Bug::EarlyPublish,
        Bug::StaleReload,
        Bug::LostReport,
        Bug::SleepingSweeper,
        Bug::RewrittenDuplicate,
        Bug::ErrorAsRefusal,
        Bug::StaleIndex,
        Bug::ForgetfulRestart,
        Bug::LostTicks,
        Bug::DeafSweeper,
        Bug::RepeatedAccept,
        Bug::UnmovedDeadline,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Bug::AckBeforeSync => "ack-before-sync",
            Bug::LostFlight => "lost-flight",
            Bug::DroppedAppend => "dropped-append",
            Bug::IgnoredConflict => "ignored-conflict",
            Bug::EarlyPublish => "early-publish",
            Bug::StaleReload => "stale-reload",
            Bug::LostReport => "lost-report",
            Bug::SleepingSweeper => "sleeping-sweeper",
            Bug::RewrittenDuplicate => "rewritten-duplicate",
            Bug::ErrorAsRefusal => "error-as-refusal",
            Bug::StaleIndex => "stale-index",
            Bug::ForgetfulRestart => "forgetful-restart",
            Bug::LostTicks => "lost-ticks",
            Bug::DeafSweeper => "deaf-sweeper",
            Bug::RepeatedAccept => "repeated-accept",
            Bug::UnmovedDeadline => "unmoved-deadline",
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that belongs to no bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no bug {0:?}; the names are: {names}", names = Bug::ALL.map(Bug::name).join(", "))]
pub struct UnknownBug(String);

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, UnknownBug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == name).ok_or_else(|| UnknownBug(name.to_owned()))
    }
}
