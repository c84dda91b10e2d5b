//! `macp plan keep`.

use std::path::PathBuf;

use macp_plan_core::finding::Level;
use macp_wire::plan::v1::Finding as WireFinding;
use serde_json::{Value, json};

use super::authored;
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
    show_findings(&answer.findings, output)?;
    if output.is_json() {
        let findings = as_json(&answer.findings);
        output.value(&json!({ "ok": answer.kept, "plan_hash": answer.plan_hash, "findings": findings }))?;
        return Ok(Finding::from_ok(answer.kept));
    }
    let (word, paint) = if answer.kept { ("kept", Paint::Good) } else { ("not kept", Paint::Bad) };
    output.line(format!("{} {}", output.paint(paint, word), clean(&answer.plan_hash)))?;
    Ok(Finding::from_ok(answer.kept))
}

/// What a server says about a plan, as JSON.
pub(super) fn as_json(findings: &[WireFinding]) -> Vec<Value> {
    findings.iter().map(one_as_json).collect()
}

/// In the shape that findings have here.
fn one_as_json(finding: &WireFinding) -> Value {
    let level = if finding.error { Level::Error } else { Level::Warning };
    let mut told = json!({
        "level": level, "code": finding.code, "rule": finding.rule, "reason": finding.reason,
        "problem": finding.problem, "fix": finding.fix,
    });
    if !finding.step_id.is_empty() {
        told["step_id"] = finding.step_id.as_str().into();
    }
    told
}

/// The same in lines, for people.
pub(super) fn show_findings(findings: &[WireFinding], output: &Output) -> anyhow::Result<()> {
    for finding in findings.iter().filter(|_| !output.is_json()) {
        let paint = if finding.error { Paint::Bad } else { Paint::Warn };
        output.line(format!("{}{}", output.paint(paint, word(finding)), sentence(finding)))?;
    }
    Ok(())
}

/// The same beside the data, where the data is the plan itself.
pub(super) fn note(findings: &[WireFinding], output: &Output) {
    for finding in findings {
        output.note(format!("{}{}", word(finding), sentence(finding)));
    }
}

/// The code is that of a run rejected for it, and a warning rejects none.
fn word(finding: &WireFinding) -> String {
    if finding.error { clean(&finding.code) } else { "warning".to_owned() }
}

fn sentence(finding: &WireFinding) -> String {
    let (problem, fix) = (clean(&finding.problem), clean(&finding.fix));
    let place = if finding.step_id.is_empty() { String::new() } else { format!(" {}", clean(&finding.step_id)) };
    format!("{place}: {problem}; {fix}")
}
