//! Group commit: the one thread that writes journals. What the runs hand over while one commit is under way becomes
//! the next, so that the number of syncs does not grow with the number of runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use macp_ledger::{Append, AppendError, Failure, FailureKind, Store};
use tokio::sync::{mpsc, oneshot};

use super::watch::Watchers;

/// Most appends in one transaction, so that the first of them does not wait for ever.
const APPENDS_PER_COMMIT_MAX: usize = 1_024;

/// Appends waiting for the thread. A run waits for its own before it goes on, so this bounds how many runs can press;
/// the others wait for room.
pub(super) const QUEUE_APPENDS_MAX: usize = 1_024;

/// What the thread is asked to do.
pub(super) enum Job {
    Append(Append, oneshot::Sender<Result<(), AppendError>>),
    /// Write what came before, then end.
    Stop,
}

/// Starts the thread. It ends on [`Job::Stop`], or when every sender is gone.
pub(super) fn spawn(
    store: Arc<dyn Store>,
    watchers: Arc<Watchers>,
    writable: Arc<AtomicBool>,
) -> Result<(mpsc::Sender<Job>, JoinHandle<()>), Failure> {
    let (sender, receiver) = mpsc::channel(QUEUE_APPENDS_MAX);
    let thread = std::thread::Builder::new()
        .name("run-writer".to_owned())
        .spawn(move || run(&*store, receiver, &watchers, &writable))
        .map_err(|source| Failure::from_io("start the thread that writes journals", source))?;
    Ok((sender, thread))
}

fn run(store: &dyn Store, mut jobs: mpsc::Receiver<Job>, watchers: &Watchers, writable: &AtomicBool) {
    while let Some(first) = jobs.blocking_recv() {
        let (mut appends, mut answers) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Append(append, answer) => {
                    appends.push(append);
                    answers.push(answer);
                }
                // Nobody can hand over anything after this; what is in the queue already is still written.
                Job::Stop => jobs.close(),
            }
            next = if appends.len() < APPENDS_PER_COMMIT_MAX { jobs.try_recv().ok() } else { None };
        }
        if appends.is_empty() {
            continue;
        }
        let results = append(store, &appends);
        report(&appends, &results, writable);
        for ((append, result), answer) in appends.into_iter().zip(results).zip(answers) {
            // Also of a write that failed: it may be stored all the same, and nobody else would say so.
            watchers.tell(&append.session_id);
            // A run that no longer waits reads what was stored when it is loaded again.
            let _ = answer.send(result);
        }
    }
}

/// A store that panics has stored none of it, as far as anyone can tell; the runs read what is really there.
fn append(store: &dyn Store, appends: &[Append]) -> Vec<Result<(), AppendError>> {
    let results = catch_unwind(AssertUnwindSafe(|| store.append(appends))).unwrap_or_default();
    if results.len() == appends.len() {
        return results;
    }
    let failure = Failure::new(FailureKind::Other, "commit of journals: the store broke off");
    vec![Err(failure.into()); appends.len()]
}

/// Notes whether the store can write, and logs the first failure of a commit once per outage.
fn report(appends: &[Append], results: &[Result<(), AppendError>], writable: &AtomicBool) {
    let failed = appends.iter().zip(results).find_map(|(append, result)| match result {
        Err(AppendError::Failed(failure)) => Some((append, failure)),
        Ok(()) | Err(AppendError::Conflict { .. }) => None,
    });
    match failed {
        Some((append, failure)) => {
            let concerns_all = failure.kind().concerns_all();
            let first = !concerns_all || writable.swap(false, Ordering::AcqRel);
            if first {
                let cause = std::error::Error::source(failure).map(ToString::to_string);
                let (run, code) = (&*append.session_id, failure.code());
                tracing::error!(run, %failure, cause, code, "journal not written");
            }
        }
        // A conflict says nothing about the disk.
        None if results.iter().any(Result::is_ok) => writable.store(true, Ordering::Release),
        None => {}
    }
}
