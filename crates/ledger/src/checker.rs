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
    #[error("the record was changed: its chain hash should be {expected}, stored is {}", stored(found))]
    Hash { expected: Hash, found: Hash },
    #[error("the session index says the last hash is {}, the history ends with {found}", stored(expected))]
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

fn stored(hash: &Hash) -> String {
    if *hash == Hash::NONE { "something that is no hash".to_owned() } else { hash.to_string() }
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

    /// Stands behind a record that is taken on trust: what follows must continue it.
    #[must_use]
    pub fn resume(sequence: u64, head: Hash) -> Self {
        Self { sequence, head: Some(head), terminal: false }
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use macp_wire::history::v1::Terminal;
    use proptest::prelude::*;

    use super::*;

    fn entry(sequence: u64) -> Entry {
        Entry { sequence, identity: format!("agent {sequence}"), ..Entry::default() }
    }

    fn terminal(sequence: u64, history_hash: &[u8]) -> Entry {
        let history_hash = Bytes::copy_from_slice(history_hash);
        Entry { terminal: Some(Terminal { history_hash, ..Terminal::default() }), ..entry(sequence) }
    }

    fn chain(length: u64) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        for sequence in 1..=length {
            let previous = records.last().map(|record| record.hash);
            records.push(record::seal(previous.as_ref(), &entry(sequence)));
        }
        records
    }

    fn check_all(records: &[Record]) -> Result<Checker, Corruption> {
        let mut checker = Checker::new();
        for record in records {
            checker.check(record)?;
        }
        Ok(checker)
    }

    #[test]
    fn a_whole_history_passes() {
        let mut records = chain(3);
        let head = records[2].hash;
        records.push(record::seal(Some(&head), &terminal(4, head.as_bytes())));
        let checker = check_all(&records).unwrap();
        assert_eq!(checker.sequence(), 4);
        assert_eq!(checker.head(), Some(records[3].hash));
        assert!(checker.is_terminal());
    }

    #[test]
    fn a_wrong_final_hash_is_found() {
        let mut records = chain(3);
        let (second, head) = (records[1].hash, records[2].hash);
        records.push(record::seal(Some(&head), &terminal(4, second.as_bytes())));
        let found = check_all(&records).unwrap_err();
        let kind = CorruptionKind::FinalHash { expected: Some(head), found: second.to_string() };
        assert_eq!(found, Corruption { sequence: 4, kind });
    }

    #[test]
    fn from_the_middle_the_chain_is_checked_all_the_same() {
        let records = chain(3);
        let mut checker = Checker::resume(1, records[0].hash);
        checker.check(&records[1]).unwrap();
        checker.check(&records[2]).unwrap();
        let found = Checker::resume(1, records[1].hash).check(&records[1]).unwrap_err();
        assert!(matches!(found, Corruption { sequence: 2, kind: CorruptionKind::Hash { .. } }), "{found}");
    }

    #[test]
    fn nothing_follows_the_terminal_entry() {
        let mut records = vec![record::seal(None, &terminal(1, &[]))];
        records.push(record::seal(Some(&records[0].hash), &entry(2)));
        let found = check_all(&records).unwrap_err();
        assert_eq!(found, Corruption { sequence: 2, kind: CorruptionKind::AfterTerminal });
    }

    #[test]
    fn an_entry_that_claims_another_place_is_found() {
        let mut record = record::seal(None, &entry(7));
        record.sequence = 1;
        let found = check_all(&[record]).unwrap_err();
        assert_eq!(found, Corruption { sequence: 1, kind: CorruptionKind::EntrySequence { found: 7 } });
    }

    #[test]
    fn frames_of_another_version_and_no_frames_are_told_apart() {
        let check = |bytes: &'static [u8], message: &str| {
            let hash = chain::link(HISTORY_LABEL, None, bytes);
            let record = Record { sequence: 1, bytes: Bytes::from_static(bytes), hash };
            let found = check_all(&[record]).unwrap_err().to_string();
            assert!(found.contains(message), "{found}");
        };
        check(&[2, 8, 1], "frame version 2");
        check(&[], "empty");
        check(&[1, 0xFF], "decoded");
    }

    #[test]
    fn after_an_error_the_checker_stands_where_it_stood() {
        let records = chain(3);
        let mut checker = check_all(&records[..1]).unwrap();
        checker.check(&records[2]).unwrap_err();
        checker.check(&records[1]).unwrap();
        assert_eq!(checker.sequence(), 2);
    }

    proptest! {
        #[test]
        fn sealed_entries_open_to_themselves(identity in ".*", sequence in 1_u64.., accepted_at_unix_ms: i64) {
            let entry = Entry { sequence, accepted_at_unix_ms, identity, ..Entry::default() };
            let record = record::seal(None, &entry);
            prop_assert_eq!(record::open(&record.bytes), Ok(entry));
        }

        #[test]
        fn any_bytes_open_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Must return, whatever it returns.
            let _ = record::open(&bytes);
        }

        #[test]
        fn a_change_is_found_at_its_place(length in 1_usize..8, place: prop::sample::Index, byte: prop::sample::Index, bit in 0..8) {
            let mut records = chain(length as u64);
            let place = place.index(length);
            let mut bytes = records[place].bytes.to_vec();
            let byte = byte.index(bytes.len());
            bytes[byte] ^= 1_u8 << bit;
            records[place].bytes = bytes.into();
            let found = check_all(&records).unwrap_err();
            prop_assert_eq!(found.sequence, place as u64 + 1);
        }
    }
}
