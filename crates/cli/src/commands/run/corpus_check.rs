//! `macp run corpus check`: every run of a corpus, decided once more.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use macp_plan_core::compare::{Report, Verdict};
use macp_plan_core::replay::WhatIf;
use macp_plan_core::skill::Catalog;
use serde_json::json;

use super::corpus::{DirectoryArgs, files};
use super::mock::mock;
use super::report;
use super::source::{Place, Unreadable};
use crate::Finding;
use crate::commands::plan::CatalogArgs;
use crate::output::{Output, Paint};
use crate::progress;
use crate::text::{clean, count};

/// Replay every run of a corpus against its recording
///
/// Works without a server and calls nothing. The exit code is that of the worst verdict: 0 match, 10 diverged, 12 not
/// comparable.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let catalog = args.catalog.catalog()?;
    let files = files(&args.directory.dir)?;
    if files.is_empty() {
        // Nothing checked is not the same as everything in order.
        bail!("{} holds no runs", args.directory.dir.display());
    }
    let bar = progress::bar(Some(files.len() as u64), "replaying");
    let mut worst = Verdict::Match;
    let (mut matching, mut incomparable) = (0_u64, 0_u64);
    for path in &files {
        let checked = replay(path, &catalog).await?;
        bar.inc(1);
        worst = worse(worst, checked.verdict());
        matching += u64::from(checked.verdict() == Verdict::Match);
        incomparable += u64::from(checked.verdict() == Verdict::NotComparable);
        bar.suspend(|| show(path, &checked, output).and_then(|()| Ok(output.flush()?)))?;
    }
    bar.finish_and_clear();
    let total = files.len() as u64;
    if output.is_json() {
        output.value(&json!({ "summary": { "runs": total, "match": matching, "verdict": worst } }))?;
    } else {
        let (paint, word) = if worst == Verdict::Match { (Paint::Good, "OK") } else { (Paint::Bad, "BAD") };
        let runs = count(total, "run", "runs");
        let others = match incomparable {
            0 => String::new(),
            incomparable => format!(", {incomparable} not comparable here"),
        };
        output.line(format!("{} {runs} replayed, {matching} the same{others}", output.paint(paint, word)))?;
    }
    Ok(Finding::Verdict(worst))
}

enum Checked {
    Reported(Box<Report>),
    Damaged(String),
}

impl Checked {
    fn verdict(&self) -> Verdict {
        match self {
            Checked::Reported(report) => report.verdict,
            Checked::Damaged(_) => Verdict::NotComparable,
        }
    }
}

async fn replay(path: &Path, catalog: &Arc<dyn Catalog>) -> anyhow::Result<Checked> {
    match Place::File(path.to_owned()).load().await {
        Ok(recorded) => Ok(Checked::Reported(Box::new(mock(&recorded, WhatIf::default(), catalog)?))),
        Err(Unreadable::Damaged(damage)) => Ok(Checked::Damaged(damage.to_string())),
        Err(Unreadable::Failed(error)) => Err(error),
    }
}

fn show(path: &Path, checked: &Checked, output: &Output) -> anyhow::Result<()> {
    match checked {
        Checked::Reported(report) if output.is_json() => output.value(&json!({ "file": path, "report": report }))?,
        Checked::Reported(report) => {
            output.line(output.paint(Paint::Faint, format!("{}:", path.display())))?;
            report::show(report, output)?;
        }
        Checked::Damaged(problem) if output.is_json() => {
            output.value(&json!({ "file": path, "verdict": Verdict::NotComparable, "message": problem }))?;
        }
        Checked::Damaged(problem) => {
            let word = output.paint(Paint::Bad, "DAMAGED");
            output.line(format!("{word}: {}: {}", path.display(), clean(problem)))?;
        }
    }
    Ok(())
}

/// A divergence outweighs whatever could not be compared.
fn worse(one: Verdict, other: Verdict) -> Verdict {
    let weight = |verdict: Verdict| match verdict {
        Verdict::Match | Verdict::Estimate => 0,
        Verdict::Explained => 1,
        Verdict::NotComparable => 2,
        Verdict::Diverged => 3,
    };
    if weight(other) > weight(one) { other } else { one }
}
