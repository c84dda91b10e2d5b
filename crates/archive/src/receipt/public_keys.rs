//! The public keys of receipts: what the server publishes, and what a verifier trusts.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use macp_wire::canonical;
use serde::Serialize;
use serde_json::{Map, Value};

use super::SigningKey;
use super::jwk::{self, JwkError};

/// Why a set of public keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PublicKeysError {
    #[error("cannot read the receipt keys file {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the receipt keys are no JSON text")]
    Json(#[source] serde_json::Error),
    #[error("the receipt keys are no JSON Web Key Set, which has the form {{\"keys\": [{{...}}]}}")]
    Shape,
    #[error(
        "the receipt keys hold a private member `{member}`: whoever reads them could sign. \
         Take the private part out, and replace that key if others have seen it"
    )]
    Private { member: &'static str },
    #[error("receipt key number {number} is no Ed25519 public key: {source}")]
    Key { number: usize, source: JwkError },
    #[error("the receipt keys have two different keys with the key id {kid:?}")]
    Twice { kid: String },
}

/// An Ed25519 public key with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kid: String,
    key: VerifyingKey,
}

/// Public keys in the order in which they are published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicKeys {
    keys: Vec<PublicKey>,
}

impl PublicKey {
    pub(super) fn new(kid: String, key: VerifyingKey) -> Self {
        Self { kid, key }
    }

    /// From a key id and the `x` of a JWK.
    pub fn from_x(kid: &str, x: &str) -> Result<Self, JwkError> {
        let member = |name: &str, text: &str| (name.to_owned(), Value::from(text));
        Self::read(&Map::from_iter([member("kid", kid), member("x", x)]))
    }

    fn read(jwk: &Map<String, Value>) -> Result<Self, JwkError> {
        let wrong = |member, expected| JwkError { member, expected };
        let kid = jwk::kid(jwk)?.ok_or(wrong("kid", "there"))?;
        let bytes = jwk::bytes(jwk, "x")?.ok_or(wrong("x", "there"))?;
        match VerifyingKey::from_bytes(&bytes) {
            // With a weak key, one signature fits many texts.
            Ok(key) if !key.is_weak() => Ok(Self::new(kid.to_owned(), key)),
            _ => Err(wrong("x", "a point of the curve that can be trusted")),
        }
    }

    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The key as a JWK writes it.
    #[must_use]
    pub fn x(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.as_bytes())
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.key.verify_strict(message, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
    }
}

impl PublicKeys {
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// In the order given; two keys may not share an id.
    pub fn new(keys: impl IntoIterator<Item = PublicKey>) -> Result<Self, PublicKeysError> {
        let mut set = Self::none();
        for key in keys {
            if set.get(&key.kid).is_some() {
                return Err(PublicKeysError::Twice { kid: key.kid });
            }
            set.keys.push(key);
        }
        Ok(set)
    }

    /// Reads a file with a JSON Web Key Set.
    pub fn read(path: &Path) -> Result<Self, PublicKeysError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| PublicKeysError::Read { path: path.to_owned(), source })?;
        Self::from_jwks(&text)
    }

    /// Reads the text of a JSON Web Key Set. One that holds anything private is refused.
    pub fn from_jwks(text: &str) -> Result<Self, PublicKeysError> {
        let set = canonical::parse(text.as_bytes()).map_err(PublicKeysError::Json)?;
        let set = set.as_object().ok_or(PublicKeysError::Shape)?;
        refuse_private(set)?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or(PublicKeysError::Shape)?;
        let mut read = Vec::with_capacity(keys.len());
        for (number, key) in (1..).zip(keys) {
            let key = key.as_object().ok_or(PublicKeysError::Shape)?;
            refuse_private(key)?;
            let key = jwk::check_type(key).and_then(|()| PublicKey::read(key));
            read.push(key.map_err(|source| PublicKeysError::Key { number, source })?);
        }
        Self::new(read)
    }

    /// Puts the key that signs now in front of the others. It may be among them already.
    pub fn with_active(mut self, key: &SigningKey) -> Result<Self, PublicKeysError> {
        let active = key.public_key();
        self.keys.retain(|key| *key != active);
        Self::new(std::iter::once(active).chain(self.keys))
    }

    /// The set as the text of a JSON Web Key Set.
    #[must_use]
    pub fn to_jwks(&self) -> String {
        let keys = self.keys.iter().map(|key| Jwk {
            kty: jwk::KEY_TYPE,
            crv: jwk::CURVE,
            kid: &key.kid,
            x: key.x(),
            alg: jwk::ALGORITHM,
            usage: jwk::USE,
        });
        serde_json::to_string(&Jwks { keys: keys.collect() }).expect("texts can always be written")
    }

    #[must_use]
    pub fn get(&self, kid: &str) -> Option<&PublicKey> {
        self.keys.iter().find(|key| key.kid == kid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn refuse_private(members: &Map<String, Value>) -> Result<(), PublicKeysError> {
    match jwk::PRIVATE_MEMBERS.into_iter().find(|member| members.contains_key(*member)) {
        Some(member) => Err(PublicKeysError::Private { member }),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Jwks<'a> {
    keys: Vec<Jwk<'a>>,
}

#[derive(Serialize)]
struct Jwk<'a> {
    kty: &'a str,
    crv: &'a str,
    kid: &'a str,
    x: String,
    alg: &'a str,
    #[serde(rename = "use")]
    usage: &'a str,
}
