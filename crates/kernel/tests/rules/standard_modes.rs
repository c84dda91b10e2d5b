//! The modes of the standard profile from start to end, by way of admission: what becomes history, how it resolves, and
//! that the stored history leads to the same session. Their rules one by one are shown beside each mode.

use std::sync::Arc;

use macp_kernel::mode::Extension;
use macp_kernel::policy::Policy;
use macp_kernel::replay::Replayer;
use macp_kernel::{Caller, Command, Input, Limits, Registered, Session, Settled, SignatureCheck, State, step};
use macp_wire::history::v1::{Entry, entry};
use macp_wire::modes::{decision, handoff, multi_round, proposal, quorum, task};
use macp_wire::v1::{CommitmentPayload, Envelope, ModeDescriptor, PolicyDescriptor, SessionStartPayload};
use prost::Message;
use serde_json::json;

use crate::world::{NOW, word};

const SESSION: &str = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e5f";

/// One standard session with its clock and history. The initiator is `lead`.
struct Run {
    mode: &'static str,
    registered: Registered,
    now: i64,
    slot: Option<Session>,
    entries: Vec<Entry>,
    sent: u32,
}

impl Run {
    #[track_caller]
    fn start(mode: &'static str, participants: &[&str]) -> Self {
        Run::start_with(mode, participants, Registered::default())
    }

    #[track_caller]
    fn start_with(mode: &'static str, participants: &[&str], registered: Registered) -> Self {
        let payload = SessionStartPayload {
            participants: participants.iter().map(|name| (*name).to_owned()).collect(),
            mode_version: "1.0.0".into(),
            configuration_version: "cfg-1".into(),
            policy_version: registered.policy.as_ref().map_or_else(String::new, |policy| policy.id().into()),
            ttl_ms: 60_000,
            ..SessionStartPayload::default()
        };
        let mut run = Run { mode, registered, now: NOW, slot: None, entries: Vec::new(), sent: 0 };
        run.expect("lead", "SessionStart", &payload, "accepted");
        run
    }

    fn run(&mut self, sender: &str, input: Input) -> Settled {
        let command = Command { caller: Caller::identified(sender), input };
        let outcome = step(&mut self.slot, &command, self.now, &Limits::default());
        self.entries.extend(outcome.entries);
        outcome.settled
    }

    #[track_caller]
    fn expect(&mut self, sender: &str, message_type: &str, payload: &impl Message, expected: &str) {
        self.sent += 1;
        let envelope = Envelope {
            macp_version: "1.0".into(),
            mode: self.mode.into(),
            message_type: message_type.into(),
            message_id: format!("m{}", self.sent),
            session_id: SESSION.into(),
            sender: sender.into(),
            timestamp_unix_ms: 0,
            payload: payload.encode_to_vec().into(),
        };
        let registered = self.registered.clone();
        let settled = self.run(sender, Input::Envelope { envelope, signature: SignatureCheck::Absent, registered });
        assert_eq!(word(&settled), expected, "{message_type} of {sender}: {settled:?}");
    }

    #[track_caller]
    fn accept(&mut self, sender: &str, message_type: &str, payload: &impl Message) {
        self.expect(sender, message_type, payload, "accepted");
    }

    fn commitment(&self, action: &str, outcome_positive: bool) -> CommitmentPayload {
        CommitmentPayload {
            commitment_id: "c1".into(),
            action: action.into(),
            authority_scope: "test".into(),
            reason: "done".into(),
            mode_version: "1.0.0".into(),
            policy_version: String::new(),
            configuration_version: "cfg-1".into(),
            outcome_positive,
            supersedes: None,
        }
    }

    /// Commits, and shows that the session resolved with the payload as it came and can be rebuilt.
    #[track_caller]
    fn commit(mut self, action: &str, outcome_positive: bool) -> Session {
        let commitment = self.commitment(action, outcome_positive);
        self.accept("lead", "Commitment", &commitment);
        let session = self.rebuilt();
        assert_eq!(session.resolution().map(|bytes| bytes.to_vec()), Some(commitment.encode_to_vec()));
        session
    }

