//! Reads journals page by page, checked. Loading, watching, exporting and settling claims all go through here.
//!
//! Everything here blocks, and needs no more than a store: offline tools call it directly.

use std::sync::Arc;

use macp_ledger::{Hash, Head, Store};
use macp_plan_core::journal::{Body, RunFinished, RunStart, RunStatus};
use serde_json::{Map, Value};

use super::error::{CorruptionKind, StoreError};
use super::sealed::{Checker, Sealed};
use super::summary::Summary;

/// Records per page.
const PAGE_RECORDS_MAX: usize = 1_024;
/// Bytes per page; a single larger record comes alone.
pub(super) const PAGE_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// A run as it is stored: never empty, and its chain is whole.
#[derive(Clone, Debug)]
pub struct Run {
    pub run_id: Arc<str>,
    pub entries: Vec<Sealed>,
    pub summary: Summary,
}

/// What an admission says of the session of a run that was refused for it.
const BINDING: &str = "session_binding";

/// What the admission of a run has that is rejected because its session's plan may not run.
pub(crate) fn refused_binding() -> Map<String, Value> {
    Map::from_iter([(BINDING.to_owned(), Value::from("refused"))])
}

impl Run {
    /// Everything the run was bound to from its beginning.
    #[must_use]
    pub fn start(&self) -> &RunStart {
        match self.entries.first().map(Sealed::body) {
            Some(Body::RunStarted(start)) => start,
            _ => unreachable!("a checked journal begins with run_started"),
        }
    }

    /// How the run ended, if it has.
    #[must_use]
    pub fn finish(&self) -> Option<&RunFinished> {
        match self.entries.last().map(Sealed::body) {
            Some(Body::RunFinished(finish)) => Some(finish),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finish().is_some()
    }

    /// Whether it was rejected because the plan its session committed to might not run. Such a run was never admitted to
    /// carry the commitment out.
    #[must_use]
    pub fn is_refused_binding(&self) -> bool {
        self.bodies().any(|body| match body {
            Body::Admission(admission) => !admission.admitted && admission.limits.contains_key(BINDING),
            _ => false,
        })
    }

    /// Steps whose effect may have taken place although they failed: the run's process went down while the call was
    /// out, or what came back proves nothing. An operator says what became of each (AOS-80).
    pub fn in_doubt(&self) -> impl Iterator<Item = &str> {
        let stopped = self.finish().filter(|finish| finish.status == RunStatus::InDoubt);
        let stopped = stopped.and_then(|finish| finish.stop.as_ref()?.step_id.as_deref());
        let ended = self.bodies().filter_map(move |body| match body {
            Body::StepFinished(step) => Some(step),
            _ => None,
        });
        ended
            .filter(move |step| step.leaves_doubt() && stopped != Some(&*step.step_id))
            .map(|step| step.step_id.as_str())
            .chain(stopped)
    }

    /// Chain hash of the last entry.
    #[must_use]
    pub fn head(&self) -> Hash {
        self.entries.last().map(|last| last.hash).expect("a checked journal has a first entry")
    }

    pub fn bodies(&self) -> impl DoubleEndedIterator<Item = &Body> {
        self.entries.iter().map(Sealed::body)
    }
}

/// A whole run, `None` if there is no such run. Names the first entry that is wrong.
pub fn load(store: &dyn Store, run_id: &str) -> Result<Option<Run>, StoreError> {
    let Some(head) = store.head(run_id)? else {
        return Ok(None);
    };
    let mut checker = Checker::new(run_id);
    let mut entries = Vec::new();
    while checker.next_seq() < head.sequence {
        let remaining = usize::try_from(head.sequence - checker.next_seq()).unwrap_or(usize::MAX);
        let page = store.read(run_id, checker.next_seq(), remaining.min(PAGE_RECORDS_MAX), PAGE_BYTES_MAX)?;
        if page.is_empty() {
            return Err(checker.corruption(CorruptionKind::Truncated { indexed: head.sequence }).into());
        }
        for record in page {
            entries.push(checker.check(record)?);
        }
    }
    check_end(store, &head, &checker)?;
    let summary = Summary::of_head(&head)?;
    Ok(Some(Run { run_id: head.session_id, entries, summary }))
}

/// The index must tell the same end as the journal.
fn check_end(store: &dyn Store, head: &Head, checker: &Checker) -> Result<(), StoreError> {
    match checker.head() {
        None => return Err(checker.corruption(CorruptionKind::Truncated { indexed: head.sequence }).into()),
        Some(found) if found != head.hash => {
            return Err(checker.at_last(CorruptionKind::Head { expected: head.hash, found }).into());
        }
        Some(_) => {}
    }
    if head.open == checker.is_finished() {
        return Err(checker.at_last(CorruptionKind::Index { open: head.open }).into());
    }
    let beyond = store.read(&head.session_id, head.sequence, 1, 0)?;
    // Entries beyond the head are fine if the index has moved on as well: then they were appended meanwhile.
    if !beyond.is_empty() && store.head(&head.session_id)?.is_none_or(|now| now.sequence <= head.sequence) {
        return Err(checker.corruption(CorruptionKind::Unindexed).into());
    }
    Ok(())
}

/// At most `limit` entries from `from_seq` on, each checked to continue the one before it.
pub fn entries_from(
    store: &dyn Store,
    run_id: &str,
    from_seq: u64,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Sealed>, StoreError> {
    let mut checker = match from_seq.checked_sub(1) {
        None => Checker::new(run_id),
        Some(before) => match store.read(run_id, before, 1, 0)?.into_iter().next() {
            Some(record) if record.sequence == from_seq => Checker::resume(run_id, before, record.hash),
            // Nothing there yet, or nothing any more: a gap shows when the run is loaded.
            _ => return Ok(Vec::new()),
        },
    };
    let records = store.read(run_id, from_seq, limit.min(PAGE_RECORDS_MAX), bytes_max.min(PAGE_BYTES_MAX))?;
    records.into_iter().map(|record| checker.check(record).map_err(StoreError::from)).collect()
}
