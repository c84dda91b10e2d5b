//! What a client does to a standard session, and what must be true of the session after it, worked out apart from the
//! server.

use macp_client::Draft;
use macp_wire::modes::decision::v1::{EvaluationPayload, ProposalPayload, VotePayload};
use macp_wire::modes::handoff::v1::{HandoffAcceptPayload, HandoffOfferPayload};
use macp_wire::v1::{CommitmentPayload, Envelope, PolicyDescriptor, SessionStartPayload, SessionState};
use prost::Message;

use crate::choices::Choices;

pub const DECISION: &str = "macp.mode.decision.v1";
pub const HANDOFF: &str = "macp.mode.handoff.v1";
pub const MAJORITY: &str = "policy.std.majority";
/// With the milliseconds behind it: the policy that takes so long a silence for consent.
pub const SILENCE: &str = "crash.silence.";
/// One is over soon under load, one is likely to be cut by the kill.
pub const SILENCES_MS: [i64; 2] = [300, 900];

/// Longer than any run takes.
pub const TTL_MS: i64 = 86_400_000;

/// What a client does to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Say(Envelope),
    /// For a reason of its own, by which the log tells it from others.
    Suspend(String),
    Resume(String),
}

impl Act {
    pub fn says(&self, message_type: &str) -> bool {
        matches!(self, Act::Say(envelope) if envelope.message_type == message_type)
    }
}

/// An act with the time at which it was accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub act: Act,
    pub at_ms: i64,
}

