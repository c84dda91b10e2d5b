//! Whatever can change a session, and who asks for it.

use macp_wire::history::v1::RecordedSignature;
use macp_wire::v1::Envelope;
use smol_str::SmolStr;

/// One input to a session.
#[derive(Clone, Debug)]
pub struct Command {
    pub caller: Caller,
    pub input: Input,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every command is an envelope: a box would cost an allocation each and save next to nothing"
)]
pub enum Input {
    /// A SessionStart or a message of a session.
    Envelope { envelope: Envelope, signature: SignatureCheck },
    /// CancelSession.
    Cancel { reason: String },
    /// The deadline passed; only [`crate::due`] makes these.
    Expire,
}

/// Who asks, as far as the edge could find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Caller {
    pub credential: Credential,
    /// The caller has used up its share of requests.
    #[serde(default)]
    pub over_rate: bool,
}

impl Caller {
    /// Nobody in particular: local development without a credential, and the runtime itself.
    pub fn anonymous() -> Self {
        Caller::default()
    }

    pub fn identified(identity: impl Into<SmolStr>) -> Self {
        Caller { credential: Credential::Identity(identity.into()), over_rate: false }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// None was presented and none is required: the envelope's own sender counts.
    #[default]
    Absent,
    /// A valid one; this is who it belongs to.
    Identity(SmolStr),
    /// One was presented, or required, and is not valid.
    Refused(String),
}

impl Credential {
    pub fn identity(&self) -> Option<&str> {
        match self {
            Credential::Identity(identity) => Some(identity),
            Credential::Absent | Credential::Refused(_) => None,
        }
    }
}

/// What checking the signature beside an envelope showed. Checked before the command is put in order, because it is
/// the one expensive question about an envelope that does not depend on the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SignatureCheck {
    #[default]
    Absent,
    /// Good under the registered key it names.
    Valid(RecordedSignature),
    /// No key of that name is registered: kept, not trusted.
    Unregistered(RecordedSignature),
    Invalid(String),
}
