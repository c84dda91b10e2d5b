//! Every way bytes from outside are read, one after the other. None of them may panic, and what was read must survive
//! being written and read again.

use std::fmt::Debug;
use std::sync::Arc;

use macp_kernel::policy::{Policy, default_policy, validate};
use macp_kernel::replay::{Options, Replayer, WhatIf};
use macp_kernel::{
    Caller, Command, Input, Limits, ProfileSetting, Registered, Session, SignatureCheck, ambient, signature, step,
    trace,
};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::Entry;
use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use macp_wire::modes::multi_round::v1::ContributePayload;
use macp_wire::payload::{self, ClassicPayload};
use macp_wire::signing::signing_bytes;
use macp_wire::v1::{
    self, CancelSessionRequest, CommitmentPayload, Envelope, GetSessionRequest, InitializeRequest, ListSessionsRequest,
    ModeDescriptor, PolicyDescriptor, ProgressPayload, SendRequest, SessionCancelPayload, SessionResumePayload,
    SessionSuspendPayload, SignalPayload, StreamSessionRequest,
};
use prost::Message;

const NOW: i64 = 1_700_000_000_000;

/// Reads `bytes` as everything they could be.
pub fn everything(bytes: &[u8]) {
    messages(bytes);
    classic_payloads(bytes);
    as_payload(bytes);
    as_context(bytes);
    as_history(bytes);
    as_trace(bytes);
    as_signature(bytes);
    as_policy(bytes);
    as_standard_payload(bytes);
}

fn messages(bytes: &[u8]) {
    if let Some(envelope) = protobuf::<Envelope>(bytes) {
        signing_bytes(&envelope);
        as_command(envelope);
    }
    protobuf::<Entry>(bytes);
    protobuf::<SessionStartPayload>(bytes);
    protobuf::<SendRequest>(bytes);
    protobuf::<StreamSessionRequest>(bytes);
    protobuf::<InitializeRequest>(bytes);
    protobuf::<GetSessionRequest>(bytes);
    protobuf::<CancelSessionRequest>(bytes);
    protobuf::<ListSessionsRequest>(bytes);
    protobuf::<SessionCancelPayload>(bytes);
    protobuf::<SignalPayload>(bytes);
    protobuf::<ProgressPayload>(bytes);
    protobuf::<SessionSuspendPayload>(bytes);
    protobuf::<SessionResumePayload>(bytes);
    protobuf::<ModeDescriptor>(bytes);
    protobuf::<v1::SessionStartPayload>(bytes);
}

/// Written again, a message is stable. Bytes and not values are compared, because a NaN equals nothing.
fn protobuf<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let written = message.encode_to_vec();
    let read = M::decode(written.as_slice()).expect("what was written can be read");
    assert_eq!(read.encode_to_vec(), written);
    Some(message)
}

fn classic_payloads(bytes: &[u8]) {
    classic_payload::<ProposalPayload>(bytes);
    classic_payload::<EvaluationPayload>(bytes);
    classic_payload::<ObjectionPayload>(bytes);
    classic_payload::<VotePayload>(bytes);
    classic_payload::<CommitmentPayload>(bytes);
    classic_payload::<ContributePayload>(bytes);
}

fn classic_payload<P: ClassicPayload + Debug>(bytes: &[u8]) {
    let Ok(payload) = payload::decode::<P>(bytes) else {
        return;
    };
    // Only a number that JSON cannot express cannot be written.
    if let Ok(json) = payload::encode_json(&payload) {
        assert_eq!(payload::decode::<P>(&json).expect("our own JSON can be read"), payload);
    }
}

/// An envelope against no session, and against one of each mode.
fn as_command(envelope: Envelope) {
    let caller = Caller::anonymous();
    let limits = Limits::default();
    let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
    let Input::Envelope { envelope, signature, .. } = &input else { unreachable!("just made") };
    if ambient(envelope, signature, &caller, &limits).is_some() {
        return;
    }
    let command = Command { caller, input };
    for slot in [None, started("decision", b""), started("multi_round", b"")] {
        let mut slot = slot;
        step(&mut slot, &command, NOW, &limits);
    }
}

