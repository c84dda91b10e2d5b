//! Builders of envelopes, and a [`World`] that drives `step` and remembers what became history.
//!
//! A verdict is compared as one word: `accepted`, `duplicate`, `unchanged`, `relayed`, or the code of the refusal.

use std::collections::BTreeMap;

use bytes::Bytes;
use macp_kernel::trace::{Event, TracedVerdict};
use macp_kernel::{
    Caller, Command, Input, Limits, Registered, Rejection, Session, Settled, SignatureCheck, ambient, step,
};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::Entry;
use macp_wire::v1::Envelope;
use prost::Message;

pub(crate) const NOW: i64 = 1_700_000_000_000;
pub(crate) const SESSION: &str = "s1";

/// An envelope of alice's for [`SESSION`], with no mode, timestamp or payload.
pub(crate) fn envelope(message_type: &str, message_id: &str) -> Envelope {
    Envelope {
        macp_version: "1.0".into(),
        message_type: message_type.into(),
        message_id: message_id.into(),
        session_id: SESSION.into(),
        sender: "alice".into(),
        ..Envelope::default()
    }
}

pub(crate) fn with_payload(message_type: &str, message_id: &str, payload: impl Into<Bytes>) -> Envelope {
    Envelope { payload: payload.into(), ..envelope(message_type, message_id) }
}

pub(crate) fn json(message_type: &str, message_id: &str, payload: serde_json::Value) -> Envelope {
    with_payload(message_type, message_id, payload.to_string())
}

pub(crate) fn by(sender: &str, envelope: Envelope) -> Envelope {
    Envelope { sender: sender.into(), ..envelope }
}

/// A decision session by default values alone.
pub(crate) fn start() -> Envelope {
    envelope("SessionStart", "start")
}

pub(crate) fn start_with(payload: &SessionStartPayload) -> Envelope {
    with_payload("SessionStart", "start", payload.encode_to_vec())
}

pub(crate) fn participants(names: &[&str]) -> SessionStartPayload {
    SessionStartPayload {
        participants: names.iter().map(|name| (*name).to_owned()).collect(),
        ..SessionStartPayload::default()
    }
}

pub(crate) fn multi_round(payload: &SessionStartPayload) -> Envelope {
    Envelope { mode: "multi_round".into(), ..start_with(payload) }
}

pub(crate) fn proposal(message_id: &str, proposal_id: &str) -> Envelope {
    json("Proposal", message_id, serde_json::json!({ "proposal_id": proposal_id }))
}

pub(crate) fn vote(message_id: &str, proposal_id: &str) -> Envelope {
    json("Vote", message_id, serde_json::json!({ "proposal_id": proposal_id, "vote": "approve" }))
}

pub(crate) fn commitment(message_id: &str) -> Envelope {
    json("Commitment", message_id, serde_json::json!({ "commitment_id": "c1", "action": "go" }))
}

pub(crate) fn contribute(sender: &str, message_id: &str, value: &str) -> Envelope {
    by(sender, json("Contribute", message_id, serde_json::json!({ "value": value })))
}

/// What became of an input, as one word.
pub(crate) fn word(settled: &Settled) -> &str {
    match settled {
        Settled::Accepted { .. } => "accepted",
        Settled::Duplicate { .. } => "duplicate",
        Settled::Unchanged => "unchanged",
        Settled::Rejected(rejection) => rejection.code.as_str(),
    }
}

/// The refusal behind a verdict that must be one.
#[track_caller]
pub(crate) fn refusal(settled: Settled) -> Rejection {
    match settled {
        Settled::Rejected(rejection) => rejection,
        other => panic!("{other:?} is no refusal"),
    }
}

