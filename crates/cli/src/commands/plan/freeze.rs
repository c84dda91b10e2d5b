//! `macp plan freeze`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use macp_plan::registry::Registry;
use macp_plan_core::lint::lint;
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::rate_card::{self, RateCard};
use serde_json::{Value, json};

use super::authored::{self, PinArgs};
use super::{CatalogArgs, findings};
use crate::Finding;
use crate::commands::misused;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::text::clean;

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
    /// Have a server freeze it: with its skills, their builds pinned, its rate cards and the agent's profile there
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    catalog: CatalogArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    if args.live {
        return live(args, output).await;
    }
    let registry = args.catalog.registry()?;
    let text = authored::read(&args.file)?;
    let options = args.pins.options(args.embed_rate_card)?;
    let freezing = match authored::freeze(&text, &registry, &options) {
        Ok(freezing) => freezing,
        Err(found) => return findings::refuse(&found, "not frozen", &findings::tally(&found), output),
    };
    note_unused_cards(args, &text, &registry, output);
    // The notes of freezing are among them. Whoever freezes without having asked before hears of the rest too.
    let advice = lint(&text, &registry, &options);
    let text = format!("{}\n", freezing.plan.text());
    let Some(path) = &args.out else {
        findings::note(&advice, output);
        output.bytes(text.as_bytes())?;
        return Ok(Finding::Positive);
    };
    write(path, text.as_bytes())?;
    if output.is_json() {
        output.value(&json!({
            "ok": true, "file": path, "plan_id": freezing.plan.plan.plan_id, "plan_hash": freezing.plan.hash,
            "findings": advice,
        }))?;
        return Ok(Finding::Positive);
    }
    findings::note(&advice, output);
    output.line(format!("{} {}: {}", output.paint(Paint::Good, "froze"), path.display(), freezing.plan.hash))?;
    Ok(Finding::Positive)
}

/// To make a card known does not pin it, which whoever named its file may have meant.
fn note_unused_cards(args: &Args, authored: &[u8], registry: &Registry, output: &Output) {
    let named = |plan: Value| plan.pointer("/pins/rate_card").is_some();
    if args.pins.names_a_card() || output.is_json() || serde_json::from_slice(authored).is_ok_and(named) {
        return;
    }
    let known = registry.rate_cards().map(RateCard::id).filter(|id| *id != rate_card::BUILTIN_ID);
    let known: Vec<&str> = known.collect();
    if !known.is_empty() {
        let known = known.join("`, `");
        output.note(clean(&format!("note: the built-in rate card is pinned; --card ID pins another: `{known}`")));
    }
}

/// Freezes at a server, which is where the plan is to run.
async fn live(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    if args.embed_rate_card || !args.pins.is_empty() {
        let wrong = anyhow!("a server pins by its own rules; leave --live away to pin otherwise");
        return misused(wrong, output);
    }
    let text = String::from_utf8(authored::read(&args.file)?).context("the plan is no text")?;
    let answer = args.server.connect().await?.validate_plan(text).await?;
    if !answer.valid {
        return findings::refuse(&answer.findings, "not frozen", &findings::tally(&answer.findings), output);
    }
    let frozen = FrozenPlan::parse(answer.frozen_plan_json.as_bytes()).context("the server's plan cannot be read")?;
    let text = format!("{}\n", frozen.text());
    let Some(path) = &args.out else {
        findings::note(&answer.findings, output);
        output.bytes(text.as_bytes())?;
        return Ok(Finding::Positive);
    };
    write(path, text.as_bytes())?;
    if !output.is_json() {
        findings::note(&answer.findings, output);
    }
    if output.is_json() {
        output.value(&json!({
            "ok": true, "file": path, "plan_id": frozen.plan.plan_id, "plan_hash": frozen.hash,
            "findings": findings::as_json(&answer.findings),
        }))?;
    } else {
        output.line(format!("{} {}: {}", output.paint(Paint::Good, "froze"), path.display(), frozen.hash))?;
    }
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
