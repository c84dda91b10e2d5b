//! Following a run while it is written.
//!
//! A watcher is only told *that* there is more and reads it from the store: so it sees nothing that is not durable,
//! can begin anywhere, and costs the writer the same however slow it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use macp_ledger::Store;
use macp_plan_core::journal::Body;
use tokio::sync::watch;

use super::error::StoreError;
use super::sealed::Sealed;
use super::{blocking, read};

/// Entries handed out at once.
const PAGE_ENTRIES_MAX: usize = 256;

/// Bytes handed out at once; a single larger entry comes alone.
pub const PAGE_BYTES_MAX: usize = 512 * 1_024;

/// Who wants to know of which run. Runs nobody watches are not in it.
#[derive(Debug)]
pub(super) struct Watchers {
    /// `None` once the store is shut down.
    runs: Mutex<Option<Runs>>,
}

type Runs = BTreeMap<Arc<str>, watch::Sender<()>>;

impl Watchers {
    pub(super) fn new() -> Self {
        Self { runs: Mutex::new(Some(Runs::new())) }
    }

    // Nothing that panics happens under the lock.
    fn runs(&self) -> MutexGuard<'_, Option<Runs>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a run has more entries.
    pub(super) fn tell(&self, run_id: &str) {
        if let Some(sender) = self.runs().as_ref().and_then(|runs| runs.get(run_id)) {
            sender.send_replace(());
        }
    }

    /// A receiver that hears of the run, or of nothing any more.
    fn join(&self, run_id: &Arc<str>) -> watch::Receiver<()> {
        let new = || watch::channel(()).0;
        match self.runs().as_mut() {
            Some(runs) => runs.entry(Arc::clone(run_id)).or_insert_with(new).subscribe(),
            None => new().subscribe(),
        }
    }

    /// Forgets a run whose last watcher left.
    fn leave(&self, run_id: &str) {
        if let Some(runs) = self.runs().as_mut()
            && runs.get(run_id).is_some_and(|sender| sender.receiver_count() == 0)
        {
            runs.remove(run_id);
        }
    }

    /// Wakes every watcher for the last time.
    pub(super) fn close(&self) {
        *self.runs() = None;
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.runs().as_ref().map_or(0, Runs::len)
    }
}

/// A run being followed.
#[derive(Debug)]
pub struct Watch {
    store: Arc<dyn Store>,
    watchers: Arc<Watchers>,
    run_id: Arc<str>,
    next_seq: u64,
    /// Only `None` while the watch is dropped.
    more: Option<watch::Receiver<()>>,
    finished: bool,
}

impl Watch {
    pub(super) fn new(store: Arc<dyn Store>, watchers: Arc<Watchers>, run_id: Arc<str>, from_seq: u64) -> Self {
        let more = Some(watchers.join(&run_id));
        Self { store, watchers, run_id, next_seq: from_seq, more, finished: false }
    }

    /// The next entries, in order and durable; waits for some, and is none after the entry that finished the run.
    ///
    /// Safe to drop while waiting: nothing is skipped by the next call.
    pub async fn next(&mut self) -> Result<Option<Vec<Sealed>>, StoreError> {
        while !self.finished {
            // Marked as seen before the store is asked: an entry that comes meanwhile wakes the wait below.
            if let Some(more) = &mut self.more {
                more.mark_unchanged();
            }
            let (page, open) = self.page().await?;
            if let Some(last) = page.last() {
                self.next_seq = last.seq() + 1;
                self.finished = matches!(last.body(), Body::RunFinished(_));
                return Ok(Some(page));
            }
            self.finished = !open;
            if let Some(more) = self.more.as_mut().filter(|_| open) {
                more.changed().await.map_err(|_| StoreError::Closed)?;
            }
        }
        Ok(None)
    }

    /// Waits until there is something to read; false after the entry that finished the run.
    pub async fn ready(&mut self) -> Result<bool, StoreError> {
        while !self.finished {
            if let Some(more) = &mut self.more {
                more.mark_unchanged();
            }
            let run_id = Arc::clone(&self.run_id);
            let head = blocking(&self.store, move |store| Ok::<_, StoreError>(store.head(&run_id)?)).await?;
            // Entries count from zero here, and from one in the store.
            if head.as_ref().is_some_and(|head| head.sequence > self.next_seq) {
                return Ok(true);
            }
            self.finished = !head.is_some_and(|head| head.open);
            if let Some(more) = self.more.as_mut().filter(|_| !self.finished) {
                more.changed().await.map_err(|_| StoreError::Closed)?;
            }
        }
        Ok(false)
    }

    /// Waits until the run has ended, and reads nothing of it.
    pub async fn ended(mut self) -> Result<(), StoreError> {
        while !self.finished {
            if let Some(more) = &mut self.more {
                more.mark_unchanged();
            }
            let run_id = Arc::clone(&self.run_id);
            let open = move |store: &dyn Store| Ok::<_, StoreError>(store.head(&run_id)?.is_some_and(|head| head.open));
            self.finished = !blocking(&self.store, open).await?;
            if let Some(more) = self.more.as_mut().filter(|_| !self.finished) {
                more.changed().await.map_err(|_| StoreError::Closed)?;
            }
        }
        Ok(())
    }

    /// Where a later watch goes on.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The next page, and whether the run was open before it was read: if not, an empty page is the end.
    async fn page(&self) -> Result<(Vec<Sealed>, bool), StoreError> {
        let (run_id, from_seq) = (Arc::clone(&self.run_id), self.next_seq);
        blocking(&self.store, move |store| {
            let open = store.head(&run_id)?.is_some_and(|head| head.open);
            Ok((read::entries_from(store, &run_id, from_seq, PAGE_ENTRIES_MAX, PAGE_BYTES_MAX)?, open))
        })
        .await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.more = None;
        self.watchers.leave(&self.run_id);
    }
}

#[cfg(test)]
mod tests {
    use macp_ledger::MemoryStore;

    use super::*;

    #[test]
    fn a_run_is_forgotten_with_its_last_watcher() {
        let watchers = Arc::new(Watchers::new());
        let watch = || Watch::new(Arc::new(MemoryStore::new()), Arc::clone(&watchers), "r".into(), 0);
        let (first, second) = (watch(), watch());
        assert_eq!(watchers.len(), 1);
        drop(first);
        assert_eq!(watchers.len(), 1);
        drop(second);
        assert_eq!(watchers.len(), 0);
        watchers.tell("r");
    }
}
