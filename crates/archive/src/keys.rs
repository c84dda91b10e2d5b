//! The registry of keys that senders sign with, as an operator writes it down.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use macp_kernel::SignatureCheck;
use macp_kernel::signature::{self, Key};
use macp_wire::history::v1::RecordedSignature;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::Envelope;
use serde::Deserialize;

/// Longest key id, in bytes: it is kept with every signature.
const KEY_ID_BYTES_MAX: usize = 256;

/// Why a list of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("cannot read the keys file {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the keys file {path} cannot be used")]
    File { path: PathBuf, source: Box<KeysError> },
    #[error("the keys are no JSON of the form {{\"keys\": [{{\"key_id\", \"sender\", \"public_key\"}}]}}")]
    Json(#[from] serde_json::Error),
    #[error("key {key_id:?}: public_key must be the base64 of 32 bytes")]
    PublicKey { key_id: String },
    #[error("key {key_id:?} needs a key_id of 1 to {KEY_ID_BYTES_MAX} bytes and a sender")]
    Incomplete { key_id: String },
    #[error("key {key_id:?} is listed twice")]
    Twice { key_id: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    keys: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key_id: String,
    sender: String,
    public_key: String,
}

/// Registered keys by their id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    by_id: BTreeMap<String, Key>,
}

impl Keys {
    pub fn none() -> Keys {
        Keys::default()
    }

    pub fn read(path: &Path) -> Result<Keys, KeysError> {
        let text = std::fs::read_to_string(path).map_err(|source| KeysError::Read { path: path.to_owned(), source })?;
        Keys::from_json(&text).map_err(|error| KeysError::File { path: path.to_owned(), source: Box::new(error) })
    }

    pub fn from_json(text: &str) -> Result<Keys, KeysError> {
        let file: File = serde_json::from_str(text)?;
        let mut by_id = BTreeMap::new();
        for Line { key_id, sender, public_key } in file.keys {
            if key_id.is_empty() || key_id.len() > KEY_ID_BYTES_MAX || sender.is_empty() {
                return Err(KeysError::Incomplete { key_id });
            }
            let public_key = STANDARD.decode(&public_key).ok().and_then(|bytes| bytes.try_into().ok());
            let Some(public_key) = public_key else {
                return Err(KeysError::PublicKey { key_id });
            };
            if by_id.insert(key_id.clone(), Key { sender, public_key }).is_some() {
                return Err(KeysError::Twice { key_id });
            }
        }
        Ok(Keys { by_id })
    }

    pub fn get(&self, key_id: &str) -> Option<&Key> {
        self.by_id.get(key_id)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// What the signature beside an envelope shows.
    pub fn check(&self, envelope: &Envelope, signature: Option<&EnvelopeSignature>) -> SignatureCheck {
        let Some(signature) = signature else {
            return SignatureCheck::Absent;
        };
        if signature.key_id.len() > KEY_ID_BYTES_MAX || signature.signature.len() != 64 {
            return SignatureCheck::Invalid("an Ed25519 signature has 64 bytes and a short key_id".to_owned());
        }
        let recorded = |public_key: Bytes| RecordedSignature { signature: Some(signature.clone()), public_key };
        match self.get(&signature.key_id) {
            // A signature nobody can check must at least be one over what is recorded, sender included.
            None if envelope.sender.is_empty() => SignatureCheck::Invalid(signature::Error::NoSender.to_string()),
            None => SignatureCheck::Unregistered(recorded(Bytes::new())),
            Some(key) => match signature::verify(envelope, signature, key) {
                Ok(()) => SignatureCheck::Valid(recorded(Bytes::copy_from_slice(&key.public_key))),
                Err(error) => SignatureCheck::Invalid(error.to_string()),
            },
        }
    }
}
