//! Any bytes as a sequence of commands. One reader for the property tests and the fuzz target, so that what one finds
//! the other can run.
//!
//! The small alphabets (three senders, a handful of ids and words) make commands meet: retries, votes on proposals
//! that exist, contributions that agree. Where the alphabets choose "raw", the script's own bytes go in unread.

use std::collections::{BTreeMap, BTreeSet};

use ed25519_dalek::{Signer, SigningKey};
use macp_kernel::{
    Caller, Command, Credential, Input, Limits, ProfileSetting, Registered, SignatureCheck, SignatureRule,
};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::RecordedSignature;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::signing::signing_bytes;
use macp_wire::v1::Envelope;
use prost::Message;

use super::reader::Reader;
use super::standard::Topic;

/// Enough for every choice of a policy.
const CANDIDATE_BYTES: usize = 24;
const EPOCH_MS: i64 = 1_700_000_000_000;
const STEPS_MAX: usize = 400;
/// Two classic sessions at a time, two standard ones, and one of either kind with an id of the standard's form.
const SESSIONS: [&str; 9] = [
    "s1",
    "s1",
    "s2",
    "3f2504e0-4f89-41d3-9a0c-0305e82c330",
    STANDARD_SESSIONS[0],
    STANDARD_SESSIONS[0],
    STANDARD_SESSIONS[0],
    STANDARD_SESSIONS[1],
    STANDARD_SESSIONS[1],
];
/// Where the standard ones begin.
const STANDARD_FROM: usize = 4;
const STANDARD_SESSIONS: [&str; 2] = ["5e551001-0000-4000-8000-00000000000", "5e551002-0000-7000-8000-00000000000"];
/// Some weigh more than others, so that rosters meet their members.
const SENDERS: [&str; 8] = ["alice", "bob", "alice", "bob", "carol", "alice", "bob", ""];
const MODES: [&str; 9] = [
    "",
    "multi_round",
    "decision",
    "multi_round",
    "macp.mode.decision.v1",
    "macp.mode.multi_round.v1",
    "multi_round",
    "",
    "ext.multi_round.v1",
];
const ROSTERS: [&[&str]; 4] = [&["alice", "bob"], &[], &["alice", "bob", "carol"], &["bob", "alice", "bob"]];
const CONTEXTS: [&str; 7] = [
    "",
    r#"{"convergence":{"strategy":"majority"}}"#,
    r#"{"convergence":{"strategy":"threshold","threshold":2}}"#,
    r#"{"convergence":{"strategy":"weighted","weights":{"alice":0,"bob":3}}}"#,
    r#"{"convergence":{"strategy":"weighted","weights":{"bob":2},"threshold":3}}"#,
    r#"{"convergence":{"strategy":"threshold","threshold":9}}"#,
    "{",
];
/// Milliseconds between steps: the short ones mostly, the long ones, up to and over the deadlines, now and then.
const PAUSES_MS: [i64; 5] = [0, 1, 7, 100, 0];
const LONG_PAUSES_MS: [i64; 6] = [900, 30_000, 59_999, 60_000, 60_001, -40];
const TTLS_MS: [i64; 12] = [0, 60_000, 0, 86_400_000, 0, 1_000, 0, 90_000, 0, 1, -1, 86_400_001];
/// After so many steps a script turns to other sessions, since most have ended by then.
const STEPS_PER_GENERATION: usize = 50;
const MESSAGES: [(&str, &str); 16] = [
    ("Proposal", r#"{"proposal_id":"p1"}"#),
    ("Proposal", r#"{"proposal_id":"p2","option":"o"}"#),
    ("Vote", r#"{"proposal_id":"p1","vote":"approve"}"#),
    ("Vote", r#"{"proposal_id":"p2","vote":"reject"}"#),
    ("Evaluation", r#"{"proposal_id":"p1","confidence":0.5}"#),
    ("Objection", r#"{"proposal_id":"p2","severity":"high"}"#),
    ("Contribute", r#"{"value":"x"}"#),
    ("Contribute", r#"{"value":"y"}"#),
    ("Contribute", r#"{"value":"x"}"#),
    ("Commitment", r#"{"commitment_id":"c1"}"#),
    ("Message", "hello"),
    ("Message", "resolve"),
    ("Commitment", ""),
    ("Signal", ""),
    ("Progress", ""),
    ("Unheard", ""),
];

/// Limits, and what happens under them.
#[derive(Clone, Debug)]
pub struct Script {
    pub limits: Limits,
    pub steps: Vec<Step>,
    /// What a candidate policy is drawn from, to ask what it would have changed.
    pub candidate: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub at_ms: i64,
    pub session_id: String,
    pub command: Command,
}

impl Script {
    pub fn from_bytes(bytes: &[u8]) -> Script {
        let mut reader = Reader(bytes);
        let limits = limits(&mut reader);
        let candidate = reader.take(CANDIDATE_BYTES).to_vec();
        let (classic, standard) = SESSIONS.split_at(STANDARD_FROM);
        let sessions = reader.pick(&[standard, &SESSIONS, classic, standard]);
        let mut steps = Vec::new();
        let mut now = EPOCH_MS;
        let mut touched = BTreeSet::new();
        let mut topics: BTreeMap<String, Topic> = BTreeMap::new();
        while !reader.0.is_empty() && steps.len() < STEPS_MAX {
            now += if reader.one_in(24) { reader.pick(&LONG_PAUSES_MS) } else { reader.pick(&PAUSES_MS) };
            let generation = steps.len() / STEPS_PER_GENERATION;
            let session_id = format!("{}{}", reader.pick(sessions), generation % 10);
            let is_new = touched.insert(session_id.clone());
            if STANDARD_SESSIONS.iter().any(|standard| session_id.starts_with(standard)) {
                let topic = topics.entry(session_id.clone()).or_insert_with(|| Topic::draw(&mut reader));
                steps.push(standard_step(&mut reader, topic, now, session_id, is_new));
            } else {
                steps.push(step(&mut reader, now, session_id, is_new));
            }
        }
        Script { limits, steps, candidate }
    }
}

fn limits(reader: &mut Reader<'_>) -> Limits {
    let mut limits = Limits::default();
    match reader.byte() % 32 {
        10 => limits.session_entries_max = 4,
        11 => limits.session_bytes_max = 300,
        12 => limits.payload_bytes_max = 20,
        13 => limits.signatures = SignatureRule::Required,
        14 => limits.profile = ProfileSetting::Classic,
        15 => limits.skew_ms_max = 0,
        _ => {}
    }
    limits
}

/// Most sessions begin with a start; a few are spoken to before there is one.
fn step(reader: &mut Reader<'_>, at_ms: i64, session_id: String, is_new: bool) -> Step {
    let kind = reader.byte() % 16;
    let input = match kind {
        1..=9 if is_new => {
            let command = Command { caller: Caller::anonymous(), input: plain_start(reader, &session_id) };
            return Step { at_ms, session_id, command };
        }
        10..=13 if is_new => envelope(start(reader, &session_id, at_ms), reader),
        0 => envelope(start(reader, &session_id, at_ms), reader),
        14 if reader.one_in(2) => Input::Touch,
        14 => Input::Suspend { reason: "why not".into() },
        15 if reader.one_in(3) => Input::Cancel { reason: String::from_utf8_lossy(&reader.raw()).into_owned() },
        13 if reader.one_in(4) => raw_envelope(reader, &session_id),
        _ => envelope(message(reader, &session_id, at_ms), reader),
    };
    let caller = caller(reader, &input);
    Step { at_ms, session_id, command: Command { caller, input } }
}

/// A standard session, spoken to in every way; now and then as if it were a classic one.
fn standard_step(reader: &mut Reader<'_>, topic: &Topic, at_ms: i64, session_id: String, is_new: bool) -> Step {
    let (caller, input) = match reader.byte() % 16 {
        1..=14 if is_new => topic.start(&session_id, at_ms, reader),
        0 => topic.start(&session_id, at_ms, reader),
        11 | 12 => topic.control(reader),
        13 => (Caller::anonymous(), Input::Touch),
        14 if reader.one_in(2) => return step(reader, at_ms, session_id, false),
        _ => topic.message(&session_id, reader),
    };
    Step { at_ms, session_id, command: Command { caller, input } }
}

/// A start with nothing wrong about it.
fn plain_start(reader: &mut Reader<'_>, session_id: &str) -> Input {
    let payload = SessionStartPayload {
        participants: reader.pick(&ROSTERS[2..]).iter().map(|name| (*name).to_owned()).collect(),
        context: reader.pick(&CONTEXTS[..5]).into(),
        ..SessionStartPayload::default()
    };
    let envelope = Envelope {
        macp_version: "1.0".into(),
        mode: reader.pick(&MODES[..2]).to_owned(),
        message_type: "SessionStart".into(),
        message_id: "start".into(),
        session_id: session_id.to_owned(),
        sender: "alice".into(),
        payload: payload.encode_to_vec().into(),
        ..Envelope::default()
    };
    let signature = SignatureCheck::Valid(sign(&envelope));
    Input::Envelope { envelope, signature, registered: Registered::default() }
}

/// A start with anything in it.
fn start(reader: &mut Reader<'_>, session_id: &str, now: i64) -> Envelope {
    let payload = SessionStartPayload {
        participants: reader.pick(&ROSTERS).iter().map(|name| (*name).to_owned()).collect(),
        context: reader.pick(&CONTEXTS).into(),
        ttl_ms: reader.pick(&TTLS_MS),
        mode_version: reader.pick(&["", "1.0.0", "", "", "", "7"]).to_owned(),
        configuration_version: reader.pick(&["", "c1"]).to_owned(),
        ..SessionStartPayload::default()
    };
    let payload = if reader.one_in(8) { reader.raw() } else { payload.encode_to_vec() };
    Envelope {
        mode: reader.pick(&MODES).to_owned(),
        message_type: "SessionStart".into(),
        timestamp_unix_ms: reader.pick(&[0, now, 0, now, 0, now - 900, -1, 1, now + 200_000, i64::MAX]),
        payload: payload.into(),
        ..shell(reader, session_id)
    }
}

fn message(reader: &mut Reader<'_>, session_id: &str, now: i64) -> Envelope {
    let (message_type, payload) = reader.pick(&MESSAGES);
    let payload = if reader.one_in(10) { reader.raw() } else { payload.into() };
    let mode = if reader.one_in(8) { reader.pick(&MODES) } else { "" };
    Envelope {
        mode: mode.to_owned(),
        message_type: message_type.to_owned(),
        timestamp_unix_ms: reader.pick(&[0, now, i64::MIN]),
        payload: payload.into(),
        ..shell(reader, session_id)
    }
}

/// What every envelope has. Some message ids come again.
fn shell(reader: &mut Reader<'_>, session_id: &str) -> Envelope {
    let version = if reader.one_in(32) { "2.0" } else { "1.0" };
    let message_id = match reader.byte() {
        255 => String::new(),
        254 => "x".repeat(257),
        number => format!("m{}", number % 64),
    };
    Envelope {
        macp_version: version.to_owned(),
        message_id,
        session_id: session_id.to_owned(),
        sender: reader.pick(&SENDERS).to_owned(),
        ..Envelope::default()
    }
}

fn envelope(envelope: Envelope, reader: &mut Reader<'_>) -> Input {
    let signature = match reader.byte() % 16 {
        11 | 12 if !envelope.sender.is_empty() => SignatureCheck::Valid(sign(&envelope)),
        13 => SignatureCheck::Unregistered(RecordedSignature::default()),
        14 => SignatureCheck::Invalid("forged".into()),
        _ => SignatureCheck::Absent,
    };
    Input::Envelope { envelope, signature, registered: Registered::default() }
}

pub fn sign(envelope: &Envelope) -> RecordedSignature {
    let key = SigningKey::from_bytes(&[7; 32]);
    let signature = key.sign(&signing_bytes(envelope)).to_bytes();
    RecordedSignature {
        signature: Some(EnvelopeSignature { key_id: "k1".into(), signature: signature.to_vec().into() }),
        public_key: key.verifying_key().to_bytes().to_vec().into(),
    }
}

/// An envelope out of the script's own bytes, where they are one.
fn raw_envelope(reader: &mut Reader<'_>, session_id: &str) -> Input {
    let raw = reader.raw();
    let envelope = Envelope::decode(raw.as_slice()).unwrap_or_default();
    // A command is always about the session it is put in order for.
    let envelope = Envelope { session_id: session_id.to_owned(), ..envelope };
    Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() }
}

/// Mostly nobody in particular or the sender itself; sometimes someone else, no one, or one too many.
fn caller(reader: &mut Reader<'_>, input: &Input) -> Caller {
    let sender = match input {
        Input::Envelope { envelope, .. } if !envelope.sender.is_empty() => envelope.sender.as_str(),
        _ => "alice",
    };
    match reader.byte() % 16 {
        10..=12 => Caller::identified(sender),
        13 => Caller::identified("bob"),
        14 => Caller { credential: Credential::Refused("no".into()), ..Caller::default() },
        15 => Caller { over_rate: true, ..Caller::anonymous() },
        _ => Caller::anonymous(),
    }
}
