//! How the documents beside the journals are named, written and read.

use macp_ledger::{PutMode, PutOutcome, Store};
use macp_plan_core::digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::StoreError;

pub(super) const PLANS: &str = "aos.plan";
pub(super) const BODIES: &str = "aos.body";
pub(super) const CLAIMS: &str = "aos.claim";
pub(super) const ADMISSIONS: &str = "aos.admission";
pub(super) const REJECTIONS: &str = "aos.rejection";
pub(super) const REQUESTS: &str = "aos.request";
pub(super) const SETTLEMENTS: &str = "aos.settlement";

/// Label of the digests that serve as keys.
pub(super) const KEY_LABEL: &str = "aos-key/1";

/// A key for a list of texts: ids come from outside and may be long or hold any character, digests are neither.
pub(crate) fn key(parts: &[&str]) -> String {
    digest::hex_of(KEY_LABEL, Value::from(parts).to_string().as_bytes())
}

/// Writes a document unless there is one; gives back the one that was there.
pub(crate) fn put_if_absent<T: Serialize + DeserializeOwned>(
    store: &dyn Store,
    kind: &'static str,
    key: &str,
    document: &T,
) -> Result<Option<T>, StoreError> {
    match store.put_document(kind, key, &encode(kind, document)?, PutMode::IfAbsent)? {
        PutOutcome::Stored => Ok(None),
        PutOutcome::Kept(bytes) => decode(kind, key, &bytes).map(Some),
    }
}

pub(crate) fn replace(
    store: &dyn Store,
    kind: &'static str,
    key: &str,
    document: &impl Serialize,
) -> Result<(), StoreError> {
    store.put_document(kind, key, &encode(kind, document)?, PutMode::Replace)?;
    Ok(())
}

pub(crate) fn get<T: DeserializeOwned>(
    store: &dyn Store,
    kind: &'static str,
    key: &str,
) -> Result<Option<T>, StoreError> {
    store.document(kind, key)?.map(|bytes| decode(kind, key, &bytes)).transpose()
}

pub(crate) fn decode<T: DeserializeOwned>(kind: &'static str, key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(kind, key, error.to_string()))
}

pub(super) fn damaged(kind: &'static str, key: &str, reason: String) -> StoreError {
    StoreError::Damaged { what: kind, key: key.to_owned(), reason }
}

fn encode(kind: &'static str, document: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(document).map_err(|error| StoreError::NotCanonical { what: kind, reason: error.to_string() })
}
