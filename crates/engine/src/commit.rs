//! One commit: what was decided becomes durable, or is known not to be.
//!
//! ```text
//!  shard ──batch──▶ writer's thread ──▶ store        many at once: one sync for all of them
//!    └───────────── at once ──────────▶ store        one alone, on a quick disk: no thread to wake, there and back
//! ```
//!
//! Commits are made one after the other, whoever makes them. That none overtakes another of its session is for the
//! shards to see to: one that has something at the writer commits nothing at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use macp_ledger::{Append, AppendError, Failure, FailureKind, Record, Store};

use crate::Observer;
use crate::panic::contain;

/// A commit that took longer shows a disk that is better waited for by a thread that has nothing else to do.
const AT_ONCE_TOOK_MAX: Duration = Duration::from_millis(2);

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
pub(crate) type Landed = Result<Vec<Record>, AppendError>;

/// Makes commits.
#[derive(Debug)]
pub(crate) struct Commits {
    store: Arc<dyn Store>,
    health: Arc<Health>,
    observer: Arc<dyn Observer>,
    /// Held over a commit and what it shows of the store's health.
    busy: Mutex<()>,
    /// How long the last one took, in microseconds.
    took_us: AtomicU64,
    /// Threads that run tasks: one that waits for a disk must not be the only one.
    workers: usize,
}

/// The right to make the next commit.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    commits: &'a Commits,
    _busy: MutexGuard<'a, ()>,
}

impl Commits {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        health: Arc<Health>,
        observer: Arc<dyn Observer>,
        workers: usize,
    ) -> Arc<Self> {
        let (busy, took_us) = (Mutex::new(()), AtomicU64::new(0));
        Arc::new(Commits { store, health, observer, busy, took_us, workers })
    }

    /// Waits for the commit that is under way.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { commits: self, _busy: self.busy.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// A turn for the thread of a task, where nothing is under way and the disk is quick.
    pub(crate) fn at_once(&self) -> Option<Turn<'_>> {
        let is_slow = u128::from(self.took_us.load(Ordering::Relaxed)) > AT_ONCE_TOOK_MAX.as_micros();
        if self.workers < 2 || is_slow {
            return None;
        }
        let busy = match self.busy.try_lock() {
            Ok(busy) => busy,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Turn { commits: self, _busy: busy })
    }
}

impl Turn<'_> {
    /// Commits, and tells what became of each append, in their order.
    pub(crate) fn commit(self, appends: Vec<Append>) -> impl Iterator<Item = (Arc<str>, Landed)> + use<> {
        let Commits { store, health, observer, took_us, .. } = self.commits;
        let began = Instant::now();
        let results = append(&**store, &appends, health);
        let stored = report(&appends, &results, health);
        let entries = appends.iter().map(|append| append.records.len()).sum();
        let took = began.elapsed();
        took_us.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        observer.committed(appends.len(), entries, took, stored);
        let landed = appends.into_iter().zip(results);
        landed.map(|(append, result)| (append.session_id, result.map(|()| append.records)))
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
    use macp_ledger::{Hash, IndexUpdate, MemoryStore};

    use super::*;
    use crate::Silent;

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

    fn commits(workers: usize) -> Arc<Commits> {
        Commits::new(Arc::new(MemoryStore::new()), Arc::default(), Arc::new(Silent), workers)
    }

    #[test]
    fn a_turn_at_once_is_the_only_one() {
        let commits = commits(2);
        let turn = commits.turn();
        assert!(commits.at_once().is_none());
        drop(turn);
        let turn = commits.at_once().expect("nothing is under way");
        assert!(commits.at_once().is_none());
        drop(turn);
        assert!(commits.at_once().is_some());
    }

    #[test]
    fn a_slow_disk_and_an_only_thread_are_not_waited_for() {
        assert!(commits(1).at_once().is_none());
        let commits = commits(2);
        commits.took_us.store(2_001, Ordering::Relaxed);
        assert!(commits.at_once().is_none());
        // Whatever the writer commits shows when the disk is quick again.
        assert_eq!(commits.turn().commit(Vec::new()).count(), 0);
        assert!(commits.at_once().is_some());
    }
}
