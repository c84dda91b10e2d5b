//! Why a credential was not taken, in words a client may hear.

use crate::SENDER_BYTES_MAX;

/// Why a credential was refused. The text is meant for the client: it names no token, and it does not tell an absent
/// credential from an unknown one (STD-SEC-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a valid credential is required: send `authorization: Bearer <token>`")]
    Unknown,
    #[error("the credential is too long")]
    TooLong,
    #[error("the token is not a well-formed signed JSON Web Token")]
    Malformed,
    #[error("the token is signed with an algorithm that is not accepted")]
    Algorithm,
    #[error("the token is signed with a key that is not known")]
    Key,
    #[error("the signature of the token is not valid")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token comes from another issuer")]
    Issuer,
    #[error("the token is meant for another audience")]
    Audience,
    #[error("the token needs a `sub` claim of 1 to {SENDER_BYTES_MAX} bytes")]
    Subject,
    #[error(
        "a claim of the token is missing or of the wrong type: `exp` and `nbf` are numbers, `iss` is a string, `aud` \
             is a string or a list of strings"
    )]
    Claims,
    #[error("the `macp_scopes` claim of the token cannot be read, so it gives no right")]
    Scopes,
    #[error("the keys to check tokens with are not available at the moment")]
    KeysUnavailable,
    #[error(
        "this server runs without authentication and takes the bearer value as the name of the sender, which has at \
         most {SENDER_BYTES_MAX} bytes; this is longer, perhaps a token meant for another server"
    )]
    NoSender,
}

impl Refusal {
    /// One word for a metric or a log line.
    pub fn label(self) -> &'static str {
        match self {
            Refusal::Unknown => "unknown",
            Refusal::TooLong => "too_long",
            Refusal::Malformed => "malformed",
            Refusal::Algorithm => "algorithm",
            Refusal::Key => "key",
            Refusal::Signature => "signature",
            Refusal::Expired => "expired",
            Refusal::NotYetValid => "not_yet_valid",
            Refusal::Issuer => "issuer",
            Refusal::Audience => "audience",
            Refusal::Subject => "subject",
            Refusal::Claims => "claims",
            Refusal::Scopes => "scopes",
            Refusal::KeysUnavailable => "keys_unavailable",
            Refusal::NoSender => "no_sender",
        }
    }
}
