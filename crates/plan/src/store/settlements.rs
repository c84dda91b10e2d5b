//! What an operator says became of an effect in doubt (AOS-80). The journal of the run stays as it is.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::digest;
use macp_plan_core::limits::STEPS_MAX;
use serde::{Deserialize, Serialize};

use super::documents::{KEY_LABEL, SETTLEMENTS, decode, get, put_if_absent};
use super::error::StoreError;
use super::{blocking, read};

/// What was found out about an effect in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    pub run_id: String,
    pub step_id: String,
    pub outcome: Outcome,
    pub note: String,
    pub by: String,
    pub at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The effect took place.
    Success,
    /// It did not.
    Failure,
}

/// The settlements of a store.
#[derive(Clone, Debug)]
pub struct Settlements {
    pub(super) store: Arc<dyn Store>,
}

impl Settlements {
    /// Notes a settlement, durable when it returns. The first one for a step stands: if there is one, it is given back.
    pub async fn settle(&self, settlement: Settlement) -> Result<Option<Settlement>, StoreError> {
        blocking(&self.store, move |store| {
            let Settlement { run_id, step_id, .. } = &settlement;
            let run = read::load(store, run_id)?.ok_or_else(|| StoreError::NoRun(run_id.clone()))?;
            if !run.in_doubt().any(|in_doubt| in_doubt == step_id) {
                return Err(StoreError::NotInDoubt { run_id: run_id.clone(), step_id: step_id.clone() });
            }
            put_if_absent(store, SETTLEMENTS, &key(run_id, step_id), &settlement)
        })
        .await
    }

    pub async fn get(&self, run_id: &str, step_id: &str) -> Result<Option<Settlement>, StoreError> {
        let key = key(run_id, step_id);
        blocking(&self.store, move |store| get(store, SETTLEMENTS, &key)).await
    }

    /// All settlements of a run, by step id.
    pub async fn of_run(&self, run_id: &str) -> Result<Vec<Settlement>, StoreError> {
        let run_id = run_id.to_owned();
        blocking(&self.store, move |store| of(store, &run_id)).await
    }
}

/// The same, where blocking is allowed.
pub(crate) fn of(store: &dyn Store, run_id: &str) -> Result<Vec<Settlement>, StoreError> {
    let prefix = key(run_id, "");
    let documents = store.documents(SETTLEMENTS, Some(&prefix), STEPS_MAX)?;
    let own = documents.iter().take_while(|document| document.key.starts_with(&prefix));
    own.map(|document| decode(SETTLEMENTS, &document.key, &document.bytes)).collect()
}

pub(super) fn find(store: &dyn Store, run_id: &str, step_id: &str) -> Result<Option<Settlement>, StoreError> {
    get(store, SETTLEMENTS, &key(run_id, step_id))
}

/// Keys of one run stand together. Step ids are short and plain.
fn key(run_id: &str, step_id: &str) -> String {
    format!("{}/{step_id}", digest::hex_of(KEY_LABEL, run_id.as_bytes()))
}
