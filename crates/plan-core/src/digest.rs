//! Digests: SHA-256 over `label ":" bytes`, the label saying what kind of thing was hashed.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub const PLAN_LABEL: &str = "aos-plan-hash/1";
pub const RATE_CARD_LABEL: &str = "aos-rate-card/1";
pub const REQUEST_LABEL: &str = "aos-request/1";
pub const EFFECT_KEY_LABEL: &str = "aos-effect-key/1";
pub const JOURNAL_LABEL: &str = "aos-journal/1";
pub const BEHAVIOR_LABEL: &str = "aos-behavior/1";
/// Digest of a version of the taxonomy.
pub const TAXONOMY_LABEL: &str = "aos-taxonomy/1";
/// Digest of a skill's output, under which a large one is kept apart from the journal.
pub const BODY_LABEL: &str = "aos-body/1";

/// A digest as it is written: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is written as `sha256:` and 64 lower-case hexadecimal digits")]
pub struct NotADigest;

impl Digest {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits without the prefix.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Self, NotADigest> {
        let digits = text.strip_prefix("sha256:").ok_or(NotADigest)?;
        let lower = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() == 64 && lower { Ok(Self(text)) } else { Err(NotADigest) }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// The digest of bytes under a label.
#[must_use]
pub fn of_bytes(label: &str, bytes: &[u8]) -> Digest {
    Digest(format!("sha256:{}", hex_of(label, bytes)))
}

/// The digest of a value's canonical form under a label.
pub fn of_value(label: &str, value: &Value) -> Result<Digest, macp_wire::canonical::Error> {
    Ok(of_bytes(label, macp_wire::canonical::to_string(value)?.as_bytes()))
}

/// The bare digits, as they stand inside effect keys and chains.
#[must_use]
pub fn hex_of(label: &str, bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(label.as_bytes());
    hash.update(b":");
    hash.update(bytes);
    hex::encode(hash.finalize())
}
