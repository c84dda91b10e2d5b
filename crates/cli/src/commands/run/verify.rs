//! `macp run verify`: the chain of a run's journal, its plan and its outputs.

use serde_json::json;

use super::source::{RunArgs, Unreadable};
use crate::Finding;
use crate::output::{Output, Paint};
use crate::text::{clean, count};

/// Check that a run is whole and unchanged
///
/// Every entry must continue the one before it, the plan must have the digest the journal names, every output the
/// digest its entry names. The first bad entry is named. A run of a server is fetched and checked here. Of a data
/// directory it is also checked that its database has everything that was acknowledged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let place = args.run.place();
    let finding = Finding::from_ok(place.is_whole()?);
    let recorded = match place.load().await {
        Ok(recorded) => recorded,
        Err(Unreadable::Damaged(damage)) => {
            if output.is_json() {
                output.value(&json!({ "ok": false, "bad_seq": damage.seq, "message": damage.problem }))?;
            } else {
                output.line(format!("{} {}", output.paint(Paint::Bad, "BAD"), clean(&damage.to_string())))?;
            }
            return Ok(Finding::Negative);
        }
        Err(Unreadable::Failed(error)) => return Err(error),
    };
    let run = &recorded.exported.run;
    let (entries, head, finished) = (run.entries.len() as u64, run.head().to_string(), run.is_finished());
    if output.is_json() {
        output.value(&json!({
            "ok": true, "run_id": run.run_id, "entries": entries, "head_hash": head, "finished": finished,
            "plan_hash": recorded.plan.hash, "bodies": recorded.exported.bodies.len(),
        }))?;
        return Ok(finding);
    }
    let state = if finished { "finished" } else { "not finished" };
    let entries = count(entries, "entry", "entries");
    output.line(format!(
        "{} {}: {entries}, {state}, head {head}",
        output.paint(Paint::Good, "OK"),
        clean(&run.run_id)
    ))?;
    Ok(finding)
}