    /// The session, if its stored history leads to the same one.
    #[track_caller]
    fn rebuilt(self) -> Session {
        let mut replayer = Replayer::default();
        for entry in &self.entries {
            let stored = Entry::decode(entry.encode_to_vec().as_slice()).expect("an entry decodes");
            replayer.feed(&stored).expect("an untouched history replays");
        }
        let session = self.slot.expect("the session was started");
        assert_eq!(replayer.into_session().as_ref(), Some(&session));
        session
    }

    fn session(&self) -> &Session {
        self.slot.as_ref().expect("the session was started")
    }

    /// Sender, type and time of every mode message of the history.
    fn messages(&self) -> Vec<(&str, &str, i64)> {
        let envelopes = self.entries.iter().filter_map(|entry| match &entry.input {
            Some(entry::Input::Envelope(envelope)) => Some((envelope, entry.accepted_at_unix_ms)),
            _ => None,
        });
        envelopes.map(|(envelope, at)| (envelope.sender.as_str(), envelope.message_type.as_str(), at - NOW)).collect()
    }
}

fn governed(mode: &str, rules: &serde_json::Value) -> Registered {
    let descriptor = PolicyDescriptor {
        policy_id: "policy.test".into(),
        mode: mode.into(),
        description: String::new(),
        rules: rules.to_string(),
        schema_version: 3,
        registered_at_unix_ms: 0,
    };
    let policy = Policy::read(descriptor).expect("the rules are well formed");
    Registered { policy: Some(Arc::new(policy)), extension: None }
}

#[test]
fn std_dec_a_decision() {
    use decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
    let mut run = Run::start("macp.mode.decision.v1", &["a", "b"]);
    let proposal = ProposalPayload { proposal_id: "p1".into(), option: "go".into(), ..Default::default() };
    run.expect("lead", "Proposal", &proposal, "FORBIDDEN");
    run.accept("a", "Proposal", &proposal);
    let evaluation = EvaluationPayload {
        proposal_id: "p1".into(),
        recommendation: "APPROVE".into(),
        confidence: 0.9,
        reason: String::new(),
    };
    run.accept("b", "Evaluation", &evaluation);
    let objection = ObjectionPayload { proposal_id: "p1".into(), reason: String::new(), severity: "low".into() };
    run.accept("b", "Objection", &objection);
    run.accept("a", "Vote", &VotePayload { proposal_id: "p1".into(), vote: "APPROVE".into(), reason: String::new() });
    let session = run.commit("decision.selected", true);
    assert_eq!(session.state(), State::Resolved);
    assert_eq!(session.describe_mode()["phase"], "Committed");
}

/// What is as long as it may be is accepted and replays; one byte more is refused.
#[test]
fn std_mode_2_lengths_of_names_and_texts_in_payloads() {
    use decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
    const REFUSED: &str = "INVALID_ENVELOPE";
    let text = |more: usize| "x".repeat(65_536 + more);
    let mut run = Run::start("macp.mode.decision.v1", &["a", "b"]);
    let id = || "p1".to_owned();
    let proposal = |option, rationale| ProposalPayload {
        proposal_id: id(),
        option,
        rationale,
        supporting_data: vec![b'x'; 800_000].into(),
    };
    run.expect("a", "Proposal", &proposal(text(1), text(0)), REFUSED);
    run.expect("a", "Proposal", &proposal(text(0), text(1)), REFUSED);
    run.accept("a", "Proposal", &proposal(text(0), text(0)));
    let evaluation =
        |reason| EvaluationPayload { proposal_id: id(), recommendation: "APPROVE".into(), confidence: 0.9, reason };
    run.expect("b", "Evaluation", &evaluation(text(1)), REFUSED);
    run.accept("b", "Evaluation", &evaluation(text(0)));
    let objection = |reason| ObjectionPayload { proposal_id: id(), reason, severity: "low".into() };
    run.expect("b", "Objection", &objection(text(1)), REFUSED);
    run.accept("b", "Objection", &objection(text(0)));
    let vote = |reason| VotePayload { proposal_id: id(), vote: "APPROVE".into(), reason };
    run.expect("a", "Vote", &vote(text(1)), REFUSED);
    run.accept("a", "Vote", &vote(text(0)));

    let word = |more: usize| "x".repeat(256 + more);
    let longest = CommitmentPayload {
        commitment_id: word(0),
        action: text(0),
        authority_scope: word(0),
        reason: text(0),
        ..run.commitment("", true)
    };
    for too_long in [
        CommitmentPayload { commitment_id: word(1), ..longest.clone() },
        CommitmentPayload { action: text(1), ..longest.clone() },
        CommitmentPayload { authority_scope: word(1), ..longest.clone() },
        CommitmentPayload { reason: text(1), ..longest.clone() },
    ] {
        run.expect("lead", "Commitment", &too_long, REFUSED);
    }
    run.accept("lead", "Commitment", &longest);
    assert_eq!(run.rebuilt().state(), State::Resolved);
}

