//! `macp demo`: the whole product in a few seconds, against a real server over gRPC.
//!
//! ```text
//!  act one    three agents argue about a rollout and commit      ─┐ server on a real data directory
//!  act two    three agents converge on a budget over rounds      ─┘
//!  act three  restart, replay, verify, export, tamper, find it
//! ```
//!
//! Every answer is compared with what the script expects; one that differs makes the demo fail.

mod proof;
mod script;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use macp_client::Client;
use macp_edge::{Server, Settings};
use macp_ledger::SqliteStore;

use crate::Finding;
use crate::output::Output;
use stage::Stage;

/// Pause between lines, so that a person can follow.
const PACE: Duration = Duration::from_millis(60);

/// See it work: agents decide, the server restarts, the history is proven
///
/// Starts a server on a temporary data directory, lets three agents reach a decision and a convergence over gRPC,
/// restarts it, replays and verifies both sessions, and shows that a single changed byte is found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print without pauses
    #[arg(long)]
    no_delay: bool,
    /// Keep the data in this directory, to look at it afterwards
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let began = Instant::now();
    let pace = if args.no_delay || output.is_json() { Duration::ZERO } else { PACE };
    let temporary = tempfile::Builder::new().prefix("macp-demo-").tempdir()?;
    let directory = args.keep.as_deref().unwrap_or(temporary.path());
    // Ids of their own, so that a kept directory can see the demo again.
    let run = uuid::Uuid::new_v4().simple().to_string();
    let sessions = [format!("rollout-{}", &run[..6]), format!("budget-{}", &run[..6])];
    let mut stage = Stage::new(output, pace);

    let (server, client) = open(directory).await?;
    stage
        .note(&format!("A server is listening on {}, its history is in {}.", server.local_addr(), directory.display()))
        .await?;
    stage.act("Act one: three agents decide how to roll out version 2.1").await?;
    let vote = script::decide(&mut stage, &client, &sessions[0]).await?;
    stage.act("Act two: three agents converge on a budget, round by round").await?;
    script::converge(&mut stage, &client, &sessions[1]).await?;

    stage.act("Act three: restart the server and prove that nothing changed").await?;
    drop(client);
    server.shut_down().await?;
    let (server, client) = open(directory).await?;
    stage.proof(true, "restarted on the same data directory").await?;
    proof::remembers(&mut stage, &client, vote).await?;
    for session in &sessions {
        proof::replays(&mut stage, &client, session).await?;
        proof::verifies(&mut stage, &client, session).await?;
    }
    proof::exports(&mut stage, &client, &sessions[0], &directory.join(format!("{}.jsonl", sessions[0]))).await?;
    drop(client);
    server.shut_down().await?;

    let kept = args.keep.as_deref().map(|directory| (directory, sessions[0].as_str()));
    stage.finish(began.elapsed(), kept)
}

/// A server on a free port, and a client of it.
async fn open(directory: &Path) -> anyhow::Result<(Server, Client)> {
    let store = SqliteStore::open(directory)?;
    let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
    let server = Server::start(settings, Arc::new(store)).await.context("cannot start the server")?;
    let client = Client::connect(format!("http://{}", server.local_addr())).await?;
    Ok((server, client))
}
