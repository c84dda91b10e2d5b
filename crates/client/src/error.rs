//! What can go wrong between a client and a server, told apart by who said no.

use macp_wire::v1::{Ack, MacpError, SessionState};

use crate::tls;

/// Header and trailer in which a server names the protocol's code behind a failed call.
const CODE_METADATA: &str = "macp-error-code";

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{uri:?} is not the address of a server")]
    Address { uri: String, source: tonic::transport::Error },
    #[error("cannot connect to {uri}{}", tls::advice(source))]
    Connect { uri: String, source: tonic::transport::Error },
    #[error("{uri} is an address without TLS, but certificates are given; use https://")]
    ClearText { uri: String },
    #[error("the certificates for TLS cannot be used")]
    Certificates(#[source] tonic::transport::Error),
    #[error("the credential holds characters a header cannot carry")]
    Credential(#[source] tonic::metadata::errors::InvalidMetadataValue),
    /// The call failed.
    #[error(transparent)]
    Status(#[from] Status),
    /// The server understood and refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A registry was asked to change, and did not.
    #[error("{0}")]
    Registry(String),
    #[error("the server's answer has no {0}")]
    Incomplete(&'static str),
}

impl Error {
    /// The code of the protocol behind it, where there is one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Refused(refusal) => Some(&refusal.code),
            Error::Status(status) => status.macp_code.as_deref(),
            _ => None,
        }
    }

    /// Whether there is no such thing as what was asked about.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Status(status) if status.code == tonic::Code::NotFound)
            || matches!(self.code(), Some("SESSION_NOT_FOUND" | "RUN_NOT_FOUND"))
    }

    /// Whether the server could not be reached or went away, so that trying again may help.
    pub fn is_disconnected(&self) -> bool {
        match self {
            Error::Connect { .. } => true,
            // A status that came over the wire has no cause on this side; one that has was made here, out of a broken
            // connection.
            Error::Status(status) => status.code == tonic::Code::Unavailable || status.source.is_some(),
            _ => false,
        }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Error::Status(status.into())
    }
}

/// A call that ended with a gRPC status other than OK.
#[derive(Debug, thiserror::Error)]
#[error("{}{message}", macp_code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default())]
pub struct Status {
    pub code: tonic::Code,
    pub message: String,
    /// The protocol's own code, when the server named one.
    pub macp_code: Option<String>,
    /// What went wrong below, for calls that failed on the way.
    #[source]
    source: Option<Box<tonic::Status>>,
}

impl From<tonic::Status> for Status {
    fn from(status: tonic::Status) -> Self {
        let macp_code = status.metadata().get(CODE_METADATA).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let code = status.code();
        let message = match status.message() {
            "" => code.description().to_owned(),
            message => message.to_owned(),
        };
        let caused = std::error::Error::source(&status).is_some();
        Status { code, message, macp_code, source: caused.then(|| Box::new(status)) }
    }
}

/// The protocol's answer "no".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    pub code: String,
    pub message: String,
    pub session_id: String,
    pub message_id: String,
    /// State of the session, which the refusal left as it was.
    pub state: SessionState,
}

impl Refusal {
    /// The refusal an Ack carries, or the Ack itself if it carries none.
    pub fn check(ack: Ack) -> Result<Ack, Refusal> {
        if ack.ok {
            return Ok(ack);
        }
        let state = ack.session_state();
        Err(Refusal::new(ack.error.unwrap_or_default(), state))
    }

    pub(crate) fn new(error: MacpError, state: SessionState) -> Self {
        Refusal {
            code: error.code,
            message: error.message,
            session_id: error.session_id,
            message_id: error.message_id,
            state,
        }
    }
}
