//! Whatever can change a session, and who asks for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use macp_wire::history::v1::{ExpiryCause, RecordedSignature};
use macp_wire::v1::Envelope;
use smol_str::SmolStr;

use crate::mode::Extension;
use crate::policy::Policy;

/// One input to a session.
#[derive(Clone, Debug)]
pub struct Command {
    pub caller: Caller,
    pub input: Input,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// A SessionStart or a message of a session.
    Envelope { envelope: Envelope, signature: SignatureCheck, registered: Registered },
    /// CancelSession.
    Cancel { reason: String },
    /// SuspendSession.
    Suspend { reason: String },
    /// ResumeSession.
    Resume { reason: String },
    /// Nothing but a look: what time has made due happens first.
    Touch,
    /// Time ran out; only the kernel makes these.
    Expire(ExpiryCause),
    /// A message of the session's mode itself, whose time has come; only the kernel makes these.
    Synthetic { envelope: Envelope },
}

/// What registries hold of the things an envelope names. Looked up before the command is put in order, so that the
/// decision depends on nothing but its arguments; what is built in need not be here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registered {
    /// The policy a SessionStart names.
    pub policy: Option<Arc<Policy>>,
    /// The extension mode an envelope names.
    pub extension: Option<Arc<Extension>>,
}

/// Who asks, as far as the edge could find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Caller {
    pub credential: Credential,
    /// The caller has used up its share of requests.
    #[serde(default)]
    pub over_rate: bool,
    /// The caller has as many sessions open as its credential allows.
    #[serde(default)]
    pub over_quota: bool,
    #[serde(default)]
    pub scope: Scope,
}

/// What a credential allows beyond being somebody.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Scope {
    /// Modes its envelopes may name; none is all of them.
    pub modes: Option<Arc<BTreeSet<SmolStr>>>,
    pub may_start: bool,
    /// A role gives the right to cancel sessions of others.
    pub may_cancel: bool,
    /// A role gives the right to suspend and resume sessions of others.
    pub may_suspend: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Scope { modes: None, may_start: true, may_cancel: false, may_suspend: false }
    }
}

impl Caller {
    /// Nobody in particular: local development without a credential, and the runtime itself.
    pub fn anonymous() -> Self {
        Caller::default()
    }

    pub fn identified(identity: impl Into<SmolStr>) -> Self {
        Caller { credential: Credential::Identity(identity.into()), ..Caller::default() }
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
