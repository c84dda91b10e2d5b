//! Where a text with tokens or keys comes from, so that a problem can be found there.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::Error;

/// Largest file that is read, in bytes: far beyond any real one, and a wrong path must not fill the memory.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A source as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    InlineTokens,
    TokensFile(PathBuf),
    InlineKeys,
    KeysFile(PathBuf),
    /// Without its query, which may hold a secret.
    KeysUrl(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::InlineTokens => f.write_str("the inline tokens"),
            Place::TokensFile(path) => write!(f, "the tokens file {}", path.display()),
            Place::InlineKeys => f.write_str("the inline key set (JWKS)"),
            Place::KeysFile(path) => write!(f, "the key set (JWKS) file {}", path.display()),
            Place::KeysUrl(url) => write!(f, "the key set (JWKS) at {url}"),
        }
    }
}

pub(crate) fn read(path: &Path, place: &Place) -> Result<String, Error> {
    let failed = |source| Error::Read { place: place.clone(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLarge { place: place.clone(), bytes_max: FILE_BYTES_MAX });
    }
    Ok(text)
}
