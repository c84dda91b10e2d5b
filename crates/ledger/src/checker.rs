//! Verifies the records of one session, fed in order, and names the first one that is wrong.
//!
//! Loading, verifying and importing all use this checker, so that what one accepts the others accept too.

use macp_wire::history::v1::Entry;

use crate::chain::{self, HISTORY_LABEL, Hash};
use crate::record::{self, FrameError, Record};

/// What is wrong with a history, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("history is corrupt at sequence {sequence}: {kind}")]
pub struct Corruption {
    pub sequence: u64,
    pub kind: CorruptionKind,
}

/// The ways in which a history can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptionKind {
    #[error("the record is missing, the next one found is {found}")]
    Missing { found: u64 },
    #[error("the record is missing, the history ends before it although the session index counts {indexed} records")]
    Truncated { indexed: u64 },
    #[error("the record was changed: its chain hash should be {expected}, stored is {found}")]
    Hash { expected: Hash, found: Hash },
    #[error("the session index says the last hash is {expected}, the history ends with {found}")]
    Head { expected: Hash, found: Hash },
    #[error("a record is stored that the session index does not count")]
    Unindexed,
    #[error("{0}")]
    Frame(#[source] FrameError),
    #[error("the entry inside says it has sequence {found}")]
    EntrySequence { found: u64 },
    #[error(
        "the final session hash in the entry is \"{found}\", the history before it has \"{}\"",
        expected.map(|hash| hash.to_string()).unwrap_or_default()
    )]
    FinalHash { expected: Option<Hash>, found: String },
    #[error("an entry follows the one that ended the session")]
    AfterTerminal,
}

/// Checks sequence continuity from 1, chain hashes, frames, and that nothing follows the terminal entry.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    sequence: u64,
    head: Option<Hash>,
    terminal: bool,
}

impl Checker {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The entry of the next record; after an error the checker stands where it stood.
    pub fn check(&mut self, record: &Record) -> Result<Entry, Corruption> {
        let sequence = self.sequence + 1;
        let entry = self.check_next(sequence, record).map_err(|kind| Corruption { sequence, kind })?;
        self.sequence = sequence;
        self.head = Some(record.hash);
        self.terminal = entry.terminal.is_some();
        Ok(entry)
    }

    fn check_next(&self, sequence: u64, record: &Record) -> Result<Entry, CorruptionKind> {
        if record.sequence != sequence {
            return Err(CorruptionKind::Missing { found: record.sequence });
        }
        // The hash comes before the frame: a flipped byte is reported as a change, and only bytes that are what was
        // written can be called unreadable.
        let expected = chain::link(HISTORY_LABEL, self.head.as_ref(), &record.bytes);
        if expected != record.hash {
            return Err(CorruptionKind::Hash { expected, found: record.hash });
        }
        if self.terminal {
            return Err(CorruptionKind::AfterTerminal);
        }
        let entry = record::open(&record.bytes).map_err(CorruptionKind::Frame)?;
        if entry.sequence != sequence {
            return Err(CorruptionKind::EntrySequence { found: entry.sequence });
        }
        if let Some(terminal) = &entry.terminal {
            let expected: &[u8] = self.head.as_ref().map_or(&[], |hash| hash.as_bytes());
            if terminal.history_hash != expected {
                let found = hex::encode(&terminal.history_hash);
                return Err(CorruptionKind::FinalHash { expected: self.head, found });
            }
        }
        Ok(entry)
    }

    /// Hash of the last record checked.
    #[must_use]
    pub fn head(&self) -> Option<Hash> {
        self.head
    }

    /// Sequence of the last record checked, 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the last record checked ended the session.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }
}
