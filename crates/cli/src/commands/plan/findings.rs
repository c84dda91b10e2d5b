//! Findings about a plan, as people read them.

use macp_plan_core::finding::Finding;
use serde_json::json;

use crate::Finding as Answer;
use crate::output::{Output, Paint};
use crate::text::{clean, count};

/// Prints findings one by one, each with its rule and what to do.
pub(super) fn show(findings: &[Finding], output: &Output) -> anyhow::Result<()> {
    for finding in findings {
        let (paint, word) = match finding.is_error() {
            true => (Paint::Bad, "error  "),
            false => (Paint::Warn, "warning"),
        };
        let step = match &finding.step_id {
            Some(step) => format!("step {}: ", clean(step)),
            None => String::new(),
        };
        let rule = output.paint(Paint::Faint, format!("[{} {}]", finding.rule, finding.reason));
        output.line(format!("{} {step}{} {rule}", output.paint(paint, word), clean(&finding.problem)))?;
        if !finding.fix.is_empty() {
            output.line(format!("        fix: {}", clean(&finding.fix)))?;
        }
        if !finding.available.is_empty() {
            output.line(format!("        available: {}", clean(&finding.available.join(", "))))?;
        }
    }
    Ok(())
}

/// Tells why there is no plan to go on with; `word` says what cannot be had, `advice` what helps.
pub(super) fn refuse(findings: &[Finding], word: &str, advice: &str, output: &Output) -> anyhow::Result<Answer> {
    if output.is_json() {
        output.value(&json!({ "ok": false, "findings": findings }))?;
    } else {
        show(findings, output)?;
        output.line(format!("{}: {advice}", output.paint(Paint::Bad, word)))?;
    }
    Ok(Answer::Negative)
}

/// Prints findings beside the data, where the data is the plan itself.
pub(super) fn note(findings: &[Finding], output: &Output) {
    for finding in findings {
        let word = if finding.is_error() { "error" } else { "warning" };
        output.note(format!("{word}: {}", clean(&finding.to_string())));
    }
}

/// `1 error, 2 warnings`.
pub(super) fn tally(findings: &[Finding]) -> String {
    let (errors, warnings) = numbers(findings);
    format!("{}, {}", count(errors, "error", "errors"), count(warnings, "warning", "warnings"))
}

pub(super) fn numbers(findings: &[Finding]) -> (u64, u64) {
    let errors = findings.iter().filter(|finding| finding.is_error()).count() as u64;
    (errors, findings.len() as u64 - errors)
}
