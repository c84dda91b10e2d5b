//! `macp run list`.

use std::path::Path;

use macp_plan::store::Status;
use macp_plan::store::list::{self, Query};
use macp_wire::plan::v1::ListRunsRequest;

use super::source::{PlaceArgs, open_store};
use super::summary::{COLUMNS, Listed, wire_status};
use crate::Finding;
use crate::output::Output;
use crate::table::{Cell, Table};

/// Runs read from a directory at once.
const PAGE_RUNS: usize = 1_000;

/// List runs, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only runs of the plan a session committed to
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only runs of this plan, by plan id
    #[arg(long, value_name = "ID")]
    plan: Option<String>,
    /// Only runs of this agent's plans
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Only runs that stand so
    #[arg(long, value_enum)]
    status: Option<StatusArg>,
    /// Only runs that ended with this code
    #[arg(long)]
    code: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum StatusArg {
    Running,
    Succeeded,
    Failed,
    BudgetExceeded,
    Rejected,
    Cancelled,
    InDoubt,
}

impl From<StatusArg> for Status {
    fn from(status: StatusArg) -> Self {
        match status {
            StatusArg::Running => Status::Running,
            StatusArg::Succeeded => Status::Succeeded,
            StatusArg::Failed => Status::Failed,
            StatusArg::BudgetExceeded => Status::BudgetExceeded,
            StatusArg::Rejected => Status::Rejected,
            StatusArg::Cancelled => Status::Cancelled,
            StatusArg::InDoubt => Status::InDoubt,
        }
    }
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let mut pages = Pages { output, table: None };
    match args.place.data() {
        Some(directory) => from_directory(directory, &args, &mut pages)?,
        None => from_server(&args, &mut pages).await?,
    }
    if pages.table.is_none() && !output.is_json() {
        output.note("no runs");
    }
    Ok(Finding::Positive)
}

fn from_directory(directory: &Path, args: &Args, pages: &mut Pages<'_>) -> anyhow::Result<()> {
    let store = open_store(directory)?;
    let query = Query {
        session_id: args.session.clone(),
        plan_id: args.plan.clone(),
        agent_id: args.agent.clone(),
        status: args.status.map(Status::from),
        final_code: args.code.clone(),
        ..Query::default()
    };
    let mut after: Option<String> = None;
    loop {
        let page = list::list(&store, &query, after.as_deref(), PAGE_RUNS)?;
        pages.show(page.runs.into_iter().map(Listed::from).collect())?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

async fn from_server(args: &Args, pages: &mut Pages<'_>) -> anyhow::Result<()> {
    let client = args.place.server.connect().await?;
    let mut request = ListRunsRequest {
        session_id: args.session.clone().unwrap_or_default(),
        plan_id: args.plan.clone().unwrap_or_default(),
        agent_id: args.agent.clone().unwrap_or_default(),
        status: args.status.map(|status| wire_status(status.into()).into()).unwrap_or_default(),
        final_code: args.code.clone().unwrap_or_default(),
        ..ListRunsRequest::default()
    };
    loop {
        let page = client.list_runs(request.clone()).await?;
        pages.show(page.runs.into_iter().map(Listed::from).collect())?;
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = page.next_page_token;
    }
}

/// Prints runs page by page; the columns fit the first page.
struct Pages<'a> {
    output: &'a Output,
    table: Option<Table>,
}

impl Pages<'_> {
    fn show(&mut self, runs: Vec<Listed>) -> anyhow::Result<()> {
        if self.output.is_json() {
            return runs.iter().try_for_each(|run| Ok(self.output.value(run)?));
        }
        if runs.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<Cell>> = runs.iter().map(Listed::row).collect();
        if self.table.is_none() {
            let table = Table::fitted(COLUMNS, &rows);
            self.output.line(table.header(self.output))?;
            self.table = Some(table);
        }
        if let Some(table) = &self.table {
            rows.iter().try_for_each(|row| self.output.line(table.row(self.output, row)))?;
        }
        Ok(())
    }
}