/// The bytes as the payload of every message type.
fn as_payload(bytes: &[u8]) {
    let types = [
        "SessionStart",
        "Proposal",
        "Evaluation",
        "Objection",
        "Vote",
        "Commitment",
        "Message",
        "Contribute",
        "Signal",
        "Progress",
        "Unheard",
    ];
    for message_type in types {
        for mode in ["decision", "multi_round"] {
            as_command(Envelope {
                mode: mode.into(),
                message_type: message_type.into(),
                payload: bytes.to_vec().into(),
                ..shell("m1")
            });
        }
    }
}

/// The bytes as the context of a start.
fn as_context(bytes: &[u8]) {
    for mode in ["decision", "multi_round"] {
        started(mode, bytes);
    }
}

fn started(mode: &str, context: &[u8]) -> Option<Session> {
    let payload = SessionStartPayload {
        participants: vec!["alice".into(), "bob".into()],
        context: context.to_vec().into(),
        ..SessionStartPayload::default()
    };
    let envelope = Envelope {
        mode: mode.into(),
        message_type: "SessionStart".into(),
        payload: payload.encode_to_vec().into(),
        ..shell("start")
    };
    let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
    let limits = Limits { profile: ProfileSetting::Classic, ..Limits::default() };
    let mut slot = None;
    step(&mut slot, &Command { caller: Caller::anonymous(), input }, NOW, &limits);
    slot
}

fn shell(message_id: &str) -> Envelope {
    Envelope {
        macp_version: "1.0".into(),
        message_id: message_id.into(),
        session_id: "s1".into(),
        sender: "alice".into(),
        ..Envelope::default()
    }
}

