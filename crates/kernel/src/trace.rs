//! Recorded traces: every input with its verdict, the refused ones too, and replay of such a trace.
//!
//! A trace never becomes history. It stands beside it, to show that the same inputs get the same answers (REPLAY-2).
//! Operational refusals are marked and not compared: a rate limit or a skewed clock cannot be reproduced later.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use macp_wire::history::v1::RecordedSignature;
use macp_wire::v1::{Envelope, ModeDescriptor, PolicyDescriptor};
use prost::Message;

use crate::decide::{Settled, step};
use crate::mode::Extension;
use crate::policy::Policy;
use crate::{Caller, Command, Input, Limits, Registered, Session, SignatureCheck, ambient};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    pub at_ms: i64,
    pub session_id: String,
    /// Sequence of the session's last entry before the event; 0 when there was no session. A replay that stands
    /// elsewhere has not seen the whole session and does not compare.
    pub after_sequence: u64,
    pub caller: Caller,
    pub limits: Limits,
    pub input: TracedInput,
    pub verdict: TracedVerdict,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracedInput {
    /// The protobuf encoding of the envelope as received, in hex, what its signature showed, and what registries held
    /// of the things it names.
    Envelope {
        envelope: String,
        signature: TracedSignature,
        #[serde(default, skip_serializing_if = "TracedRegistered::is_empty")]
        registered: TracedRegistered,
    },
    Cancel {
        reason: String,
    },
    Suspend {
        reason: String,
    },
    Resume {
        reason: String,
    },
    /// A look at the session, at which time had made something due.
    Touch,
}

/// Protobuf encodings in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TracedRegistered {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    pub promoted: bool,
}

impl TracedRegistered {
    fn new(registered: &Registered) -> Self {
        TracedRegistered {
            policy: registered.policy.as_ref().map(|policy| hex::encode(policy.descriptor.encode_to_vec())),
            extension: registered.extension.as_ref().map(|mode| hex::encode(mode.descriptor.encode_to_vec())),
            promoted: registered.extension.as_ref().is_some_and(|mode| mode.promoted),
        }
    }

    fn is_empty(&self) -> bool {
        *self == TracedRegistered::default()
    }

    fn read(&self) -> Result<Registered, String> {
        let policy = self.policy.as_deref().map(|hex| {
            let descriptor = decode::<PolicyDescriptor>(hex)?;
            Policy::read(descriptor).map(Arc::new).map_err(|error| error.to_string())
        });
        let extension = self.extension.as_deref().map(|hex| {
            let descriptor = decode::<ModeDescriptor>(hex)?;
            Ok::<_, String>(Arc::new(Extension { descriptor, promoted: self.promoted }))
        });
        Ok(Registered { policy: policy.transpose()?, extension: extension.transpose()? })
    }
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracedSignature {
    Absent,
    /// The protobuf encoding of what was recorded, in hex.
    Valid(String),
    Unregistered(String),
    Invalid(String),
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracedVerdict {
    Accepted,
    /// A Signal or Progress that was passed on.
    Relayed,
    Duplicate,
    Unchanged,
    Rejected {
        code: String,
        operational: bool,
    },
}

/// As an operator reads it.
impl fmt::Display for TracedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TracedVerdict::Accepted => f.write_str("accepted"),
            TracedVerdict::Relayed => f.write_str("passed on"),
            TracedVerdict::Duplicate => f.write_str("duplicate"),
            TracedVerdict::Unchanged => f.write_str("nothing to do"),
            TracedVerdict::Rejected { code, operational: false } => write!(f, "rejected, {code}"),
            TracedVerdict::Rejected { code, operational: true } => write!(f, "rejected, {code} (operational)"),
        }
    }
}