/// Each mode reads its payloads by the one table, whatever the rest of a message.
#[test]
fn std_mode_2_every_mode_holds_its_payloads_to_their_lengths() {
    const REFUSED: &str = "INVALID_ENVELOPE";
    let text = || "x".repeat(65_537);
    let word = || "x".repeat(257);

    let mut run = Run::start("macp.mode.proposal.v1", &["lead", "b"]);
    let offer = proposal::v1::ProposalPayload { proposal_id: "p".into(), ..Default::default() };
    run.expect("lead", "Proposal", &proposal::v1::ProposalPayload { title: text(), ..offer.clone() }, REFUSED);
    run.expect("lead", "Proposal", &proposal::v1::ProposalPayload { tags: vec![word()], ..offer.clone() }, REFUSED);
    run.accept("lead", "Proposal", &offer);
    run.expect("b", "Accept", &proposal::v1::AcceptPayload { proposal_id: "p".into(), reason: text() }, REFUSED);

    let mut run = Run::start("macp.mode.task.v1", &["lead", "b"]);
    let request = task::v1::TaskRequestPayload { task_id: "t".into(), ..Default::default() };
    let instructed = task::v1::TaskRequestPayload { instructions: text(), ..request.clone() };
    run.expect("lead", "TaskRequest", &instructed, REFUSED);
    run.accept("lead", "TaskRequest", &request);
    run.accept("b", "TaskAccept", &task::v1::TaskAcceptPayload { task_id: "t".into(), ..Default::default() });
    let update = task::v1::TaskUpdatePayload { task_id: "t".into(), status: word(), ..Default::default() };
    run.expect("b", "TaskUpdate", &update, REFUSED);

    let mut run = Run::start("macp.mode.handoff.v1", &["lead", "b"]);
    let offer = handoff::v1::HandoffOfferPayload {
        handoff_id: "h".repeat(240),
        target_participant: "b".into(),
        ..Default::default()
    };
    let scoped = handoff::v1::HandoffOfferPayload { scope: text(), ..offer.clone() };
    run.expect("lead", "HandoffOffer", &scoped, REFUSED);
    let named = handoff::v1::HandoffOfferPayload { handoff_id: "h".repeat(241), ..offer.clone() };
    run.expect("lead", "HandoffOffer", &named, REFUSED);
    run.accept("lead", "HandoffOffer", &offer);

    let mut run = Run::start("macp.mode.quorum.v1", &["lead", "b"]);
    let request =
        quorum::v1::ApprovalRequestPayload { request_id: "r".into(), required_approvals: 1, ..Default::default() };
    let summed_up = quorum::v1::ApprovalRequestPayload { summary: text(), ..request.clone() };
    run.expect("lead", "ApprovalRequest", &summed_up, REFUSED);
    run.accept("lead", "ApprovalRequest", &request);
    run.expect("b", "Approve", &quorum::v1::ApprovePayload { request_id: "r".into(), reason: text() }, REFUSED);

    let mut run = Run::start("ext.multi_round.v1", &["lead"]);
    let contribution = |value| multi_round::v1::ContributePayload { value };
    run.expect("lead", "Contribute", &contribution(text()), REFUSED);
    run.accept("lead", "Contribute", &contribution("x".repeat(65_536)));
    let commitment = CommitmentPayload { authority_scope: word(), ..run.commitment("done", true) };
    run.expect("lead", "Commitment", &commitment, REFUSED);
}

