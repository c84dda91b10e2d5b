//! Commitments that take the place of others (AOS-109): what they supersede must not start, and is stopped or left to
//! finish where it runs.
//!
//! A commitment can name any other, also one its authors have nothing to do with. It counts only if whoever sent it
//! started the superseded session or sent its Commitment: nobody stops the runs of others by naming them.

use std::collections::BTreeSet;

use macp_ledger::FailureKind;
use macp_plan_core::journal::Body;
use serde_json::{Value, json};

use super::binding::{self, Resolved};
use super::notes::Superseding;
use super::settings::SupersededPolicy;
use super::{SessionRuns, blocking};
use crate::executor::ControlError;
use crate::store::{Commitment, Query, Run, Status, StoreError, Summary};

/// Open runs looked at together.
const PAGE: usize = 256;

/// The fact under which a journal tells which commitment took the place of its run's.
pub(crate) const SUPERSEDED_BY: &str = "superseded_by";

/// How the reason of a cancel begins that tells the same.
pub(crate) const SUPERSEDED: &str = "superseded by ";

impl SessionRuns {
    /// Has the effect of a resolved session's commitment on the one it supersedes, if it supersedes one.
    pub(super) async fn supersede(&self, resolved: &Resolved) -> Result<(), StoreError> {
        let Some(superseded) = resolved.supersedes.clone() else {
            return Ok(());
        };
        let session_id = superseded.session_id.clone();
        let earlier = blocking(self.shared.engine.store(), move |store| binding::look(store, &session_id)).await?;
        let Some(earlier) = earlier.filter(|earlier| earlier.commitment_hash == superseded.commitment_hash) else {
            tracing::debug!(session = resolved.session_id, superseded = superseded.session_id, "not of this server");
            return Ok(());
        };
        if resolved.committer != earlier.coordinator && resolved.committer != earlier.committer {
            tracing::warn!(
                session = resolved.session_id,
                superseded = superseded.session_id,
                committer = resolved.committer,
                "a commitment does not supersede another, whose coordinator or committer did not send it"
            );
            return Ok(());
        }
        let by = Superseding {
            session_id: resolved.session_id.clone(),
            commitment_hash: resolved.commitment_hash.clone(),
            committer: resolved.committer.clone(),
        };
        let (session_id, commitment_hash) = (superseded.session_id, superseded.commitment_hash);
        {
            // Whoever starts a run of the superseded commitment has either found this note, or the run is there to be
            // found below.
            let _turn = self.turn(&session_id, &commitment_hash).await;
            self.shared.notes.supersede(&session_id, &commitment_hash, by.clone()).await?;
        }
        let mut runs = BTreeSet::new();
        for epoch in 1.. {
            let commitment =
                Commitment { session_id: session_id.clone(), commitment_hash: commitment_hash.clone(), epoch };
            let Some(run_id) = self.runs().admissions().run_of(commitment).await? else {
                break;
            };
            runs.insert(run_id);
        }
        // And those that were not admitted for it, such as those that try again what an admitted one left undone.
        runs.extend(self.at_work_for(&session_id, &commitment_hash).await?.into_iter().map(|run| run.run_id));
        // All of them are told, whatever becomes of telling one.
        let mut told = Ok(());
        for run_id in runs {
            told = told.and(self.stop_superseded(&run_id, &by).await);
        }
        told
    }