/// A policy that takes silence for consent.
pub fn silence(id: &str, timeout_ms: i64) -> PolicyDescriptor {
    PolicyDescriptor {
        policy_id: id.to_owned(),
        mode: HANDOFF.to_owned(),
        description: "silence is consent".to_owned(),
        rules: format!(r#"{{"acceptance":{{"implicit_accept_timeout_ms":{timeout_ms}}}}}"#),
        schema_version: 1,
        registered_at_unix_ms: 0,
    }
}

/// One session: a decision or a handoff. Some are committed, some stay open, some stay suspended.
pub fn script(session: &str, choices: &mut Choices) -> Vec<Act> {
    let mut acts;
    let handoff = choices.one_in(2);
    if handoff {
        let silence_ms = SILENCES_MS[usize::from(choices.one_in(2))];
        let offer =
            HandoffOfferPayload { handoff_id: "h1".into(), target_participant: "bob".into(), ..Default::default() };
        acts = vec![
            start(session, HANDOFF, &format!("{SILENCE}{silence_ms}")),
            say(session, HANDOFF, "alice", "HandoffOffer", &offer),
        ];
    } else {
        acts = votes(session);
        acts.pop();
        for _ in 0..choices.below(4) {
            acts.push(evaluation(session));
        }
    }
    for pause in 0..choices.below(3) {
        acts.push(Act::Suspend(format!("pause {pause}")));
        if choices.one_in(4) {
            return acts;
        }
        acts.push(Act::Resume(format!("end of pause {pause}")));
    }
    if handoff && choices.one_in(4) {
        let accept = HandoffAcceptPayload { handoff_id: "h1".into(), ..Default::default() };
        acts.push(say(session, HANDOFF, "bob", "HandoffAccept", &accept));
        acts.push(commitment(session, &acts[0]));
    } else if !handoff && !choices.one_in(3) {
        acts.push(vote(session, "bob"));
        if choices.one_in(2) {
            acts.push(commitment(session, &acts[0]));
        }
    }
    acts
}

/// A decision up to a vote that satisfies its policy.
pub fn votes(session: &str) -> Vec<Act> {
    let proposal = ProposalPayload { proposal_id: "p1".into(), option: "Deploy".into(), ..Default::default() };
    vec![
        start(session, DECISION, MAJORITY),
        say(session, DECISION, "alice", "Proposal", &proposal),
        vote(session, "bob"),
    ]
}

pub fn say(session: &str, mode: &str, sender: &str, message_type: &str, payload: &impl Message) -> Act {
    Act::Say(Draft::new(session, message_type, sender).mode(mode).payload(payload.encode_to_vec()).build())
}

pub fn start(session: &str, mode: &str, policy: &str) -> Act {
    let payload = SessionStartPayload {
        intent: "to live through it".to_owned(),
        participants: ["alice", "bob", "carol"].map(str::to_owned).to_vec(),
        mode_version: "1.0.0".to_owned(),
        configuration_version: "c1".to_owned(),
        policy_version: policy.to_owned(),
        ttl_ms: TTL_MS,
        ..SessionStartPayload::default()
    };
    say(session, mode, "alice", "SessionStart", &payload)
}

pub fn vote(session: &str, sender: &str) -> Act {
    let payload = VotePayload { proposal_id: "p1".into(), vote: "APPROVE".into(), reason: String::new() };
    say(session, DECISION, sender, "Vote", &payload)
}

pub fn evaluation(session: &str) -> Act {
    let payload = EvaluationPayload {
        proposal_id: "p1".into(),
        recommendation: "APPROVE".into(),
        confidence: 0.5,
        reason: "fine".into(),
    };
    say(session, DECISION, "carol", "Evaluation", &payload)
}

/// Ends a session in the way its start asks for.
pub fn commitment(session: &str, started: &Act) -> Act {
    let (envelope, start) = started_with(started);
    let action = if envelope.mode == DECISION { "decision.selected" } else { "handoff.accepted" };
    let payload = CommitmentPayload {
        commitment_id: "c1".to_owned(),
        action: action.to_owned(),
        authority_scope: "team".to_owned(),
        reason: "agreed".to_owned(),
        mode_version: start.mode_version,
        policy_version: start.policy_version,
        configuration_version: start.configuration_version,
        outcome_positive: true,
        supersedes: None,
    };
    say(session, &envelope.mode, "alice", "Commitment", &payload)
}

pub fn started_with(act: &Act) -> (&Envelope, SessionStartPayload) {
    let Act::Say(envelope) = act else { panic!("{act:?} starts no session") };
    (envelope, SessionStartPayload::decode(envelope.payload.clone()).unwrap())
}

pub fn state(done: &[Done]) -> SessionState {
    done.iter().fold(SessionState::Open, |state, done| match &done.act {
        Act::Suspend(_) => SessionState::Suspended,
        Act::Resume(_) => SessionState::Open,
        act if act.says("Commitment") => SessionState::Resolved,
        Act::Say(_) => state,
    })
}

/// STD-CORE-24, STD-CORE-28: from the start, and the completed pauses on top.
pub fn deadline_ms(done: &[Done]) -> i64 {
    let mut deadline_ms = started_with(&done[0].act).0.timestamp_unix_ms + TTL_MS;
    let mut since_ms = 0;
    for done in done {
        match done.act {
            Act::Suspend(_) => since_ms = done.at_ms,
            Act::Resume(_) => deadline_ms += done.at_ms - since_ms,
            Act::Say(_) => {}
        }
    }
    deadline_ms
}

/// STD-HAND-12: when the offer of a session has been open for its timeout, pauses not counted. None without an open
/// offer, and while a pause that began earlier lasts.
pub fn consent_due_ms(done: &[Done]) -> Option<i64> {
    let (_, start) = started_with(&done.first()?.act);
    let mut left_ms: i64 = start.policy_version.strip_prefix(SILENCE)?.parse().unwrap();
    let mut running_since_ms = None;
    for Done { act, at_ms } in done {
        match act {
            Act::Say(envelope) if envelope.message_type == "HandoffOffer" => running_since_ms = Some(*at_ms),
            Act::Say(envelope) if envelope.message_type == "HandoffAccept" => return None,
            Act::Suspend(_) if running_since_ms.is_some_and(|since_ms| at_ms - since_ms < left_ms) => {
                left_ms -= at_ms - running_since_ms.take().unwrap();
            }
            Act::Resume(_) if running_since_ms.is_none() => running_since_ms = Some(*at_ms),
            _ => {}
        }
    }
    running_since_ms.map(|since_ms| since_ms + left_ms)
}
