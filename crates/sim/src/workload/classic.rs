//! What is said in classic decision and multi-round sessions.

use bytes::Bytes;
use macp_kernel::{Caller, Registered};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::Envelope;
use prost::Message;

use super::{Said, Start, start_timestamp};
use crate::plan::Plan;
use crate::random::Random;

const DECISION_NAMES: [&str; 3] = ["", "decision", "macp.mode.decision.v1"];
const PROPOSALS: [&str; 2] = ["p1", "p2"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Decision,
    MultiRound,
}

impl Mode {
    pub(super) fn draw(random: &mut Random) -> Self {
        if random.chance(600) { Mode::Decision } else { Mode::MultiRound }
    }

    /// Only a decision may be open to anyone.
    pub(super) fn needs_roster(self) -> bool {
        self == Mode::MultiRound
    }

    /// A name that belongs to the other mode.
    pub(super) fn other_name(self) -> &'static str {
        if self == Mode::Decision { "multi_round" } else { "decision" }
    }
}

pub(super) fn start(mode: Mode, roster: &[String], sender: &str, now: i64, plan: &Plan, random: &mut Random) -> Start {
    let payload = SessionStartPayload {
        participants: roster.to_vec(),
        ttl_ms: if random.chance(50) { 0 } else { random.within(1..=plan.ttl_ms_max) },
        context: match mode {
            Mode::MultiRound if random.chance(500) => Bytes::from_static(br#"{"convergence":{"strategy":"majority"}}"#),
            _ => Bytes::new(),
        },
        ..SessionStartPayload::default()
    };
    let envelope = Envelope {
        mode: match mode {
            Mode::Decision => (*random.pick(&DECISION_NAMES)).into(),
            Mode::MultiRound => "multi_round".into(),
        },
        timestamp_unix_ms: start_timestamp(now, plan, random),
        payload: payload.encode_to_vec().into(),
        ..Envelope::default()
    };
    // With a credential the full name of the mode would choose the standard profile.
    let caller = if envelope.mode != DECISION_NAMES[2] && random.chance(300) {
        Caller::identified(sender)
    } else {
        Caller::anonymous()
    };
    Start { caller, envelope, registered: Registered::default() }
}

pub(super) fn message(mode: Mode, roster: &[String], sender: &str, random: &mut Random) -> Said {
    let proposal = *random.pick(&PROPOSALS);
    // An outsider of the roster mostly speaks for somebody on it.
    let outside = !roster.is_empty() && roster.iter().all(|name| name != sender);
    let sender = if outside && random.chance(900) { random.pick(roster) } else { sender };
    let (message_type, payload) = match mode {
        Mode::Decision => match random.below(100) {
            0..=34 => ("Proposal", format!(r#"{{"proposal_id":"{proposal}","option":"yes"}}"#)),
            35..=49 => {
                ("Evaluation", format!(r#"{{"proposal_id":"{proposal}","recommendation":"APPROVE","confidence":0.5}}"#))
            }
            50..=59 => ("Objection", format!(r#"{{"proposal_id":"{proposal}","reason":"cost"}}"#)),
            60..=84 => ("Vote", format!(r#"{{"proposal_id":"{proposal}","vote":"approve"}}"#)),
            85..=92 => ("Message", "hello".to_owned()),
            93..=94 => ("Message", "resolve".to_owned()),
            _ => ("Commitment", String::new()),
        },
        Mode::MultiRound => match random.below(100) {
            0..=89 => ("Contribute", format!(r#"{{"value":"v{}"}}"#, random.below(3))),
            _ => ("Remark", "hello".to_owned()),
        },
    };
    let caller = if random.chance(200) { Caller::identified(sender) } else { Caller::anonymous() };
    Said { caller, mode: "", message_type, payload: payload.into_bytes().into(), sender: sender.to_owned() }
}
