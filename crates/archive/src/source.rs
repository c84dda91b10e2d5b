//! Where a history is read from: a store, or a file that was taken away from one.

use macp_ledger::{Corruption, Failure, Head, History, Record};
use macp_wire::history::v1::{Entry, entry};

use crate::{ExportFile, FileError};

/// Why a history could not be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Corruption(#[from] Corruption),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("entry {sequence} belongs to session {found:?}, not to {expected:?}")]
    Foreign { sequence: u64, expected: String, found: String },
}

impl ReadError {
    /// The entry that is bad, where the history and not the reading is at fault.
    pub fn bad_sequence(&self) -> Option<u64> {
        match self {
            ReadError::Failure(_) => None,
            ReadError::Corruption(corruption) => Some(corruption.sequence),
            ReadError::File(error) => error.bad_sequence(),
            ReadError::Foreign { sequence, .. } => Some(*sequence),
        }
    }
}

impl From<macp_ledger::ReadError> for ReadError {
    fn from(error: macp_ledger::ReadError) -> Self {
        match error {
            macp_ledger::ReadError::Failure(failure) => failure.into(),
            macp_ledger::ReadError::Corruption(corruption) => corruption.into(),
        }
    }
}

/// A history being read, chain-checked record by record.
#[derive(Debug)]
pub enum Source<'a> {
    Store(History<'a>),
    File(ExportFile),
}

impl Source<'_> {
    pub fn session_id(&self) -> &str {
        match self {
            Source::Store(history) => &history.head().session_id,
            Source::File(file) => file.session_id(),
        }
    }

    /// What the index says of the session; a file has none.
    pub(crate) fn head(&self) -> Option<&Head> {
        match self {
            Source::Store(history) => Some(history.head()),
            Source::File(_) => None,
        }
    }

    /// How many entries there should be, for showing progress.
    pub fn entries(&self) -> u64 {
        match self {
            Source::Store(history) => history.head().sequence,
            Source::File(file) => file.entries(),
        }
    }

    /// The next checked records, empty at the end.
    pub fn next_page(&mut self) -> Result<Vec<(Record, Entry)>, ReadError> {
        let page = match self {
            Source::Store(history) => history.next_page()?,
            Source::File(file) => file.next_page()?,
        };
        for (_, entry) in &page {
            check_owner(self.session_id(), entry)?;
        }
        Ok(page)
    }
}

/// The chain covers what a record says, not under which name it is kept: whole histories could be swapped.
fn check_owner(session_id: &str, entry: &Entry) -> Result<(), ReadError> {
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) if envelope.session_id != session_id => Err(ReadError::Foreign {
            sequence: entry.sequence,
            expected: session_id.to_owned(),
            found: envelope.session_id.clone(),
        }),
        _ => Ok(()),
    }
}
