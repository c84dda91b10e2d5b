//! `macp plan lint`.

use std::path::PathBuf;

use macp_plan_core::lint::lint;
use macp_plan_core::plan::FrozenPlan;
use serde_json::json;

use super::authored::{self, PinArgs};
use super::{CatalogArgs, findings};
use crate::Finding;
use crate::output::{Output, Paint};

/// Tell everything that is wrong with a plan, authored or frozen
///
/// Every finding names its step, the rule and what to do. The exit code is 1 if something keeps the plan from running;
/// warnings alone do not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the plan, or - for stdin
    file: PathBuf,
    #[command(flatten)]
    pins: PinArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub(super) fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let registry = args.catalog.registry()?;
    let text = authored::read(&args.file)?;
    let options = args.pins.options(false)?;
    let found = lint(&text, &registry, &options);
    let (errors, warnings) = findings::numbers(&found);
    if output.is_json() {
        let hash = match FrozenPlan::parse(&text) {
            Ok(plan) => Some(plan.hash),
            Err(_) => authored::freeze(&text, &registry, &options).ok().map(|freezing| freezing.plan.hash),
        };
        output.value(&json!({
            "ok": errors == 0, "valid": errors == 0, "errors": errors, "warnings": warnings, "plan_hash": hash,
            "findings": found,
        }))?;
        return Ok(Finding::from_ok(errors == 0));
    }
    findings::show(&found, output)?;
    let (word, paint) = if errors == 0 { ("OK", Paint::Good) } else { ("BAD", Paint::Bad) };
    let tally = if found.is_empty() { "nothing to say".to_owned() } else { findings::tally(&found) };
    output.line(format!("{} {}: {tally}", output.paint(paint, word), args.file.display()))?;
    Ok(Finding::from_ok(errors == 0))
}
