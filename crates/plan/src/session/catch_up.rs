//! Brings journals up to what their execution sessions report (AOS-113, AOS-114). A store of runs that was put back
//! from an older copy does not know what was done since, and what was done must not be done again: its results are
//! taken from the session.

use macp_ledger::{Failure, FailureKind, ReadError, Store};
use macp_plan_core::journal::{Body, seal};

use super::reported::{NotAReport, Reported, initiator, reported};
use super::{SessionRuns, blocking, execution_session_id};
use crate::store::{JournalError, Run, StoreError};

/// Unfinished runs looked at at a time.
const PAGE: usize = 256;

/// Entries taken over in one write.
const ENTRIES_AT_ONCE: usize = 256;

/// Why what a session reports cannot be taken into the journal.
#[derive(Debug, thiserror::Error)]
enum Apart {
    #[error("some of them were too long for a message, so that the session has their hash alone")]
    ByDigest,
    #[error("they do not go on where the journal ends")]
    Other,
    #[error("{0}")]
    Refused(JournalError),
}

impl SessionRuns {
    /// Takes into the journals of unfinished runs what their sessions report beyond them. A run of which that cannot be
    /// done is held: nobody goes on with it. Call it before [`Executor::recover`](crate::executor::Executor::recover).
    pub async fn catch_up(&self) -> Result<(), StoreError> {
        if !self.shared.settings.execution.enabled {
            return Ok(());
        }
        let mut after = None;
        loop {
            let page = self.runs().open_runs(after, PAGE).await?;
            for run_id in &page {
                self.catch_up_with(run_id).await?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.to_string()),
                _ => return Ok(()),
            }
        }
    }

    async fn catch_up_with(&self, run_id: &str) -> Result<(), StoreError> {
        let is_of_session = match self.runs().summary(run_id).await {
            Ok(summary) => summary.is_some_and(|summary| summary.session_id.is_some()),
            // Whether a session knows more of it cannot be told; the others need not wait for that.
            Err(error @ StoreError::Damaged { .. }) => {
                self.hold(run_id, error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !is_of_session {
            return Ok(());
        }
        let session = execution_session_id(run_id);
        let report = match self.report_in(&session).await? {
            Ok(Some(report)) => report,
            // What is no report at all is not the executor's, whoever it says started it.
            Ok(None) | Err(NotAReport::OtherSession) => return Ok(()),
            Err(unreadable) => {
                let why = format!("what its session {session} reports cannot be told, nor what was done: {unreadable}");
                self.hold(run_id, why);
                return Ok(());
            }
        };
        let run = match self.runs().load(run_id).await {
            Ok(Some(run)) => run,
            Err(StoreError::Failure(failure)) if is_passing(&failure) => return Err(failure.into()),
            // Whoever goes on with a damaged run finds that out, and says so.
            Ok(None) | Err(_) => return Ok(()),
        };
        let (known, told) = (run.entries.len(), report.next_seq);
        if u64::try_from(known).is_ok_and(|known| told <= known) {
            return Ok(());
        }
        match self.take_over(&run, &report).await {
            Ok(()) => {
                tracing::warn!(
                    run = run_id,
                    known,
                    told,
                    "the journal lacked entries that its session reports; they are taken over"
                );
            }
            Err(Apart::Refused(JournalError::Store(error))) => return Err(error),
            Err(Apart::Refused(JournalError::Failed { failure, .. })) => return Err(failure.into()),
            Err(Apart::Refused(JournalError::Closed)) => return Err(StoreError::Closed),
            Err(apart) => {
                let why = format!(
                    "its journal has {known} entries, its session {session} reports {told}, and {apart}: the store of \
                     runs is older than what was done"
                );
                self.hold(run_id, why);
            }
        }
        Ok(())
    }

    fn hold(&self, run_id: &str, why: String) {
        tracing::error!(run = run_id, why, "the run is held, so that nothing is done twice");
        self.shared.executor.hold(run_id, why);
    }

    /// What a session reports, if it is not somebody else's: what others say in its place holds up nothing.
    pub(super) async fn report_in(&self, session_id: &str) -> Result<Result<Option<Reported>, NotAReport>, StoreError> {
        let (session_id, identity) = (session_id.to_owned(), self.shared.settings.execution.identity.clone());
        let read = move |store: &dyn Store| {
            if initiator(store, &session_id)?.is_some_and(|initiator| initiator != identity) {
                return Ok(None);
            }
            reported(store, &session_id)
        };
        blocking(self.shared.engine.store(), move |store| match read(store) {
            Err(NotAReport::History(ReadError::Failure(failure))) if is_passing(&failure) => Err(failure.into()),
            read => Ok(read),
        })
        .await
    }

    async fn take_over(&self, run: &Run, report: &Reported) -> Result<(), Apart> {
        let bodies = beyond(run, report)?;
        let mut journal = self.runs().resume(run).map_err(Apart::Refused)?;
        for bodies in bodies.chunks(ENTRIES_AT_ONCE) {
            journal.append(bodies.to_vec()).await.map_err(Apart::Refused)?;
        }
        if let Some(Body::RunFinished(finished)) = bodies.last() {
            self.shared.executor.spent(&run.run_id, finished.total_cost_microcents).await;
        }
        Ok(())
    }
}

/// Whether it is worth asking again. Damage stays, and is that of one run: the others need not wait for it.
fn is_passing(failure: &Failure) -> bool {
    !matches!(failure.kind(), FailureKind::Corrupt)
}

/// The entries of a report beyond a journal, if they go on where it ends.
fn beyond(run: &Run, report: &Reported) -> Result<Vec<Body>, Apart> {
    let entries = report.entries.as_ref().ok_or(Apart::ByDigest)?;
    let (before, beyond) = entries.split_at_checked(run.entries.len()).ok_or(Apart::Other)?;
    let mut head = run.entries.last().map(|last| last.hash.to_string());
    if before.last().map(|(_, hash, _)| hash) != head.as_ref() {
        return Err(Apart::Other);
    }
    let mut bodies = Vec::with_capacity(beyond.len());
    for (_, hash, entry) in beyond {
        // Written once more, an entry must be the one that was reported.
        let sealed = seal(head.as_deref(), entry).ok().filter(|(_, sealed)| sealed == hash).ok_or(Apart::Other)?;
        head = Some(sealed.1);
        bodies.push(entry.body.clone());
    }
    Ok(bodies)
}
