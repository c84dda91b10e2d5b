//! Draws what clients say: mostly sensible messages of decision and multi-round sessions, and some of every kind of
//! nonsense.

use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::{Caller, Command, ID_BYTES_MAX, Input, PROTOCOL_VERSION};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::Envelope;
use prost::Message;

use crate::ask::Ask;
use crate::plan::Plan;
use crate::random::Random;

const DECISION_NAMES: [&str; 3] = ["", "decision", "macp.mode.decision.v1"];
const PROPOSALS: [&str; 2] = ["p1", "p2"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Decision,
    MultiRound,
}

/// A session clients know of, whether or not its start was ever accepted.
#[derive(Debug)]
struct Topic {
    id: Arc<str>,
    mode: Mode,
    initiator: String,
    /// Empty: anyone may take part.
    roster: Vec<String>,
    start: Ask,
    /// Somebody heard that it has ended.
    over: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Workload {
    topics: Vec<Topic>,
    messages: u64,
}

/// The name of a client, which is also the sender of its messages.
pub(crate) fn client_name(client: usize) -> String {
    format!("agent-{client}")
}

impl Workload {
    /// Something new a client wants.
    pub(crate) fn draw(&mut self, client: usize, now: i64, plan: &Plan, random: &mut Random) -> Ask {
        let sender = client_name(client);
        let live: Vec<usize> = (0..self.topics.len()).filter(|at| !self.topics[*at].over).collect();
        if live.len() < plan.sessions_at_once || random.chance(5) {
            return self.open_topic(&sender, now, plan, random);
        }
        // What is over is taken up again now and then.
        let at = if random.chance(120) { random.index(self.topics.len()) } else { *random.pick(&live) };
        match random.below(100) {
            0..=9 => Ask::read(Arc::clone(&self.topics[at].id)),
            10..=12 => self.cancel(at, &sender, random),
            13..=17 => self.topics[at].start.clone(),
            18..=27 => self.nonsense(at, &sender, now, plan, random),
            _ => self.sensible(at, &sender, random),
        }
    }

    /// The same message id with other contents, as a client that was refused and corrects itself.
    pub(crate) fn correct(&mut self, refused: &Ask, client: usize, random: &mut Random) -> Option<Ask> {
        let message_id = &refused.envelope()?.message_id;
        let at = self.topics.iter().position(|topic| topic.id == refused.session_id)?;
        let mut ask = self.sensible(at, &client_name(client), random);
        if let Some(Command { input: Input::Envelope { envelope, .. }, .. }) = &mut ask.command {
            envelope.message_id.clone_from(message_id);
        }
        Some(ask)
    }

    /// Somebody heard that a session has ended.
    pub(crate) fn is_over(&mut self, session_id: &str) {
        if let Some(topic) = self.topics.iter_mut().find(|topic| &*topic.id == session_id) {
            topic.over = true;
        }
    }

    fn next_id(&mut self) -> String {
        self.messages += 1;
        format!("m{}", self.messages)
    }

    fn open_topic(&mut self, sender: &str, now: i64, plan: &Plan, random: &mut Random) -> Ask {
        let id: Arc<str> = format!("s{}", self.topics.len()).into();
        let mode = if random.chance(600) { Mode::Decision } else { Mode::MultiRound };
        let roster: Vec<String> = match mode {
            // Only a decision may be open to anyone.
            Mode::Decision if random.chance(500) => Vec::new(),
            _ => (0..2 + random.index(plan.clients.min(4) - 1)).map(client_name).collect(),
        };
        let payload = SessionStartPayload {
            participants: roster.clone(),
            ttl_ms: if random.chance(50) { 0 } else { random.within(1..=plan.ttl_ms_max) },
            context: match mode {
                Mode::MultiRound if random.chance(500) => {
                    Bytes::from_static(br#"{"convergence":{"strategy":"majority"}}"#)
                }
                _ => Bytes::new(),
            },
            ..SessionStartPayload::default()
        };
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.into(),
            mode: match mode {
                Mode::Decision => (*random.pick(&DECISION_NAMES)).into(),
                Mode::MultiRound => "multi_round".into(),
            },
            message_type: "SessionStart".into(),
            message_id: format!("start-{id}"),
            session_id: id.to_string(),
            sender: sender.to_owned(),
            timestamp_unix_ms: match random.below(10) {
                0..=5 => 0,
                6..=7 => now,
                8 => now - random.within(0..=plan.ttl_ms_max),
                _ => now + random.within(0..=plan.limits.skew_ms_max * 2),
            },
            payload: payload.encode_to_vec().into(),
        };
        // With a credential the full name of the mode would choose the standard profile.
        let caller = if envelope.mode != DECISION_NAMES[2] && random.chance(300) {
            Caller::identified(sender)
        } else {
            Caller::anonymous()
        };
        let start = Ask::message(caller, envelope);
        self.topics.push(Topic { id, mode, initiator: sender.to_owned(), roster, start: start.clone(), over: false });
        start
    }

