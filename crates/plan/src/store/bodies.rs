//! Outputs of skills: small ones go into the journal, large ones are kept apart by digest.

use std::sync::Arc;

use macp_ledger::{PutMode, Store};
use macp_plan_core::digest::{self, BODY_LABEL, Digest};
use macp_plan_core::journal::Output;
use macp_plan_core::machine::Size;
use macp_wire::canonical::{self, Bounds};
use macp_wire::memory;
use serde_json::Value;

use super::blocking;
use super::documents::{BODIES, damaged};
use super::error::StoreError;
use crate::skills::document;

/// Longest canonical text of an output that stands in the journal itself.
pub const INLINE_BYTES_MAX: usize = 16 * 1_024;
/// Longest that is kept at all; skills bound their answers well below.
pub const BODY_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// The outputs of a store that are kept apart.
#[derive(Clone, Debug)]
pub struct Bodies {
    pub(super) store: Arc<dyn Store>,
}

/// An output as the journal records it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// For the entry: inline, or by digest alone.
    pub output: Output,
    pub size: Size,
}

/// An output that is ready to be stored. A large one consists of its text alone.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) kept: Kept,
    text: Option<Arc<String>>,
}

impl Bodies {
    /// Keeps the output of a skill; durable when it returns, if it is kept apart.
    ///
    /// An output without a canonical form (an integer or a number beyond ±(2^53 - 1) that is written as one) is
    /// refused: it would mean different things to different readers.
    pub async fn keep(&self, value: Value) -> Result<Kept, StoreError> {
        let prepared = self.prepare(value).await?;
        self.put(&prepared).await?;
        Ok(prepared.kept)
    }

    /// Makes an output ready to be stored. A large value is dropped once its text is written.
    pub(crate) async fn prepare(&self, value: Value) -> Result<Prepared, StoreError> {
        // The common case needs no thread to block.
        if is_small(&value) {
            return prepare(value);
        }
        blocking(&self.store, move |_| prepare(value)).await
    }

    /// Stores a prepared output, unless it is part of its journal entry. Durable when it returns; may be retried.
    pub(crate) async fn put(&self, prepared: &Prepared) -> Result<(), StoreError> {
        let (Some(digest), Some(text)) = (prepared.kept.output.output_ref.clone(), prepared.text.clone()) else {
            return Ok(());
        };
        blocking(&self.store, move |store| put(store, &digest, &text)).await
    }

    /// A body that was kept apart, `None` if there is no such body.
    pub async fn get(&self, digest: Digest) -> Result<Option<Value>, StoreError> {
        blocking(&self.store, move |store| get(store, &digest)).await
    }

    /// Returns the size of a stored output, or None if it does not exist.
    pub(crate) async fn measured(&self, digest: Digest) -> Result<Option<Size>, StoreError> {
        blocking(&self.store, move |store| measured(store, &digest)).await
    }

    /// The value of an output, wherever it is kept; `None` if there is none.
    pub async fn of_output(&self, output: &Output) -> Result<Option<Value>, StoreError> {
        match (&output.output, &output.output_ref) {
            (Some(value), _) => Ok(Some(value.clone())),
            (None, None) => Ok(None),
            (None, Some(digest)) => {
                let missing = || damaged(BODIES, digest.as_str(), "it is not there".to_owned());
                self.get(digest.clone()).await?.ok_or_else(missing).map(Some)
            }
        }
    }
}