impl Event {
    pub fn new(
        at_ms: i64,
        session_id: &str,
        after_sequence: u64,
        command: &Command,
        limits: &Limits,
        verdict: TracedVerdict,
    ) -> Self {
        let input = match &command.input {
            Input::Envelope { envelope, signature, registered } => TracedInput::Envelope {
                envelope: hex::encode(envelope.encode_to_vec()),
                signature: match signature {
                    SignatureCheck::Absent => TracedSignature::Absent,
                    SignatureCheck::Valid(recorded) => TracedSignature::Valid(hex::encode(recorded.encode_to_vec())),
                    SignatureCheck::Unregistered(recorded) => {
                        TracedSignature::Unregistered(hex::encode(recorded.encode_to_vec()))
                    }
                    SignatureCheck::Invalid(reason) => TracedSignature::Invalid(reason.clone()),
                },
                registered: TracedRegistered::new(registered),
            },
            Input::Cancel { reason } => TracedInput::Cancel { reason: reason.clone() },
            Input::Suspend { reason } => TracedInput::Suspend { reason: reason.clone() },
            Input::Resume { reason } => TracedInput::Resume { reason: reason.clone() },
            Input::Touch | Input::Expire(_) | Input::Synthetic { .. } => TracedInput::Touch,
        };
        Event {
            at_ms,
            session_id: session_id.to_owned(),
            after_sequence,
            caller: command.caller.clone(),
            limits: limits.clone(),
            input,
            verdict,
        }
    }

    fn command(&self) -> Result<Command, String> {
        let recorded = decode::<RecordedSignature>;
        let input = match &self.input {
            TracedInput::Envelope { envelope, signature, registered } => Input::Envelope {
                envelope: decode::<Envelope>(envelope)?,
                signature: match signature {
                    TracedSignature::Absent => SignatureCheck::Absent,
                    TracedSignature::Valid(hex) => SignatureCheck::Valid(recorded(hex)?),
                    TracedSignature::Unregistered(hex) => SignatureCheck::Unregistered(recorded(hex)?),
                    TracedSignature::Invalid(reason) => SignatureCheck::Invalid(reason.clone()),
                },
                registered: registered.read()?,
            },
            TracedInput::Cancel { reason } => Input::Cancel { reason: reason.clone() },
            TracedInput::Suspend { reason } => Input::Suspend { reason: reason.clone() },
            TracedInput::Resume { reason } => Input::Resume { reason: reason.clone() },
            TracedInput::Touch => Input::Touch,
        };
        Ok(Command { caller: self.caller.clone(), input })
    }
}

impl From<&Settled> for TracedVerdict {
    fn from(settled: &Settled) -> Self {
        match settled {
            Settled::Accepted { .. } => TracedVerdict::Accepted,
            Settled::Duplicate { .. } => TracedVerdict::Duplicate,
            Settled::Unchanged => TracedVerdict::Unchanged,
            Settled::Rejected(rejection) => rejection.into(),
        }
    }
}

impl From<&crate::Rejection> for TracedVerdict {
    fn from(rejection: &crate::Rejection) -> Self {
        TracedVerdict::Rejected { code: rejection.code.as_str().to_owned(), operational: rejection.operational }
    }
}

/// What deciding one event again showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    /// An operational refusal: outside the replay boundary.
    Operational,
    /// Not everything before it is in the trace, so there is nothing to decide on.
    Incomplete(Missing),
    Different {
        expected: TracedVerdict,
        found: TracedVerdict,
    },
}

/// What of a session is not in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The session began before the trace did.
    Beginning,
    /// The trace told how the session began, and then left something out.
    Between(Gap),
    /// More after a gap that was told.
    Behind,
}

/// Where a trace leaves something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last entry of the session that the trace leads to, and the last ordinal.
    pub sequence: u64,
    pub ordinal: u64,
    /// The trace itself says that something was not recorded meanwhile.
    pub told: bool,
}

/// Decides the events of a trace again, in their order.
#[derive(Debug, Default)]
pub struct Replayer {
    sessions: BTreeMap<String, Followed>,
    losses: u64,
}

