//! `macp plan hash`.

use std::path::PathBuf;

use macp_plan_core::digest::PLAN_LABEL;
use macp_plan_core::plan::{FrozenPlan, covered};
use macp_wire::canonical;
use serde_json::json;

use super::{authored, findings};
use crate::Finding;
use crate::output::Output;

/// Print the digest of a frozen plan
///
/// It is the SHA-256 of the label `aos-plan-hash/1:` and the canonical form of the plan without `created_at`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the frozen plan, or - for stdin
    plan: PathBuf,
    /// Print the canonical bytes that the digest covers after its label, instead of the digest
    #[arg(long)]
    canonical: bool,
}

pub(super) fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let plan = match FrozenPlan::parse(&authored::read(&args.plan)?) {
        Ok(plan) => plan,
        Err(error) => {
            let advice = "only what is frozen has a digest; see `macp plan freeze`";
            return findings::refuse(&error.into_findings(), "not a frozen plan", advice, output);
        }
    };
    let covered = canonical::to_string(&covered(&plan.value))?;
    match (output.is_json(), args.canonical) {
        (true, _) => {
            let canonical = args.canonical.then_some(covered);
            output.value(&json!({ "plan_hash": plan.hash, "label": PLAN_LABEL, "canonical": canonical }))?;
        }
        // Without a line break, so that the bytes can be hashed as they come.
        (false, true) => output.bytes(covered.as_bytes())?,
        (false, false) => output.line(&plan.hash)?,
    }
    Ok(Finding::Positive)
}
