//! Why authentication cannot be set up, or set up anew.

use crate::place::Place;
use crate::{keyset, tokens};

/// Why settings, tokens or keys cannot be used. Names the file and the place in it, and never a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {place}")]
    Read { place: Place, source: std::io::Error },
    #[error("{place} is larger than {bytes_max} bytes")]
    TooLarge { place: Place, bytes_max: u64 },
    #[error("{place} is not valid JSON: {problem}")]
    Json { place: Place, problem: serde_json::Error },
    #[error("{place}: {problem}")]
    Tokens { place: Place, problem: tokens::Problem },
    #[error("{place}: {problem}")]
    Keys { place: Place, problem: keyset::Problem },
    #[error(
        "cannot fetch {place}: {problem}. The server does not start without keys, because it could not tell good \
         tokens from bad ones; check the URL and that this machine reaches it"
    )]
    Fetch { place: Place, problem: String },
    #[error("{0}")]
    Settings(String),
}
