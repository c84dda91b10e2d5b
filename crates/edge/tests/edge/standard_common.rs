//! Sessions under the standard profile: their envelopes, and callers with a credential.

use macp_wire::modes::decision::v1::{ProposalPayload, VotePayload};
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Request, Response, Status};

use crate::common::*;

pub(crate) const SUSPENDED: i32 = 4;
pub(crate) const CANCELLED: i32 = 5;

/// A session id of the form the standard asks for.
pub(crate) fn sid(number: u32) -> String {
    format!("3f2504e0-4f89-41d3-9a0c-{number:012x}")
}

/// A start that every mode takes: alice starts, alice and bob take part.
pub(crate) fn start_payload() -> SessionStartPayload {
    SessionStartPayload {
        intent: "to agree".into(),
        participants: vec!["alice".into(), "bob".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "c1".into(),
        ttl_ms: 60_000,
        ..Default::default()
    }
}

/// An envelope without a sender: the credential fills it in.
pub(crate) fn message(
    session_id: &str,
    mode: &str,
    message_id: &str,
    message_type: &str,
    payload: &impl Message,
) -> Envelope {
    Envelope {
        mode: mode.into(),
        sender: String::new(),
        ..envelope(session_id, message_id, message_type, payload.encode_to_vec())
    }
}

pub(crate) fn std_start(session_id: &str, mode: &str, payload: &SessionStartPayload) -> Envelope {
    message(session_id, mode, &format!("{session_id}-start"), "SessionStart", payload)
}

/// A message of a decision session.
pub(crate) fn decision(session_id: &str, message_id: &str, message_type: &str, payload: &impl Message) -> Envelope {
    message(session_id, DECISION, message_id, message_type, payload)
}

/// Proposes the option that is named like its message.
pub(crate) fn propose(session_id: &str, message_id: &str) -> Envelope {
    let payload = ProposalPayload { proposal_id: message_id.into(), option: "x".into(), ..Default::default() };
    decision(session_id, message_id, "Proposal", &payload)
}

pub(crate) fn cast(session_id: &str, message_id: &str, proposal_id: &str, vote: &str) -> Envelope {
    let payload = VotePayload { proposal_id: proposal_id.into(), vote: vote.into(), ..Default::default() };
    decision(session_id, message_id, "Vote", &payload)
}

pub(crate) fn commitment_payload() -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: "c".into(),
        action: "decision.selected".into(),
        authority_scope: "team".into(),
        reason: "agreed".into(),
        mode_version: "1.0.0".into(),
        configuration_version: "c1".into(),
        outcome_positive: true,
        ..Default::default()
    }
}

pub(crate) fn commit(session_id: &str, message_id: &str) -> Envelope {
    decision(session_id, message_id, "Commitment", &commitment_payload())
}

impl Edge {
    pub(crate) async fn accept_as(&self, identity: &str, envelope: Envelope) -> Ack {
        let ack = self.send_as(identity, envelope).await;
        assert!(ack.ok && !ack.duplicate && ack.error.is_none(), "{ack:?}");
        ack
    }

    pub(crate) async fn refuse_as(&self, identity: &str, envelope: Envelope, code: &str) -> Ack {
        let (session_id, message_id) = (envelope.session_id.clone(), envelope.message_id.clone());
        let ack = self.send_as(identity, envelope).await;
        assert!(!ack.ok && !ack.duplicate, "{code} expected: {ack:?}");
        let error = ack.error.clone().expect("an error");
        assert_eq!(error.code, code, "{ack:?}");
        assert!(!error.message.is_empty());
        assert_eq!((&ack.session_id, &ack.message_id), (&session_id, &message_id));
        assert_eq!((error.session_id, error.message_id), (session_id, message_id), "echoed");
        ack
    }

    pub(crate) async fn duplicate_as(&self, identity: &str, envelope: Envelope) -> Ack {
        let ack = self.send_as(identity, envelope).await;
        assert!(ack.ok && ack.duplicate && ack.error.is_none(), "{ack:?}");
        ack
    }

    /// A decision session of alice and bob.
    pub(crate) async fn decide(&self, session_id: &str) {
        self.accept_as("alice", std_start(session_id, DECISION, &start_payload())).await;
    }

