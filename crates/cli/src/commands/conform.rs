//! `macp conform`: the public conformance fixtures, played on a running server.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use macp_conformance::{GrpcDriver, Level, Outcome, Report, Set, Summary, published, run as play};
use serde_json::{Map, Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::remote::ServerArgs;
use crate::text::{clean, count};

/// Why vectors are not run here.
const SKIPPED_VECTOR: &str = "vectors test the code of an implementation, which no RPC shows";

/// Check a server against the protocol's conformance fixtures
///
/// Plays every fixture as a session of its own: registers its policy, sends its messages, each with its sender as the
/// credential, and compares verdicts, final state, resolution and history. The server must therefore take a bearer
/// token for the name of its bearer, as a server in local development mode does.
///
/// Without --fixtures the fixtures are those published with the reference runtime; cargo downloads them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Directory of fixtures to run, instead of the published ones
    #[arg(long, value_name = "DIR", env = "MACP_CONFORMANCE_DIR")]
    fixtures: Option<PathBuf>,
    /// Highest level to run: core, decision, standard or optional
    #[arg(long, value_name = "LEVEL", default_value = "optional")]
    level: Level,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    // First, because it is the quickest thing to go wrong.
    let mut driver = GrpcDriver::new(args.server.connect().await?);
    let set = match &args.fixtures {
        Some(directory) => Set::load(directory)?,
        None => download()?,
    };
    let mut summary = Summary::default();
    let mut unchecked = Unchecked::default();
    for (name, fixture) in &set.fixtures {
        let Some(level) = Level::of(name).filter(|level| *level <= args.level) else { continue };
        let report = play(name, level, fixture, &mut driver).await;
        unchecked.add(&report);
        summary.add(&report);
        show(&report, output)?;
        // A fixture takes a moment, and someone may be waiting for the next line.
        output.flush()?;
    }
    for name in set.hash_vectors.keys().chain(set.receipt_vectors.keys()) {
        let Some(level) = Level::of(name).filter(|level| *level <= args.level) else { continue };
        let report = Report::skipped(name, level, SKIPPED_VECTOR);
        summary.add(&report);
        show(&report, output)?;
    }
    conclude(&summary, &unchecked, output)?;
    Ok(Finding::from_ok(summary.is_good()))
}

/// The published fixtures, all of them.
fn download() -> anyhow::Result<Set> {
    let scratch = tempfile::tempdir().context("cannot make a directory to download into")?;
    let bar = progress::waiting("fetching the published fixtures");
    let directory = published::fetch(scratch.path());
    bar.finish_and_clear();
    let directory = directory.context("no fixtures to run; name a directory of them with --fixtures")?;
    load_whole(&directory)
}

fn load_whole(directory: &Path) -> anyhow::Result<Set> {
    let set = Set::load(directory)?;
    if set.counts() != published::COUNTS {
        bail!("{} holds {:?} instead of {:?}", directory.display(), set.counts(), published::COUNTS);
    }
    Ok(set)
}

fn show(report: &Report, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        output.value(report)?;
        return Ok(());
    }
    let (paint, word) = match &report.outcome {
        Outcome::Passed => (Paint::Good, "passed"),
        Outcome::Failed { .. } => (Paint::Bad, "failed"),
        Outcome::Skipped { .. } => (Paint::Warn, "skipped"),
    };
    output.line(format!("{} {}", output.paint(paint, format!("{word:<8}")), report.name))?;
    if let Outcome::Skipped { reason } = report.outcome {
        output.line(format!("         {}", output.paint(Paint::Faint, reason)))?;
    }
    for reason in report.failures() {
        output.line(format!("         {}", clean(reason)))?;
    }
    Ok(())
}

/// How many fixtures expect something that no RPC shows.
#[derive(Debug, Default)]
struct Unchecked(std::collections::BTreeMap<&'static str, u64>);

impl Unchecked {
    fn add(&mut self, report: &Report) {
        for what in &report.unchecked {
            *self.0.entry(what).or_default() += 1;
        }
    }
}

fn conclude(summary: &Summary, unchecked: &Unchecked, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        let levels: Map<String, Value> =
            summary.levels.iter().map(|(level, tally)| (level.to_string(), json!(tally))).collect();
        let reached = summary.reached().map(Level::as_str);
        output.value(&json!({ "summary": levels, "level_reached": reached, "unchecked": unchecked.0 }))?;
        return Ok(());
    }
    output.line("")?;
    for (level, tally) in &summary.levels {
        let name = output.paint(Paint::Name, format!("{:<16}", level.title()));
        output.line(format!("{name} {} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped))?;
    }
    for (what, fixtures) in &unchecked.0 {
        let fixtures = count(*fixtures, "fixture", "fixtures");
        output.line(output.paint(Paint::Faint, format!("{what} not checked, as no RPC shows it: {fixtures}")))?;
    }
    match summary.reached() {
        Some(level) => output.line(format!("level reached: {}", output.paint(Paint::Bold, level.title())))?,
        None => output.line("no level reached")?,
    }
    Ok(())
}
