//! `macp session list`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_ledger::{Filter, Head, Store};
use macp_wire::v1::{SessionMetadata, SessionState};
use prost::Message;

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;
use crate::source::open_store;
use crate::table::{Cell, Column, Table, left};
use crate::text::clean;
use crate::time::stamp;
use crate::view::{session_json, state_cell};

const COLUMNS: &[Column] = &[
    left("SESSION", 12),
    left("STATE", 8),
    left("MODE", 21),
    left("STARTED (UTC)", 23),
    left("INITIATOR", 9),
    left("PARTICIPANTS", 12),
];

/// Sessions read from a directory at once.
const PAGE_SESSIONS: usize = 1_000;

/// List sessions, ordered by id
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only sessions that are open
    #[arg(long)]
    open: bool,
    /// Read this data directory instead of asking a server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let mut pages = Pages { output, open: args.open, table: None };
    match &args.data {
        Some(directory) => from_directory(directory, &mut pages)?,
        None => {
            let client = args.server.connect().await?;
            let mut token = String::new();
            loop {
                let page = client.list_sessions(0, &token).await?;
                pages.show(&page.sessions)?;
                if page.next_page_token.is_empty() {
                    break;
                }
                token = page.next_page_token;
            }
        }
    }
    if pages.table.is_none() && !output.is_json() {
        output.note("no sessions");
    }
    Ok(Finding::Positive)
}

fn from_directory(directory: &Path, pages: &mut Pages<'_>) -> anyhow::Result<()> {
    let store = open_store(directory)?;
    let filter = if pages.open { Filter::Open } else { Filter::All };
    let mut after: Option<String> = None;
    loop {
        let heads = store.list(after.as_deref(), PAGE_SESSIONS, filter)?;
        let Some(last) = heads.last() else {
            return Ok(());
        };
        after = Some(last.session_id.to_string());
        let sessions = heads.iter().map(metadata).collect::<anyhow::Result<Vec<_>>>()?;
        pages.show(&sessions)?;
    }
}

/// The index keeps what is told of a session apart from where it stands. Its deadline is until when time leaves the
/// session alone, which is not the deadline of the session.
fn metadata(head: &Head) -> anyhow::Result<SessionMetadata> {
    let born = SessionMetadata::decode(head.summary.clone())
        .with_context(|| format!("the index of session {:?} is unreadable", head.session_id))?;
    Ok(SessionMetadata { state: head.state, ..born })
}

/// Prints sessions page by page; the columns fit the first page.
struct Pages<'a> {
    output: &'a Output,
    open: bool,
    table: Option<Table>,
}

impl Pages<'_> {
    fn show(&mut self, sessions: &[SessionMetadata]) -> anyhow::Result<()> {
        let shown: Vec<_> =
            sessions.iter().filter(|session| !self.open || session.state() == SessionState::Open).collect();
        if self.output.is_json() {
            for session in shown {
                self.output.value(&session_json(session))?;
            }
            return Ok(());
        }
        if shown.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = shown.into_iter().map(row).collect();
        if self.table.is_none() {
            let table = Table::fitted(COLUMNS, &rows);
            self.output.line(table.header(self.output))?;
            self.table = Some(table);
        }
        if let Some(table) = &self.table {
            for row in &rows {
                self.output.line(table.row(self.output, row))?;
            }
        }
        Ok(())
    }
}

fn row(session: &SessionMetadata) -> Vec<Cell> {
    let participants = match session.participants.as_slice() {
        [] => "anyone".to_owned(),
        names => clean(&names.join(", ")),
    };
    vec![
        clean(&session.session_id).into(),
        state_cell(session.state()),
        session.mode.clone().into(),
        stamp(session.started_at_unix_ms).into(),
        clean(&session.initiator).into(),
        participants.into(),
    ]
}
