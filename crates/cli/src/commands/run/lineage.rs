//! `macp run lineage`: what a run came from, and what came from it.

use std::collections::BTreeSet;

use anyhow::Context;
use macp_client::Client;
use macp_ledger::SqliteStore;
use macp_plan::store::list::{self, Query};
use macp_plan::store::read;
use macp_wire::plan::v1::ListRunsRequest;

use super::source::{PlaceArgs, open_store};
use super::summary::{Listed, status_paint, status_word};
use crate::Finding;
use crate::output::{Output, Paint};
use crate::text::clean;

/// Runs asked for at once.
const PAGE_RUNS: usize = 1_000;

/// Show retries and replays of a run, and what it is one of
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run id
    run: String,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Where relatives are looked up.
enum Registry {
    Server(Box<Client>),
    Directory(Box<SqliteStore>),
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let registry = match args.place.data() {
        Some(directory) => Registry::Directory(Box::new(open_store(directory)?)),
        None => Registry::Server(Box::new(args.place.server.connect().await?)),
    };
    let mut root = registry.run(&args.run).await?;
    let mut seen = BTreeSet::from([root.run_id.clone()]);
    while let Some(before) = root.original_run_id.clone().or_else(|| root.parent_run_id.clone()) {
        // A relative that was never imported is where the line begins.
        let Ok(run) = registry.run(&before).await else { break };
        if !seen.insert(run.run_id.clone()) {
            break;
        }
        root = run;
    }
    // Depth first, so that the tree can be printed line by line.
    let mut waiting = vec![(0_usize, root)];
    let mut shown = BTreeSet::new();
    while let Some((depth, run)) = waiting.pop() {
        if !shown.insert(run.run_id.clone()) {
            continue;
        }
        show(depth, &run, run.run_id == args.run, output)?;
        // Lists are newest first, so that the oldest comes off the pile first.
        waiting.extend(registry.of(&run.run_id).await?.into_iter().map(|run| (depth + 1, run)));
    }
    Ok(Finding::Positive)
}

fn show(depth: usize, run: &Listed, asked: bool, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        let mut value = serde_json::to_value(run)?;
        value["depth"] = depth.into();
        output.value(&value)?;
        return Ok(());
    }
    let indent = "  ".repeat(depth);
    let name = if asked { output.paint(Paint::Bold, clean(&run.run_id)) } else { clean(&run.run_id) };
    let status = match run.status {
        Some(status) => output.paint(status_paint(status), status_word(&status)),
        None => "unknown".to_owned(),
    };
    let relation = match (&run.original_run_id, &run.parent_run_id) {
        (Some(_), _) => "replay  ",
        (None, Some(_)) => "retry  ",
        (None, None) => "",
    };
    let code = clean(run.final_code.as_deref().unwrap_or_default());
    output.line(format!("{indent}{relation}{name}  {status}  {code}").trim_end())?;
    Ok(())
}

impl Registry {
    async fn run(&self, run_id: &str) -> anyhow::Result<Listed> {
        match self {
            Registry::Server(client) => {
                let answer = client.get_run(run_id).await?;
                Ok(answer.summary.context("the server's answer has no summary")?.into())
            }
            Registry::Directory(store) => {
                let run = read::load(&**store, run_id)?.with_context(|| format!("there is no run {run_id:?}"))?;
                Ok(run.summary.into())
            }
        }
    }

    /// Retries and replays of a run, newest first.
    async fn of(&self, run_id: &str) -> anyhow::Result<Vec<Listed>> {
        let mut runs: Vec<Listed> = Vec::new();
        match self {
            Registry::Server(client) => {
                let mut request = ListRunsRequest { of_run_id: run_id.to_owned(), ..ListRunsRequest::default() };
                loop {
                    let page = client.list_runs(request.clone()).await?;
                    runs.extend(page.runs.into_iter().map(Listed::from));
                    if page.next_page_token.is_empty() {
                        return Ok(runs);
                    }
                    request.page_token = page.next_page_token;
                }
            }
            Registry::Directory(store) => {
                let query = Query { of_run_id: Some(run_id.to_owned()), ..Query::default() };
                let mut after: Option<String> = None;
                loop {
                    let page = list::list(&**store, &query, after.as_deref(), PAGE_RUNS)?;
                    runs.extend(page.runs.into_iter().map(Listed::from));
                    match page.next {
                        Some(next) => after = Some(next),
                        None => return Ok(runs),
                    }
                }
            }
        }
    }
}
