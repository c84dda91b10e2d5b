//! `macp plan explain`: what a plan does, in words and numbers.

use std::path::PathBuf;
use std::sync::Arc;

use macp_plan::store::RunId;
use macp_plan_core::dry_run::{Estimate, StepEstimate, dry_run};
use macp_plan_core::effect::Idempotency;
use macp_plan_core::journal::{REVISION, RunMode, RunStart};
use macp_plan_core::plan::{Aliases, FrozenPlan, OnError, Step};
use macp_plan_core::skill::Catalog;
use serde_json::json;

use super::authored::Viewed;
use super::{CatalogArgs, authored, findings};
use crate::Finding;
use crate::money::{cents, span};
use crate::output::{Output, Paint};
use crate::text::{clean, count, spelt};
use crate::time::now_ms;

/// Tell what a plan does: order, policies, worst-case waits and costs, effects with their targets
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the plan, or - for stdin
    plan: PathBuf,
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub(super) fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let catalog = args.catalog.catalog()?;
    let Viewed { plan, is_frozen } = match authored::frozen(&args.plan, catalog.as_ref())? {
        Ok(viewed) => viewed,
        Err(found) => return findings::refuse(&found, "cannot be frozen", &findings::tally(&found), output),
    };
    let estimate = estimate(&plan, &catalog)?;
    if output.is_json() {
        output.value(&json!({
            "frozen": is_frozen, "plan_hash": plan.hash, "plan": plan.value, "estimate": estimate,
        }))?;
        return Ok(Finding::Positive);
    }
    heading(&plan, is_frozen, output)?;
    let aliases = plan.plan.aliases();
    for (position, (step, estimate)) in plan.plan.steps.iter().zip(&estimate.steps).enumerate() {
        output.line("")?;
        explain(position + 1, step, (estimate, &aliases), output)?;
    }
    output.line("")?;
    totals(&estimate, output)?;
    findings::show(&estimate.findings, output)?;
    Ok(Finding::Positive)
}

/// What a plan would do, estimated with the skills and prices at hand.
pub(super) fn estimate(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>) -> anyhow::Result<Estimate> {
    let run_id = RunId::new(u64::try_from(now_ms()).unwrap_or_default()).into_string();
    let start = RunStart {
        revision: REVISION,
        run_id: run_id.clone(),
        plan_id: plan.plan.plan_id.clone(),
        plan_hash: plan.hash.clone(),
        pins: plan.plan.pins.clone(),
        mode: RunMode::DryRun,
        epoch: 1,
        jitter_seed: run_id,
        namespace: String::new(),
        executor: concat!("macp/", env!("CARGO_PKG_VERSION")).to_owned(),
        started_by: String::new(),
        original_run_id: None,
        parent_run_id: None,
        retry_from_step: None,
        session: None,
        deadline_ms: None,
        epoch_reason: None,
    };
    Ok(dry_run(plan, catalog, start)?)
}

fn heading(plan: &FrozenPlan, is_frozen: bool, output: &Output) -> anyhow::Result<()> {
    let said = &plan.plan;
    line(output, "plan", output.paint(Paint::Bold, clean(&said.plan_id)))?;
    match is_frozen {
        true => line(output, "digest", &plan.hash)?,
        false => line(output, "digest", "none yet; this is how the plan would be frozen")?,
    }
    line(output, "agent", clean(&said.agent_id))?;
    line(output, "goal", clean(&said.goal))?;
    let hard = if said.context.budget_policy.hard_limit { "" } else { ", which is not enforced" };
    line(output, "budget", format!("{} ¢{hard}", said.context.budget_cents))?;
    line(output, "skills", clean(&said.context.allowed_skills.join(", ")))?;
    let pins = &said.pins;
    line(output, "pins", clean(&format!("taxonomy {}, rate card {}", pins.taxonomy_version, pins.rate_card.id)))
}

fn explain(
    number: usize,
    step: &Step,
    (estimate, aliases): (&StepEstimate, &Aliases),
    output: &Output,
) -> anyhow::Result<()> {
    let name = output.paint(Paint::Bold, clean(&step.step_id));
    output.line(format!("{number}. {name}  {}@{}", clean(&step.skill_id), clean(&step.skill_version)))?;
    if let Some(description) = &step.description {
        line(output, "   what", clean(description))?;
    }
    if let Some(condition) = &step.run_if {
        let condition = serde_json::to_value(condition)?;
        line(output, "   only if", clean(&format!("{condition}")))?;
    }
    if !estimate.depends_on.is_empty() {
        line(output, "   uses", format!("the output of {}", clean(&estimate.depends_on.join(", "))))?;
    }
    line(output, "   attempts", attempts(step, estimate, aliases))?;
    let high = estimate.cost_high_microcents.map_or_else(|| "no bound".to_owned(), cents);
    line(output, "   cost", format!("{} if all goes well, at most {high}", cents(estimate.cost_low_microcents)))?;
    match step.on_error {
        OnError::Abort => line(output, "   on error", "the run stops")?,
        OnError::Continue => line(output, "   on error", "the run goes on")?,
    }
    if estimate.effects.is_empty() {
        return line(output, "   effects", "none");
    }
    for effect in &estimate.effects {
        let repeat = match effect.idempotency {
            Idempotency::Natural => "repeating it is harmless",
            Idempotency::Keyed => "its target recognises a repetition",
            Idempotency::None => "a repetition would have effect again",
        };
        line(output, "   effect", format!("{} to {}; {repeat}", clean(&effect.kind), clean(&effect.target)))?;
    }
    Ok(())
}

fn attempts(step: &Step, estimate: &StepEstimate, aliases: &Aliases) -> String {
    let each = span(estimate.timeout_ms);
    if estimate.attempts_max == 1 {
        return format!("one, of at most {each}");
    }
    let codes = step.retry_policy.retryable_codes.iter().map(|code| spelt(code, Some(&step.step_id), aliases));
    let codes = clean(&codes.collect::<Vec<_>>().join(", "));
    let wait = span(estimate.wait_ms_max);
    format!("up to {} of at most {each}, {wait} of waits between them; again after {codes}", estimate.attempts_max)
}

fn totals(estimate: &Estimate, output: &Output) -> anyhow::Result<()> {
    let steps = count(estimate.steps.len() as u64, "step", "steps");
    let high = estimate.cost_high_microcents.map_or_else(|| "no bound".to_owned(), cents);
    line(output, "all", format!("{steps}, {} if all goes well, at most {high}", cents(estimate.cost_low_microcents)))?;
    let (waits, hinted) = (span(estimate.wait_ms_max), span(estimate.wait_with_hints_ms_max));
    line(output, "waits", format!("at most {waits}, or {hinted} if targets ask for it"))?;
    line(output, "duration", format!("at most {}", span(estimate.duration_ms_max)))
}

fn line(output: &Output, name: &str, value: impl std::fmt::Display) -> anyhow::Result<()> {
    let gap = 12_usize.saturating_sub(name.chars().count());
    output.line(format!("{}{:gap$} {value}", output.paint(Paint::Faint, name), ""))?;
    Ok(())
}
