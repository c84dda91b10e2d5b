//! `macp plan freeze`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::authored::{self, PinArgs};
use super::{CatalogArgs, findings};
use crate::Finding;
use crate::output::{Output, Paint};

/// Turn an authored plan into a frozen one, which can run
///
/// Defaults are resolved, retry policies written in, versions and prices pinned; the digest of the result names exactly
/// this plan. Freezing a frozen plan gives the same plan.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the authored plan, or - for stdin
    file: PathBuf,
    /// File to write the frozen plan to; stdout if none is given
    #[arg(long, short, value_name = "PLAN")]
    out: Option<PathBuf>,
    /// Write the rate card itself into the plan, so that it can be priced anywhere
    #[arg(long)]
    embed_rate_card: bool,
    #[command(flatten)]
    pins: PinArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub(super) fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let registry = args.catalog.registry()?;
    let text = authored::read(&args.file)?;
    let freezing = match authored::freeze(&text, &registry, &args.pins.options(args.embed_rate_card)) {
        Ok(freezing) => freezing,
        Err(found) => {
            if output.is_json() {
                output.value(&json!({ "ok": false, "findings": found }))?;
            } else {
                findings::show(&found, output)?;
                let word = output.paint(Paint::Bad, "not frozen");
                output.line(format!("{word}: {}", findings::tally(&found)))?;
            }
            return Ok(Finding::Negative);
        }
    };
    let text = format!("{}\n", freezing.plan.text());
    let Some(path) = &args.out else {
        for note in &freezing.notes {
            output.note(format!("warning: {note}"));
        }
        output.bytes(text.as_bytes())?;
        return Ok(Finding::Positive);
    };
    write(path, text.as_bytes())?;
    if output.is_json() {
        output.value(&json!({
            "ok": true, "file": path, "plan_id": freezing.plan.plan.plan_id, "plan_hash": freezing.plan.hash,
            "findings": freezing.notes,
        }))?;
        return Ok(Finding::Positive);
    }
    findings::show(&freezing.notes, output)?;
    output.line(format!("{} {}: {}", output.paint(Paint::Good, "froze"), path.display(), freezing.plan.hash))?;
    Ok(Finding::Positive)
}

/// The file appears under its name only when it is whole.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".macp-plan-").tempfile_in(directory).with_context(failed)?;
    file.write_all(bytes).with_context(failed)?;
    crate::commands::set_readable(file.as_file()).with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}
