//! Group commit: the one thread that writes. Whatever the shards hand over while one commit is under way becomes the
//! next, so that the number of fsyncs does not grow with the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use macp_ledger::{Append, AppendError, Failure, FailureKind, Record, Store};

use crate::Observer;
use crate::gate::Gate;
use crate::panic::contain;

/// Most appends in one transaction, so that the first of them does not wait for ever.
const APPENDS_PER_COMMIT_MAX: usize = 4096;

/// What a shard hands over in one go.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) shard: usize,
    pub(crate) appends: Vec<Append>,
}

/// Whether the store can write, as far as the last commit or probe showed; readiness asks.
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

/// What became of an append: its records, durable, or why they are not.
type Landed = Result<Vec<Record>, AppendError>;

/// Writes until every shard is gone. `answer` gets what became of a shard's appends, in their order.
pub(crate) fn run(
    store: Arc<dyn Store>,
    batches: Receiver<Batch>,
    gate: &Gate,
    health: &Health,
    observer: Arc<dyn Observer>,
    answer: impl Fn(usize, Vec<(Arc<str>, Landed)>),
) {
    while let Ok(first) = batches.recv() {
        // Whoever is about to hand over something goes first, on processors that are busy; idle ones lose nothing.
        if gate.requests() > first.appends.len() {
            std::thread::yield_now();
        }
        let mut shards = vec![(first.shard, first.appends.len())];
        let mut appends = first.appends;
        while appends.len() < APPENDS_PER_COMMIT_MAX
            && let Ok(next) = batches.try_recv()
        {
            shards.push((next.shard, next.appends.len()));
            appends.extend(next.appends);
        }
        let began = Instant::now();
        let results = append(&*store, &appends, health);
        let stored = report(&appends, &results, health);
        let entries = appends.iter().map(|append| append.records.len()).sum();
        observer.committed(appends.len(), entries, began.elapsed(), stored);

        let mut landed = appends
            .into_iter()
            .zip(results)
            .map(|(append, result)| (append.session_id, result.map(|()| append.records)));
        for (shard, count) in shards {
            answer(shard, landed.by_ref().take(count).collect());
        }
    }
}

/// A store that panics has stored none of it, as far as anyone can tell; the sessions read what is really there.
fn append(store: &dyn Store, appends: &[Append], health: &Health) -> Vec<Result<(), AppendError>> {
    contain("a commit", None, || store.append(appends)).unwrap_or_else(|error| {
        health.set(false);
        let failure = Failure::new(FailureKind::Other, "commit").with_source(error);
        vec![Err(failure.into()); appends.len()]
    })
}

/// Notes the health of the store and logs the first failure of a commit; tells whether all of it was stored.
///
/// A conflict is no sign of bad health: it is how an append learns that the one before it failed, and a start that its
/// session exists. Nor is a failure that lies in one session's own data.
fn report(appends: &[Append], results: &[Result<(), AppendError>], health: &Health) -> bool {
    let was_good = health.is_good();
    let failures = appends.iter().zip(results).filter_map(|(append, result)| match result {
        Err(AppendError::Failed(failure)) => Some((append, failure)),
        Ok(()) | Err(AppendError::Conflict { .. }) => None,
    });
    let first = failures.clone().next();
    if failures.clone().any(|(_, failure)| failure.kind().concerns_all()) {
        health.set(false);
    } else if results.iter().any(Result::is_ok) {
        health.set(true);
    }
    if let Some((append, failure)) = first
        && (was_good || !failure.kind().concerns_all())
    {
        let cause = std::error::Error::source(failure).map(ToString::to_string);
        tracing::error!(session = &*append.session_id, %failure, cause, code = failure.code(), "commit failed");
    }
    first.is_none()
}

#[cfg(test)]
mod tests {
    use macp_ledger::{Hash, IndexUpdate};

    use super::*;

    fn check(good_before: bool, results: &[Result<(), AppendError>], good_after: bool) {
        let record = Record { sequence: 1, bytes: bytes::Bytes::new(), hash: Hash::from_bytes([0; 32]) };
        let index = IndexUpdate { open: true, deadline_ms: 0, state: 1, summary: None };
        let append =
            Append { session_id: "s".into(), expected_sequence: 0, expected_hash: None, records: vec![record], index };
        let health = Health::default();
        health.set(good_before);
        let stored = report(&vec![append; results.len()], results, &health);
        assert_eq!(health.is_good(), good_after, "{results:?}");
        assert_eq!(stored, !results.iter().any(|result| matches!(result, Err(AppendError::Failed(_)))));
    }

    #[test]
    fn only_what_concerns_every_session_is_bad_health() {
        let failed = |kind| Err(AppendError::Failed(Failure::new(kind, "append")));
        let conflict = || Err(AppendError::Conflict { expected: 1, found: 0 });
        for kind in [FailureKind::DiskFull, FailureKind::ReadOnly, FailureKind::Io, FailureKind::Locked] {
            check(true, &[Ok(()), failed(kind)], false);
        }
        for kind in [FailureKind::Corrupt, FailureKind::Invalid] {
            check(true, &[failed(kind)], true);
            check(false, &[failed(kind)], false);
            check(false, &[failed(kind), Ok(())], true);
        }
        check(true, &[conflict()], true);
        check(false, &[Ok(())], true);
    }
}