/// An output the way it will be kept. It is the one that will be read back, so that a live run sees what a replay sees: a
/// number written as `1.0` is `1` in both.
fn prepare(value: Value) -> Result<Prepared, StoreError> {
    let not_canonical = |reason: String| StoreError::NotCanonical { what: "the output", reason };
    let value = document::settle(value).map_err(|unfit| not_canonical(unfit.to_string()))?;
    let bytes = canonical::length(&value).map_err(|error| not_canonical(error.to_string()))?;
    if bytes > BODY_BYTES_MAX {
        return Err(StoreError::TooLarge { what: "the output", bytes, bytes_max: BODY_BYTES_MAX });
    }
    let mut text = Vec::with_capacity(bytes);
    canonical::write(&value, &mut text).map_err(|error| not_canonical(error.to_string()))?;
    let size = Size { memory: memory::of(&value), text: bytes };
    let output_ref = Some(digest::of_bytes(BODY_LABEL, &text));
    // In an entry a null reads like no output, so it is kept apart however short it is.
    if bytes <= INLINE_BYTES_MAX && !value.is_null() {
        return Ok(Prepared { kept: Kept { output: Output { output_ref, output: Some(value) }, size }, text: None });
    }
    drop(value);
    let text = String::from_utf8(text).map_err(|error| not_canonical(error.to_string()))?;
    let kept = Kept { output: Output { output_ref, output: None }, size };
    Ok(Prepared { kept, text: Some(Arc::new(text)) })
}

/// Whether a value is certainly cheap to write out; looks at no more of it than that takes.
fn is_small(value: &Value) -> bool {
    let mut room = INLINE_BYTES_MAX;
    let mut values = vec![value];
    let mut spend = |bytes: usize| {
        room = room.saturating_sub(bytes.saturating_add(1));
        room > 0
    };
    while let Some(value) = values.pop() {
        let fits = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => spend(1),
            Value::String(text) => spend(text.len()),
            Value::Array(elements) => {
                values.extend(elements);
                spend(elements.len())
            }
            Value::Object(members) => {
                values.extend(members.values());
                members.keys().all(|key| spend(key.len()))
            }
        };
        if !fits {
            return false;
        }
    }
    true
}

/// Returns the size of a stored output without building its value, or None if it does not exist.
pub(crate) fn measured(store: &dyn Store, digest: &Digest) -> Result<Option<Size>, StoreError> {
    let Some(text) = text(store, digest)? else {
        return Ok(None);
    };
    let bad = |error: serde_json::Error| damaged(BODIES, digest.as_str(), error.to_string());
    let measured = canonical::measure(text.as_bytes(), usize::MAX).map_err(bad)?;
    Ok(Some(Size { memory: measured.memory, text: text.len() }))
}

/// The value of an output that is kept apart, as far as its digest alone tells it: null, which is short.
pub(crate) fn without_text(digest: &Digest) -> Option<Value> {
    (*digest == digest::of_bytes(BODY_LABEL, b"null")).then_some(Value::Null)
}

/// A body that was kept apart, read where blocking is allowed.
pub(crate) fn get(store: &dyn Store, digest: &Digest) -> Result<Option<Value>, StoreError> {
    let Some(text) = text(store, digest)? else {
        return Ok(None);
    };
    let bad = |error: serde_json::Error| damaged(BODIES, digest.as_str(), error.to_string());
    let measured = canonical::measure(text.as_bytes(), usize::MAX).map_err(bad)?;
    let bounds = Bounds { depth_max: usize::MAX, memory_max: usize::MAX };
    canonical::parse_measured(text.as_bytes(), bounds, &measured).map(Some).map_err(bad)
}

pub(crate) fn put(store: &dyn Store, digest: &Digest, text: &str) -> Result<(), StoreError> {
    store.put_document(BODIES, digest.as_str(), text.as_bytes(), PutMode::IfAbsent)?;
    Ok(())
}

/// How long a body is, 0 if it is not there. Whether it can be read is for whoever needs it to find out.
pub(crate) fn size(store: &dyn Store, digest: &Digest) -> Result<u64, StoreError> {
    Ok(store.document(BODIES, digest.as_str())?.map_or(0, |bytes| bytes.len() as u64))
}

/// The canonical text of a body, checked.
pub(crate) fn text(store: &dyn Store, digest: &Digest) -> Result<Option<String>, StoreError> {
    let Some(bytes) = store.document(BODIES, digest.as_str())? else {
        return Ok(None);
    };
    let found = digest::of_bytes(BODY_LABEL, &bytes);
    if found != *digest {
        return Err(damaged(BODIES, digest.as_str(), format!("its digest is {found}")));
    }
    // Without a copy where the bytes are not shared.
    let text = String::from_utf8(bytes.into());
    text.map(Some).map_err(|error| damaged(BODIES, digest.as_str(), error.to_string()))
}
