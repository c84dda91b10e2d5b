//! `macp run corpus`: recorded runs kept in a directory, so that every change can be tried on them.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use macp_plan_core::compare::Verdict;
use macp_plan_core::freeze::FreezeOptions;
use macp_plan_core::lint::lint;
use macp_plan_core::replay::WhatIf;
use serde_json::json;

use super::mock::mock;
use super::source::{Place, PlaceArgs, Recorded};
use super::summary::{Listed, status_paint, status_word};
use super::{corpus_check, report, source};
use crate::Finding;
use crate::commands::plan::CatalogArgs;
use crate::output::{Output, Paint};
use crate::table::{Cell, Column, Table, left, right};
use crate::text::{clean, count};

const COLUMNS: &[Column] =
    &[left("RUN", 12), left("STATUS", 9), left("CODE", 12), left("PLAN", 8), right("ENTRIES", 7), left("FILE", 4)];

/// How the files of a corpus end.
pub(super) const SUFFIX: &str = "jsonl";

/// Keep recorded runs in a directory and replay all of them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a finished run; one that does not replay here, or whose plan holds a secret in clear text, is refused
    Add(AddArgs),
    Check(corpus_check::Args),
    /// List the runs of a corpus
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct DirectoryArgs {
    /// Directory of the corpus
    #[arg(long, value_name = "DIR", default_value = "corpus")]
    pub(super) dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Run id, or the path of an exported file
    run: String,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
}

impl Command {
    pub(super) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::Add(args) => add(&args, output).await,
            Command::Check(args) => corpus_check::run(&args, output).await,
            Command::List(args) => list(&args, output).await,
        }
    }
}

async fn add(args: &AddArgs, output: &Output) -> anyhow::Result<Finding> {
    let bytes = args.place.of(&args.run).bytes().await?;
    let recorded = source::recorded(&bytes)?;
    if !recorded.exported.run.is_finished() {
        bail!("run {} has not ended; only what has ended can be replayed for ever", recorded.run_id());
    }
    let secrets = secrets(&recorded, &args.catalog)?;
    if !secrets.is_empty() {
        if output.is_json() {
            output.value(&json!({ "ok": false, "run_id": recorded.run_id(), "secrets": secrets }))?;
        } else {
            let word = output.paint(Paint::Bad, "not added");
            output.line(format!("{word}: a corpus is read by many, and {}", clean(&secrets.join("; "))))?;
        }
        return Ok(Finding::Negative);
    }
    let report = mock(&recorded, WhatIf::default(), &args.catalog.catalog()?)?;
    if report.verdict != Verdict::Match {
        if output.is_json() {
            output.value(&json!({ "ok": false, "run_id": recorded.run_id(), "report": report }))?;
        } else {
            let word = output.paint(Paint::Bad, "not added");
            output.line(format!("{word}: a corpus is what replays, and this run does not"))?;
            report::show(&report, output)?;
        }
        return Ok(Finding::Negative);
    }
    let directory = &args.directory.dir;
    let failed = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    let path = directory.join(format!("{}.{SUFFIX}", file_name(recorded.run_id())));
    let mut file = tempfile::Builder::new().prefix(".macp-corpus-").tempfile_in(directory).with_context(failed)?;
    file.write_all(&bytes).with_context(failed)?;
    crate::commands::set_readable(file.as_file()).with_context(failed)?;
    file.persist(&path).with_context(failed)?;
    if output.is_json() {
        output.value(&json!({ "ok": true, "run_id": recorded.run_id(), "file": path }))?;
    } else {
        let word = output.paint(Paint::Good, "added");
        output.line(format!("{word} {} as {}", clean(recorded.run_id()), path.display()))?;
    }
    Ok(Finding::Positive)
}

/// What looks like a secret in the plan of a run.
fn secrets(recorded: &Recorded, catalog: &CatalogArgs) -> anyhow::Result<Vec<String>> {
    let registry = catalog.registry()?;
    let findings = lint(recorded.plan.text().as_bytes(), &registry, &FreezeOptions::default());
    let suspicious = findings.into_iter().filter(|finding| finding.reason == "secret_in_plan");
    Ok(suspicious.map(|finding| finding.to_string()).collect())
}

/// A run id as the name of a file: ids may hold what file systems do not take.
fn file_name(run_id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    run_id.chars().map(safe).collect()
}

/// The files of a corpus, by name.
pub(super) fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = || format!("cannot read the corpus {}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

async fn list(args: &ListArgs, output: &Output) -> anyhow::Result<Finding> {
    let files = files(&args.directory.dir)?;
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for path in &files {
        let recorded = Place::File(path.clone()).load().await?;
        let entries = recorded.exported.run.entries.len();
        let run = Listed::from(recorded.exported.run.summary.clone());
        if output.is_json() {
            let mut value = serde_json::to_value(&run)?;
            value["file"] = path.display().to_string().into();
            value["entries"] = entries.into();
            output.value(&value)?;
            continue;
        }
        let status = match run.status {
            Some(status) => Cell::painted(status_paint(status), status_word(&status)),
            None => "unknown".into(),
        };
        rows.push(vec![
            clean(&run.run_id).into(),
            status,
            clean(run.final_code.as_deref().unwrap_or("-")).into(),
            clean(&run.plan_id).into(),
            entries.to_string().into(),
            path.display().to_string().into(),
        ]);
    }
    if output.is_json() {
        return Ok(Finding::Positive);
    }
    let table = Table::fitted(COLUMNS, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    output.line(output.paint(Paint::Faint, count(files.len() as u64, "run", "runs")))?;
    Ok(Finding::Positive)
}
