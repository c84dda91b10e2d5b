//! What a client asks for.

use std::sync::Arc;

use macp_engine::RequestKind;
use macp_kernel::{Caller, Command, Input, Registered, SignatureCheck};
use macp_wire::v1::Envelope;

use crate::transcript::Digest;

/// One request, as often as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) session_id: Arc<str>,
    /// None reads the session.
    pub(crate) command: Option<Command>,
}

impl Ask {
    pub(crate) fn message(caller: Caller, envelope: Envelope, registered: Registered) -> Self {
        let session_id = envelope.session_id.as_str().into();
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered };
        Ask { session_id, command: Some(Command { caller, input }) }
    }

    pub(crate) fn read(session_id: Arc<str>) -> Self {
        Ask { session_id, command: None }
    }

    pub(crate) fn kind(&self) -> RequestKind {
        self.command.clone().map_or(RequestKind::Read, |command| RequestKind::Command(Box::new(command)))
    }

    pub(crate) fn envelope(&self) -> Option<&Envelope> {
        match &self.command.as_ref()?.input {
            Input::Envelope { envelope, .. } => Some(envelope),
            _ => None,
        }
    }

    /// Equal for requests that ask for the same thing in the same words.
    pub(crate) fn fingerprint(&self) -> u64 {
        Digest::of(format_args!("{self:?}"))
    }
}
