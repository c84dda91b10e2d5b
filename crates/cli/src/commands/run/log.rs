//! `macp run log`.

use anyhow::anyhow;
use serde_json::Value;

use super::journal::{COLUMNS, row};
use super::source::RunArgs;
use crate::Finding;
use crate::commands::misused;
use crate::output::Output;
use crate::table::Table;

/// Print the journal of a run, entry by entry
///
/// Inputs came from outside, decisions were computed from the plan and the inputs before them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Start at this entry
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    /// Only entries of this step
    #[arg(long)]
    step: Option<String>,
}

/// Steps named in a message.
const STEPS_TOLD_MAX: usize = 8;

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let recorded = args.run.place().load().await?;
    let steps = || recorded.plan.plan.steps.iter().map(|step| step.step_id.as_str());
    if let Some(step) = args.step.as_deref().filter(|step| !steps().any(|known| known == *step)) {
        let more = if steps().nth(STEPS_TOLD_MAX).is_some() { ", …" } else { "" };
        let known = steps().take(STEPS_TOLD_MAX).collect::<Vec<_>>().join("`, `");
        return misused(anyhow!("the plan has no step `{step}`; it has `{known}`{more}"), output);
    }
    let wanted = |step_id: Option<&str>| args.step.as_deref().is_none_or(|wanted| step_id == Some(wanted));
    let aliases = recorded.plan.plan.aliases();
    let table = Table::new(COLUMNS);
    if !output.is_json() {
        output.line(table.header(output))?;
    }
    for (entry, sealed) in recorded.entries().iter().zip(&recorded.exported.run.entries) {
        if entry.seq < args.from || !wanted(entry.body.step_id()) {
            continue;
        }
        if output.is_json() {
            let mut value: Value = serde_json::from_slice(&sealed.text)?;
            value["hash"] = sealed.hash.to_string().into();
            output.value(&value)?;
        } else {
            output.line(table.row(output, &row(entry, &aliases)))?;
        }
    }
    Ok(Finding::Positive)
}
