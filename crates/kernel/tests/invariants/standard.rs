//! Standard sessions in scripts: starts in all six modes and a registered one, under policies out of the script's
//! bytes, and messages that meet each other.

use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::mode::Extension;
use macp_kernel::{Caller, Input, Registered, Scope, SignatureCheck};
use macp_wire::modes::{decision, handoff, multi_round, proposal, quorum, task};
use macp_wire::v1::{CommitmentPayload, Envelope, ModeDescriptor, SessionStartPayload};
use prost::Message;

use super::policies;
use super::reader::Reader;
use super::script::sign;

/// The standard modes; handoff weighs more, because it alone has something to wait for.
const MODES: [&str; 8] = [
    "macp.mode.decision.v1",
    "macp.mode.proposal.v1",
    "macp.mode.task.v1",
    "macp.mode.handoff.v1",
    "macp.mode.quorum.v1",
    "ext.multi_round.v1",
    "macp.mode.handoff.v1",
    EXTENSION,
];
const EXTENSION: &str = "ext.drawn.v1";
const ROSTERS: [&[&str]; 2] = [&["alice", "bob"], &["alice", "bob", "carol"]];
const VERSION: &str = "1.0.0";
const CONFIGURATION: &str = "c1";

/// A standard session a script speaks to.
#[derive(Clone, Debug)]
pub struct Topic {
    mode: &'static str,
    registered: Registered,
    roster: &'static [&'static str],
}

impl Topic {
    pub fn draw(reader: &mut Reader<'_>) -> Self {
        let mode = reader.pick(&MODES);
        let policy = policies::policy(mode, "policy.drawn", reader);
        let extension = (mode == EXTENSION).then(|| {
            let message_types = ["SessionStart", "Say", "Ask", "Commitment"].map(str::to_owned).to_vec();
            let descriptor = ModeDescriptor {
                mode: EXTENSION.into(),
                mode_version: VERSION.into(),
                determinism_class: "structural-only".into(),
                message_types,
                terminal_message_types: vec!["Commitment".into()],
                ..ModeDescriptor::default()
            };
            Arc::new(Extension { descriptor, promoted: reader.flag() })
        });
        Topic { mode, registered: Registered { policy: Some(policy), extension }, roster: reader.pick(&ROSTERS) }
    }

    /// A start with nothing wrong about it.
    pub fn start(&self, session_id: &str, now: i64, reader: &mut Reader<'_>) -> (Caller, Input) {
        let policy = self.registered.policy.as_ref();
        let payload = SessionStartPayload {
            participants: self.roster.iter().map(|name| (*name).to_owned()).collect(),
            mode_version: VERSION.into(),
            configuration_version: CONFIGURATION.into(),
            policy_version: policy.map(|policy| policy.id().to_owned()).unwrap_or_default(),
            ttl_ms: reader.pick(&[86_400_000, 60_000, 86_400_000, 1_000, 86_400_000]),
            max_suspend_ms: reader.pick(&[0, 60_000, 0, 100, 0, 1]),
            ..SessionStartPayload::default()
        };
        let id = reader.pick(&["start", "start", "start", "another-start"]);
        let envelope = Envelope {
            timestamp_unix_ms: reader.pick(&[0, now, now - 500]),
            ..self.envelope(session_id, id, "alice", "SessionStart", payload.encode_to_vec().into())
        };
        let signature = SignatureCheck::Valid(sign(&envelope));
        let registered = self.registered.clone();
        (Caller::identified("alice"), Input::Envelope { envelope, signature, registered })
    }

    /// A message of the session's mode from somebody who may send one, mostly.
    pub fn message(&self, session_id: &str, reader: &mut Reader<'_>) -> (Caller, Input) {
        let anyone = reader.pick(self.roster);
        let lead = if reader.one_in(8) { anyone } else { "alice" };
        let (sender, message_type, payload) = match reader.byte() % 8 {
            7 => (if reader.one_in(4) { anyone } else { lead }, "Commitment", self.commitment(reader)),
            kind => match self.mode {
                "macp.mode.decision.v1" => of_decision(kind, anyone, reader),
                "macp.mode.proposal.v1" => of_proposal(kind, anyone, reader),
                "macp.mode.task.v1" => of_task(kind, lead, anyone, reader),
                "macp.mode.handoff.v1" => self.of_handoff(kind, lead, anyone, reader),
                "macp.mode.quorum.v1" => of_quorum(kind, lead, anyone, reader),
                "ext.multi_round.v1" => (anyone, "Contribute", contribution(reader)),
                _ => (anyone, reader.pick(&["Say", "Ask"]), reader.raw().into()),
            },
        };
        let payload = if reader.one_in(20) { reader.raw().into() } else { payload };
        let id = match reader.byte() {
            255 => "implicit-accept:h1".to_owned(),
            number => format!("m{}", number % 128),
        };
        let envelope = self.envelope(session_id, &id, sender, message_type, payload);
        (self.caller(sender, reader), self.input(envelope, reader))
    }

