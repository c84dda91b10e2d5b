//! One task per run: drives it to its end, or until the executor stops.

use std::sync::Arc;

use macp_plan_core::machine::Machine;
use tracing::Instrument;

use super::caught::{PANICKED, Panicked, caught};
use super::desk::Place;
use super::drive::{Broken, Drive, run_span};
use super::{Shared, Stopping};
use crate::patience::Patience;
use crate::store::{Journal, JournalError, StoreError};

impl Shared {
    /// Puts a task to work on a run that was just created.
    pub(super) fn begin(self: &Arc<Self>, place: Place, machine: Machine, journal: Journal) {
        place.created();
        let span = run_span(machine.start());
        let shared = Arc::clone(self);
        let work = async move { shared.supervise(&place, Some((machine, journal))).await };
        tokio::spawn(work.instrument(span));
    }

    /// Puts a task to work on a run that was not finished when its journal was last written; says whether it did, and
    /// was not at work on it already.
    pub(super) async fn resume(self: &Arc<Self>, run_id: &str) -> Result<bool, StoreError> {
        let Some(summary) = self.runs.summary(run_id).await? else {
            return Ok(false);
        };
        let Some(place) = self.desk.enter_again(run_id, &summary.agent_id) else {
            return Ok(false);
        };
        self.go_on_with(place);
        Ok(true)
    }

    /// Puts a task to work on a run from where its journal ends, if there is one.
    pub(super) fn go_on_with(self: &Arc<Self>, place: Place) {
        let shared = Arc::clone(self);
        tokio::spawn(async move { shared.supervise(&place, None).await });
    }

    async fn supervise(&self, place: &Place, begun: Option<(Machine, Journal)>) {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            () = self.see_through(place, begun) => {}
            // A call that is out is dropped with this, and what became of it is found out by the next process.
            _ = stopping.wait_for(|stopping| *stopping == Stopping::AtOnce) => {}
        }
    }

    async fn see_through(&self, place: &Place, begun: Option<(Machine, Journal)>) {
        let mut stopping = self.stopping.subscribe();
        let (mut begun, mut patience) = (begun, Patience::default());
        loop {
            let begun = begun.take();
            let driven = caught(async {
                match begun {
                    Some((machine, journal)) => Drive::begun(self, machine, journal, place.control()).run().await,
                    None => self.go_on(place).await,
                }
            });
            let driven = match driven.await {
                Ok(driven) => driven,
                // Trying again could call out again and again, only to panic at the same place.
                Err(Panicked) => {
                    tracing::error!(run_id = place.run_id(), "the run cannot go on: {PANICKED}");
                    return place.stuck(PANICKED.to_owned());
                }
            };
            match driven {
                Ok(()) => return self.forget_pause(place).await,
                Err(Broken::Stopping) => return,
                Err(Broken::Journal(error)) if is_passing(&error) => {
                    tracing::error!(run_id = place.run_id(), %error, "the run waits for its store");
                }
                Err(Broken::Journal(error)) => {
                    tracing::error!(run_id = place.run_id(), %error, "the run cannot go on; `macp run show` tells more");
                    return place.stuck(error.to_string());
                }
            }
            let stopped = stopping.wait_for(|stopping| *stopping != Stopping::No);
            if tokio::time::timeout(patience.next(), stopped).await.is_ok() {
                return;
            }
        }
    }

    /// A run that has ended, such as by a cancel, waits no more.
    async fn forget_pause(&self, place: &Place) {
        if place.control().borrow().paused
            && let Err(error) = self.keep_pause(place.run_id(), false).await
        {
            tracing::warn!(run_id = place.run_id(), %error, "that the run was to wait is kept although it has ended");
        }
    }

    /// Goes on from where the journal ends.
    async fn go_on(&self, place: &Place) -> Result<(), Broken> {
        let recovered = match self.recovered(place.run_id()).await {
            Ok(Some(recovered)) if !recovered.run.is_finished() => recovered,
            Ok(_) => return Ok(()),
            // Whoever told it to stop may have been stopped before it was ended.
            Err(error @ (StoreError::Damaged { .. } | StoreError::Unfit { .. })) => {
                match self.kept_cancel(place.run_id()).await? {
                    Some(cancel) => return Ok(self.close(place, &cancel).await?),
                    None => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(cancel) = self.kept_cancel(place.run_id()).await? {
            self.desk.tell(place.run_id(), |control| control.cancel = Some(cancel));
        }
        self.tell_kept_pause(place.run_id()).await?;
        let journal = self.runs.resume(&recovered.run)?;
        let span = run_span(recovered.machine.start());
        Drive::recovered(self, recovered, journal, place.control()).run().instrument(span).await
    }
}

/// Whether it makes sense to try again: the store may come back. Nothing else changes by itself, and trying again
/// after what is our own mistake could call out again and again.
fn is_passing(error: &JournalError) -> bool {
    matches!(error, JournalError::Failed { .. } | JournalError::Lost(_) | JournalError::Store(StoreError::Failure(_)))
}
