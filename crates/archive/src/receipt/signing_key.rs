//! The key that receipts are signed with, as an operator hands it over.

use std::fmt;

use ed25519_dalek::Signer as _;
use ed25519_dalek::pkcs8::{self, DecodePrivateKey as _};
use macp_wire::canonical;
use serde_json::Value;
use zeroize::Zeroize as _;

use super::PublicKey;
use super::jwk::{self, JwkError, KID_BYTES_MAX};

/// Why a signing key cannot be used. The text never repeats what the key holds.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    #[error(
        "the receipt signing key is neither a PKCS#8 PEM text nor a private JWK; \
         `openssl genpkey -algorithm ed25519` makes one"
    )]
    Format,
    #[error("the receipt signing key is encrypted; hand it over decrypted, it is kept in memory only")]
    Encrypted,
    #[error("the receipt signing key is no PKCS#8 PEM text of an Ed25519 key")]
    Pem(#[source] pkcs8::Error),
    #[error("the receipt signing key is no JSON Web Key")]
    Json(#[source] serde_json::Error),
    #[error("the receipt signing key is no private JSON Web Key for Ed25519: {0}")]
    Jwk(#[from] JwkError),
    #[error("the receipt signing key has no public part `x` that belongs to its private part `d`")]
    PublicPart,
    #[error("the receipt signing key needs a key id: configure one")]
    NoKid,
    #[error("the key id of the receipt signing key must have 1 to {KID_BYTES_MAX} bytes")]
    Kid,
    #[error("the receipt signing key is {found:?}, but {configured:?} is configured as its key id")]
    KidDiffers { configured: String, found: String },
}

/// An Ed25519 key with the id it is published under. Wiped from memory when dropped.
#[derive(Clone)]
pub struct SigningKey {
    kid: String,
    key: ed25519_dalek::SigningKey,
}

/// Without the key itself.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Reads a PKCS#8 PEM text, which needs a `kid` beside it, or a private JWK, whose own must agree with it.
    pub fn parse(text: &str, kid: Option<&str>) -> Result<Self, SigningKeyError> {
        let text = text.trim();
        if text.starts_with('{') {
            Self::from_jwk(text, kid)
        } else if text.starts_with("-----BEGIN") {
            Self::from_pem(text, kid.ok_or(SigningKeyError::NoKid)?)
        } else {
            Err(SigningKeyError::Format)
        }
    }

    /// Reads a PKCS#8 PEM text.
    pub fn from_pem(text: &str, kid: &str) -> Result<Self, SigningKeyError> {
        let text = text.trim();
        if text.starts_with("-----BEGIN ENCRYPTED") {
            return Err(SigningKeyError::Encrypted);
        }
        let key = ed25519_dalek::SigningKey::from_pkcs8_pem(text).map_err(SigningKeyError::Pem)?;
        Self::new(kid, key)
    }

    /// Reads a private JWK. Its key id, if it has one, must be `kid`, if that is given; one of them must be there.
    pub fn from_jwk(text: &str, kid: Option<&str>) -> Result<Self, SigningKeyError> {
        let mut jwk = canonical::parse(text.as_bytes()).map_err(SigningKeyError::Json)?;
        let key = read_jwk(&jwk, kid);
        if let Some(Value::String(secret)) = jwk.get_mut("d") {
            secret.zeroize();
        }
        key
    }

    fn new(kid: &str, key: ed25519_dalek::SigningKey) -> Result<Self, SigningKeyError> {
        if !jwk::is_kid(kid) {
            return Err(SigningKeyError::Kid);
        }
        Ok(Self { kid: kid.to_owned(), key })
    }

    /// The id the key is published under.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The half that everyone may know.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey::new(self.kid.clone(), self.key.verifying_key())
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

fn read_jwk(jwk: &Value, configured: Option<&str>) -> Result<SigningKey, SigningKeyError> {
    let jwk = jwk.as_object().ok_or(SigningKeyError::Format)?;
    jwk::check_type(jwk)?;
    let kid = match (jwk::kid(jwk)?, configured) {
        (Some(found), Some(configured)) if found != configured => {
            return Err(SigningKeyError::KidDiffers { configured: configured.to_owned(), found: found.to_owned() });
        }
        (Some(kid), _) | (None, Some(kid)) => kid,
        (None, None) => return Err(SigningKeyError::NoKid),
    };
    let missing = JwkError { member: "d", expected: "there: a public key cannot sign" };
    let seed = jwk::bytes(jwk, "d")?.ok_or(missing)?;
    let key = ed25519_dalek::SigningKey::from_bytes(&seed);
    match jwk::bytes(jwk, "x")? {
        Some(public) if *public != key.verifying_key().to_bytes() => Err(SigningKeyError::PublicPart),
        _ => SigningKey::new(kid, key),
    }
}