    /// Suspends, resumes or cancels.
    pub fn control(&self, reader: &mut Reader<'_>) -> (Caller, Input) {
        let reason = if reader.one_in(4) { String::from_utf8_lossy(&reader.raw()).into_owned() } else { String::new() };
        let input = match reader.byte() % 16 {
            0..=5 => Input::Suspend { reason },
            15 => Input::Cancel { reason },
            _ => Input::Resume { reason },
        };
        let caller = match reader.byte() % 8 {
            5 => Caller::identified(reader.pick(self.roster)),
            6 => Caller::anonymous(),
            7 => {
                let scope = Scope { may_cancel: reader.flag(), may_suspend: reader.flag(), ..Scope::default() };
                Caller { scope, ..Caller::identified("operator") }
            }
            _ => Caller::identified("alice"),
        };
        (caller, input)
    }

    fn envelope(&self, session_id: &str, id: &str, sender: &str, message_type: &str, payload: Bytes) -> Envelope {
        Envelope {
            macp_version: "1.0".into(),
            mode: self.mode.into(),
            message_type: message_type.into(),
            message_id: id.into(),
            session_id: session_id.into(),
            sender: sender.into(),
            timestamp_unix_ms: 0,
            payload,
        }
    }

    /// Now and then the registries have lost what the session was started with.
    fn input(&self, envelope: Envelope, reader: &mut Reader<'_>) -> Input {
        let registered = if reader.one_in(32) { Registered::default() } else { self.registered.clone() };
        Input::Envelope { envelope, signature: SignatureCheck::Absent, registered }
    }

    fn caller(&self, sender: &str, reader: &mut Reader<'_>) -> Caller {
        match reader.byte() % 32 {
            29 => Caller::identified(reader.pick(self.roster)),
            30 => Caller::anonymous(),
            31 => Caller { over_rate: true, ..Caller::identified(sender) },
            _ => Caller::identified(sender),
        }
    }

    fn of_handoff(&self, kind: u8, lead: &'static str, anyone: &'static str, reader: &mut Reader<'_>) -> Line {
        let handoff_id = reader.pick(&["h1", "h1", "h2"]).to_owned();
        match kind {
            0..=2 => {
                let target_participant = reader.pick(&self.roster[1..]).to_owned();
                let payload = handoff::v1::HandoffOfferPayload { handoff_id, target_participant, ..Default::default() };
                (lead, "HandoffOffer", encoded(&payload))
            }
            3 => {
                let payload = handoff::v1::HandoffContextPayload { handoff_id, ..Default::default() };
                (lead, "HandoffContext", encoded(&payload))
            }
            4 => {
                let implicit = reader.one_in(4);
                let payload = handoff::v1::HandoffAcceptPayload { handoff_id, implicit, ..Default::default() };
                (anyone, "HandoffAccept", encoded(&payload))
            }
            _ => {
                let payload = handoff::v1::HandoffDeclinePayload { handoff_id, ..Default::default() };
                (anyone, "HandoffDecline", encoded(&payload))
            }
        }
    }

    fn commitment(&self, reader: &mut Reader<'_>) -> Bytes {
        let (action, outcome_positive) = reader.pick(&[
            ("work.settled", true),
            ("work.settled", false),
            ("x.approved", true),
            ("x.approved", false),
        ]);
        encoded(&CommitmentPayload {
            commitment_id: "c1".into(),
            action: action.into(),
            authority_scope: "test".into(),
            reason: "done".into(),
            mode_version: VERSION.into(),
            policy_version: reader.pick(&["", "", "policy.drawn"]).to_owned(),
            configuration_version: CONFIGURATION.into(),
            outcome_positive,
            supersedes: None,
        })
    }
}

type Line = (&'static str, &'static str, Bytes);

fn of_decision(kind: u8, anyone: &'static str, reader: &mut Reader<'_>) -> Line {
    let proposal_id = reader.pick(&["p1", "p1", "p2"]).to_owned();
    let reason = String::new();
    match kind {
        0 | 1 => {
            let payload = decision::v1::ProposalPayload { proposal_id, option: "yes".into(), ..Default::default() };
            (anyone, "Proposal", encoded(&payload))
        }
        2 => {
            let recommendation = reader.pick(&["APPROVE", "REVIEW", "BLOCK", "REJECT"]).to_owned();
            let confidence = reader.pick(&[0.3, 0.5, 1.0, f64::NAN]);
            let payload = decision::v1::EvaluationPayload { proposal_id, recommendation, confidence, reason };
            (anyone, "Evaluation", encoded(&payload))
        }
        3 => {
            let severity = reader.pick(&["low", "critical", "grave"]).to_owned();
            (anyone, "Objection", encoded(&decision::v1::ObjectionPayload { proposal_id, reason, severity }))
        }
        _ => {
            let vote = reader.pick(&["APPROVE", "REJECT", "ABSTAIN", "APPROVE"]).to_owned();
            (anyone, "Vote", encoded(&decision::v1::VotePayload { proposal_id, vote, reason }))
        }
    }
}