    /// A decision session that ended in a commitment.
    pub(crate) async fn resolve(&self, session_id: &str) {
        self.decide(session_id).await;
        self.accept_as("bob", propose(session_id, "p")).await;
        let ack = self.accept_as("alice", commit(session_id, "c")).await;
        assert_eq!(ack.session_state, RESOLVED);
    }

    pub(crate) async fn session_as(&self, identity: &str, session_id: &str) -> Result<SessionMetadata, Status> {
        let request = authorized(identity, GetSessionRequest { session_id: session_id.into() });
        Ok(self.runtime.clone().get_session(request).await?.into_inner().metadata.expect("metadata"))
    }

    pub(crate) async fn cancel_as(&self, identity: &str, session_id: &str) -> Result<Ack, Status> {
        let request = CancelSessionRequest { session_id: session_id.into(), reason: "because".into() };
        let response = self.runtime.clone().cancel_session(authorized(identity, request)).await?;
        Ok(response.into_inner().ack.expect("an Ack"))
    }

    pub(crate) async fn suspend_as(&self, identity: &str, session_id: &str) -> Result<Ack, Status> {
        let request = SuspendSessionRequest { session_id: session_id.into(), reason: "a break".into() };
        let response = self.runtime.clone().suspend_session(authorized(identity, request)).await?;
        Ok(response.into_inner().ack.expect("an Ack"))
    }

    pub(crate) async fn resume_as(&self, identity: &str, session_id: &str) -> Result<Ack, Status> {
        let request = ResumeSessionRequest { session_id: session_id.into(), reason: "back".into() };
        let response = self.runtime.clone().resume_session(authorized(identity, request)).await?;
        Ok(response.into_inner().ack.expect("an Ack"))
    }

    pub(crate) async fn register_policy(&self, policy: PolicyDescriptor) {
        let request = RegisterPolicyRequest { policy_descriptor: Some(policy) };
        let response = self.runtime.clone().register_policy(authorized("admin", request)).await.expect("an answer");
        let RegisterPolicyResponse { ok, error } = response.into_inner();
        assert!(ok && error.is_empty(), "{error}");
    }

    pub(crate) async fn register_mode(&self, mode: ModeDescriptor) -> RegisterExtModeResponse {
        let request = RegisterExtModeRequest { mode_descriptor: Some(mode) };
        self.runtime.clone().register_ext_mode(authorized("admin", request)).await.expect("an answer").into_inner()
    }
}

pub(crate) fn policy(id: &str, mode: &str, rules: &str) -> PolicyDescriptor {
    PolicyDescriptor {
        policy_id: id.into(),
        mode: mode.into(),
        description: "as the tests need it".into(),
        rules: rules.into(),
        schema_version: 1,
        ..Default::default()
    }
}

/// A mode that passes notes until someone commits.
pub(crate) fn notes_mode(name: &str) -> ModeDescriptor {
    ModeDescriptor {
        mode: name.into(),
        mode_version: "2.1".into(),
        title: "Notes".into(),
        determinism_class: "structural-only".into(),
        participant_model: "peer".into(),
        message_types: vec!["SessionStart".into(), "Note".into(), "Commitment".into()],
        terminal_message_types: vec!["Commitment".into()],
        ..Default::default()
    }
}

/// Asserts a refusal by a status: its gRPC code and the code of the registry beside it (STD-RPC-1).
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, grpc: Code, expected: &str) -> Status {
    let status = result.expect_err("a refusal");
    assert_eq!((status.code(), code(&status)), (grpc, expected), "{status:?}");
    assert!(!status.message().is_empty());
    status
}

/// The code of an Ack's error.
pub(crate) fn ack_code(ack: &Ack) -> &str {
    ack.error.as_ref().map_or("", |error| error.code.as_str())
}

/// A request with a credential that is malformed.
pub(crate) fn ill_authorized<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", "Bearer ".parse().expect("ASCII"));
    request
}

/// The message of an answer.
pub(crate) fn body<T>(answer: Result<Response<T>, Status>) -> Result<T, Status> {
    answer.map(Response::into_inner)
}
