//! Writing the journal: what was noted becomes durable, and claims hear what became of them.

use macp_plan_core::journal::{Body, Reused, StepFinished};
use macp_plan_core::plan::StepStatus;
use tokio::time::Instant;

use super::{Broken, Drive, Driven};
use crate::executor::Stopping;
use crate::patience::Patience;
use crate::store::{Done, JournalError, Kept, Prepared, Run, StoreError};

impl Drive<'_> {
    /// Makes everything noted so far durable. Claims follow, since the journal is what is believed.
    pub(super) async fn flush(&mut self) -> Driven<()> {
        if !self.pending.is_empty() {
            let began = Instant::now();
            let batch = std::mem::take(&mut self.pending);
            self.write(batch).await?;
            self.shared.observer.appended(began.elapsed());
        }
        for (claim, done) in std::mem::take(&mut self.settled) {
            let (claims, effect_key) = (self.shared.runs.claims(), claim.effect_key.clone());
            let said = match done {
                Some(done) => claims.finish(claim, done).await,
                None => claims.fail(claim).await,
            };
            // Whoever claims the effect next reads the journal instead, so that nothing is lost or done twice.
            if let Err(error) = said {
                tracing::warn!(%error, effect_key, "a claim could not be told what became of it");
            }
        }
        Ok(())
    }

    /// Appends entries. A write that failed is tried again for as long as the executor works: the machine is ahead of
    /// the journal, and what it was told may be an answer that nobody else has.
    async fn write(&mut self, batch: Vec<Body>) -> Driven<()> {
        let from = self.journal.next_seq();
        let mut patience = Patience::default();
        loop {
            match self.journal.append(batch.clone()).await {
                Ok(_) => {
                    self.held_up(None);
                    return Ok(());
                }
                Err(JournalError::Failed { failure, .. }) => {
                    tracing::error!(error = %failure, "the run waits for its journal");
                    self.held_up(Some(failure.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
            // Only the store knows whether a failed write is there.
            let run = self.reload(&mut patience).await?;
            if !run.is_finished() {
                self.journal = self.shared.runs.resume(&run)?;
                self.room.0.into_iter().for_each(|taken| self.journal.set_output_bytes(taken));
            }
            let written = &run.entries[usize::try_from(from).unwrap_or(usize::MAX).min(run.entries.len())..];
            if written.is_empty() && self.journal.next_seq() == from {
                continue;
            }
            let ours = written.len() == batch.len()
                && written.iter().zip(&batch).all(|(entry, body)| is_same_place(entry.body(), body));
            if ours {
                self.held_up(None);
                return Ok(());
            }
            let run_id = run.run_id.to_string();
            let found = u64::try_from(run.entries.len()).unwrap_or(u64::MAX);
            return Err(JournalError::NotOwner { run_id, expected: from, found }.into());
        }
    }

    /// Lets those who ask know why the run does not get on.
    pub(super) fn held_up(&self, why: Option<String>) {
        self.shared.desk.hold_up(self.journal.run_id(), why);
    }

    async fn reload(&mut self, patience: &mut Patience) -> Driven<Run> {
        loop {
            let stopped = self.stopping.wait_for(|stopping| *stopping != Stopping::No);
            if tokio::time::timeout(patience.next(), stopped).await.is_ok() {
                return Err(Broken::Stopping);
            }
            match self.shared.runs.load(self.journal.run_id()).await {
                Ok(Some(run)) => return Ok(run),
                Ok(None) => return Err(StoreError::NoRun(self.journal.run_id().to_owned()).into()),
                Err(error @ StoreError::Failure(_)) => tracing::error!(%error, "the run waits for its store"),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What becomes of the claim of a step that ended. A step that leaves doubt does not give it back: its effect stays
    /// claimed until an operator has said what became of it.
    pub(super) fn settle(&mut self, finished: &StepFinished) {
        let output = std::mem::take(&mut self.output);
        if let Some(claim) = self.claim.take().filter(|_| !finished.leaves_doubt()) {
            let is_done = matches!(finished.status, StepStatus::Success | StepStatus::Partial);
            let ended = Reused { status: finished.status, code: finished.code.clone() };
            self.settled.push((claim, is_done.then_some(Done { ended: Some(ended), output })));
        }
    }

    /// Keeps what a call gave, however long that takes: it cannot be had again.
    pub(super) async fn keep(&mut self, prepared: Prepared) -> Driven<Result<Kept, StoreError>> {
        let mut patience = Patience::default();
        loop {
            let error = match self.shared.runs.bodies().put(&prepared).await {
                Err(error @ StoreError::Failure(_)) => error,
                put => {
                    self.held_up(None);
                    return Ok(put.map(|()| prepared.kept));
                }
            };
            tracing::error!(%error, "an answer waits for the store");
            self.held_up(Some(error.to_string()));
            let stopped = self.stopping.wait_for(|stopping| *stopping != Stopping::No);
            if tokio::time::timeout(patience.next(), stopped).await.is_ok() {
                return Err(Broken::Stopping);
            }
        }
    }
}

/// Whether two entries say something of the same place. Texts are not compared: reading them back settles numbers.
fn is_same_place(one: &Body, other: &Body) -> bool {
    (one.kind(), one.step_id(), one.attempt()) == (other.kind(), other.step_id(), other.attempt())
}
