//! What a run can be told while it is at work: to stop, or to wait. Heeded between calls, never during one.

use std::sync::Arc;

use macp_ledger::{PutMode, PutOutcome, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ControlError, Executor, Shared, detached};
use crate::store::documents::{get, put_if_absent};
use crate::store::{StoreError, Summary};

/// Kind of the documents that keep a request to cancel until the journal has it.
const CANCELS: &str = "aos.cancel";

/// Kind of the documents that keep which runs are to wait.
const PAUSES: &str = "aos.pause";

/// Kind of the documents that keep why runs were held that have been ended.
const HELD: &str = "aos.held";

#[derive(Debug, Serialize, Deserialize)]
struct Held {
    why: String,
}

/// What a run is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    pub(super) cancel: Option<Cancel>,
    pub(super) paused: bool,
    /// For the journal, and not yet in it.
    pub(super) facts: Vec<Map<String, Value>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cancel {
    pub(super) by: String,
    pub(super) reason: String,
}

impl Executor {
    /// Asks a run to stop at the next boundary. Once this returns, a restart does not forget it. A run that was given up
    /// is taken up again for it. One that nobody can go on with, such as one whose skill is gone, is ended here and now:
    /// in doubt, if a call with effects was out.
    pub async fn cancel(&self, run_id: &str, by: &str, reason: &str) -> Result<(), ControlError> {
        let summary = self.shared.check_open(run_id).await?;
        let cancel = Cancel { by: by.to_owned(), reason: reason.to_owned() };
        let (shared, run_id) = (Arc::clone(&self.shared), run_id.to_owned());
        // What is kept must also be told, whether or not anyone waits for it.
        detached(async move {
            let cancel = shared.keep_cancel(&run_id, cancel).await?;
            if shared.desk.tell(&run_id, |control| control.cancel = Some(cancel.clone())) {
                return Ok(());
            }
            if let Some(why) = shared.desk.why_held(&run_id) {
                return shared.end_held(&run_id, &summary.agent_id, why, cancel).await;
            }
            // Whoever goes on with it finds what is kept, unless nobody can. A new process goes on with all of them.
            match shared.recovered(&run_id).await {
                Ok(_) if shared.is_stopping() || !shared.desk.may_go_on(&run_id) => Ok(()),
                Ok(_) => {
                    shared.resume(&run_id).await?;
                    Ok(())
                }
                Err(StoreError::Damaged { .. } | StoreError::Unfit { .. }) => {
                    shared.end_stuck(&run_id, &summary.agent_id, cancel).await
                }
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Lets a run wait at the next boundary, or go on. Once this returns, a restart does not forget it. The last word
    /// stands, in the order in which this was called.
    pub async fn pause(&self, run_id: &str, paused: bool) -> Result<(), ControlError> {
        self.shared.check_open(run_id).await?;
        let (shared, run_id) = (Arc::clone(&self.shared), run_id.to_owned());
        // What is kept must also be told, whether or not anyone waits for it.
        detached(async move {
            let _turn = shared.desk.pausing.lock().await;
            let kept = shared.keep_pause(&run_id, paused).await;
            // It is heeded here and now even if it could not be kept.
            shared.desk.tell(&run_id, |control| control.paused = paused);
            Ok(kept?)
        })
        .await
    }

    /// Has facts about a run put into its journal, where nothing is decided by them. Said of a run that nobody is at work
    /// on, or shortly before a crash, they are lost: whoever knows them says them again.
    pub async fn observe(&self, run_id: &str, facts: Map<String, Value>) -> Result<(), ControlError> {
        self.shared.check_open(run_id).await?;
        self.shared.desk.tell(run_id, |control| {
            if !control.facts.contains(&facts) {
                control.facts.push(facts);
            }
        });
        Ok(())
    }
}

/// Why a run was held before it was ended, if it was.
pub(super) fn held(store: &dyn Store, run_id: &str) -> Result<Option<String>, StoreError> {
    Ok(get::<Held>(store, HELD, run_id)?.map(|held| held.why))
}

impl Shared {
    /// Ends a run that is held. Its journal does not have what it is held for, and a retry would go by the journal: so
    /// that is kept first.
    pub(super) async fn end_held(
        &self,
        run_id: &str,
        agent_id: &str,
        why: String,
        cancel: Cancel,
    ) -> Result<(), ControlError> {
        let key = run_id.to_owned();
        self.runs.blocking(move |store| put_if_absent(store, HELD, &key, &Held { why }).map(drop)).await?;
        self.end_stuck(run_id, agent_id, cancel).await
    }

    async fn check_open(&self, run_id: &str) -> Result<Summary, ControlError> {
        match self.runs.summary(run_id).await? {
            None => Err(ControlError::NoRun(run_id.to_owned())),
            Some(summary) if summary.finished_at_ms.is_some() => Err(ControlError::Finished(run_id.to_owned())),
            Some(summary) => Ok(summary),
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

    /// Tells a run that somebody goes on with whether it is to wait.
    pub(super) async fn tell_kept_pause(&self, run_id: &str) -> Result<(), StoreError> {
        let _turn = self.desk.pausing.lock().await;
        let key = run_id.to_owned();
        let kept = self.runs.blocking::<_, StoreError>(move |store| Ok(store.document(PAUSES, &key)?)).await?;
        if kept.is_some() {
            self.desk.tell(run_id, |control| control.paused = true);
        }
        Ok(())
    }

    /// That a document is there says it all, so it holds nothing.
    pub(super) async fn keep_pause(&self, run_id: &str, paused: bool) -> Result<(), StoreError> {
        let key = run_id.to_owned();
        let keep = move |store: &dyn Store| {
            if paused {
                store.put_document(PAUSES, &key, b"{}", PutMode::Replace)?;
            } else {
                store.delete_document(PAUSES, &key)?;
            }
            Ok(())
        };
        self.runs.blocking::<_, StoreError>(keep).await
    }
}

fn damaged(run_id: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Damaged { what: "request to cancel", key: run_id.to_owned(), reason: error.to_string() }
}
