//! `macp plan keep`.

use std::path::PathBuf;

use serde_json::json;

use super::{authored, findings};
use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::text::clean;

/// Have a server keep a frozen plan, so that a session can commit to it by its digest alone
///
/// The server checks it first, and keeps nothing that cannot run there.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the frozen plan, or - for stdin
    plan: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let text = authored::frozen_text(&args.plan)?;
    let answer = args.server.connect().await?.keep_plan(text).await?;
    if output.is_json() {
        let findings = findings::as_json(&answer.findings);
        output.value(&json!({ "ok": answer.kept, "plan_hash": answer.plan_hash, "findings": findings }))?;
        return Ok(Finding::from_ok(answer.kept));
    }
    findings::show(&answer.findings, output)?;
    let (word, paint) = if answer.kept { ("kept", Paint::Good) } else { ("not kept", Paint::Bad) };
    output.line(format!("{} {}", output.paint(paint, word), clean(&answer.plan_hash)))?;
    Ok(Finding::from_ok(answer.kept))
}
