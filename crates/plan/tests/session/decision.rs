//! Standard and classic decision sessions, driven through the engine as clients drive them.

use macp_engine::Engine;
use macp_kernel::{Caller, Command, Input, Registered, Settled, SignatureCheck};
use macp_plan::session::execution_session_id;
use macp_wire::modes::decision::v1::ProposalPayload;
use macp_wire::v1::{CommitmentPayload, CommitmentRef, Envelope, SessionStartPayload};
use macp_wire::{classic, payload};
use prost::Message;
use serde_json::Value;

use crate::world::{World, plan, step, token, until};

pub(crate) const MODE: &str = "macp.mode.decision.v1";

/// A session being decided.
pub(crate) struct Decision<'a> {
    engine: &'a Engine,
    pub(crate) session_id: String,
    coordinator: String,
    classic: bool,
    messages: u32,
}

impl<'a> Decision<'a> {
    /// A standard session without a plan at its start.
    pub(crate) async fn standard(engine: &'a Engine, name: &str) -> Decision<'a> {
        Decision::standard_with(engine, name, |_| {}).await
    }

    pub(crate) async fn standard_with(
        engine: &'a Engine,
        name: &str,
        change: impl FnOnce(&mut SessionStartPayload),
    ) -> Decision<'a> {
        Decision::standard_by(engine, name, "alice", change).await
    }

    pub(crate) async fn standard_by(
        engine: &'a Engine,
        name: &str,
        coordinator: &str,
        change: impl FnOnce(&mut SessionStartPayload),
    ) -> Decision<'a> {
        let mut start = SessionStartPayload {
            participants: vec![coordinator.to_owned(), "bob".to_owned()],
            mode_version: "1.0.0".to_owned(),
            configuration_version: "c1".to_owned(),
            ttl_ms: 60_000,
            ..SessionStartPayload::default()
        };
        change(&mut start);
        let mut decision = Decision {
            engine,
            session_id: format!("{name}-{}", "0123456789abcdef01234567"),
            coordinator: coordinator.to_owned(),
            classic: false,
            messages: 0,
        };
        decision.send("SessionStart", coordinator, start.encode_to_vec()).await;
        decision
    }

    pub(crate) async fn classic(engine: &'a Engine, name: &str, context: Vec<u8>) -> Decision<'a> {
        let start = classic::v1::SessionStartPayload {
            ttl_ms: 60_000,
            configuration_version: "c1".to_owned(),
            context: context.into(),
            ..classic::v1::SessionStartPayload::default()
        };
        let (session_id, coordinator) = (name.to_owned(), "alice".to_owned());
        let mut decision = Decision { engine, session_id, coordinator, classic: true, messages: 0 };
        decision.send("SessionStart", "alice", start.encode_to_vec()).await;
        decision
    }

    /// Proposes something with this as supporting data.
    pub(crate) async fn propose(&mut self, proposal_id: &str, supporting_data: &[u8]) -> &mut Self {
        let proposal = ProposalPayload {
            proposal_id: proposal_id.to_owned(),
            option: "run it".to_owned(),
            rationale: "cheap".to_owned(),
            supporting_data: supporting_data.to_vec().into(),
        };
        let bytes = if self.classic { payload::encode_json(&proposal).unwrap() } else { proposal.encode_to_vec() };
        let coordinator = self.coordinator.clone();
        self.send("Proposal", &coordinator, bytes).await;
        self
    }

    pub(crate) async fn propose_plan(&mut self, plan: &Value) -> &mut Self {
        self.propose("p1", plan.to_string().as_bytes()).await
    }

    pub(crate) async fn vote(&mut self) -> &mut Self {
        let payload = r#"{"proposal_id":"p1","vote":"approve"}"#;
        self.send("Vote", "bob", payload.as_bytes().to_vec()).await;
        self
    }

    /// Commits as a standard session does, after changes.
    pub(crate) async fn commit_with(&mut self, change: impl FnOnce(&mut CommitmentPayload)) -> String {
        let mut commitment = CommitmentPayload {
            commitment_id: "c-1".to_owned(),
            action: "decision.selected".to_owned(),
            authority_scope: "ops".to_owned(),
            reason: "agreed".to_owned(),
            mode_version: "1.0.0".to_owned(),
            configuration_version: "c1".to_owned(),
            outcome_positive: true,
            ..CommitmentPayload::default()
        };
        change(&mut commitment);
        let coordinator = self.coordinator.clone();
        self.send("Commitment", &coordinator, commitment.encode_to_vec()).await;
        macp_kernel::commitment::hash(&commitment)
    }

    /// Commits to a plan by the commitment's id.
    pub(crate) async fn commit_to(&mut self, token: &str) -> String {
        let token = token.to_owned();
        self.commit_with(|commitment| commitment.commitment_id = token).await
    }

    /// Commits to a plan in the place of another commitment.
    pub(crate) async fn commit_instead(&mut self, token: &str, session_id: &str, commitment_hash: &str) -> String {
        let reference =
            CommitmentRef { session_id: session_id.to_owned(), commitment_hash: commitment_hash.to_owned() };
        let token = token.to_owned();
        self.commit_with(|commitment| {
            commitment.commitment_id = token;
            commitment.supersedes = Some(reference);
        })
        .await
    }

    /// Commits with a payload as written, as classic clients do.
    pub(crate) async fn commit_json(&mut self, payload: &Value) {
        self.send("Commitment", "alice", payload.to_string().into_bytes()).await;
    }

    pub(crate) async fn send(&mut self, message_type: &str, sender: &str, payload: Vec<u8>) {
        self.messages += 1;
        let envelope = Envelope {
            macp_version: "1.0".to_owned(),
            mode: if self.classic { String::new() } else { MODE.to_owned() },
            message_type: message_type.to_owned(),
            message_id: format!("m{}", self.messages),
            session_id: self.session_id.clone(),
            sender: sender.to_owned(),
            payload: payload.into(),
            ..Envelope::default()
        };
        let caller = if self.classic { Caller::anonymous() } else { Caller::identified(sender) };
        let (signature, registered) = (SignatureCheck::Absent, Registered::default());
        let command = Command { caller, input: Input::Envelope { envelope, signature, registered } };
        let reply = self.engine.submit(&self.session_id, command).await.expect("the engine answers");
        assert!(matches!(reply.settled, Settled::Accepted { .. }), "{message_type}: {reply:?}");
    }
}

