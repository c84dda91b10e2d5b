//! `macp run`: plans being executed, and what became of them. Reading works on exported files and data directories too.

mod control;
mod corpus;
mod corpus_check;
mod diff;
mod doubt;
mod export;
mod fold;
mod follow;
mod import;
mod journal;
mod lineage;
mod list;
mod log;
mod mock;
mod replay;
mod report;
mod reported;
mod result;
mod retry_advice;
mod show;
mod source;
mod start;
mod summary;
mod verify;
mod watch;
mod why;

pub(crate) use source::{PlaceArgs, RUNS_DIRECTORY};
pub(crate) use summary::status_word;

use macp_client::Error;
use serde_json::json;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote;
use crate::text::clean;

/// Codes by which a server says no to what it understood.
const REFUSALS: [&str; 6] =
    ["PLAN_REFUSED", "PLAN_INVALID", "RUN_CONFLICT", "REQUEST_REUSED", "POLICY_DENIED", "FORBIDDEN"];

/// Execute plans, look at runs, replay and compare them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Start(start::Args),
    List(list::Args),
    Show(show::Args),
    Log(log::Args),
    Watch(watch::Args),
    Cancel(control::CancelArgs),
    Retry(start::RetryArgs),
    Resolve(control::ResolveArgs),
    Replay(replay::Args),
    Diff(diff::Args),
    Lineage(lineage::Args),
    Export(export::Args),
    Import(import::Args),
    Verify(verify::Args),
    #[command(subcommand)]
    Corpus(corpus::Command),
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::Start(args) => start::run(args, output).await,
            Command::List(args) => list::run(args, output).await,
            Command::Show(args) => show::run(args, output).await,
            Command::Log(args) => log::run(args, output).await,
            Command::Watch(args) => watch::run(&args, output).await,
            Command::Cancel(args) => control::cancel(&args, output).await,
            Command::Retry(args) => start::retry(args, output).await,
            Command::Resolve(args) => control::resolve(args, output).await,
            Command::Replay(args) => replay::run(args, output).await,
            Command::Diff(args) => diff::run(&args, output).await,
            Command::Lineage(args) => lineage::run(&args, output).await,
            Command::Export(args) => export::run(&args, output).await,
            Command::Import(args) => import::run(&args, output).await,
            Command::Verify(args) => verify::run(args, output).await,
            Command::Corpus(command) => command.run(output).await,
        }
    }
}

/// Shows that a server said no. That is a negative finding; whatever else went wrong is a failure.
fn refused(error: Error, output: &Output) -> anyhow::Result<Finding> {
    let status = match error {
        Error::Status(status) if status.macp_code.as_deref().is_some_and(|code| REFUSALS.contains(&code)) => status,
        error => return Err(error.into()),
    };
    let code = status.macp_code.unwrap_or_default();
    if output.is_json() {
        output.value(&json!({ "ok": false, "error": { "code": code, "message": status.message } }))?;
        return Ok(Finding::Negative);
    }
    output.line(format!("{} {}: {}", output.paint(Paint::Bad, "refused"), clean(&code), clean(&status.message)))?;
    if let Some(advice) = remote::advice(&code) {
        output.note(advice);
    }
    Ok(Finding::Negative)
}
