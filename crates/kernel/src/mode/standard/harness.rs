//! One session of one mode, asked and changed in the order admission does it: who may send, what clients may not say,
//! what the mode says by itself, the message, its change.

use bytes::Bytes;
use macp_wire::codes::Code;
use macp_wire::v1::{CommitmentPayload, Envelope, PolicyDescriptor};
use prost::Message;
use serde_json::Value;

use crate::mode::{Extension, Mode, Response, Start, View};
use crate::policy::{Policy, default_policy};
use crate::{Rejection, Roster, Suspension};

pub(super) const CONFIGURATION: &str = "cfg-1";

pub(super) struct Table<M: Mode> {
    pub(super) roster: Roster,
    pub(super) initiator: &'static str,
    pub(super) policy: Policy,
    pub(super) extension: Option<Extension>,
    pub(super) suspension: Suspension,
    pub(super) now_ms: i64,
    pub(super) state: M::State,
    pub(super) resolution: Option<Bytes>,
    sent: u64,
}

impl<M: Mode> Table<M> {
    pub(super) fn start(initiator: &'static str, participants: &[&str]) -> Result<Self, Rejection> {
        let roster = Roster::new(participants.iter().copied());
        let state = M::start(&Start { initiator, roster: &roster, context: &[] })?;
        Ok(Table {
            roster,
            initiator,
            policy: Policy::clone(default_policy()),
            extension: None,
            suspension: Suspension::new(i64::MAX),
            now_ms: 1_000,
            state,
            resolution: None,
            sent: 0,
        })
    }

    pub(super) fn new(initiator: &'static str, participants: &[&str]) -> Self {
        Self::start(initiator, participants).expect("the roster suits the mode")
    }

    /// Bound to a policy of the mode with these rules.
    pub(super) fn governed(mut self, rules: Value) -> Self {
        let descriptor = PolicyDescriptor {
            policy_id: "policy.test".into(),
            mode: M::SPEC.name.into(),
            description: String::new(),
            rules: rules.to_string(),
            schema_version: 3,
            registered_at_unix_ms: 0,
        };
        self.policy = Policy::read(descriptor).expect("the rules are well formed");
        self
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            roster: &self.roster,
            initiator: self.initiator,
            mode_version: "1.0.0",
            configuration_version: CONFIGURATION,
            policy: &self.policy,
            extension: self.extension.as_ref(),
            suspension: &self.suspension,
            now_ms: self.now_ms,
        }
    }

    pub(super) fn envelope(&mut self, sender: &str, message_type: &str, payload: impl Into<Bytes>) -> Envelope {
        self.sent += 1;
        Envelope {
            macp_version: "1.0".into(),
            mode: M::SPEC.name.into(),
            message_type: message_type.into(),
            message_id: format!("m{}", self.sent),
            session_id: "s".into(),
            sender: sender.into(),
            // Nothing may depend on it.
            timestamp_unix_ms: 0,
            payload: payload.into(),
        }
    }

    pub(super) fn submit(&mut self, envelope: &Envelope) -> Result<(), Rejection> {
        M::authorize(&self.view(), &self.state, envelope)?;
        M::check_client(envelope)?;
        self.let_time_pass();
        self.enter(envelope)
    }

    /// Writes what the mode says by itself, if it is time.
    pub(super) fn let_time_pass(&mut self) {
        let scheduled = M::scheduled(&self.view(), &self.state);
        if let Some(scheduled) = scheduled.filter(|scheduled| scheduled.at_ms <= self.now_ms) {
            let mut envelope = self.envelope(&scheduled.sender, scheduled.message_type, scheduled.payload);
            envelope.message_id = scheduled.message_id;
            let now_ms = std::mem::replace(&mut self.now_ms, scheduled.at_ms);
            M::authorize(&self.view(), &self.state, &envelope).expect("the mode may say what it says by itself");
            self.enter(&envelope).expect("the mode accepts what it says by itself");
            self.now_ms = now_ms;
        }
    }

    /// As replay does: no question about clients, none about time.
    pub(super) fn enter(&mut self, envelope: &Envelope) -> Result<(), Rejection> {
        let (change, resolution) = match M::judge(&self.view(), &self.state, envelope)? {
            Response::NoOp => (None, None),
            Response::Persist(change) => (Some(change), None),
            Response::Resolve(resolution) => (None, Some(resolution)),
            Response::PersistAndResolve { change, resolution } => (Some(change), Some(resolution)),
        };
        if let Some(change) = change {
            M::apply(&mut self.state, change);
        }
        self.resolution = self.resolution.take().or(resolution);
        Ok(())
    }

    #[track_caller]
    pub(super) fn accept(&mut self, sender: &str, message_type: &str, payload: &impl Message) {
        self.accept_bytes(sender, message_type, payload.encode_to_vec());
    }

    #[track_caller]
    pub(super) fn accept_bytes(&mut self, sender: &str, message_type: &str, payload: impl Into<Bytes>) {
        let envelope = self.envelope(sender, message_type, payload);
        if let Err(rejection) = self.submit(&envelope) {
            panic!("{message_type} of {sender}: {rejection}");
        }
    }

    #[track_caller]
    pub(super) fn refuse(&mut self, sender: &str, message_type: &str, payload: &impl Message) -> Code {
        self.refuse_bytes(sender, message_type, payload.encode_to_vec())
    }

    #[track_caller]
    pub(super) fn refuse_bytes(&mut self, sender: &str, message_type: &str, payload: impl Into<Bytes>) -> Code {
        let envelope = self.envelope(sender, message_type, payload);
        match self.submit(&envelope) {
            Ok(()) => panic!("{message_type} of {sender} was accepted"),
            Err(rejection) => rejection.code,
        }
    }

    pub(super) fn commitment(&self, action: &str, outcome_positive: bool) -> CommitmentPayload {
        CommitmentPayload {
            commitment_id: "c1".into(),
            action: action.into(),
            authority_scope: "test".into(),
            reason: "done".into(),
            mode_version: "1.0.0".into(),
            policy_version: String::new(),
            configuration_version: CONFIGURATION.into(),
            outcome_positive,
            supersedes: None,
        }
    }

    #[track_caller]
    pub(super) fn commit(&mut self, sender: &str, action: &str, outcome_positive: bool) {
        let commitment = self.commitment(action, outcome_positive);
        self.accept(sender, "Commitment", &commitment);
        assert!(self.resolution.is_some(), "a Commitment resolves the session");
    }

    #[track_caller]
    pub(super) fn refuse_commit(&mut self, sender: &str, action: &str, outcome_positive: bool) -> Code {
        let commitment = self.commitment(action, outcome_positive);
        self.refuse(sender, "Commitment", &commitment)
    }

    pub(super) fn describe(&self) -> Value {
        M::describe(&self.view(), &self.state)
    }
}

/// The code a roster is refused with.
#[track_caller]
pub(super) fn refuse_start<M: Mode>(initiator: &'static str, participants: &[&str]) -> Code {
    match Table::<M>::start(initiator, participants) {
        Ok(_) => panic!("{participants:?} started"),
        Err(rejection) => rejection.code,
    }
}