    /// The runs of a commitment that have not ended, replays among them.
    pub(super) async fn at_work_for(
        &self,
        session_id: &str,
        commitment_hash: &str,
    ) -> Result<Vec<Summary>, StoreError> {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let (session_id, status) = (Some(session_id.to_owned()), Some(Status::Running));
            let query = Query { session_id, status, ..Query::default() };
            let page = self.runs().list(query, after, PAGE).await?;
            found.extend(page.runs.into_iter().filter(|run| run.commitment_hash.as_deref() == Some(commitment_hash)));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Has a run stopped whose commitment was superseded while nobody could tell it: it was being started, or no process
    /// was at work on it.
    pub(super) async fn stop_if_superseded(
        &self,
        run_id: &str,
        session_id: &str,
        commitment_hash: &str,
    ) -> Result<(), StoreError> {
        match self.shared.notes.superseded(session_id, commitment_hash).await? {
            None => Ok(()),
            Some(by) => self.stop_superseded(run_id, &by).await,
        }
    }

    /// Cancels a run whose commitment is superseded, unless such runs are to finish. The journal tells either way.
    pub(super) async fn stop_superseded(&self, run_id: &str, by: &Superseding) -> Result<(), StoreError> {
        if self.shared.settings.superseded == SupersededPolicy::Finish {
            return self.let_finish(run_id, by).await;
        }
        let reason = format!("{SUPERSEDED}{} of session {}", by.commitment_hash, by.session_id);
        self.stop(run_id, &by.committer, &reason).await
    }

    /// Puts into the journal of a run that it is superseded and left to finish, unless it says so.
    async fn let_finish(&self, run_id: &str, by: &Superseding) -> Result<(), StoreError> {
        let told = async {
            let run = self.runs().load(run_id).await?;
            if run.is_none_or(|run| run.is_finished() || tells_of(&run, by)) {
                return Ok(());
            }
            let facts = json!({SUPERSEDED_BY: by, "superseded_policy": "finish"});
            let Value::Object(facts) = facts else { return Ok(()) };
            self.shared.executor.observe(run_id, facts).await
        };
        match told.await {
            Ok(()) => {
                tracing::info!(run = run_id, superseded_by = by.session_id, "the run is superseded and left to finish");
                Ok(())
            }
            Err(error) => passing(run_id, error, "that the run is superseded cannot be put into its journal"),
        }
    }

    /// Cancels a run; one that has ended, or never began, needs no cancelling. What fails here is to be tried again: the
    /// run goes on until it is told.
    pub(super) async fn stop(&self, run_id: &str, by: &str, reason: &str) -> Result<(), StoreError> {
        match self.shared.executor.cancel(run_id, by, reason).await {
            Ok(()) => {
                tracing::info!(run = run_id, by, reason, "the run is told to stop");
                Ok(())
            }
            Err(error) => passing(run_id, error, "the run cannot be told to stop"),
        }
    }

    /// Cancels a run whose execution session has ended. One that is held waits for somebody to look at it, and not for its
    /// session.
    pub(super) async fn stop_with_session(
        &self,
        run_id: &str,
        session_id: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        if self.shared.executor.is_held(run_id) {
            tracing::warn!(run = run_id, reason, "the run is held, and stays so");
            return Ok(());
        }
        self.stop(run_id, session_id, reason).await
    }

    /// Lets a run wait or go on; one that has ended does neither.
    pub(super) async fn pause(&self, run_id: &str, paused: bool) -> Result<(), StoreError> {
        match self.shared.executor.pause(run_id, paused).await {
            Ok(()) => {
                tracing::debug!(run = run_id, paused, "the run does as its execution session");
                Ok(())
            }
            Err(error) => passing(run_id, error, "whether the run is to wait cannot be kept"),
        }
    }
}

/// What may pass of a failure to tell a run something. A run that has ended needs no telling, and one that is damaged or
/// stuck can be told nothing, however often it is tried.
fn passing(run_id: &str, error: ControlError, what: &'static str) -> Result<(), StoreError> {
    match error {
        ControlError::NoRun(_) | ControlError::Finished(_) => Ok(()),
        ControlError::Store(StoreError::Failure(failure)) if matches!(failure.kind(), FailureKind::Corrupt) => {
            tracing::error!(run = run_id, %failure, "{what}");
            Ok(())
        }
        ControlError::Store(error @ (StoreError::Failure(_) | StoreError::Closed)) => {
            tracing::warn!(run = run_id, %error, "{what} for now");
            Err(error)
        }
        error @ (ControlError::Stuck { .. } | ControlError::Store(_)) => {
            tracing::error!(run = run_id, %error, "{what}");
            Ok(())
        }
    }
}

/// Whether a run's journal has it that a commitment took the place of its own.
fn tells_of(run: &Run, by: &Superseding) -> bool {
    let by = json!(by);
    run.bodies().any(|body| match body {
        Body::Observed { facts, .. } => facts.shown().get(SUPERSEDED_BY) == Some(&by),
        _ => false,
    })
}