    fn cancel(&mut self, at: usize, sender: &str, random: &mut Random) -> Ask {
        let topic = &self.topics[at];
        let caller = match random.below(3) {
            0 => Caller::anonymous(),
            1 => Caller::identified(topic.initiator.as_str()),
            _ => Caller::identified(sender),
        };
        let session_id = Arc::clone(&topic.id);
        // The reason tells one cancellation from another.
        let reason = format!("cancelled by {}", self.next_id());
        Ask { session_id, command: Some(Command { caller, input: Input::Cancel { reason } }) }
    }

    fn sensible(&mut self, at: usize, sender: &str, random: &mut Random) -> Ask {
        let message_id = self.next_id();
        let topic = &self.topics[at];
        let proposal = *random.pick(&PROPOSALS);
        // An outsider of the roster mostly speaks for somebody on it.
        let outside = !topic.roster.is_empty() && topic.roster.iter().all(|name| name != sender);
        let sender = if outside && random.chance(900) { random.pick(&topic.roster) } else { sender };
        let (message_type, payload) = match topic.mode {
            Mode::Decision => match random.below(100) {
                0..=34 => ("Proposal", format!(r#"{{"proposal_id":"{proposal}","option":"yes"}}"#)),
                35..=49 => (
                    "Evaluation",
                    format!(r#"{{"proposal_id":"{proposal}","recommendation":"APPROVE","confidence":0.5}}"#),
                ),
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
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.into(),
            mode: String::new(),
            message_type: message_type.into(),
            message_id,
            session_id: topic.id.to_string(),
            sender: sender.to_owned(),
            timestamp_unix_ms: 0,
            payload: payload.into(),
        };
        let caller = if random.chance(200) { Caller::identified(sender) } else { Caller::anonymous() };
        Ask::message(caller, envelope)
    }

    /// One thing is wrong with it.
    fn nonsense(&mut self, at: usize, sender: &str, now: i64, plan: &Plan, random: &mut Random) -> Ask {
        let mut ask = self.sensible(at, sender, random);
        let Some(Command { caller, input: Input::Envelope { envelope, .. } }) = &mut ask.command else {
            return ask;
        };
        match random.below(15) {
            0 => envelope.macp_version = "9.9".into(),
            1 => envelope.payload = vec![b'x'; 4096].into(),
            2 => {
                *caller = Caller::anonymous();
                envelope.sender = "stranger".into();
            }
            3 => *caller = Caller::identified("stranger"),
            4 => caller.over_rate = true,
            5 => envelope.message_id.clear(),
            6 => envelope.message_id = "x".repeat(ID_BYTES_MAX + 1),
            7 => envelope.message_type = "Gossip".into(),
            8 => envelope.payload = Bytes::from_static(b"{\"proposal_id\":"),
            9 => envelope.mode = "unheard-of".into(),
            10 => {
                envelope.mode = if self.topics[at].mode == Mode::Decision { "multi_round" } else { "decision" }.into()
            }
            11 => envelope.session_id = format!("never-started-{}", random.below(3)),
            12 => envelope.session_id.clear(),
            13 => envelope.session_id = "s".repeat(ID_BYTES_MAX + 1),
            // A second start with an id of its own, or one from a clock that is far ahead.
            _ => {
                let late = random.chance(500);
                let mut start = self.topics[at].start.clone();
                if let Some(Command { input: Input::Envelope { envelope: again, .. }, .. }) = &mut start.command {
                    again.message_id.clone_from(&envelope.message_id);
                    again.timestamp_unix_ms = if late { now + plan.limits.skew_ms_max + 1_000 } else { 0 };
                }
                return start;
            }
        }
        ask.session_id = envelope.session_id.as_str().into();
        ask
    }
}
