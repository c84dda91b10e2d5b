//! Commitments that take the place of others (AOS-109): what they supersede must not start, and is stopped or left to
//! finish where it runs.
//!
//! A commitment can name any other, also one its authors have nothing to do with. It counts only if whoever sent it
//! started the superseded session or sent its Commitment: nobody stops the runs of others by naming them.

use macp_plan_core::journal::SessionLink;

use super::binding::{self, Resolved};
use super::notes::Superseding;
use super::settings::SupersededPolicy;
use super::{SessionRuns, blocking};
use crate::executor::ControlError;
use crate::store::{Commitment, Query, Status, StoreError};

/// Open runs looked at together.
const PAGE: usize = 256;

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
        // The note comes first: whoever starts a run of the superseded commitment looks for it after the admission.
        self.shared.notes.supersede(&superseded.session_id, &superseded.commitment_hash, by.clone()).await?;
        let (session_id, commitment_hash) = (superseded.session_id, superseded.commitment_hash);
        for epoch in 1.. {
            let commitment =
                Commitment { session_id: session_id.clone(), commitment_hash: commitment_hash.clone(), epoch };
            let Some(run_id) = self.runs().admissions().run_of(commitment).await? else {
                break;
            };
            self.stop_superseded(&run_id, &by).await;
        }
        self.stop_others(&session_id, &commitment_hash, &by).await
    }

    /// Stops the runs of a superseded commitment that were not admitted for it, such as those that try again what an
    /// admitted one left undone. Being told twice to stop is harmless.
    async fn stop_others(&self, session_id: &str, commitment_hash: &str, by: &Superseding) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let (session_id, status) = (Some(session_id.to_owned()), Some(Status::Running));
            let query = Query { session_id, status, ..Query::default() };
            let page = self.runs().list(query, after, PAGE).await?;
            for run in page.runs.iter().filter(|run| run.commitment_hash.as_deref() == Some(commitment_hash)) {
                self.stop_superseded(&run.run_id, by).await;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Has a run stopped whose commitment was superseded while it was being started.
    pub(super) async fn stop_if_superseded(&self, run_id: &str, link: &SessionLink) {
        match self.shared.notes.superseded(&link.session_id, &link.commitment_hash).await {
            Ok(None) => {}
            Ok(Some(by)) => self.stop_superseded(run_id, &by).await,
            Err(error) => tracing::error!(run = run_id, %error, "whether the run is superseded is not known"),
        }
    }

    /// Cancels a run whose commitment is superseded, unless such runs are to finish.
    pub(super) async fn stop_superseded(&self, run_id: &str, by: &Superseding) {
        if self.shared.settings.superseded == SupersededPolicy::Finish {
            tracing::info!(run = run_id, superseded_by = by.session_id, "the run is superseded and left to finish");
            return;
        }
        let reason = format!("superseded by {} of session {}", by.commitment_hash, by.session_id);
        self.stop(run_id, &by.committer, &reason).await;
    }

    /// Cancels a run; one that has ended, or never began, needs no cancelling.
    pub(super) async fn stop(&self, run_id: &str, by: &str, reason: &str) {
        match self.shared.executor.cancel(run_id, by, reason).await {
            Ok(()) => tracing::info!(run = run_id, by, reason, "the run is told to stop"),
            Err(ControlError::NoRun(_) | ControlError::Finished(_)) => {}
            Err(error @ (ControlError::Stuck { .. } | ControlError::Store(_))) => {
                tracing::error!(run = run_id, %error, "the run cannot be told to stop")
            }
        }
    }

    /// Lets a run wait or go on; one that has ended does neither.
    pub(super) async fn pause(&self, run_id: &str, paused: bool) {
        match self.shared.executor.pause(run_id, paused).await {
            Ok(()) => tracing::debug!(run = run_id, paused, "the run does as its execution session"),
            Err(ControlError::NoRun(_) | ControlError::Finished(_)) => {}
            Err(error @ (ControlError::Stuck { .. } | ControlError::Store(_))) => {
                tracing::error!(run = run_id, %error, "the run cannot be paused")
            }
        }
    }
}
