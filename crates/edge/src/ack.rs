//! The answer to an envelope, built from what the engine says.

use std::time::Duration;

use bytes::Bytes;
use macp_engine::{Error, Reply};
use macp_kernel::{Rejection, Settled, State};
use macp_wire::codes::Code;
use macp_wire::v1::{Ack, MacpError, SessionState};

/// What a client that met overload should wait before it tries again: long enough for a few commits.
const OVERLOAD_RETRY_AFTER: Duration = Duration::from_millis(100);

/// What an answer refers back to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    pub(crate) session_id: String,
    pub(crate) message_id: String,
}

/// Why something was refused, as the client hears it.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// When trying again may help.
    pub(crate) retry_after: Option<Duration>,
    /// For programs.
    pub(crate) details: Bytes,
}

impl Subject {
    pub(crate) fn accepted(self, accepted_at_ms: i64, state: SessionState) -> Ack {
        self.granted(false, accepted_at_ms, state)
    }

    fn granted(self, duplicate: bool, accepted_at_ms: i64, state: SessionState) -> Ack {
        Ack {
            ok: true,
            duplicate,
            message_id: self.message_id,
            session_id: self.session_id,
            accepted_at_unix_ms: accepted_at_ms,
            session_state: state.into(),
            error: None,
        }
    }

    /// A refused envelope was never accepted, so it has no time of acceptance.
    pub(crate) fn refused(self, refusal: Refusal, state: SessionState) -> Ack {
        let Refusal { code, message, retry_after, details } = refusal;
        Ack {
            ok: false,
            duplicate: false,
            message_id: self.message_id.clone(),
            session_id: self.session_id.clone(),
            accepted_at_unix_ms: 0,
            session_state: state.into(),
            error: Some(MacpError {
                code: code.as_str().to_owned(),
                message: match retry_after {
                    Some(after) => format!("{message} (retry after {} ms)", after.as_millis()),
                    None => message,
                },
                session_id: self.session_id,
                message_id: self.message_id,
                details: retry_after.map_or(details, retry_hint),
            }),
        }
    }

    /// The answer to a command. `now` stands in where nothing was written. A refusal does not tell strangers how the
    /// session stands; who sees everything is none.
    pub(crate) fn answered(
        self,
        result: Result<Reply, Error>,
        sees_all: bool,
        retry_after: Option<Duration>,
        now: i64,
    ) -> Ack {
        match result {
            Ok(Reply { settled, state, concerns_caller, .. }) => {
                let hidden = matches!(settled, Settled::Rejected(_)) && !sees_all && !concerns_caller;
                let state = wire(state.filter(|_| !hidden));
                match settled {
                    Settled::Accepted { accepted_at_ms } => self.granted(false, accepted_at_ms, state),
                    Settled::Duplicate { accepted_at_ms } => self.granted(true, accepted_at_ms, state),
                    Settled::Unchanged => self.granted(false, now, state),
                    Settled::Rejected(rejection) => self.refused(Refusal::new(rejection, retry_after), state),
                }
            }
            Err(error) => self.refused(Refusal::of_engine(&error), SessionState::Unspecified),
        }
    }
}

impl Refusal {
    /// Only a refusal for its rate is worth a hint when to come again.
    pub(crate) fn new(rejection: Rejection, retry_after: Option<Duration>) -> Self {
        let Rejection { code, message, details, .. } = rejection;
        Refusal { code, message, retry_after: retry_after.filter(|_| code == Code::RateLimited), details }
    }

    pub(crate) fn of_engine(error: &Error) -> Self {
        let (code, retry_after) = match error {
            Error::Overloaded => (Code::RateLimited, Some(OVERLOAD_RETRY_AFTER)),
            _ours => (Code::InternalError, None),
        };
        Refusal { code, message: error.to_string(), retry_after, details: Bytes::new() }
    }
}

/// No session, no state.
fn wire(state: Option<State>) -> SessionState {
    state.map_or(SessionState::Unspecified, State::to_wire)
}

fn retry_hint(retry_after: Duration) -> Bytes {
    format!("{{\"retry_after_ms\":{}}}", retry_after.as_millis()).into()
}
