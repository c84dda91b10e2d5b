//! Is this history whole, and are its signatures good? Names the first bad entry.
//!
//! What an entry says is not judged here: whether a decision, or the hash of a resolution in the entry that ends a session,
//! follows from what came before takes the rules of the mode, and those are replay's.

use macp_kernel::signature;
use macp_ledger::{Failure, Hash};
use macp_wire::history::v1::{Entry, entry};

use crate::{FileError, Keys, ReadError, Source, index};

/// What checking a history showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Entries found good.
    pub entries: u64,
    /// Chain hash of the last good entry.
    pub head: Option<Hash>,
    /// The session ended, and its last entry carries the hash of everything before it.
    pub sealed: bool,
    pub signatures_verified: u64,
    /// Signatures that were kept without a registered key.
    pub signatures_unchecked: u64,
    /// The first bad entry.
    pub bad: Option<Bad>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// 0 when the file as a whole is at fault.
    pub sequence: u64,
    pub message: String,
}

impl Verification {
    pub fn ok(&self) -> bool {
        self.bad.is_none()
    }
}

/// Why nothing could be said: the reading failed, not the history.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Store(#[from] Failure),
    #[error(transparent)]
    File(FileError),
}

/// Checks chain, seal and signatures, and in a store what its index says of the session. `progress` hears how many entries are done.
pub fn verify(source: &mut Source<'_>, keys: &Keys, progress: &mut dyn FnMut(u64)) -> Result<Verification, Unreadable> {
    let mut found = Verification::default();
    let mut told = index::Told::default();
    loop {
        let page = match source.next_page() {
            Ok(page) => page,
            Err(error) => {
                let Some(sequence) = error.bad_sequence() else {
                    return Err(unreadable(error));
                };
                found.bad = Some(Bad { sequence, message: error.to_string() });
                return Ok(found);
            }
        };
        if page.is_empty() {
            found.bad = source.head().and_then(|head| told.check(head).err());
            return Ok(found);
        }
        for (record, entry) in &page {
            match verify_signature(entry, keys) {
                Ok(Signed::No) => {}
                Ok(Signed::Verified) => found.signatures_verified += 1,
                Ok(Signed::Unchecked) => found.signatures_unchecked += 1,
                Err(message) => {
                    found.bad = Some(Bad { sequence: entry.sequence, message });
                    return Ok(found);
                }
            }
            told.feed(entry);
            found.entries = entry.sequence;
            found.head = Some(record.hash);
            found.sealed = entry.terminal.is_some();
        }
        progress(found.entries);
    }
}

enum Signed {
    No,
    Verified,
    Unchecked,
}

/// A signature is checked with the key registered now and with the key it was admitted with; they must be the same.
fn verify_signature(entry: &Entry, keys: &Keys) -> Result<Signed, String> {
    let (Some(recorded), Some(entry::Input::Envelope(envelope))) = (&entry.signature, &entry.input) else {
        return Ok(Signed::No);
    };
    let signature = recorded.signature.clone().unwrap_or_default();
    if let Some(key) = keys.get(&signature.key_id) {
        if !recorded.public_key.is_empty() && recorded.public_key != key.public_key.as_slice() {
            return Err(format!("it was signed with another key than the {:?} registered here", signature.key_id));
        }
        signature::verify(envelope, &signature, key).map_err(|error| error.to_string())?;
        return Ok(Signed::Verified);
    }
    if recorded.public_key.is_empty() {
        return Ok(Signed::Unchecked);
    }
    signature::verify_bytes(envelope, &signature.signature, &recorded.public_key).map_err(|error| error.to_string())?;
    Ok(Signed::Unchecked)
}

/// The failure behind an error that names no bad entry.
pub(crate) fn unreadable(error: ReadError) -> Unreadable {
    match error {
        ReadError::Failure(failure) => Unreadable::Store(failure),
        ReadError::File(error) => Unreadable::File(error),
        ReadError::Corruption(_) | ReadError::Foreign { .. } => {
            unreachable!("a damaged history names its bad entry")
        }
    }
}
