//! Draws what clients say: mostly sensible messages of classic and standard sessions, and some of every kind of
//! nonsense.

mod classic;
mod policies;
mod standard;

use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::{Caller, Command, ID_BYTES_MAX, Input, PROTOCOL_VERSION, Registered, SESSION_START, Scope};
use macp_wire::v1::Envelope;

use crate::ask::Ask;
use crate::plan::Plan;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Classic(classic::Mode),
    Standard(standard::Mode),
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

/// A start that lacks the names its topic gives it.
struct Start {
    caller: Caller,
    envelope: Envelope,
    registered: Registered,
}

/// A message that lacks an id and its session.
struct Said {
    caller: Caller,
    mode: &'static str,
    message_type: &'static str,
    payload: Bytes,
    sender: String,
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
            10..=12 => self.control(at, &sender, random, |reason| Input::Cancel { reason }),
            13..=15 => self.control(at, &sender, random, |reason| Input::Suspend { reason }),
            // More often than suspensions: what is suspended and never resumed hears of nothing else.
            16..=22 => self.control(at, &sender, random, |reason| Input::Resume { reason }),
            23..=26 => self.topics[at].start.clone(),
            27..=35 => self.nonsense(at, &sender, now, plan, random),
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
        let number = self.topics.len();
        let mode = match random.chance(plan.standard) {
            true => Mode::Standard(standard::Mode::draw(random)),
            false => Mode::Classic(classic::Mode::draw(random)),
        };
        let mut roster: Vec<String> = match mode {
            Mode::Classic(mode) if !mode.needs_roster() && random.chance(500) => Vec::new(),
            _ => (0..2 + random.index(plan.clients.min(4) - 1)).map(client_name).collect(),
        };
        // Some modes start with their initiator among the participants only.
        if matches!(mode, Mode::Standard(_)) && roster.iter().all(|name| name != sender) && random.chance(950) {
            roster.push(sender.to_owned());
        }
        let (id, start) = match mode {
            Mode::Classic(mode) => (format!("s{number}"), classic::start(mode, &roster, sender, now, plan, random)),
            Mode::Standard(mode) => {
                (standard::session_id(number), standard::start(mode, &roster, sender, now, plan, random))
            }
        };
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.into(),
            message_type: SESSION_START.into(),
            message_id: format!("start-{number}"),
            session_id: id.clone(),
            sender: sender.to_owned(),
            ..start.envelope
        };
        let start = Ask::message(start.caller, envelope, start.registered);
        let initiator = sender.to_owned();
        self.topics.push(Topic { id: id.into(), mode, initiator, roster, start: start.clone(), over: false });
        start
    }

    /// Cancels, suspends or resumes.
    fn control(&mut self, at: usize, sender: &str, random: &mut Random, input: fn(String) -> Input) -> Ask {
        let topic = &self.topics[at];
        let caller = match random.below(10) {
            0 => Caller::anonymous(),
            1 => Caller::identified(sender),
            2 => {
                let scope = Scope { may_cancel: true, may_suspend: true, ..Scope::default() };
                Caller { scope, ..Caller::identified("operator") }
            }
            _ => Caller::identified(topic.initiator.as_str()),
        };
        let session_id = Arc::clone(&topic.id);
        // The reason tells one from another.
        let input = input(format!("because of {}", self.next_id()));
        Ask { session_id, command: Some(Command { caller, input }) }
    }

    fn sensible(&mut self, at: usize, sender: &str, random: &mut Random) -> Ask {
        let message_id = self.next_id();
        let Topic { id, mode, roster, initiator, .. } = &self.topics[at];
        let said = match mode {
            Mode::Classic(mode) => classic::message(*mode, roster, sender, random),
            Mode::Standard(mode) => standard::message(*mode, roster, initiator, sender, random),
        };
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.into(),
            mode: said.mode.into(),
            message_type: said.message_type.into(),
            message_id,
            session_id: id.to_string(),
            sender: said.sender,
            timestamp_unix_ms: 0,
            payload: said.payload,
        };
        Ask::message(said.caller, envelope, Registered::default())
    }

    /// One thing is wrong with it.
    fn nonsense(&mut self, at: usize, sender: &str, now: i64, plan: &Plan, random: &mut Random) -> Ask {
        let mut ask = self.sensible(at, sender, random);
        let Some(Command { caller, input: Input::Envelope { envelope, .. } }) = &mut ask.command else {
            return ask;
        };
        match random.below(16) {
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
                envelope.mode = match self.topics[at].mode {
                    Mode::Classic(mode) => mode.other_name().into(),
                    Mode::Standard(mode) => mode.other_name().into(),
                }
            }
            11 => envelope.session_id = format!("never-started-{}", random.below(3)),
            12 => envelope.session_id.clear(),
            13 => envelope.session_id = "s".repeat(ID_BYTES_MAX + 1),
            // What only the runtime may say.
            14 => {
                let handoff_id = standard::handoff_id(random);
                envelope.message_type = "HandoffAccept".into();
                envelope.payload = standard::forged_accept(handoff_id);
                if random.chance(500) {
                    envelope.message_id = format!("implicit-accept:{handoff_id}");
                }
            }
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

/// The time a start states, if it states one.
fn start_timestamp(now: i64, plan: &Plan, random: &mut Random) -> i64 {
    match random.below(10) {
        0..=5 => 0,
        6..=7 => now,
        8 => now - random.within(0..=plan.ttl_ms_max),
        _ => now + random.within(0..=plan.limits.skew_ms_max * 2),
    }
}
