//! Frozen plans by their digest. A plan is checked against it whenever it is read.

use std::sync::Arc;

use macp_ledger::{PutMode, Store};
use macp_plan_core::digest::Digest;
use macp_plan_core::plan::plan_hash;
use macp_wire::canonical;
use serde_json::Value;

use super::blocking;
use super::documents::{PLANS, damaged, decode};
use super::error::StoreError;
use super::summary::PlanFacts;

/// The plans of a store.
#[derive(Clone, Debug)]
pub struct Plans {
    pub(super) store: Arc<dyn Store>,
}

impl Plans {
    /// Keeps a frozen plan; durable when it returns. A plan that is there already stays as it is.
    pub async fn keep(&self, plan: Value) -> Result<Digest, StoreError> {
        blocking(&self.store, move |store| {
            let text = text_of(&plan)?;
            let hash = hash_of(&plan)?;
            store.put_document(PLANS, hash.as_str(), text.as_bytes(), PutMode::IfAbsent)?;
            Ok(hash)
        })
        .await
    }

    pub async fn get(&self, hash: Digest) -> Result<Option<Value>, StoreError> {
        blocking(&self.store, move |store| Ok(text(store, &hash)?.map(|(_, plan)| plan))).await
    }
}

/// The text of a kept plan and the plan, checked.
pub(crate) fn text(store: &dyn Store, hash: &Digest) -> Result<Option<(String, Value)>, StoreError> {
    let Some(bytes) = store.document(PLANS, hash.as_str())? else {
        return Ok(None);
    };
    let bad = |reason: String| damaged(PLANS, hash.as_str(), reason);
    let text = String::from_utf8(bytes.to_vec()).map_err(|error| bad(error.to_string()))?;
    let plan = canonical::parse(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
    let found = hash_of(&plan)?;
    if found != *hash {
        return Err(bad(format!("its digest is {found}")));
    }
    Ok(Some((text, plan)))
}

/// What a summary tells of a plan; `None` if the plan is not kept.
pub(super) fn facts(store: &dyn Store, hash: &Digest) -> Result<Option<PlanFacts>, StoreError> {
    store.document(PLANS, hash.as_str())?.map(|bytes| decode(PLANS, hash.as_str(), &bytes)).transpose()
}

pub(crate) fn put(store: &dyn Store, hash: &Digest, text: &str) -> Result<(), StoreError> {
    store.put_document(PLANS, hash.as_str(), text.as_bytes(), PutMode::IfAbsent)?;
    Ok(())
}

pub(crate) fn hash_of(plan: &Value) -> Result<Digest, StoreError> {
    plan_hash(plan).map_err(|error| not_canonical(&error))
}

pub(crate) fn text_of(plan: &Value) -> Result<String, StoreError> {
    canonical::to_string(plan).map_err(|error| not_canonical(&error))
}

fn not_canonical(error: &canonical::Error) -> StoreError {
    StoreError::NotCanonical { what: "the plan", reason: error.to_string() }
}