#[test]
fn std_prop_a_negotiation() {
    use proposal::v1::{AcceptPayload, CounterProposalPayload, ProposalPayload};
    let mut run = Run::start("macp.mode.proposal.v1", &["lead", "b"]);
    run.accept("lead", "Proposal", &ProposalPayload { proposal_id: "p1".into(), ..Default::default() });
    let counter =
        CounterProposalPayload { proposal_id: "p2".into(), supersedes_proposal_id: "p1".into(), ..Default::default() };
    run.accept("b", "CounterProposal", &counter);
    for sender in ["lead", "b"] {
        run.accept(sender, "Accept", &AcceptPayload { proposal_id: "p2".into(), reason: String::new() });
    }
    let session = run.commit("proposal.accepted", true);
    assert_eq!(session.describe_mode()["accepts"], json!({"b": "p2", "lead": "p2"}));
}

#[test]
fn std_task_a_task() {
    use task::v1::{TaskAcceptPayload, TaskCompletePayload, TaskRequestPayload, TaskUpdatePayload};
    let rules = json!({"completion": {"require_output": true}});
    let mut run = Run::start_with("macp.mode.task.v1", &["w"], governed("macp.mode.task.v1", &rules));
    run.accept("lead", "TaskRequest", &TaskRequestPayload { task_id: "t1".into(), ..Default::default() });
    run.accept("w", "TaskAccept", &TaskAcceptPayload { task_id: "t1".into(), ..Default::default() });
    let update = TaskUpdatePayload { task_id: "t1".into(), progress: f64::NAN, ..Default::default() };
    run.accept("w", "TaskUpdate", &update);
    let complete = TaskCompletePayload { task_id: "t1".into(), output: "result".into(), ..Default::default() };
    run.accept("w", "TaskComplete", &complete);
    let session = run.commit("task.completed", true);
    assert_eq!(session.describe_mode()["active_assignee"], "w");
}

#[test]
fn std_quor_a_quorum() {
    use quorum::v1::{AbstainPayload, ApprovalRequestPayload, ApprovePayload};
    let mut run = Run::start("macp.mode.quorum.v1", &["a", "b", "c"]);
    let request = ApprovalRequestPayload { request_id: "r1".into(), required_approvals: 2, ..Default::default() };
    run.accept("lead", "ApprovalRequest", &request);
    let approve = ApprovePayload { request_id: "r1".into(), reason: String::new() };
    run.accept("a", "Approve", &approve);
    run.accept("b", "Abstain", &AbstainPayload { request_id: "r1".into(), reason: String::new() });
    let early = run.commitment("quorum.approved", true);
    run.expect("lead", "Commitment", &early, "INVALID_ENVELOPE");
    run.accept("c", "Approve", &approve);
    run.commit("quorum.approved", true);
}

#[test]
fn std_mr_a_convergence() {
    use multi_round::v1::ContributePayload;
    let mut run = Run::start("ext.multi_round.v1", &["a", "b"]);
    run.accept("a", "Contribute", &ContributePayload { value: "x".into() });
    run.accept("b", "Contribute", &ContributePayload { value: "x".into() });
    let commitment = run.commitment("multi_round.converged", true);
    run.accept("lead", "Commitment", &commitment);
    let resolution = br#"{"converged_value":"x","round":2,"final":{"a":"x","b":"x"}}"#;
    assert_eq!(run.rebuilt().resolution().map(|bytes| bytes.to_vec()), Some(resolution.to_vec()));
}

#[test]
fn std_ext_1_a_registered_mode() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let descriptor = ModeDescriptor {
        mode: "ext.chat.v1".into(),
        mode_version: "1.0.0".into(),
        message_types: words(&["SessionStart", "Say", "Commitment"]),
        terminal_message_types: words(&["Commitment"]),
        ..ModeDescriptor::default()
    };
    let extension = Some(Arc::new(Extension { descriptor, promoted: false }));
    let mut run = Run::start_with("ext.chat.v1", &["a"], Registered { policy: None, extension });
    run.accept("a", "Say", &"hello".to_owned());
    run.expect("a", "Sing", &"la".to_owned(), "INVALID_ENVELOPE");
    run.expect("outsider", "Say", &"hello".to_owned(), "FORBIDDEN");
    let commitment = run.commitment("chat.over", true);
    run.accept("lead", "Commitment", &commitment);
    let resolution = br#"{"action":"chat.over","commitment_id":"c1"}"#;
    assert_eq!(run.rebuilt().resolution().map(|bytes| bytes.to_vec()), Some(resolution.to_vec()));
}