/// Waits until the watcher has dealt with a later event, and so with every earlier one.
pub(crate) async fn dealt_with_everything(world: &World) {
    let (one, other) = (plan("earlier", vec![step("s1")]), plan("marker", vec![step("s1")]));
    let (session_id, hash) = committed(&world.engine, "earlier-marker", &one).await;
    let mut marker = Decision::standard(&world.engine, "marker").await;
    marker.propose_plan(&other).await.commit_instead(&token(&other), &session_id, &hash).await;
    let marker = marker.session_id;
    until("the marker", || async {
        let notes = world.engine.store().documents("aos.superseded", None, 100).unwrap();
        notes.iter().any(|note| serde_json::from_slice::<Value>(&note.bytes).unwrap()["session_id"] == marker.as_str())
    })
    .await;
}

/// A standard session that committed to a plan: its id and the commitment's hash.
pub(crate) async fn committed(engine: &Engine, name: &str, plan: &Value) -> (String, String) {
    let mut decision = Decision::standard(engine, name).await;
    let hash = decision.propose_plan(plan).await.commit_to(&token(plan)).await;
    (decision.session_id, hash)
}

pub(crate) async fn control(engine: &Engine, session_id: &str, by: &str, input: Input) {
    let command = Command { caller: Caller::identified(by), input };
    let reply = engine.submit(session_id, command).await.unwrap();
    assert!(matches!(reply.settled, Settled::Accepted { .. }), "{reply:?}");
}

/// Someone else's session under the id of a run's, which says that it is about some run.
pub(crate) async fn usurp(engine: &Engine, run_id: &str, sender: &str, context_id: &str) -> String {
    let id = execution_session_id(run_id);
    let payload = SessionStartPayload {
        participants: vec!["mallory".to_owned(), "macp-executor".to_owned()],
        mode_version: "1.0.0".to_owned(),
        configuration_version: "aos-execution/1".to_owned(),
        ttl_ms: 60_000,
        context_id: context_id.to_owned(),
        ..SessionStartPayload::default()
    };
    let envelope = Envelope {
        macp_version: "1.0".to_owned(),
        mode: "macp.mode.task.v1".to_owned(),
        message_type: "SessionStart".to_owned(),
        message_id: "m1".to_owned(),
        session_id: id.clone(),
        sender: sender.to_owned(),
        payload: payload.encode_to_vec().into(),
        ..Envelope::default()
    };
    let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
    let reply = engine.submit(&id, Command { caller: Caller::identified(sender), input }).await.unwrap();
    assert!(matches!(reply.settled, Settled::Accepted { .. }), "{reply:?}");
    id
}
