//! Ends runs that nobody can go on with here, once they are told to stop: a skill or a rate card is gone for good.

use std::sync::Arc;

use macp_plan_core::closing::{Closing, Unclosable, close};
use macp_plan_core::journal::{Body, RunStart};
use macp_plan_core::skill::guarded;
use macp_wire::informational::Informational;
use serde_json::{Map, Value};

use super::caught::PANICKED;
use super::control::Cancel;
use super::desk::Place;
use super::{ControlError, Shared, recovery};
use crate::store::{JournalError, StoreError};

impl Shared {
    /// Ends a run that is at work nowhere because it cannot go on here.
    pub(super) async fn end_stuck(&self, run_id: &str, agent_id: &str, cancel: Cancel) -> Result<(), ControlError> {
        let desk = Arc::clone(&self.desk);
        let Some(place) = desk.enter_again(run_id, agent_id) else {
            // Somebody is at work on it after all.
            self.desk.tell(run_id, |control| control.cancel = Some(cancel));
            return Ok(());
        };
        self.close(&place, &cancel).await.map_err(|error| match error {
            JournalError::Store(StoreError::Damaged { reason, .. } | StoreError::Unfit { reason, .. }) => {
                ControlError::Stuck { run_id: run_id.to_owned(), reason }
            }
            JournalError::Store(error) => error.into(),
            JournalError::Failed { failure, .. } => StoreError::from(failure).into(),
            JournalError::Closed => StoreError::Closed.into(),
            error => ControlError::Stuck { run_id: run_id.to_owned(), reason: error.to_string() },
        })
    }

    /// Writes the entries that end a run. Its claims hear nothing: whoever asks for one reads the journal.
    pub(super) async fn close(&self, place: &Place, cancel: &Cancel) -> Result<(), JournalError> {
        let (run_id, catalog, cancel) = (place.run_id().to_owned(), self.catalog(), cancel.clone());
        let closed = self.runs.blocking(move |store| {
            let Some((run, plan)) = recovery::load(store, &run_id)?.filter(|(run, _)| !run.is_finished()) else {
                return Ok(None);
            };
            let entries = run.entries.iter().map(|sealed| &sealed.entry);
            let closing = Closing { by: &cancel.by, reason: &cancel.reason };
            let close = || close(&plan, &catalog, run.start(), entries, &recovery::bodies(store), closing);
            let closed = guarded(close).ok_or_else(|| recovery::damaged(&run_id, PANICKED.to_owned()))?;
            let closed = closed.map_err(|error| match error {
                Unclosable::Misfit(misfit) => recovery::damaged(&run_id, misfit.to_string()),
                missing => StoreError::Unfit { run_id, reason: missing.to_string() },
            })?;
            Ok::<_, StoreError>(Some((run, closed)))
        });
        let Some((run, closed)) = closed.await? else {
            return Ok(());
        };
        let closed = self.explained(closed);
        self.runs.resume(&run)?.append(closed.clone()).await?;
        tracing::warn!(run_id = place.run_id(), "the run could not go on here, and is ended as it was told to");
        self.tell_closed(run.start(), &closed).await;
        Ok(())
    }

    /// Says beside every step that ends why it does.
    fn explained(&self, closed: Vec<Body>) -> Vec<Body> {
        let finished_unix_ms = self.runs.now_ms();
        let was_out = closed.iter().any(|body| matches!(body, Body::AttemptObserved { .. }));
        let explain = |body: Body| {
            let observed = match &body {
                Body::StepFinished(step) => {
                    let message = match was_out {
                        true => "nobody could go on with the run, and what came of the call that was out is not known",
                        false => "nobody could go on with the run, and it was cancelled",
                    };
                    let facts = [
                        ("finished_unix_ms".to_owned(), Value::from(finished_unix_ms)),
                        ("message".to_owned(), Value::from(message)),
                    ];
                    let facts = Informational::new(Map::from_iter(facts));
                    Some(Body::Observed { step_id: Some(step.step_id.clone()), facts })
                }
                _ => None,
            };
            [Some(body), observed].into_iter().flatten()
        };
        closed.into_iter().flat_map(explain).collect()
    }

    async fn tell_closed(&self, start: &RunStart, closed: &[Body]) {
        for body in closed {
            match body {
                Body::StepFinished(step) => self.observer.step_finished(start, step),
                Body::RunFinished(finished) => {
                    self.spent(&start.run_id, finished.total_cost_microcents).await;
                    self.observer.run_finished(start, finished);
                }
                _ => {}
            }
        }
    }
}
