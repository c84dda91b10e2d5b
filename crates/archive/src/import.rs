//! Brings an export into a store: ended sessions only, so that no session ever has two authorities.

use std::sync::Arc;

use macp_kernel::{Session, replay};
use macp_ledger::{Append, AppendError, Failure, IndexUpdate, Record, Store};
use macp_wire::v1::SessionMetadata;

use crate::{ExportFile, ReadError, Source};

/// What an import did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    New {
        session_id: String,
        entries: u64,
    },
    /// The very same history is there already.
    AlreadyThere {
        session_id: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the export cannot be taken: {0}")]
    Read(#[source] ReadError),
    #[error("the export does not replay: {0}")]
    Replay(#[from] replay::Stop),
    #[error("session {0:?} has not ended; its authority is the server it runs on")]
    Open(String),
    #[error("another history of session {0:?} is there already; nothing was changed")]
    Differs(String),
    #[error(transparent)]
    Store(#[from] Failure),
    #[error("the session could not be stored: {0}")]
    Append(#[from] AppendError),
}

/// An ended session that was checked from end to end, chain and decisions.
#[derive(Debug)]
pub struct Importable {
    session_id: Arc<str>,
    records: Vec<Record>,
    index: IndexUpdate,
}

/// Checks an export before anything is touched that it could be stored in. `progress` hears how many entries are checked.
pub fn check_import(file: ExportFile, progress: &mut dyn FnMut(u64)) -> Result<Importable, ImportError> {
    let mut source = Source::File(file);
    let mut replayer = replay::Replayer::default();
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = source.next_page().map_err(ImportError::Read)?;
        if page.is_empty() {
            break;
        }
        for (record, entry) in page {
            replayer.feed(&entry)?;
            records.push(record);
        }
        progress(records.len() as u64);
    }
    let session_id: Arc<str> = source.session_id().into();
    let Some(session) = replayer.into_session() else {
        return Err(replay::Stop::Refused("the history has no entry".to_owned()).into());
    };
    // A suspended session can go on where it was suspended, so it has an authority too.
    if !session.state().is_terminal() {
        return Err(ImportError::Open(session_id.to_string()));
    }
    Ok(Importable { session_id, records, index: index(&session) })
}

/// Stores a checked session whole or not at all.
pub fn import(session: Importable, store: &dyn Store) -> Result<Imported, ImportError> {
    let Importable { session_id, records, index } = session;
    let entries = records.len() as u64;
    if let Some(head) = store.head(&session_id)? {
        let same = records.last().is_some_and(|last| last.sequence == head.sequence && last.hash == head.hash);
        return match same {
            true => Ok(Imported::AlreadyThere { session_id: session_id.to_string() }),
            false => Err(ImportError::Differs(session_id.to_string())),
        };
    }
    let append =
        Append { session_id: Arc::clone(&session_id), expected_sequence: 0, expected_hash: None, records, index };
    store.append(&[append]).into_iter().next().unwrap_or(Ok(()))?;
    Ok(Imported::New { session_id: session_id.to_string(), entries })
}

fn index(session: &Session) -> IndexUpdate {
    let metadata: SessionMetadata = session.summary();
    IndexUpdate {
        open: false,
        deadline_ms: session.position().deadline_ms,
        state: session.state().to_wire().into(),
        summary: Some(prost::Message::encode_to_vec(&metadata).into()),
    }
}
