//! `macp session log`.

use std::path::{Path, PathBuf};

use macp_client::LOG_PAGE_SIZE_MAX;
use macp_wire::history::v1::Entry;

use crate::Finding;
use crate::commands::damage;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::source::{open_history, open_store};
use crate::table::{Cell, Column, Table, left, right};
use crate::text::clean;
use crate::time::stamp;
use crate::view::{detail, entry_json, headline};

const COLUMNS: &[Column] =
    &[right("SEQ", 5), left("ACCEPTED (UTC)", 23), left("TYPE", 13), left("SENDER", 12), left("WHAT", 4)];

/// Print the whole history of a session, entry by entry
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    /// Start after this sequence number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Read this data directory instead of asking a server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    match print(&args, output).await {
        Ok(()) => Ok(Finding::Positive),
        Err(error) => damage::or_failure(error, &args.session, &args.server, output).await,
    }
}

async fn print(args: &Args, output: &Output) -> anyhow::Result<()> {
    let table = Table::new(COLUMNS);
    // Only a session that is there has a table.
    let begin = || if output.is_json() { Ok(()) } else { output.line(table.header(output)) };
    let show = |entry: &Entry, hash: &[u8]| show(entry, hash, &table, output);
    match &args.data {
        Some(directory) => from_directory(directory, args, begin, show)?,
        None => {
            let client = args.server.connect().await?;
            let mut page = client.session_log(&args.session, args.after, LOG_PAGE_SIZE_MAX).await?;
            begin()?;
            loop {
                for logged in &page.entries {
                    let entry = logged.entry.as_ref().ok_or(macp_client::Error::Incomplete("entry"))?;
                    show(entry, &logged.hash)?;
                }
                if page.next_after_sequence == 0 {
                    break;
                }
                page = client.session_log(&args.session, page.next_after_sequence, LOG_PAGE_SIZE_MAX).await?;
            }
        }
    }
    Ok(())
}

/// The chain can only be checked from its start, so what is not shown is read as well.
fn from_directory(
    directory: &Path,
    args: &Args,
    begin: impl Fn() -> std::io::Result<()>,
    show: impl Fn(&Entry, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let store = open_store(directory)?;
    let mut history = open_history(&store, &args.session)?;
    begin()?;
    loop {
        let page = history.next_page()?;
        if page.is_empty() {
            return Ok(());
        }
        for (record, entry) in page.iter().filter(|(record, _)| record.sequence > args.after) {
            show(entry, record.hash.as_bytes())?;
        }
    }
}

fn show(entry: &Entry, hash: &[u8], table: &Table, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        output.value(&entry_json(entry, hash))?;
        return Ok(());
    }
    let (message_type, _, sender) = headline(entry);
    let cells = [
        entry.sequence.to_string().into(),
        stamp(entry.accepted_at_unix_ms).into(),
        Cell::painted(Paint::Bold, clean(message_type)),
        Cell::painted(Paint::Name, clean(sender)),
        detail(entry).into(),
    ];
    output.line(table.row(output, &cells))?;
    Ok(())
}
