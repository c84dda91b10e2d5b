//! The ordinary answer "no": a code of the registry and one sentence.

use bytes::Bytes;
use macp_wire::codes::Code;

/// Why an input did not become history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Rejection {
    pub code: Code,
    pub message: String,
    /// Outside the replay boundary (authentication, rate, skew): recorded traces mark it and do not compare it.
    pub operational: bool,
    /// For programs: what exactly governance refused, as JSON. Empty for all else.
    pub details: Bytes,
}

impl Rejection {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Rejection { code, message: message.into(), operational: false, details: Bytes::new() }
    }

    pub fn operational(code: Code, message: impl Into<String>) -> Self {
        Rejection { code, message: message.into(), operational: true, details: Bytes::new() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Rejection::new(Code::InvalidEnvelope, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Rejection::new(Code::Forbidden, message)
    }

    pub(crate) fn unauthenticated(message: impl Into<String>) -> Self {
        Rejection::operational(Code::Unauthenticated, message)
    }
}