fn of_proposal(kind: u8, anyone: &'static str, reader: &mut Reader<'_>) -> Line {
    let proposal_id = reader.pick(&["p1", "p1", "p2"]).to_owned();
    match kind {
        0 | 1 => {
            let payload = proposal::v1::ProposalPayload { proposal_id, title: "offer".into(), ..Default::default() };
            (anyone, "Proposal", encoded(&payload))
        }
        2 => {
            let supersedes_proposal_id = reader.pick(&["p1", "p1", "p2"]).to_owned();
            let payload = proposal::v1::CounterProposalPayload {
                proposal_id: "p3".into(),
                supersedes_proposal_id,
                ..Default::default()
            };
            (anyone, "CounterProposal", encoded(&payload))
        }
        3 => {
            let payload = proposal::v1::RejectPayload { proposal_id, terminal: reader.flag(), ..Default::default() };
            (anyone, "Reject", encoded(&payload))
        }
        4 if reader.one_in(3) => {
            (anyone, "Withdraw", encoded(&proposal::v1::WithdrawPayload { proposal_id, ..Default::default() }))
        }
        _ => (anyone, "Accept", encoded(&proposal::v1::AcceptPayload { proposal_id, ..Default::default() })),
    }
}

fn of_task(kind: u8, lead: &'static str, anyone: &'static str, reader: &mut Reader<'_>) -> Line {
    let (task_id, assignee) = ("t1".to_owned(), anyone.to_owned());
    match kind {
        0 | 1 => {
            let payload = task::v1::TaskRequestPayload {
                task_id,
                title: "work".into(),
                instructions: "do it".into(),
                requested_assignee: reader.pick(&["", "bob", "alice", ""]).to_owned(),
                ..Default::default()
            };
            (lead, "TaskRequest", encoded(&payload))
        }
        2 => {
            let payload = task::v1::TaskAcceptPayload { task_id, assignee, ..Default::default() };
            (anyone, "TaskAccept", encoded(&payload))
        }
        3 => {
            let payload = task::v1::TaskRejectPayload { task_id, assignee, ..Default::default() };
            (anyone, "TaskReject", encoded(&payload))
        }
        4 => {
            let progress = reader.pick(&[0.5, f64::NAN]);
            let payload = task::v1::TaskUpdatePayload { task_id, progress, ..Default::default() };
            (anyone, "TaskUpdate", encoded(&payload))
        }
        5 => {
            let output = reader.pick(&["", "done"]).into();
            let payload = task::v1::TaskCompletePayload { task_id, assignee, output, ..Default::default() };
            (anyone, "TaskComplete", encoded(&payload))
        }
        _ => {
            let payload = task::v1::TaskFailPayload { task_id, assignee, ..Default::default() };
            (anyone, "TaskFail", encoded(&payload))
        }
    }
}

fn of_quorum(kind: u8, lead: &'static str, anyone: &'static str, reader: &mut Reader<'_>) -> Line {
    let (request_id, reason) = ("r1".to_owned(), String::new());
    match kind {
        0 | 1 => {
            let required_approvals = reader.pick(&[1, 2, 0]);
            let payload = quorum::v1::ApprovalRequestPayload { request_id, required_approvals, ..Default::default() };
            (lead, "ApprovalRequest", encoded(&payload))
        }
        2 => (anyone, "Reject", encoded(&quorum::v1::RejectPayload { request_id, reason })),
        3 => (anyone, "Abstain", encoded(&quorum::v1::AbstainPayload { request_id, reason })),
        _ => (anyone, "Approve", encoded(&quorum::v1::ApprovePayload { request_id, reason })),
    }
}

fn contribution(reader: &mut Reader<'_>) -> Bytes {
    let value = reader.pick(&["x", "y", "x"]);
    match reader.flag() {
        true => format!(r#"{{"value":"{value}"}}"#).into_bytes().into(),
        false => encoded(&multi_round::v1::ContributePayload { value: value.into() }),
    }
}

fn encoded(payload: &impl Message) -> Bytes {
    payload.encode_to_vec().into()
}
