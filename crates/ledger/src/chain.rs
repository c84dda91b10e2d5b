//! The one chain formula of the project: SHA-256 over `label ":" previous_hex ":" bytes`.
//!
//! Each link covers the link before it, so one changed byte anywhere changes every hash after it. The label names
//! the kind of stream, so that a history can never pass for a journal.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// Label of session histories.
pub const HISTORY_LABEL: &str = "macp-history/1";

/// A SHA-256 value; shown and parsed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

/// A text or byte string that is not a hash.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HashError {
    #[error("a hash has 32 bytes, found {0}")]
    Length(usize),
    #[error("a hash is written as 64 hexadecimal digits")]
    Hex(#[from] hex::FromHexError),
}

impl Hash {
    /// Stands for what is stored in the place of a hash and is none, so that whoever checks it can say where. No bytes
    /// are known that have it.
    pub const NONE: Self = Self([0; 32]);

    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl TryFrom<&[u8]> for Hash {
    type Error = HashError;

    fn try_from(bytes: &[u8]) -> Result<Self, HashError> {
        bytes.try_into().map(Self).map_err(|_| HashError::Length(bytes.len()))
    }
}

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(to_hex(&self.0, &mut [0; 64]))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hash of `bytes` as the successor of `previous`; `None` for the first link of a chain.
#[must_use]
pub fn link(label: &str, previous: Option<&Hash>, bytes: &[u8]) -> Hash {
    let mut digest = Sha256::new();
    digest.update(label.as_bytes());
    digest.update(b":");
    if let Some(previous) = previous {
        digest.update(to_hex(&previous.0, &mut [0; 64]).as_bytes());
    }
    digest.update(b":");
    digest.update(bytes);
    Hash(digest.finalize().into())
}

fn to_hex<'a>(bytes: &[u8; 32], text: &'a mut [u8; 64]) -> &'a str {
    hex::encode_to_slice(bytes, text).expect("64 digits hold 32 bytes");
    std::str::from_utf8(text).expect("hexadecimal digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Computed with `printf 'macp-history/1::hello' | sha256sum` and the same for the second link.
    const FIRST: &str = "404fe494aacf0234cca4cfaedabf5462003ca0d9d0875127427eebe8d4f3af48";
    const SECOND: &str = "9b970e6179ef0d08c6425accd8da51b905dc6dc7cc447c129a9e18a4ff8cfc9b";

    #[test]
    fn formula_matches_an_independent_computation() {
        let first = link(HISTORY_LABEL, None, b"hello");
        assert_eq!(first.to_string(), FIRST);
        assert_eq!(link(HISTORY_LABEL, Some(&first), b"world").to_string(), SECOND);
    }

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        let hash: Hash = FIRST.parse().unwrap();
        assert_eq!(hash.to_string(), FIRST);
        assert_eq!(format!("{hash:?}"), FIRST);
        assert!("abc".parse::<Hash>().is_err());
        assert!("zz".repeat(32).parse::<Hash>().is_err());
        assert_eq!(Hash::try_from(&[0_u8; 31][..]), Err(HashError::Length(31)));
    }
}
