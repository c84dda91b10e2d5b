//! Entries as they are stored: their exact text, and their place in the chain. One way in, one way out.

use std::sync::Arc;

use bytes::Bytes;
use macp_ledger::{Hash, Record};
use macp_plan_core::journal::{Body, Broken, Chain, Entry};

use super::error::{Corruption, CorruptionKind, StoreError};

/// An entry with the text that was hashed, and the hash.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub entry: Entry,
    /// The canonical text, byte for byte as stored.
    pub text: Bytes,
    /// Chain hash up to and including this entry.
    pub hash: Hash,
}

impl Sealed {
    /// Gives an entry the next place in a chain.
    pub(crate) fn seal(chain: &mut Chain, body: Body) -> Result<Self, StoreError> {
        let (entry, text, hash) = chain
            .append(body)
            .map_err(|error| StoreError::NotCanonical { what: "the journal entry", reason: error.to_string() })?;
        Ok(Self { entry, text: text.into(), hash: hash_of(&hash) })
    }

    /// Stores count from 1, journals from 0.
    pub(crate) fn record(&self) -> Record {
        Record { sequence: self.entry.seq + 1, bytes: self.text.clone(), hash: self.hash }
    }

    #[must_use]
    pub fn seq(&self) -> u64 {
        self.entry.seq
    }

    #[must_use]
    pub fn body(&self) -> &Body {
        &self.entry.body
    }
}

/// What the texts of entries take.
pub(crate) fn bytes(entries: &[Sealed]) -> u64 {
    entries.iter().fold(0, |sum, sealed| sum.saturating_add(sealed.text.len() as u64))
}

/// Checks records of one run in order, and names the first one that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    run_id: Arc<str>,
    chain: Chain,
}

impl Checker {
    pub(crate) fn new(run_id: &str) -> Self {
        Self { run_id: run_id.into(), chain: Chain::new() }
    }

    /// Stands behind an entry that is taken on trust: what follows must continue it.
    pub(crate) fn resume(run_id: &str, seq: u64, hash: Hash) -> Self {
        Self { run_id: run_id.into(), chain: Chain::resume(seq, hash.to_string()) }
    }

    pub(crate) fn check(&mut self, record: Record) -> Result<Sealed, Corruption> {
        let found = record.sequence.saturating_sub(1);
        if found != self.next_seq() {
            return Err(self.corruption(CorruptionKind::Missing { found }));
        }
        let entry = match self.chain.read(&record.bytes, &record.hash.to_string()) {
            Ok(entry) => entry,
            Err(Broken { fault, .. }) => return Err(self.corruption(CorruptionKind::Entry(Arc::new(fault)))),
        };
        match &entry.body {
            Body::RunStarted(start) if start.run_id != *self.run_id => {
                Err(self.at_last(CorruptionKind::OtherRun { found: start.run_id.clone() }))
            }
            _ => Ok(Sealed { entry, text: record.bytes, hash: record.hash }),
        }
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.chain.next_seq()
    }

    pub(crate) fn head(&self) -> Option<Hash> {
        self.chain.head().map(hash_of)
    }

    /// Whether the last entry checked finished the run.
    pub(crate) fn is_finished(&self) -> bool {
        self.chain.finished()
    }

    /// Damage at the entry that comes next.
    pub(crate) fn corruption(&self, kind: CorruptionKind) -> Corruption {
        Corruption { run_id: self.run_id.to_string(), seq: self.next_seq(), kind }
    }

    /// Damage at the last entry checked.
    pub(crate) fn at_last(&self, kind: CorruptionKind) -> Corruption {
        Corruption { run_id: self.run_id.to_string(), seq: self.next_seq().saturating_sub(1), kind }
    }
}

fn hash_of(hex: &str) -> Hash {
    hex.parse().expect("a chain holds hashes of 64 digits")
}
