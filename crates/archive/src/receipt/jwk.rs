//! What a JSON Web Key of this program must look like, public or private: an Ed25519 key that signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

/// Longest key id, in bytes: it is in the header of every signature.
pub const KID_BYTES_MAX: usize = 256;

/// The algorithm as JWS and JWK name it.
pub(super) const ALGORITHM: &str = "EdDSA";
pub(super) const KEY_TYPE: &str = "OKP";
pub(super) const CURVE: &str = "Ed25519";
pub(super) const USE: &str = "sig";

/// Members that only a private or a secret key has, of whatever type the key is.
pub(super) const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Why a JSON Web Key cannot be used. The text never repeats what the key holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its `{member}` must be {expected}")]
pub struct JwkError {
    pub member: &'static str,
    pub expected: &'static str,
}

/// Checks what makes the key an Ed25519 key; `alg` and `use` may be left out.
pub(super) fn check_type(key: &Map<String, Value>) -> Result<(), JwkError> {
    let is = |member, expected: &'static str| match key.get(member) {
        Some(Value::String(found)) if found == expected => Ok(()),
        _ => Err(JwkError { member, expected }),
    };
    is("kty", KEY_TYPE)?;
    is("crv", CURVE)?;
    for (member, expected) in [("alg", ALGORITHM), ("use", USE)] {
        if key.contains_key(member) {
            is(member, expected)?;
        }
    }
    Ok(())
}

/// The key id, if the key has one.
pub(super) fn kid(key: &Map<String, Value>) -> Result<Option<&str>, JwkError> {
    match key.get("kid") {
        None => Ok(None),
        Some(Value::String(kid)) if is_kid(kid) => Ok(Some(kid)),
        Some(_) => Err(JwkError { member: "kid", expected: "a text of 1 to 256 bytes" }),
    }
}

pub(super) fn is_kid(kid: &str) -> bool {
    (1..=KID_BYTES_MAX).contains(&kid.len())
}

/// The 32 bytes of a member, if the key has it.
pub(super) fn bytes(key: &Map<String, Value>, member: &'static str) -> Result<Option<Zeroizing<[u8; 32]>>, JwkError> {
    let Some(value) = key.get(member) else {
        return Ok(None);
    };
    let decoded = value.as_str().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).map(Zeroizing::new);
    match decoded.and_then(|decoded| <[u8; 32]>::try_from(decoded.as_slice()).ok()) {
        Some(bytes) => Ok(Some(Zeroizing::new(bytes))),
        None => Err(JwkError { member, expected: "the base64url of 32 bytes, without padding" }),
    }
}