/// The bytes as stored entries, each behind a byte for its length.
fn as_history(mut bytes: &[u8]) {
    for what_if in [false, true] {
        if let Ok(entry) = Entry::decode(bytes) {
            let mut replayer = Replayer::new(Options { what_if, ..Options::default() });
            // Whether it replays is not the question; that it says so is.
            let fed = replayer.feed(&entry);
            assert_eq!(fed.is_ok(), replayer.finish().is_ok() && fed.is_ok());
        }
    }
    let mut replayer = Replayer::new(Options { what_if: true, ..Options::default() });
    let mut what_if = WhatIf::new(Policy::clone(default_policy()));
    let mut reproduced = true;
    while let Some((length, rest)) = bytes.split_first() {
        let (record, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        let Ok(entry) = Entry::decode(record) else {
            continue;
        };
        // What cannot be reproduced says so, and is not asked further.
        reproduced = reproduced && what_if.feed(&entry).is_ok();
        if replayer.feed(&entry).is_err() {
            break;
        }
    }
}

/// The bytes as one line of a trace.
fn as_trace(bytes: &[u8]) {
    if let Ok(event) = serde_json::from_slice::<trace::Event>(bytes) {
        // Malformed hex is an error of the event's, which the result carries.
        let first = trace::Replayer::default().feed(&event);
        assert_eq!(first, trace::Replayer::default().feed(&event));
    }
}

fn as_signature(bytes: &[u8]) {
    let (signature, key) = bytes.split_at(bytes.len().min(64));
    let forged = signature::verify_bytes(&shell("m1"), signature, key);
    assert!(forged.is_err(), "nobody guesses a signature");
}

/// The bytes as a descriptor, and as the rules of one for every mode. What is accepted once is accepted again, as the
/// same policy, and governs a session.
fn as_policy(bytes: &[u8]) {
    if let Some(descriptor) = protobuf::<PolicyDescriptor>(bytes) {
        accepted_again(&descriptor);
    }
    let Ok(rules) = std::str::from_utf8(bytes) else {
        return;
    };
    for (mode, message_types) in STANDARD {
        let descriptor = PolicyDescriptor {
            policy_id: "policy.fuzzed".into(),
            mode: (*mode).to_owned(),
            rules: rules.to_owned(),
            schema_version: 1,
            ..PolicyDescriptor::default()
        };
        let Some(policy) = accepted_again(&descriptor) else {
            continue;
        };
        let registered = Registered { policy: Some(Arc::new(policy)), extension: None };
        let mut slot = started_standard(mode, &registered);
        assert!(slot.is_some(), "a valid policy lets a session start");
        for message_type in *message_types {
            say(&mut slot, mode, message_type, b"", &registered);
        }
    }
}

fn accepted_again(descriptor: &PolicyDescriptor) -> Option<Policy> {
    let policy = validate(descriptor).ok()?;
    assert_eq!(validate(&policy.descriptor).as_ref(), Ok(&policy));
    Some(policy)
}

/// Every mode of the standard profile and what may be said in it.
const STANDARD: &[(&str, &[&str])] = &[
    ("macp.mode.decision.v1", &["Proposal", "Evaluation", "Objection", "Vote", "Commitment"]),
    ("macp.mode.proposal.v1", &["Proposal", "CounterProposal", "Accept", "Reject", "Withdraw", "Commitment"]),
    (
        "macp.mode.task.v1",
        &["TaskRequest", "TaskAccept", "TaskReject", "TaskUpdate", "TaskComplete", "TaskFail", "Commitment"],
    ),
    ("macp.mode.handoff.v1", &["HandoffOffer", "HandoffContext", "HandoffAccept", "HandoffDecline", "Commitment"]),
    ("macp.mode.quorum.v1", &["ApprovalRequest", "Approve", "Reject", "Abstain", "Commitment"]),
    ("ext.multi_round.v1", &["Contribute", "Commitment"]),
];

/// The bytes as the payload of every message of every standard mode, twice: the second time some of them stand on what
/// the first did.
fn as_standard_payload(bytes: &[u8]) {
    let registered = Registered::default();
    for (mode, message_types) in STANDARD {
        let mut slot = started_standard(mode, &registered);
        for message_type in message_types.iter().chain(*message_types) {
            say(&mut slot, mode, message_type, bytes, &registered);
        }
        let command = standard_command(mode, "SessionStart", "start", bytes, &registered);
        step(&mut None, &command, NOW, &Limits::default());
    }
}

fn started_standard(mode: &str, registered: &Registered) -> Option<Session> {
    let payload = v1::SessionStartPayload {
        participants: vec!["alice".into(), "bob".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "c1".into(),
        policy_version: registered.policy.as_ref().map(|policy| policy.id().to_owned()).unwrap_or_default(),
        ttl_ms: 60_000,
        ..v1::SessionStartPayload::default()
    };
    let command = standard_command(mode, "SessionStart", "start", &payload.encode_to_vec(), registered);
    let mut slot = None;
    step(&mut slot, &command, NOW, &Limits::default());
    slot
}

fn say(slot: &mut Option<Session>, mode: &str, message_type: &str, payload: &[u8], registered: &Registered) {
    let ordinal = slot.as_ref().map_or(0, Session::ordinal);
    let command = standard_command(mode, message_type, &format!("m{ordinal}"), payload, registered);
    step(slot, &command, NOW, &Limits::default());
}

fn standard_command(
    mode: &str,
    message_type: &str,
    message_id: &str,
    payload: &[u8],
    registered: &Registered,
) -> Command {
    let envelope = Envelope {
        mode: mode.to_owned(),
        message_type: message_type.to_owned(),
        session_id: "5e551000-0000-4000-8000-000000000001".into(),
        payload: payload.to_vec().into(),
        ..shell(message_id)
    };
    let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: registered.clone() };
    Command { caller: Caller::identified("alice"), input }
}
