//! `macp demo`: the whole product in a few seconds, against a real server over gRPC.
//!
//! ```text
//!  act one    three agents argue about a rollout and commit      ─┐
//!  act two    they commit to a plan, and the runtime executes it  │ server on a real data directory
//!  act three  three agents converge on a budget over rounds      ─┘
//!  act four   restart, replay, verify, export, tamper, find it
//! ```
//!
//! Every answer is compared with what the script expects; one that differs makes the demo fail.

mod plan;
mod proof;
mod script;
mod shop;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use macp_client::Client;
use macp_edge::{PlanSettings, Server, Settings};
use macp_ledger::SqliteStore;

use super::run::RUNS_DIRECTORY;
use crate::Finding;
use crate::output::Output;
use stage::Stage;

/// Pause between lines, so that a person can follow.
const PACE: Duration = Duration::from_millis(60);

/// See it work: agents decide, a plan is executed, the server restarts, the history is proven
///
/// Starts a server on a temporary data directory, lets three agents reach a decision, commit to a plan that the server
/// then executes, and converge, all over gRPC; restarts it, replays and verifies everything, and shows that a single
/// changed byte is found.
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
    stage.act("Act two: they commit to a plan, and exactly that plan runs exactly once").await?;
    // By today's standard a session's id is not to be guessed.
    let played = plan::play(&mut stage, &client, &uuid::Uuid::new_v4().to_string()).await?;
    stage.act("Act three: three agents converge on a budget, round by round").await?;
    script::converge(&mut stage, &client, &sessions[1]).await?;

    stage.act("Act four: restart the server and prove that nothing changed").await?;
    drop(client);
    server.shut_down().await?;
    let (server, client) = open(directory).await?;
    stage.proof(true, "restarted on the same data directory").await?;
    proof::remembers(&mut stage, &client, vote).await?;
    for session in &sessions {
        proof::replays(&mut stage, &client, session).await?;
        proof::verifies(&mut stage, &client, session).await?;
    }
    let ada = client.clone().with_token("ada")?;
    proof::replays(&mut stage, &ada, &played.decision).await?;
    proof::replays_course(&mut stage, &ada, &played.execution).await?;
    for session in [&played.decision, &played.execution] {
        proof::verifies(&mut stage, &ada, session).await?;
    }
    plan::replays(&mut stage, &ada, &played.run_id).await?;
    drop(ada);
    proof::exports(&mut stage, &client, &sessions[0], &directory.join(format!("{}.jsonl", sessions[0]))).await?;
    drop(client);
    server.shut_down().await?;

    let kept = args.keep.as_deref().map(|directory| (directory, sessions[0].as_str()));
    stage.finish(began.elapsed(), kept)
}

/// A server on a free port, and a client of it.
async fn open(directory: &Path) -> anyhow::Result<(Server, Client)> {
    let store = SqliteStore::open(directory)?;
    let runs = SqliteStore::open(directory.join(RUNS_DIRECTORY))?;
    let mut plans = PlanSettings::new(Arc::new(runs));
    // The shop of the demo is on this machine and speaks plain HTTP.
    plans.skills.egress.allow_http = true;
    plans.skills.egress.allow_private_hosts = vec!["127.0.0.1".to_owned()];
    plans.skills.trust.system_roots = false;
    let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), plans: Some(plans), ..Settings::default() };
    let server = Server::start(settings, Arc::new(store)).await.context("cannot start the server")?;
    let client = Client::connect(format!("http://{}", server.local_addr())).await?;
    Ok((server, client))
}
