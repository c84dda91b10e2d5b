//! The journal of one run, being written. Whoever holds the handle is the run's one writer; a second one learns from
//! the store that it is not (AOS-66), because the first entry written for a place stays.

use std::sync::Arc;

use macp_ledger::{Append, AppendError, Hash};
use macp_plan_core::journal::{Body, Chain};

use super::error::JournalError;
use super::sealed::{self, Sealed};
use super::summary::Summary;
use super::{RunStore, Weight};

/// Where a run's journal ends, and the right to go on from there.
#[derive(Debug)]
pub struct Journal {
    store: RunStore,
    run_id: Arc<str>,
    chain: Chain,
    summary: Summary,
    /// What outputs kept apart take, those included that the next entries tell of.
    output_bytes: u64,
    /// Set while a write is under way, and left so when it did not succeed or nobody waited for it: then only the
    /// store knows where the journal ends.
    lost: bool,
}

impl Journal {
    /// A journal that goes on after the entry `end` tells of, or begins.
    pub(super) fn new(store: RunStore, run_id: Arc<str>, end: Option<(u64, Hash)>, summary: Summary) -> Self {
        let chain = end.map_or_else(Chain::new, |(seq, hash)| Chain::resume(seq, hash.to_string()));
        let output_bytes = summary.output_bytes;
        Self { store, run_id, chain, summary, output_bytes, lost: false }
    }

    /// Appends entries, all or none of them; durable when it returns.
    ///
    /// After an error the handle is of no more use: nothing may be dispatched for the run, and it goes on only after
    /// [`RunStore::load`] and [`RunStore::resume`]. The same is true after the future was dropped before it was done.
    pub async fn append(&mut self, bodies: Vec<Body>) -> Result<Vec<Sealed>, JournalError> {
        if self.lost {
            return Err(JournalError::Lost(self.run_id.to_string()));
        }
        if !self.summary.is_open() {
            return Err(JournalError::Finished(self.run_id.to_string()));
        }
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        check_order(&bodies, self.next_seq())?;
        let now_ms = self.store.now_ms();
        let (mut chain, mut summary) = (self.chain.clone(), self.summary.clone());
        let mut changed = false;
        let mut entries: Vec<Sealed> = Vec::with_capacity(bodies.len());
        for body in bodies {
            changed |= summary.take(&body, now_ms);
            entries.push(Sealed::seal(&mut chain, body)?);
        }
        let journal_bytes = sealed::bytes(&entries);
        changed |= self.output_bytes != summary.output_bytes;
        summary.journal_bytes = summary.journal_bytes.saturating_add(journal_bytes);
        summary.output_bytes = self.output_bytes;
        let append = Append {
            session_id: Arc::clone(&self.run_id),
            expected_sequence: self.next_seq(),
            expected_hash: self.head().and_then(|head| head.parse().ok()),
            records: entries.iter().map(Sealed::record).collect(),
            index: summary.index(changed),
        };
        self.lost = true;
        // Outputs were counted when they were kept.
        let weight = Weight { agent_id: &summary.agent_id, bytes: journal_bytes };
        self.store.write(append, weight).await?.map_err(|error| self.failed(error))?;
        self.lost = false;
        self.chain = chain;
        self.summary = summary;
        Ok(entries)
    }

    fn failed(&self, error: AppendError) -> JournalError {
        match error {
            AppendError::Conflict { .. } if self.next_seq() == 0 => JournalError::Exists(self.run_id.to_string()),
            error => JournalError::of_append(&self.run_id, error),
        }
    }

    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Says what the outputs of the run take that are kept apart, for the next append to put into the index.
    pub(crate) fn set_output_bytes(&mut self, bytes: u64) {
        self.output_bytes = bytes;
    }

    /// Place of the next entry.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.chain.next_seq()
    }

    /// Chain hash of the last entry, in hexadecimal digits.
    #[must_use]
    pub fn head(&self) -> Option<&str> {
        self.chain.head()
    }

    /// As of the last append.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
}

/// A journal begins with `run_started` and ends with `run_finished`, each once.
fn check_order(bodies: &[Body], next_seq: u64) -> Result<(), JournalError> {
    for (position, body) in bodies.iter().enumerate() {
        let is_first = next_seq == 0 && position == 0;
        if matches!(body, Body::RunStarted(_)) != is_first {
            return Err(JournalError::Invalid("run_started is the first entry of a journal and no other".to_owned()));
        }
        if matches!(body, Body::RunFinished(_)) && position + 1 != bodies.len() {
            return Err(JournalError::Invalid("nothing follows run_finished".to_owned()));
        }
    }
    Ok(())
}
