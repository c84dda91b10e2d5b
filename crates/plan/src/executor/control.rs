//! What a run can be told while it is at work: to stop, or to wait. Heeded between calls, never during one.

use std::sync::Arc;

use macp_ledger::{PutMode, PutOutcome};
use serde::{Deserialize, Serialize};

use super::{ControlError, Executor, Shared, detached};
use crate::store::StoreError;

/// Kind of the documents that keep a request to cancel until the journal has it.
const CANCELS: &str = "aos.cancel";

/// What a run is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    pub(super) cancel: Option<Cancel>,
    pub(super) paused: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cancel {
    pub(super) by: String,
    pub(super) reason: String,
}

impl Executor {
    /// Asks a run to stop at the next boundary. Once this returns, a restart does not forget it. A run that
    /// nobody can go on with, such as one whose skill is gone, stops only once that changes: that is an error.
    pub async fn cancel(&self, run_id: &str, by: &str, reason: &str) -> Result<(), ControlError> {
        self.shared.check_open(run_id).await?;
        let cancel = Cancel { by: by.to_owned(), reason: reason.to_owned() };
        let (shared, run_id) = (Arc::clone(&self.shared), run_id.to_owned());
        // What is kept must also be told, whether or not anyone waits for it.
        detached(async move {
            let cancel = shared.keep_cancel(&run_id, cancel).await?;
            if shared.desk.tell(&run_id, |control| control.cancel = Some(cancel)) {
                return Ok(());
            }
            // Whoever goes on with it finds what is kept. If nobody can, whoever asked must know.
            match shared.recovered(&run_id).await {
                Ok(_) => Ok(()),
                Err(StoreError::Damaged { reason, .. }) => Err(ControlError::Stuck { run_id, reason }),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Lets a run wait at the next boundary, or go on. Not remembered over a restart: whoever paused it says so again.
    pub async fn pause(&self, run_id: &str, paused: bool) -> Result<(), ControlError> {
        self.shared.check_open(run_id).await?;
        self.shared.desk.tell(run_id, |control| control.paused = paused);
        Ok(())
    }
}

impl Shared {
    async fn check_open(&self, run_id: &str) -> Result<(), ControlError> {
        match self.runs.summary(run_id).await? {
            None => Err(ControlError::NoRun(run_id.to_owned())),
            Some(summary) if summary.finished_at_ms.is_some() => Err(ControlError::Finished(run_id.to_owned())),
            Some(_) => Ok(()),
        }
    }

    /// The first request stands.
    async fn keep_cancel(&self, run_id: &str, cancel: Cancel) -> Result<Cancel, StoreError> {
        let key = run_id.to_owned();
        let bytes = serde_json::to_vec(&cancel).map_err(|error| damaged(run_id, &error))?;
        let outcome = self
            .runs
            .blocking::<_, StoreError>(move |store| Ok(store.put_document(CANCELS, &key, &bytes, PutMode::IfAbsent)?))
            .await?;
        match outcome {
            PutOutcome::Stored => Ok(cancel),
            PutOutcome::Kept(kept) => serde_json::from_slice(&kept).map_err(|error| damaged(run_id, &error)),
        }
    }

    /// The request to cancel that was made of a run, if one was.
    pub(super) async fn kept_cancel(&self, run_id: &str) -> Result<Option<Cancel>, StoreError> {
        let key = run_id.to_owned();
        let kept = self.runs.blocking::<_, StoreError>(move |store| Ok(store.document(CANCELS, &key)?)).await?;
        kept.map(|kept| serde_json::from_slice(&kept).map_err(|error| damaged(run_id, &error))).transpose()
    }
}

fn damaged(run_id: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Damaged { what: "request to cancel", key: run_id.to_owned(), reason: error.to_string() }
}
