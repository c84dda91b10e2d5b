//! The levels of conformance (STD-CONF-1), each including the ones before it.

use std::fmt;
use std::str::FromStr;

/// How much of the protocol is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Starting sessions, and the commitment hash.
    Core,
    Decision,
    /// The other standard modes.
    Standard,
    /// What a runtime may leave out: the extension mode, and receipts.
    Optional,
}

/// Which fixtures belong to which level, by how their names begin.
const PREFIXES: &[(&str, Level)] = &[
    ("session_start_", Level::Core),
    ("cmt_hash_", Level::Core),
    ("decision_", Level::Decision),
    ("proposal_", Level::Standard),
    ("task_", Level::Standard),
    ("handoff_", Level::Standard),
    ("quorum_", Level::Standard),
    ("multi_round_", Level::Optional),
    ("receipt_", Level::Optional),
];

impl Level {
    pub const ALL: [Level; 4] = [Level::Core, Level::Decision, Level::Standard, Level::Optional];

    /// The level of a fixture or vector; none when its name begins like none of them.
    pub fn of(name: &str) -> Option<Level> {
        PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, level)| *level)
    }

    /// As it is asked for on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Core => "core",
            Level::Decision => "decision",
            Level::Standard => "standard",
            Level::Optional => "optional",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Level::Core => "Core",
            Level::Decision => "Decision",
            Level::Standard => "Standard modes",
            Level::Optional => "Optional",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        Level::ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Level::ALL.iter().map(|level| level.as_str()).collect();
            format!("{text:?} is not a level; there are {}", known.join(", "))
        })
    }
}
