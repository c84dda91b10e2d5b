//! Small histories in a memory store, written the way the engine writes them.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::Path;

use macp_archive::{ExportFile, Exporter, Keys, Source, Verification, verify};
use macp_kernel::{Caller, Command, Input, Limits, Session, SignatureCheck, step};
use macp_ledger::{Append, Hash, IndexUpdate, MemoryStore, Record, Store, record};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::{self, Envelope};
use prost::Message;

pub const AT: i64 = 1_800_000_000_000;

pub fn envelope(session: &str, message_type: &str, message_id: &str, sender: &str, payload: &[u8]) -> Envelope {
    Envelope {
        macp_version: "1.0".into(),
        message_type: message_type.into(),
        message_id: message_id.into(),
        session_id: session.into(),
        sender: sender.into(),
        payload: payload.to_vec().into(),
        ..Envelope::default()
    }
}

/// Start, proposal, vote, commitment.
pub fn decision(session: &str) -> Vec<Envelope> {
    let start = SessionStartPayload { configuration_version: "cfg-1".into(), ..SessionStartPayload::default() };
    vec![
        envelope(session, "SessionStart", "m1", "alice", &start.encode_to_vec()),
        envelope(session, "Proposal", "m2", "alice", br#"{"proposal_id":"p","option":"go"}"#),
        envelope(session, "Vote", "m3", "bob", br#"{"proposal_id":"p","vote":"approve"}"#),
        envelope(session, "Commitment", "m4", "alice", br#"{"commitment_id":"c","action":"go"}"#),
    ]
}

pub fn command(envelope: Envelope, signature: SignatureCheck) -> Command {
    Command {
        caller: Caller::anonymous(),
        input: Input::Envelope { envelope, signature, registered: Default::default() },
    }
}

/// A standard session of alice's that was started and then suspended.
pub fn suspended(session: &str) -> Vec<Command> {
    let start = v1::SessionStartPayload {
        participants: vec!["bob".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "cfg-1".into(),
        ttl_ms: 60_000,
        ..v1::SessionStartPayload::default()
    };
    let start = Envelope {
        mode: "macp.mode.decision.v1".into(),
        ..envelope(session, "SessionStart", "m1", "alice", &start.encode_to_vec())
    };
    let start = Input::Envelope { envelope: start, signature: SignatureCheck::Absent, registered: Default::default() };
    let suspend = Input::Suspend { reason: "lunch".into() };
    [start, suspend].map(|input| Command { caller: Caller::identified("alice"), input }).into()
}

/// Decides, seals and stores.
pub fn write(store: &dyn Store, session_id: &str, commands: Vec<Command>) -> Session {
    let mut slot = None;
    let mut records: Vec<Record> = Vec::new();
    for command in commands {
        for mut entry in step(&mut slot, &command, AT, &Limits::default()).entries {
            let previous: Option<Hash> = records.last().map(|record| record.hash);
            if let (Some(terminal), Some(hash)) = (&mut entry.terminal, &previous) {
                terminal.history_hash = hash.as_bytes().to_vec().into();
            }
            records.push(record::seal(previous.as_ref(), &entry));
        }
    }
    let session = slot.expect("the session was started");
    let index = IndexUpdate {
        open: !session.state().is_terminal(),
        deadline_ms: session.position().deadline_ms,
        state: session.state().to_wire().into(),
        summary: Some(session.summary().encode_to_vec().into()),
    };
    let append = Append { session_id: session_id.into(), expected_sequence: 0, expected_hash: None, records, index };
    store.append(&[append]).remove(0).expect("stored");
    session
}

pub fn store_with(session: &str, messages: usize) -> MemoryStore {
    let store = MemoryStore::new();
    let commands = decision(session).into_iter().take(messages);
    write(&store, session, commands.map(|envelope| command(envelope, SignatureCheck::Absent)).collect());
    store
}

pub fn export(store: &dyn Store, session: &str) -> Vec<u8> {
    let mut exporter = Exporter::open(store, session).expect("readable").expect("there");
    let mut bytes = Vec::new();
    while let Some(chunk) = exporter.next_chunk().expect("whole") {
        bytes.extend(chunk);
    }
    bytes
}

/// Verifies a file; an unreadable one is an error.
pub fn verify_file(path: &Path) -> Result<Verification, String> {
    let file = ExportFile::open(path).map_err(|error| error.to_string())?;
    verify(&mut Source::File(file), &Keys::none(), &mut |_| {}).map_err(|error| error.to_string())
}
