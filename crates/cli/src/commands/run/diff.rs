//! `macp run diff`.

use macp_plan_core::behavior::Behavior;
use macp_plan_core::compare::{Mismatch, Verdict, behaviors, inputs_changed};
use serde_json::{Value, json};

use super::report;
use super::source::PlaceArgs;
use crate::Finding;
use crate::output::{Output, Paint};
use crate::text::{clean, count};

/// Compare two runs of one plan, aspect by aspect
///
/// Prints what they did differently, and which answers of the world were not the same. The exit code is 0 if they
/// behaved alike, 1 if not, 12 if they executed different plans.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run id, or the path of an exported file
    one: String,
    /// The run to compare it with
    other: String,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let one = args.place.of(&args.one).load().await?;
    let other = args.place.of(&args.other).load().await?;
    let (ids, hashes) = ((one.run_id(), other.run_id()), (&one.plan.hash, &other.plan.hash));
    if hashes.0 != hashes.1 {
        if output.is_json() {
            output.value(&json!({
                "runs": [ids.0, ids.1], "verdict": Verdict::NotComparable, "plan_hashes": [hashes.0, hashes.1],
            }))?;
        } else {
            let word = output.paint(Paint::Warn, "NOT COMPARABLE");
            output.line(format!("{word}: {} executed {}, {} executed {}", ids.0, hashes.0, ids.1, hashes.1))?;
        }
        return Ok(Finding::Verdict(Verdict::NotComparable));
    }
    let (first, second) = (Behavior::of(one.entries()), Behavior::of(other.entries()));
    let comparison = behaviors(&one.plan.plan, &first, &second);
    let inputs = inputs_changed(one.entries(), other.entries());
    let same = comparison.mismatches.is_empty();
    if output.is_json() {
        let mismatches = comparison.mismatches.iter().map(without_cause).collect::<serde_json::Result<Vec<_>>>()?;
        output.value(&json!({
            "runs": [ids.0, ids.1], "plan_hash": hashes.0, "same": same, "mismatches": mismatches,
            "inputs_changed": inputs,
        }))?;
        return Ok(Finding::from_ok(same));
    }
    let steps = count(comparison.evaluated.steps as u64, "step", "steps");
    let (paint, word) = if same { (Paint::Good, "SAME") } else { (Paint::Bad, "DIFFERENT") };
    let word = output.paint(paint, word);
    output.line(format!("{word}: {} and {}, {steps} in common", clean(ids.0), clean(ids.1)))?;
    report::differ(&comparison.mismatches, false, output)?;
    inputs.iter().try_for_each(|changed| report::input(changed, output))?;
    Ok(Finding::from_ok(same))
}

/// Whose doing a difference is, only a replay can tell: two runs may differ because the world did.
fn without_cause(mismatch: &Mismatch) -> serde_json::Result<Value> {
    let mut told = serde_json::to_value(mismatch)?;
    if let Some(told) = told.as_object_mut() {
        told.remove("cause");
    }
    Ok(told)
}
