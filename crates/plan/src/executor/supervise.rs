//! One task per run: drives it to its end, and back to where its journal stands whenever a write fails.

use std::sync::Arc;
use std::time::Duration;

use macp_plan_core::machine::Machine;
use tokio::sync::watch;

use super::control::Control;
use super::drive::{Drive, Ended};
use super::{Live, Shared};
use crate::store::{Journal, JournalError, StoreError};

/// Waits between attempts to go on after a failed write: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl Shared {
    /// Puts a task to work on a run that was just created.
    pub(super) fn begin(self: &Arc<Self>, machine: Machine, journal: Journal) {
        let control = self.enlist(journal.run_id(), &machine.plan().plan.agent_id);
        tokio::spawn(Arc::clone(self).supervise(journal.run_id().to_owned(), control, Some((machine, journal))));
    }

    /// Puts a task to work on a run that was not finished when its journal was last written; says whether it did, and
    /// was not at work on it already.
    pub(super) async fn resume(self: &Arc<Self>, run_id: &str) -> Result<bool, StoreError> {
        if self.live().contains_key(run_id) {
            return Ok(false);
        }
        let Some(summary) = self.runs.summary(run_id).await? else {
            return Ok(false);
        };
        let control = self.enlist(run_id, &summary.agent_id);
        tokio::spawn(Arc::clone(self).supervise(run_id.to_owned(), control, None));
        Ok(true)
    }

    fn enlist(&self, run_id: &str, agent_id: &str) -> watch::Receiver<Control> {
        let (control, told) = watch::channel(Control::default());
        self.live().insert(run_id.to_owned(), Live { agent_id: agent_id.to_owned(), control });
        told
    }

    async fn supervise(
        self: Arc<Self>,
        run_id: String,
        control: watch::Receiver<Control>,
        begun: Option<(Machine, Journal)>,
    ) {
        let mut stopping = self.stopping.subscribe();
        let mut pause = PAUSE_MIN;
        let mut begun = begun;
        loop {
            let ended = match begun.take() {
                Some((machine, journal)) => Drive::begun(&self, machine, journal, control.clone()).run().await,
                None => self.go_on(&run_id, control.clone()).await,
            };
            match ended {
                Ok(Ended::Finished) => break,
                Ok(Ended::Stopping) => break,
                Err(JournalError::NotOwner { .. } | JournalError::Finished(_) | JournalError::Closed) => break,
                Err(JournalError::Store(error @ (StoreError::Corruption(_) | StoreError::Damaged { .. }))) => {
                    tracing::error!(run = run_id, %error, "the run cannot go on");
                    break;
                }
                // Nothing was dispatched since the last durable entry, so reading it back loses nothing.
                Err(error) => tracing::error!(run = run_id, %error, "the run waits for its journal"),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                _ = stopping.wait_for(|stopping| *stopping) => break,
            }
        }
        self.live().remove(&run_id);
    }

    async fn go_on(&self, run_id: &str, control: watch::Receiver<Control>) -> Result<Ended, JournalError> {
        let Some(recovered) = self.recovered(run_id).await? else {
            return Ok(Ended::Finished);
        };
        if recovered.run.is_finished() {
            return Ok(Ended::Finished);
        }
        if let Some(cancel) = self.kept_cancel(run_id).await?
            && let Some(live) = self.live().get(run_id)
        {
            live.control.send_modify(|control| control.cancel = Some(cancel));
        }
        let journal = self.runs.resume(&recovered.run)?;
        Drive::recovered(self, recovered, journal, control).run().await
    }
}
