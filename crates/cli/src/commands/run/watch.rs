//! `macp run watch`.

use macp_plan::store::Status;
use macp_plan_core::journal::Entry;
use macp_plan_core::plan::Aliases;
use macp_wire::plan::v1::JournalEntry;
use serde_json::Value;

use super::follow::{self, Follower};
use super::{journal, result};
use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;
use crate::table::Table;

/// Follow the journal of a run as it grows, until it ends or Ctrl-C
///
/// Prints the entries so far, then new ones, and at last the result; the exit code is 0 if the run succeeded. When the
/// server goes away, the command waits for it and goes on where it stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run id
    run: String,
    /// Start at this entry
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let client = args.server.connect().await?;
    let aliases = match output.is_json() {
        true => Aliases::default(),
        false => follow::result(&client, &args.run).await?.aliases,
    };
    let mut rows = Rows { output, table: Table::new(journal::COLUMNS), aliases };
    if !output.is_json() {
        output.line(rows.table.header(output))?;
        output.flush()?;
    }
    tokio::select! {
        followed = follow::follow(&client, &args.run, args.from, &mut rows) => followed?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            return Ok(Finding::Positive);
        }
    }
    let ended = follow::result(&client, &args.run).await?;
    if !output.is_json() {
        output.line("")?;
        result::show(&ended, result::Length::Screen, output)?;
    }
    Ok(Finding::from_ok(ended.status == Status::Succeeded))
}

struct Rows<'a> {
    output: &'a Output,
    table: Table,
    aliases: Aliases,
}

impl Follower for Rows<'_> {
    fn entry(&mut self, entry: &Entry, recorded: &JournalEntry) -> anyhow::Result<()> {
        if self.output.is_json() {
            let mut value: Value = serde_json::from_str(&recorded.entry_json)?;
            value["hash"] = recorded.hash.clone().into();
            self.output.value(&value)?;
        } else {
            self.output.line(self.table.row(self.output, &journal::row(entry, &self.aliases)))?;
        }
        self.output.flush()?;
        Ok(())
    }

    fn lost(&mut self, why: &str) {
        self.output.note(why);
    }
}
