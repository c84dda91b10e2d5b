//! `macp plan dry-run`: what a plan would cost and how it would end if every call succeeded.

use std::path::PathBuf;

use anyhow::bail;
use macp_plan_core::behavior::Behavior;
use macp_plan_core::compare::Verdict;
use macp_plan_core::dry_run::{Estimate, Predicted, StepEstimate};
use macp_plan_core::plan::{FrozenPlan, StepStatus};
use serde_json::{Value, json};

use super::explain::estimate;
use super::{CatalogArgs, authored, findings};
use crate::Finding;
use crate::commands::run::PlaceArgs;
use crate::money::{cents, span};
use crate::output::{Output, Paint};
use crate::table::{Cell, Column, Table, left, right};
use crate::text::clean;

const COLUMNS: &[Column] = &[
    left("STEP", 8),
    left("STATUS", 7),
    left("CODE", 10),
    right("COST", 5),
    right("AT MOST", 7),
    right("ATTEMPTS", 8),
    right("WAITS", 6),
    left("EFFECTS", 7),
];

const COMPARED: &[Column] = &[left("STEP", 8), left("WHAT", 15), right("PREDICTED", 9), right("ACTUAL", 6)];

/// Estimate a plan: costs, waits, and how it would end
///
/// Nothing is called. With --against, the estimate is put beside what a run of the same plan did.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the plan, or - for stdin
    plan: PathBuf,
    /// Compare with this run: its id, or the path of an exported file
    #[arg(long, value_name = "RUN")]
    against: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let catalog = args.catalog.catalog()?;
    let plan = match authored::frozen(&args.plan, catalog.as_ref())? {
        Ok(viewed) => viewed.plan,
        Err(found) => return findings::refuse(&found, "cannot be frozen", &findings::tally(&found), output),
    };
    let estimate = estimate(&plan, &catalog)?;
    let comparison = match &args.against {
        Some(run) => Some(against(&args.place, run, &plan, &estimate).await?),
        None => None,
    };
    if output.is_json() {
        output.value(&json!({ "estimate": estimate, "comparison": comparison }))?;
    } else {
        show(&estimate, output)?;
        if let Some(comparison) = comparison {
            compare(&comparison, output)?;
        }
    }
    Ok(Finding::Verdict(Verdict::Estimate))
}

async fn against(
    place: &PlaceArgs,
    run: &str,
    plan: &FrozenPlan,
    estimate: &Estimate,
) -> anyhow::Result<Vec<Predicted>> {
    let recorded = place.of(run).load().await?;
    if recorded.plan.hash != plan.hash {
        bail!("run {} executed the plan {}, not {}", recorded.run_id(), recorded.plan.hash, plan.hash);
    }
    Ok(estimate.against(&Behavior::of(recorded.entries())))
}

fn show(estimate: &Estimate, output: &Output) -> anyhow::Result<()> {
    let rows: Vec<Vec<Cell>> = estimate.steps.iter().map(row).collect();
    let table = Table::fitted(COLUMNS, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    output.line("")?;
    let high = estimate.cost_high_microcents.map_or_else(|| "no bound".to_owned(), cents);
    let low = cents(estimate.cost_low_microcents);
    let (code, most) = (clean(&estimate.final_code), span(estimate.duration_ms_max));
    let word = output.paint(Paint::Bold, "ESTIMATE");
    let end = crate::commands::run::status_word(&estimate.status.into());
    output.line(format!("{word}: would end {end} with {code}; {low}, at most {high}; no longer than {most}"))?;
    if let Some(stop) = &estimate.stop {
        let step = stop.step_id.as_deref().map(|step| format!(" at step {}", clean(step))).unwrap_or_default();
        output.line(format!("it would stop{step} with {}", clean(&stop.code)))?;
    }
    findings::show(&estimate.findings, output)
}

fn row(step: &StepEstimate) -> Vec<Cell> {
    let status = match step.status {
        None => Cell::painted(Paint::Faint, "not reached"),
        Some(StepStatus::Success) => Cell::painted(Paint::Good, "success"),
        Some(StepStatus::Partial) => Cell::painted(Paint::Warn, "partial"),
        Some(StepStatus::Skipped) => Cell::painted(Paint::Faint, "skipped"),
        Some(StepStatus::Failure) => Cell::painted(Paint::Bad, "failure"),
    };
    let effects: Vec<String> =
        step.effects.iter().map(|effect| clean(&format!("{} {}", effect.kind, effect.target))).collect();
    vec![
        Cell::painted(Paint::Bold, clean(&step.step_id)),
        status,
        clean(step.code.as_deref().unwrap_or("-")).into(),
        cents(step.cost_low_microcents).into(),
        step.cost_high_microcents.map_or_else(|| "no bound".to_owned(), cents).into(),
        step.attempts_max.to_string().into(),
        span(step.wait_ms_max).into(),
        effects.join(", ").into(),
    ]
}

fn compare(comparison: &[Predicted], output: &Output) -> anyhow::Result<()> {
    output.line("")?;
    if comparison.is_empty() {
        output.line("the run did what the estimate says")?;
        return Ok(());
    }
    let text = |value: &Value| clean(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let rows: Vec<Vec<Cell>> = comparison
        .iter()
        .map(|it| {
            let step = it.step_id.as_deref().unwrap_or("(run)");
            vec![clean(step).into(), it.field.into(), text(&it.predicted).into(), text(&it.actual).into()]
        })
        .collect();
    let table = Table::fitted(COMPARED, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    Ok(())
}
