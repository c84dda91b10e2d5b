//! What is kept of the runs of every agent, in bytes: their journals, and the outputs beside them.
//!
//! The sums are read from the index when somebody first asks, and kept up from then on: no write is under way while they
//! are read, so that each is counted once. A write of which nobody knows whether it took place counts until the journal
//! has told: when the run is written to again, or when somebody asks for the sum of its agent. So an outage has no more
//! read than the ends of the journals that it touched. Nothing beside the index has to survive a crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
struct Sums(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    by_agent: BTreeMap<String, u64>,
    /// By run: a journal has one writer, and that one waits for what it wrote.
    doubts: BTreeMap<Arc<str>, Doubt>,
}

/// A write that is counted and may not have taken place.
#[derive(Clone, Debug)]
struct Doubt {
    agent_id: String,
    bytes: u64,
    after: u64,
}

/// Whose bytes a write adds to, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight<'a> {
    pub(crate) agent_id: &'a str,
    pub(crate) bytes: u64,
}

/// Which entries a write adds: those of a run after a place.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    pub(super) run_id: Arc<str>,
    pub(super) after: u64,
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
}

impl Writing<'_> {
    /// Counts entries that are handed to the writer. Where they begin tells whether the ones before them are there.
    pub(super) fn add(&self, entries: &Entries, weight: Weight<'_>) {
        if let Some(sums) = &*self.0 {
            let mut counted = sums.counted();
            counted.settle(&entries.run_id, entries.after);
            counted.add(weight);
        }
    }

    /// Takes back what the store refused.
    pub(super) fn take_back(&self, weight: Weight<'_>) {
        if let Some(sums) = &*self.0 {
            sums.counted().take_back(weight);
        }
    }

    /// Notes that nobody knows whether entries were written that are counted.
    pub(super) fn doubt(&self, entries: Entries, Weight { agent_id, bytes }: Weight<'_>) {
        if let Some(sums) = &*self.0 {
            let doubt = Doubt { agent_id: agent_id.to_owned(), bytes, after: entries.after };
            sums.counted().doubts.insert(entries.run_id, doubt);
        }
    }
}

impl Sums {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn add(&mut self, Weight { agent_id, bytes }: Weight<'_>) {
        match self.by_agent.get_mut(agent_id) {
            Some(sum) => *sum = sum.saturating_add(bytes),
            None => drop(self.by_agent.insert(agent_id.to_owned(), bytes)),
        }
    }

    fn take_back(&mut self, Weight { agent_id, bytes }: Weight<'_>) {
        if let Some(sum) = self.by_agent.get_mut(agent_id) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    fn of(&self, agent_id: &str) -> u64 {
        self.by_agent.get(agent_id).copied().unwrap_or_default()
    }

    /// Ends a doubt, given where the journal of the run ends.
    fn settle(&mut self, run_id: &str, end: u64) {
        if let Some(Doubt { agent_id, bytes, after }) = self.doubts.remove(run_id)
            && end <= after
        {
            self.take_back(Weight { agent_id: &agent_id, bytes });
        }
    }

    /// Runs of an agent with a write in doubt; hardly ever any.
    fn in_doubt(&self, agent_id: &str) -> Vec<Arc<str>> {
        let of_agent = self.doubts.iter().filter(|(_, doubt)| doubt.agent_id == agent_id);
        of_agent.map(|(run_id, _)| Arc::clone(run_id)).collect()
    }
}

impl RunStore {
    /// Bytes that are kept of an agent's runs.
    pub(crate) async fn kept_by(&self, agent_id: &str) -> Result<u64, StoreError> {
        Ok(self.sums_for(agent_id).await?.counted().of(agent_id))
    }

    /// Counts bytes to an agent that are about to be kept, or says what is kept if there is no room for them. Of those
    /// that come together each sees the others.
    pub(crate) async fn reserve(&self, weight: Weight<'_>, kept_max: u64) -> Result<Option<u64>, StoreError> {
        let sums = self.sums_for(weight.agent_id).await?;
        let mut counted = sums.counted();
        let kept = counted.of(weight.agent_id);
        if kept.saturating_add(weight.bytes) > kept_max {
            return Ok(Some(kept));
        }
        counted.add(weight);
        Ok(None)
    }

    /// Counts bytes that are kept already.
    pub(crate) async fn count_kept(&self, weight: Weight<'_>) {
        if let Some(sums) = &*self.shared.kept.writing().await.0 {
            sums.counted().add(weight);
        }
    }

    /// Takes back what was counted and is not kept after all.
    pub(crate) async fn give_back(&self, weight: Weight<'_>) {
        self.shared.kept.writing().await.take_back(weight);
    }

    /// The sums, without a doubt about an agent's. The first to ask waits for the index to be read.
    async fn sums_for(&self, agent_id: &str) -> Result<RwLockReadGuard<'_, Sums>, StoreError> {
        let kept = &self.shared.kept;
        if let Ok(sums) = RwLockReadGuard::try_map(kept.sums.read().await, Option::as_ref)
            && sums.counted().in_doubt(agent_id).is_empty()
        {
            return Ok(sums);
        }
        let mut held = kept.sums.write().await;
        let sums = match &mut *held {
            Some(sums) => sums,
            unread => unread.insert(self.blocking(count).await?),
        };
        let in_doubt = sums.counted().in_doubt(agent_id);
        if !in_doubt.is_empty() {
            for (run_id, end) in self.blocking(move |store| ends(store, in_doubt)).await? {
                sums.counted().settle(&run_id, end);
            }
        }
        Ok(RwLockReadGuard::map(held.downgrade(), |sums| sums.as_ref().expect("they were read above")))
    }
}

/// Where journals end; at 0 where there is none.
fn ends(store: &dyn Store, run_ids: Vec<Arc<str>>) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
    let end = |run_id: Arc<str>| {
        let end = store.head(&run_id)?.map_or(0, |head| head.sequence);
        Ok((run_id, end))
    };
    run_ids.into_iter().map(end).collect()
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
    let mut counted = Counted::default();
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
            counted.add(Weight { agent_id: &row.agent_id, bytes: journal.saturating_add(row.output_bytes) });
        }
        match heads.last() {
            Some(last) if heads.len() == ROWS_AT_ONCE => after = Some(last.session_id.to_string()),
            _ => return Ok(Sums(Mutex::new(counted))),
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
