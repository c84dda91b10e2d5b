//! Small documents beside the histories: whatever must outlive the process and belongs to no session.
//!
//! A document is bytes under a kind and a key, and every store keeps them the way it keeps histories: durable when the
//! call returns. What a kind means, and what the bytes say, is the caller's business.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::failure::{Failure, FailureKind};

/// Longest kind, in bytes: kinds are names chosen by this project.
pub const KIND_BYTES_MAX: usize = 64;
/// Longest key, in bytes: keys are identifiers, and those of the protocol are shorter.
pub const KEY_BYTES_MAX: usize = 512;

/// A stored document. The kind is the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub key: Arc<str>,
    pub bytes: Bytes,
}

/// What to do about a document that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// The new bytes take the place of the old ones.
    Replace,
    /// The first writer wins: bytes that are there stay.
    IfAbsent,
}

/// What became of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The given bytes are stored.
    Stored,
    /// Only with [`PutMode::IfAbsent`]: these bytes were there before and still are.
    Kept(Bytes),
}

/// Whether a document can have this kind and key. Stores call this before they put anything.
pub fn validate(kind: &str, key: &str) -> Result<(), Failure> {
    for (name, text, bytes_max) in [("kind", kind, KIND_BYTES_MAX), ("key", key, KEY_BYTES_MAX)] {
        if text.len() > bytes_max {
            let context = format!("put a document with a {name} of {} bytes, more than {bytes_max}", text.len());
            return Err(Failure::new(FailureKind::Invalid, context));
        }
    }
    Ok(())
}

/// Documents in memory, in the order of their bytes; the part that stores without a disk share.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    kinds: BTreeMap<String, BTreeMap<Arc<str>, Bytes>>,
}

impl Documents {
    pub fn put(&mut self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        validate(kind, key)?;
        let keys = self.kinds.entry(kind.to_owned()).or_default();
        if mode == PutMode::IfAbsent
            && let Some(kept) = keys.get(key)
        {
            return Ok(PutOutcome::Kept(kept.clone()));
        }
        keys.insert(Arc::from(key), Bytes::copy_from_slice(bytes));
        Ok(PutOutcome::Stored)
    }

    /// Whether there was such a document.
    pub fn delete(&mut self, kind: &str, key: &str) -> bool {
        self.kinds.get_mut(kind).is_some_and(|keys| keys.remove(key).is_some())
    }

    /// Whether there was such a document to move.
    pub fn rename(&mut self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        validate(kind, new_key)?;
        let was_there = self.delete(kind, key);
        if was_there {
            self.put(kind, new_key, bytes, PutMode::Replace)?;
        }
        Ok(was_there)
    }

    #[must_use]
    pub fn get(&self, kind: &str, key: &str) -> Option<Bytes> {
        self.kinds.get(kind)?.get(key).cloned()
    }

    #[must_use]
    pub fn list(&self, kind: &str, after: Option<&str>, limit: usize) -> Vec<Document> {
        let Some(keys) = self.kinds.get(kind) else {
            return Vec::new();
        };
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let documents = keys.range::<str, _>((after, Bound::Unbounded));
        documents.take(limit).map(|(key, bytes)| Document { key: Arc::clone(key), bytes: bytes.clone() }).collect()
    }
}
