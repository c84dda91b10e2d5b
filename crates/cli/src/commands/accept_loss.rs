//! `macp accept-loss`: continues with a data directory that lacks acknowledged data.

use std::path::PathBuf;

use serde_json::json;

use crate::Finding;
use crate::databases;
use crate::output::{Output, Paint};
use crate::text::clean;
use crate::time::now_ms;

/// Continue with a data directory that lacks acknowledged data
///
/// A server refuses a directory whose write-ahead log is damaged, or whose database is missing, empty, another one or
/// older than it was. The better way out is a backup. This command accepts the loss instead: what is left can be served
/// again, the loss is recorded in the database, and a damaged log is copied first. No server may be running on the
/// directory. If no data is missing, it changes no database.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Data directory whose loss is accepted, its runs included
    #[arg(long, value_name = "DIR", env = "MACP_DATA_DIR")]
    data: PathBuf,
}

pub(crate) fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let mut accepted = Vec::new();
    for (name, loss) in databases::accept_loss(&args.data, now_ms())? {
        if !output.is_json() {
            let verdict = output.paint(Paint::Warn, "accepted");
            output.line(format!("{verdict} a loss of {name}: {}", clean(&loss.description)))?;
            if let Some(copy) = &loss.log_copy {
                output.line(format!("   its write-ahead log was copied to {}", copy.display()))?;
            }
        }
        accepted.push(json!({ "of": name, "description": loss.description, "log_copy": loss.log_copy }));
    }
    if output.is_json() {
        output.value(&json!({ "ok": true, "accepted": accepted }))?;
    } else if accepted.is_empty() {
        output.line(format!("nothing is missing from {}", args.data.display()))?;
    }
    Ok(Finding::Positive)
}
