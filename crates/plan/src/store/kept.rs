//! What is kept of the runs of every agent, in bytes: their journals, and the outputs beside them.
//!
//! The sums are read from the index when somebody first asks, and kept up from then on: no write is under way while they
//! are read, so that each is counted once. Nothing beside the index has to survive a crash.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use macp_ledger::{Filter, Head, Store};
use serde::Deserialize;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::RunStore;
use super::error::StoreError;

/// Index rows read at once.
const ROWS_AT_ONCE: usize = 1_024;
/// Records of a run under way that are looked at together.
const PAGE_RECORDS_MAX: usize = 1_024;
const PAGE_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// Sums by agent; none until somebody asks for one.
#[derive(Debug, Default)]
pub(super) struct Kept {
    sums: RwLock<Option<Sums>>,
}

#[derive(Debug, Default)]
struct Sums(Mutex<BTreeMap<String, u64>>);

/// Whose bytes a write adds to, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight<'a> {
    pub(crate) agent_id: &'a str,
    pub(crate) bytes: u64,
}

/// A write under way, during which nobody reads the sums from the index.
#[derive(Debug)]
pub(super) struct Writing<'a>(RwLockReadGuard<'a, Option<Sums>>);

impl Kept {
    pub(super) async fn writing(&self) -> Writing<'_> {
        // Hardly anybody ever has to wait, and to be asked to does cost a task its turn.
        match self.sums.try_read() {
            Ok(sums) => Writing(sums),
            Err(_read_just_now) => Writing(self.sums.read().await),
        }
    }

    /// Has the sums read again, where nobody knows whether a write took place.
    pub(super) async fn forget(&self) {
        *self.sums.write().await = None;
    }
}

impl Writing<'_> {
    /// Counts what is handed to the writer.
    pub(super) fn add(&self, Weight { agent_id, bytes }: Weight<'_>) {
        if let Some(sums) = &*self.0 {
            sums.change(agent_id, |sum| sum.saturating_add(bytes));
        }
    }

    /// Takes back what the store refused.
    pub(super) fn take_back(&self, Weight { agent_id, bytes }: Weight<'_>) {
        if let Some(sums) = &*self.0 {
            sums.change(agent_id, |sum| sum.saturating_sub(bytes));
        }
    }
}

impl Sums {
    fn change(&self, agent_id: &str, change: impl FnOnce(u64) -> u64) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match sums.get_mut(agent_id) {
            Some(sum) => *sum = change(*sum),
            None => drop(sums.insert(agent_id.to_owned(), change(0))),
        }
    }

    fn of(&self, agent_id: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(agent_id).copied().unwrap_or_default()
    }
}

impl RunStore {
    /// Bytes that are kept of an agent's runs. The first to ask waits for the index to be read.
    pub(crate) async fn kept_by(&self, agent_id: &str) -> Result<u64, StoreError> {
        let kept = &self.shared.kept;
        if let Some(sums) = &*kept.sums.read().await {
            return Ok(sums.of(agent_id));
        }
        let mut sums = kept.sums.write().await;
        if let Some(sums) = &*sums {
            return Ok(sums.of(agent_id));
        }
        let counted = self.blocking(count).await?;
        Ok(sums.insert(counted).of(agent_id))
    }
}

/// What is read of an index row.
#[derive(Deserialize)]
struct Row {
    agent_id: String,
    #[serde(default)]
    journal_bytes: u64,
    #[serde(default)]
    output_bytes: u64,
}

/// Sums up the index. It is up to date for runs that have ended, and those under way are few. A row that cannot be read
/// says nothing of whose run it is: it counts to nobody, since no agent may be kept from its work by the run of another.
fn count(store: &dyn Store) -> Result<Sums, StoreError> {
    let sums = Sums::default();
    let mut after: Option<String> = None;
    loop {
        let heads = store.list(after.as_deref(), ROWS_AT_ONCE, Filter::All)?;
        for head in &heads {
            let row: Row = match serde_json::from_slice(&head.summary) {
                Ok(row) => row,
                Err(error) => {
                    let run = &*head.session_id;
                    tracing::warn!(run, %error, "the index row of a run cannot be read, so that it counts to no agent");
                    continue;
                }
            };
            let journal = if head.open { journal_bytes(store, head)? } else { row.journal_bytes };
            sums.change(&row.agent_id, |sum| sum.saturating_add(journal).saturating_add(row.output_bytes));
        }
        match heads.last() {
            Some(last) if heads.len() == ROWS_AT_ONCE => after = Some(last.session_id.to_string()),
            _ => return Ok(sums),
        }
    }
}

/// The texts of the entries of a run under way. Whether they can be read is for whoever goes on with it to find out.
fn journal_bytes(store: &dyn Store, head: &Head) -> Result<u64, StoreError> {
    let (mut bytes, mut read) = (0_u64, 0);
    while read < head.sequence {
        let page = store.read(&head.session_id, read, PAGE_RECORDS_MAX, PAGE_BYTES_MAX)?;
        let Some(last) = page.last() else { break };
        read = last.sequence;
        bytes = page.iter().fold(bytes, |sum, record| sum.saturating_add(record.bytes.len() as u64));
    }
    Ok(bytes)
}
