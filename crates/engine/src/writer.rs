//! Group commit: the one thread that writes. Whatever the shards hand over while one commit is under way becomes the
//! next, so that the number of fsyncs does not grow with the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use macp_ledger::{Append, AppendError, Store};

use crate::Observer;

/// Most appends in one transaction, so that the first of them does not wait for ever.
const APPENDS_PER_COMMIT_MAX: usize = 4096;

/// What a shard hands over in one go.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) shard: usize,
    pub(crate) appends: Vec<Append>,
}

/// Whether the last commit was stored whole; readiness asks, and the sweeper probes while it was not.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failed: AtomicBool,
}

impl Health {
    pub(crate) fn is_good(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, good: bool) {
        self.failed.store(!good, Ordering::Release);
    }
}

/// Writes until every shard is gone. `answer` gets the results of a shard's appends, in their order.
pub(crate) fn run(
    store: Arc<dyn Store>,
    batches: Receiver<Batch>,
    health: Arc<Health>,
    observer: Arc<dyn Observer>,
    answer: impl Fn(usize, Vec<(Arc<str>, Result<(), AppendError>)>),
) {
    while let Ok(first) = batches.recv() {
        let mut shards = vec![(first.shard, first.appends.len())];
        let mut appends = first.appends;
        while appends.len() < APPENDS_PER_COMMIT_MAX
            && let Ok(next) = batches.try_recv()
        {
            shards.push((next.shard, next.appends.len()));
            appends.extend(next.appends);
        }
        let began = Instant::now();
        let mut results = store.append(&appends).into_iter();
        let stored = report(&appends, results.as_slice(), &health);
        let entries = appends.iter().map(|append| append.records.len()).sum();
        observer.committed(appends.len(), entries, began.elapsed(), stored);

        let mut ids = appends.into_iter().map(|append| append.session_id);
        for (shard, count) in shards {
            answer(shard, ids.by_ref().zip(results.by_ref()).take(count).collect());
        }
    }
}

/// Notes the health of the store and logs the first failure of a commit. A conflict is no sign of bad health: it is
/// how an append learns that the one before it failed, and a start that its session exists.
fn report(appends: &[Append], results: &[Result<(), AppendError>], health: &Health) -> bool {
    let failure = appends.iter().zip(results).find_map(|(append, result)| match result {
        Err(AppendError::Failed(failure)) => Some((append, failure)),
        Ok(()) | Err(AppendError::Conflict { .. }) => None,
    });
    if let Some((append, failure)) = failure {
        if health.is_good() {
            let cause = std::error::Error::source(failure).map(ToString::to_string);
            tracing::error!(session = &*append.session_id, %failure, cause, code = failure.code(), "commit failed");
        }
        health.set(false);
        return false;
    }
    health.set(true);
    true
}
