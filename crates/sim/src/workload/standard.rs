//! What is said in sessions of the standard profile, by callers with a credential, in all six modes.

use bytes::Bytes;
use macp_kernel::{Caller, Registered};
use macp_wire::modes::{decision, handoff, multi_round, proposal, quorum, task};
use macp_wire::v1::{CommitmentPayload, Envelope, SessionStartPayload};
use prost::Message;

use super::{Said, Start, policies, start_timestamp};
use crate::plan::Plan;
use crate::random::Random;

const CONFIGURATION: &str = "sim-1";
const MODE_VERSION: &str = "1.0.0";
const PROPOSALS: [&str; 2] = ["p1", "p2"];
const HANDOFFS: [&str; 4] = ["h1", "h2", "h3", "h4"];
const TASK: &str = "t1";
const REQUEST: &str = "r1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Decision,
    Proposal,
    Task,
    Handoff,
    Quorum,
    MultiRound,
}

/// Handoff weighs more: it alone has something to wait for.
const MODES: [Mode; 8] = [
    Mode::Decision,
    Mode::Proposal,
    Mode::Task,
    Mode::Handoff,
    Mode::Handoff,
    Mode::Handoff,
    Mode::Quorum,
    Mode::MultiRound,
];

impl Mode {
    pub(super) fn draw(random: &mut Random) -> Self {
        *random.pick(&MODES)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Decision => "macp.mode.decision.v1",
            Mode::Proposal => "macp.mode.proposal.v1",
            Mode::Task => "macp.mode.task.v1",
            Mode::Handoff => "macp.mode.handoff.v1",
            Mode::Quorum => "macp.mode.quorum.v1",
            Mode::MultiRound => "ext.multi_round.v1",
        }
    }

    /// A name that belongs to another mode.
    pub(super) fn other_name(self) -> &'static str {
        if self == Mode::Task { Mode::Quorum.name() } else { Mode::Task.name() }
    }
}

/// An id of the form the standard asks for, the same in every run.
pub(super) fn session_id(number: usize) -> String {
    format!("5e551000-0000-4000-8000-{number:012x}")
}

pub(super) fn start(mode: Mode, roster: &[String], sender: &str, now: i64, plan: &Plan, random: &mut Random) -> Start {
    let (policy_version, policy) = policies::draw(mode.name(), random);
    let payload = SessionStartPayload {
        participants: roster.to_vec(),
        mode_version: MODE_VERSION.into(),
        configuration_version: CONFIGURATION.into(),
        policy_version,
        ttl_ms: random.within(1..=plan.ttl_ms_max),
        // Nothing is the default of days; the short ones end sessions that nobody resumes.
        max_suspend_ms: *random.pick(&[0, 1, 100, plan.ttl_ms_max]),
        ..SessionStartPayload::default()
    };
    let envelope = Envelope {
        mode: mode.name().into(),
        timestamp_unix_ms: start_timestamp(now, plan, random),
        payload: payload.encode_to_vec().into(),
        ..Envelope::default()
    };
    Start { caller: Caller::identified(sender), envelope, registered: Registered { policy, extension: None } }
}

