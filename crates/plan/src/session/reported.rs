//! Reads an execution session back: the journal of a run as its session tells it, with no store of runs at hand.

use macp_ledger::{Checker, History, ReadError, Store};
use macp_plan_core::journal::{Broken, Chain, Entry, link};
use macp_wire::history::v1::{self as history, entry};
use macp_wire::modes::task::v1::{TaskRequestPayload, TaskUpdatePayload};
use macp_wire::v1::{Envelope, SessionState};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;

use super::execution::{MODE, session_id};

/// What an execution session says about its run.
#[derive(Clone, Debug)]
pub struct Reported {
    pub run_id: String,
    /// Who started the session. Whether that is who reports runs is for the reader to judge.
    pub initiator: String,
    /// What the run was for, as its TaskRequest says.
    pub request: Value,
    /// The entry that comes next.
    pub next_seq: u64,
    /// Chain hash up to the last entry reported.
    pub head: Option<String>,
    /// The entries, text and hash, checked along their chain; none if one of them was too long to be sent.
    pub entries: Option<Vec<(Vec<u8>, String, Entry)>>,
    /// Where the session stands.
    pub state: SessionState,
    /// When the session was started, and when its last entries were accepted. The run's own times are not told.
    pub times_ms: (u64, u64),
}

/// Why a session is no report of a run.
#[derive(Debug, thiserror::Error)]
pub enum NotAReport {
    #[error("the history of the session could not be read: {0}")]
    History(#[from] ReadError),
    #[error("the session is not one in which a run is reported")]
    OtherSession,
    #[error("a message of the session cannot be decoded: {0}")]
    Undecodable(#[from] prost::DecodeError),
    #[error("the session's entries go on with {found}, and {expected} is missing")]
    Gap { expected: u64, found: u64 },
    #[error("the session's entries are not the journal they say they are: {0}")]
    Broken(#[from] Broken),
    #[error("the session says that entry {seq} is sealed by {stated}, and it is by {found}")]
    Head { seq: u64, stated: String, found: String },
    #[error("an update of the session has no entries that can be read")]
    Unreadable(#[source] serde_json::Error),
}

/// What stands in the place of entries that are too long to be sent.
#[derive(Debug, Deserialize)]
struct ByDigest {
    by_digest: Range,
}

#[derive(Debug, Deserialize)]
struct Range {
    from_seq: u64,
    to_seq: u64,
    head: String,
}

/// The report in a session; none if there is no such session. Blocks.
pub fn reported(sessions: &dyn Store, execution_session_id: &str) -> Result<Option<Reported>, NotAReport> {
    let Some(mut history) = History::open(sessions, execution_session_id).map_err(ReadError::from)? else {
        return Ok(None);
    };
    let state = SessionState::try_from(history.head().state).unwrap_or_default();
    let mut reading = ReportReading::default();
    loop {
        let page = history.next_page()?;
        if page.is_empty() {
            break;
        }
        page.iter().try_for_each(|(_, recorded)| reading.take(recorded))?;
    }
    Ok(Some(Reported { state, ..reading.finish()? }))
}

/// Who started a session, by its first entry and no other; none if there is none that says so. Blocks.
pub(super) fn initiator(sessions: &dyn Store, session_id: &str) -> Result<Option<String>, ReadError> {
    let Some(first) = sessions.read(session_id, 0, 1, 0)?.into_iter().next() else {
        return Ok(None);
    };
    Ok(match Checker::new().check(&first)?.input {
        Some(entry::Input::Envelope(start)) => Some(start.sender),
        _ => None,
    })
}

/// Reads a report entry by entry, wherever the history comes from; whoever reads it checks the history's own chain.
#[derive(Debug)]
pub struct ReportReading {
    reader: Reader,
    /// The run, and who started the session.
    started: Option<(String, String)>,
    request: Value,
    state: SessionState,
    times_ms: Option<(u64, u64)>,
}

impl Default for ReportReading {
    fn default() -> Self {
        let reader = Reader { chain: Chain::new(), entries: Some(Vec::new()) };
        Self { reader, started: None, request: Value::Null, state: SessionState::Open, times_ms: None }
    }
}

impl ReportReading {
    pub fn take(&mut self, recorded: &history::Entry) -> Result<(), NotAReport> {
        if let Some(terminal) = &recorded.terminal {
            self.state = terminal.state();
        }
        let Some(entry::Input::Envelope(envelope)) = &recorded.input else { return Ok(()) };
        if envelope.mode != MODE {
            return Err(NotAReport::OtherSession);
        }
        let at_ms = u64::try_from(recorded.accepted_at_unix_ms).unwrap_or_default();
        match envelope.message_type.as_str() {
            macp_kernel::SESSION_START => {
                self.started = Some((run_of(envelope)?, envelope.sender.clone()));
                self.times_ms = Some((at_ms, at_ms));
            }
            "TaskRequest" => {
                let payload = TaskRequestPayload::decode(envelope.payload.clone())?;
                self.request = serde_json::from_slice(&payload.input).map_err(NotAReport::Unreadable)?;
            }
            "TaskUpdate" => {
                self.reader.take(&TaskUpdatePayload::decode(envelope.payload.clone())?)?;
                self.times_ms = self.times_ms.map(|(first, _)| (first, at_ms));
            }
            _ => {}
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Reported, NotAReport> {
        let Self { reader, started, request, state, times_ms } = self;
        let (run_id, initiator) = started.ok_or(NotAReport::OtherSession)?;
        let head = reader.chain.head().map(str::to_owned);
        let (next_seq, entries) = (reader.chain.next_seq(), reader.entries);
        let times_ms = times_ms.unwrap_or_default();
        Ok(Reported { run_id, initiator, request, next_seq, head, entries, state, times_ms })
    }
}

fn run_of(start: &Envelope) -> Result<String, NotAReport> {
    let payload = macp_wire::v1::SessionStartPayload::decode(start.payload.clone())?;
    if session_id(&payload.context_id) != start.session_id {
        return Err(NotAReport::OtherSession);
    }
    Ok(payload.context_id)
}

#[derive(Debug)]
struct Reader {
    chain: Chain,
    entries: Option<Vec<(Vec<u8>, String, Entry)>>,
}

impl Reader {
    fn take(&mut self, update: &TaskUpdatePayload) -> Result<(), NotAReport> {
        if let Ok(ByDigest { by_digest: Range { from_seq, to_seq, head } }) =
            serde_json::from_slice(&update.partial_output)
        {
            self.check_next(from_seq)?;
            self.entries = None;
            self.chain = Chain::resume(to_seq, head);
            return Ok(());
        }
        let lines = update.partial_output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines {
            let seq = serde_json::from_slice::<Numbered>(line).map_err(NotAReport::Unreadable)?.seq;
            self.check_next(seq)?;
            let hash = link(self.chain.head(), line);
            let entry = self.chain.read(line, &hash)?;
            if let Some(entries) = &mut self.entries {
                entries.push((line.to_vec(), hash, entry));
            }
        }
        self.check_head(&update.message)
    }

    fn check_next(&self, found: u64) -> Result<(), NotAReport> {
        let expected = self.chain.next_seq();
        if found == expected { Ok(()) } else { Err(NotAReport::Gap { expected, found }) }
    }

    /// Every update says which hash its last entry has.
    fn check_head(&self, message: &str) -> Result<(), NotAReport> {
        let stated = message.rsplit(' ').next().unwrap_or_default();
        let found = self.chain.head().unwrap_or_default();
        if stated == found {
            return Ok(());
        }
        let seq = self.chain.next_seq().saturating_sub(1);
        Err(NotAReport::Head { seq, stated: stated.to_owned(), found: found.to_owned() })
    }
}

#[derive(Debug, Deserialize)]
struct Numbered {
    seq: u64,
}
