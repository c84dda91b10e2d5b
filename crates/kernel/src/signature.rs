//! Ed25519 signatures of envelopes: pure mathematics over bytes, no key store.

use ed25519_dalek::{Signature, VerifyingKey};
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::signing::signing_bytes;
use macp_wire::v1::Envelope;

/// A registered key: who signs with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub sender: String,
    pub public_key: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a signed envelope must name its sender")]
    NoSender,
    #[error("the signature is {0} bytes long, not 64")]
    Length(usize),
    #[error("the registered key is no Ed25519 public key")]
    Key,
    #[error("key {key_id:?} belongs to {owner:?}, not to {sender:?}")]
    Owner { key_id: String, owner: String, sender: String },
    #[error("the signature does not fit the envelope")]
    Mismatch,
}

/// Whether a signature is one of this key over this envelope. The envelope is the one the client sent: a signature
/// covers the sender, so the sender must be named in it.
pub fn verify(envelope: &Envelope, signature: &EnvelopeSignature, key: &Key) -> Result<(), Error> {
    if envelope.sender.is_empty() {
        return Err(Error::NoSender);
    }
    if key.sender != envelope.sender {
        return Err(Error::Owner {
            key_id: signature.key_id.clone(),
            owner: key.sender.clone(),
            sender: envelope.sender.clone(),
        });
    }
    verify_bytes(envelope, &signature.signature, &key.public_key)
}

/// The mathematics alone, for histories that carry the key they were admitted with.
pub fn verify_bytes(envelope: &Envelope, signature: &[u8], public_key: &[u8]) -> Result<(), Error> {
    let signature: [u8; 64] = signature.try_into().map_err(|_| Error::Length(signature.len()))?;
    let public_key: [u8; 32] = public_key.try_into().map_err(|_| Error::Key)?;
    let key = VerifyingKey::from_bytes(&public_key).map_err(|_| Error::Key)?;
    key.verify_strict(&signing_bytes(envelope), &Signature::from_bytes(&signature)).map_err(|_| Error::Mismatch)
}