/// A session whose beginning the trace told.
#[derive(Debug)]
struct Followed {
    session: Option<Session>,
    /// How many losses the trace had told of when it last told of the session.
    losses: u64,
    behind_gap: bool,
}

impl Replayer {
    /// Something was not recorded here, and the trace says so: a gap that is found later may be this one.
    pub fn lose(&mut self) {
        self.losses += 1;
    }

    /// Decides one event again. An error means that the event itself is malformed.
    pub fn feed(&mut self, event: &Event) -> Result<Comparison, String> {
        if matches!(event.verdict, TracedVerdict::Rejected { operational: true, .. }) {
            return Ok(Comparison::Operational);
        }
        let command = event.command()?;
        let relayed = match &command.input {
            Input::Envelope { envelope, signature, .. } => ambient(envelope, signature, &command.caller, &event.limits),
            _ => None,
        };
        let found = match relayed {
            Some(Ok(_)) => TracedVerdict::Relayed,
            Some(Err(rejection)) => (&rejection).into(),
            None => match self.decide(event, &command) {
                Ok(verdict) => verdict,
                Err(missing) => return Ok(Comparison::Incomplete(missing)),
            },
        };
        if found == event.verdict {
            return Ok(Comparison::Same);
        }
        Ok(Comparison::Different { expected: event.verdict.clone(), found })
    }

    /// An error when the trace does not tell how the session came to where it stood.
    fn decide(&mut self, event: &Event, command: &Command) -> Result<TracedVerdict, Missing> {
        if event.after_sequence == 0 {
            return self.decide_absent(event, command);
        }
        let Some(followed) = self.sessions.get_mut(&event.session_id) else {
            return Err(Missing::Beginning);
        };
        if followed.sequence() != event.after_sequence {
            return Err(followed.miss(self.losses));
        }
        let verdict = again(&mut followed.session, event, command);
        followed.losses = self.losses;
        // A session that was decided otherwise stands elsewhere from here on, which is no gap of its own.
        followed.behind_gap = verdict != event.verdict;
        Ok(verdict)
    }

    /// Of a session that was not there, or was not looked at.
    fn decide_absent(&mut self, event: &Event, command: &Command) -> Result<TracedVerdict, Missing> {
        let mut session = None;
        let verdict = again(&mut session, event, command);
        if let Some(followed) = self.sessions.get_mut(&event.session_id) {
            // A server that lost its sessions, or never stored them, may give their ids again.
            let is_anew = session.is_some() && followed.losses != self.losses;
            // Whoever is refused at the door hears so before the session is looked at.
            let is_refused = matches!(event.verdict, TracedVerdict::Rejected { .. }) && verdict == event.verdict;
            if !is_anew && !is_refused {
                return Err(followed.miss(self.losses));
            }
        }
        // What was recorded as refused began nothing, however it is decided again.
        if session.is_some() && verdict == event.verdict {
            let followed = Followed { session, losses: self.losses, behind_gap: false };
            self.sessions.insert(event.session_id.clone(), followed);
        }
        Ok(verdict)
    }
}

impl Followed {
    fn sequence(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::sequence)
    }

    /// The trace does not lead to where the session stood, having told of so many losses. The first time it is named.
    fn miss(&mut self, losses: u64) -> Missing {
        if std::mem::replace(&mut self.behind_gap, true) {
            return Missing::Behind;
        }
        let ordinal = self.session.as_ref().map_or(0, Session::ordinal);
        Missing::Between(Gap { sequence: self.sequence(), ordinal, told: self.losses != losses })
    }
}

fn again(session: &mut Option<Session>, event: &Event, command: &Command) -> TracedVerdict {
    (&step(session, command, event.at_ms, &event.limits).settled).into()
}

fn decode<M: Message + Default>(text: &str) -> Result<M, String> {
    let bytes = hex::decode(text).map_err(|error| error.to_string())?;
    M::decode(bytes.as_slice()).map_err(|error| error.to_string())
}