/// Sessions under one clock and one set of limits, with their histories and a trace of everything asked of them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) limits: Limits,
    pub(crate) trace: Vec<Event>,
    slots: BTreeMap<String, Option<Session>>,
    histories: BTreeMap<String, Vec<Entry>>,
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            now: NOW,
            limits: Limits::default(),
            trace: Vec::new(),
            slots: BTreeMap::new(),
            histories: BTreeMap::new(),
        }
    }

    /// A world with one session open.
    #[track_caller]
    pub(crate) fn started(start: Envelope) -> Self {
        let mut world = World::new();
        world.expect(start, "accepted");
        world
    }

    pub(crate) fn send(&mut self, envelope: Envelope) -> Settled {
        self.send_as(Caller::anonymous(), envelope)
    }

    pub(crate) fn send_as(&mut self, caller: Caller, envelope: Envelope) -> Settled {
        self.send_signed(caller, envelope, SignatureCheck::Absent)
    }

    pub(crate) fn send_signed(&mut self, caller: Caller, envelope: Envelope, signature: SignatureCheck) -> Settled {
        let session_id = envelope.session_id.clone();
        self.run(
            &session_id,
            Command { caller, input: Input::Envelope { envelope, signature, registered: Registered::default() } },
        )
    }

    pub(crate) fn cancel(&mut self, caller: Caller, session_id: &str, reason: &str) -> Settled {
        self.run(session_id, Command { caller, input: Input::Cancel { reason: reason.into() } })
    }

    /// What the background timer does.
    pub(crate) fn expire(&mut self, session_id: &str) -> Settled {
        self.run(session_id, Command { caller: Caller::anonymous(), input: Input::Touch })
    }

    /// Sends without a credential and compares the verdict.
    #[track_caller]
    pub(crate) fn expect(&mut self, envelope: Envelope, expected: &str) {
        let shown = format!("{envelope:?}");
        let settled = self.send(envelope);
        assert_eq!(word(&settled), expected, "{settled:?} for {shown}");
    }

    /// Sends what must be refused and checks that it leaves no trace (ADM-2).
    #[track_caller]
    pub(crate) fn refused(&mut self, envelope: Envelope) -> Rejection {
        let before =
            (self.slots.get(&envelope.session_id).cloned().flatten(), self.history(&envelope.session_id).to_vec());
        let session_id = envelope.session_id.clone();
        let rejection = refusal(self.send(envelope));
        let after = (self.slots.get(&session_id).cloned().flatten(), self.history(&session_id).to_vec());
        assert_eq!(before, after, "a refusal left a trace: {rejection}");
        rejection
    }

    /// Passes a Signal or Progress on, as the runtime does before any session is asked.
    pub(crate) fn relay(&mut self, caller: Caller, envelope: &Envelope) -> Result<Envelope, Rejection> {
        let signature = SignatureCheck::Absent;
        let relayed =
            ambient(envelope, &signature, &caller, &self.limits).expect("the envelope is a Signal or Progress");
        let verdict = match &relayed {
            Ok(_) => TracedVerdict::Relayed,
            Err(rejection) => rejection.into(),
        };
        let input = Input::Envelope { envelope: envelope.clone(), signature, registered: Registered::default() };
        let command = Command { caller, input };
        self.trace.push(Event::new(self.now, &envelope.session_id, 0, &command, &self.limits, verdict));
        relayed
    }

    pub(crate) fn run(&mut self, session_id: &str, command: Command) -> Settled {
        let slot = self.slots.entry(session_id.to_owned()).or_default();
        let after = slot.as_ref().map_or(0, Session::sequence);
        let outcome = step(slot, &command, self.now, &self.limits);
        let verdict = (&outcome.settled).into();
        self.trace.push(Event::new(self.now, session_id, after, &command, &self.limits, verdict));
        self.histories.entry(session_id.to_owned()).or_default().extend(outcome.entries);
        outcome.settled
    }

    /// The session all builders are about.
    #[track_caller]
    pub(crate) fn session(&self) -> &Session {
        self.slots.get(SESSION).and_then(Option::as_ref).expect("the session was started")
    }

    /// A session by its id.
    #[track_caller]
    pub(crate) fn session_named(&self, session_id: &str) -> &Session {
        self.slots.get(session_id).and_then(Option::as_ref).expect("the session was started")
    }

    pub(crate) fn exists(&self, session_id: &str) -> bool {
        self.slots.get(session_id).is_some_and(Option::is_some)
    }

    pub(crate) fn history(&self, session_id: &str) -> &[Entry] {
        self.histories.get(session_id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        self.history(SESSION)
    }

    /// The mode's state as tools see it.
    #[track_caller]
    pub(crate) fn mode_state(&self) -> serde_json::Value {
        let session = self.session();
        session.describe_mode()
    }

    #[track_caller]
    pub(crate) fn resolution(&self) -> &[u8] {
        self.session().resolution().expect("the session is resolved")
    }
}