/// Who says something is drawn with it: nearly always somebody who may.
pub(super) fn message(mode: Mode, roster: &[String], initiator: &str, sender: &str, random: &mut Random) -> Said {
    let anyone = if random.chance(950) { random.pick(roster).clone() } else { sender.to_owned() };
    let initiator = if random.chance(950) { initiator.to_owned() } else { anyone.clone() };
    let (sender, message_type, payload) = match random.below(100) {
        // Most are too early and refused; one that is not ends the session.
        0..=7 => (initiator, "Commitment", commitment(random)),
        _ => match mode {
            Mode::Decision => of_decision(anyone, random),
            Mode::Proposal => of_proposal(anyone, random),
            Mode::Task => of_task(anyone, initiator, random),
            Mode::Handoff => of_handoff(anyone, initiator, roster, random),
            Mode::Quorum => of_quorum(anyone, initiator, random),
            Mode::MultiRound => {
                let value = format!("v{}", random.below(2));
                let payload = match random.chance(300) {
                    true => format!(r#"{{"value":"{value}"}}"#).into_bytes().into(),
                    false => encoded(&multi_round::v1::ContributePayload { value }),
                };
                (anyone, "Contribute", payload)
            }
        },
    };
    Said { caller: Caller::identified(sender.as_str()), mode: mode.name(), message_type, payload, sender }
}

type Line = (String, &'static str, Bytes);

fn of_decision(anyone: String, random: &mut Random) -> Line {
    let proposal_id = (*random.pick(&PROPOSALS)).to_owned();
    let reason = String::new();
    match random.below(100) {
        0..=29 => {
            let payload = decision::v1::ProposalPayload { proposal_id, option: "yes".into(), ..Default::default() };
            (anyone, "Proposal", encoded(&payload))
        }
        30..=49 => {
            let recommendation = (*random.pick(&["APPROVE", "REVIEW", "BLOCK", "REJECT"])).into();
            let payload = decision::v1::EvaluationPayload { proposal_id, recommendation, confidence: 0.5, reason };
            (anyone, "Evaluation", encoded(&payload))
        }
        50..=59 => {
            let severity = (*random.pick(&["low", "critical"])).into();
            (anyone, "Objection", encoded(&decision::v1::ObjectionPayload { proposal_id, reason, severity }))
        }
        _ => {
            let vote = (*random.pick(&["APPROVE", "APPROVE", "REJECT", "ABSTAIN"])).into();
            (anyone, "Vote", encoded(&decision::v1::VotePayload { proposal_id, vote, reason }))
        }
    }
}

fn of_proposal(anyone: String, random: &mut Random) -> Line {
    let proposal_id = (*random.pick(&PROPOSALS)).to_owned();
    match random.below(100) {
        0..=24 => {
            let payload = proposal::v1::ProposalPayload { proposal_id, title: "offer".into(), ..Default::default() };
            (anyone, "Proposal", encoded(&payload))
        }
        25..=39 => {
            let payload = proposal::v1::CounterProposalPayload {
                proposal_id,
                supersedes_proposal_id: (*random.pick(&PROPOSALS)).into(),
                title: "counter".into(),
                ..Default::default()
            };
            (anyone, "CounterProposal", encoded(&payload))
        }
        40..=84 => (anyone, "Accept", encoded(&proposal::v1::AcceptPayload { proposal_id, ..Default::default() })),
        85..=92 => {
            let terminal = random.chance(500);
            let payload = proposal::v1::RejectPayload { proposal_id, terminal, ..Default::default() };
            (anyone, "Reject", encoded(&payload))
        }
        _ => (anyone, "Withdraw", encoded(&proposal::v1::WithdrawPayload { proposal_id, ..Default::default() })),
    }
}

fn of_task(anyone: String, initiator: String, random: &mut Random) -> Line {
    let task_id = TASK.to_owned();
    let assignee = anyone.clone();
    match random.below(100) {
        0..=24 => {
            let requested_assignee = if random.chance(300) { anyone } else { String::new() };
            let payload = task::v1::TaskRequestPayload {
                task_id,
                title: "work".into(),
                instructions: "do it".into(),
                requested_assignee,
                ..Default::default()
            };
            (initiator, "TaskRequest", encoded(&payload))
        }
        25..=49 => {
            let payload = task::v1::TaskAcceptPayload { task_id, assignee, ..Default::default() };
            (anyone, "TaskAccept", encoded(&payload))
        }
        50..=54 => {
            let payload = task::v1::TaskRejectPayload { task_id, assignee, ..Default::default() };
            (anyone, "TaskReject", encoded(&payload))
        }
        55..=74 => {
            let payload = task::v1::TaskUpdatePayload { task_id, progress: 0.5, ..Default::default() };
            (anyone, "TaskUpdate", encoded(&payload))
        }
        75..=89 => {
            let output = if random.chance(500) { Bytes::from_static(b"done") } else { Bytes::new() };
            let payload = task::v1::TaskCompletePayload { task_id, assignee, output, ..Default::default() };
            (anyone, "TaskComplete", encoded(&payload))
        }
        _ => {
            let payload = task::v1::TaskFailPayload { task_id, assignee, ..Default::default() };
            (anyone, "TaskFail", encoded(&payload))
        }
    }
}

/// Offers are mostly left unanswered, so that silence answers them.
fn of_handoff(anyone: String, initiator: String, roster: &[String], random: &mut Random) -> Line {
    let handoff_id = (*random.pick(&HANDOFFS)).to_owned();
    match random.below(100) {
        0..=54 => {
            let target_participant = random.pick(roster).clone();
            let payload = handoff::v1::HandoffOfferPayload { handoff_id, target_participant, ..Default::default() };
            (initiator, "HandoffOffer", encoded(&payload))
        }
        55..=79 => {
            let payload = handoff::v1::HandoffContextPayload { handoff_id, ..Default::default() };
            (initiator, "HandoffContext", encoded(&payload))
        }
        80..=84 => {
            let accepted_by = anyone.clone();
            let payload = handoff::v1::HandoffAcceptPayload { handoff_id, accepted_by, ..Default::default() };
            (anyone, "HandoffAccept", encoded(&payload))
        }
        _ => {
            let declined_by = anyone.clone();
            let payload = handoff::v1::HandoffDeclinePayload { handoff_id, declined_by, ..Default::default() };
            (anyone, "HandoffDecline", encoded(&payload))
        }
    }
}

fn of_quorum(anyone: String, initiator: String, random: &mut Random) -> Line {
    let (request_id, reason) = (REQUEST.to_owned(), String::new());
    match random.below(100) {
        0..=29 => {
            let required_approvals = if random.chance(500) { 1 } else { 2 };
            let payload = quorum::v1::ApprovalRequestPayload { request_id, required_approvals, ..Default::default() };
            (initiator, "ApprovalRequest", encoded(&payload))
        }
        30..=74 => (anyone, "Approve", encoded(&quorum::v1::ApprovePayload { request_id, reason })),
        75..=89 => (anyone, "Reject", encoded(&quorum::v1::RejectPayload { request_id, reason })),
        _ => (anyone, "Abstain", encoded(&quorum::v1::AbstainPayload { request_id, reason })),
    }
}

fn commitment(random: &mut Random) -> Bytes {
    let outcome_positive = random.chance(700);
    encoded(&CommitmentPayload {
        commitment_id: "c1".into(),
        action: "sim.settled".into(),
        authority_scope: "sim".into(),
        reason: "done".into(),
        mode_version: MODE_VERSION.into(),
        configuration_version: CONFIGURATION.into(),
        outcome_positive,
        ..CommitmentPayload::default()
    })
}

/// A HandoffAccept that pretends to be the runtime's own.
pub(super) fn forged_accept(handoff_id: &str) -> Bytes {
    encoded(&handoff::v1::HandoffAcceptPayload {
        handoff_id: handoff_id.to_owned(),
        implicit: true,
        ..Default::default()
    })
}

pub(super) fn handoff_id(random: &mut Random) -> &'static str {
    let id: &&'static str = random.pick(&HANDOFFS);
    id
}

fn encoded(payload: &impl Message) -> Bytes {
    payload.encode_to_vec().into()
}