/// With an offer to t at [`NOW`] that a second of silence accepts.
fn offered() -> Run {
    let rules = json!({"acceptance": {"implicit_accept_timeout_ms": 1000}});
    let registered = governed("macp.mode.handoff.v1", &rules);
    let mut run = Run::start_with("macp.mode.handoff.v1", &["lead", "t"], registered);
    let offer = handoff::v1::HandoffOfferPayload {
        handoff_id: "h1".into(),
        target_participant: "t".into(),
        ..Default::default()
    };
    run.accept("lead", "HandoffOffer", &offer);
    run
}

#[test]
fn std_hand_14_silence_is_recorded_before_the_commitment() {
    let mut run = offered();
    run.now += 1_500;
    let commitment = run.commitment("handoff.accepted", true);
    run.accept("lead", "Commitment", &commitment);
    assert_eq!(
        run.messages()[1..],
        [("lead", "HandoffOffer", 0), ("t", "HandoffAccept", 1_000), ("lead", "Commitment", 1_500)]
    );
    assert_eq!(run.rebuilt().state(), State::Resolved);
}

#[test]
fn std_hand_15_a_late_decline_is_refused_and_the_accept_stands() {
    let mut run = offered();
    run.now += 1_000;
    let decline = handoff::v1::HandoffDeclinePayload { handoff_id: "h1".into(), ..Default::default() };
    run.expect("t", "HandoffDecline", &decline, "INVALID_ENVELOPE");
    assert_eq!(run.messages()[2..], [("t", "HandoffAccept", 1_000)]);
    assert_eq!(run.rebuilt().describe_mode()["offers"]["h1"]["disposition"], "Accepted");
}

#[test]
fn std_hand_12_a_pause_moves_the_accept() {
    let mut run = offered();
    run.now = NOW + 400;
    assert_eq!(word(&run.run("lead", Input::Suspend { reason: String::new() })), "accepted");
    run.now = NOW + 5_400;
    assert_eq!(word(&run.run("lead", Input::Resume { reason: String::new() })), "accepted");
    run.now = NOW + 5_999;
    run.run("lead", Input::Touch);
    assert_eq!(run.session().describe_mode()["offers"]["h1"]["disposition"], "Offered");
    run.now = NOW + 6_000;
    run.run("lead", Input::Touch);
    assert_eq!(run.messages()[2..], [("t", "HandoffAccept", 6_000)]);
    run.rebuilt();
}

/// A pause after the moment the accept is dated to, but before anyone looked, does not move it.
#[test]
fn std_hand_13_the_accept_is_written_before_a_later_pause() {
    let mut run = offered();
    run.now = NOW + 1_200;
    assert_eq!(word(&run.run("lead", Input::Suspend { reason: String::new() })), "accepted");
    run.now = NOW + 9_000;
    assert_eq!(word(&run.run("lead", Input::Resume { reason: String::new() })), "accepted");
    run.run("lead", Input::Touch);
    assert_eq!(run.messages()[2..], [("t", "HandoffAccept", 1_000)]);
    run.rebuilt();
}

#[test]
fn std_hand_14_expiry_wins() {
    let mut run = offered();
    run.now = NOW + 60_001;
    let commitment = run.commitment("handoff.accepted", true);
    run.expect("lead", "Commitment", &commitment, "SESSION_NOT_OPEN");
    assert_eq!(run.messages().len(), 2);
    assert_eq!(run.rebuilt().state(), State::Expired);
}

#[test]
fn std_hand_10_reserved_ids_are_refused() {
    let mut run = offered();
    let implicit = handoff::v1::HandoffAcceptPayload {
        handoff_id: "h1".into(),
        accepted_by: "t".into(),
        implicit: true,
        ..Default::default()
    };
    run.expect("t", "HandoffAccept", &implicit, "INVALID_ENVELOPE");
    assert_eq!(run.messages().len(), 2);
}
