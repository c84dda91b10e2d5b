//! Findings about a plan, as people and programs read them: in one shape, whether they were found here or by a server.

use std::fmt;

use macp_plan_core::finding::{Finding, Level};
use macp_wire::plan::v1::Finding as WireFinding;
use serde::Serialize;
use serde_json::json;

use crate::Finding as Answer;
use crate::output::{Output, Paint};
use crate::text::{clean, count};

/// A finding to show.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shown<'a> {
    level: Level,
    code: &'a str,
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<&'a str>,
    reason: &'a str,
    problem: &'a str,
    fix: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    available: &'a [String],
}

impl<'a> From<&'a Finding> for Shown<'a> {
    fn from(finding: &'a Finding) -> Self {
        Shown {
            level: finding.level,
            code: finding.code,
            rule: finding.rule,
            step_id: finding.step_id.as_deref(),
            reason: finding.reason,
            problem: &finding.problem,
            fix: &finding.fix,
            available: &finding.available,
        }
    }
}

impl<'a> From<&'a WireFinding> for Shown<'a> {
    fn from(finding: &'a WireFinding) -> Self {
        Shown {
            level: if finding.error { Level::Error } else { Level::Warning },
            code: &finding.code,
            rule: &finding.rule,
            step_id: Some(finding.step_id.as_str()).filter(|step_id| !step_id.is_empty()),
            reason: &finding.reason,
            problem: &finding.problem,
            fix: &finding.fix,
            available: &finding.available,
        }
    }
}

impl Shown<'_> {
    fn is_error(&self) -> bool {
        self.level == Level::Error
    }

    fn show(&self, output: &Output) -> anyhow::Result<()> {
        let (paint, word) = match self.is_error() {
            true => (Paint::Bad, "error  "),
            false => (Paint::Warn, "warning"),
        };
        let step = match self.step_id {
            Some(step) => format!("step {}: ", clean(step)),
            None => String::new(),
        };
        let rule = output.paint(Paint::Faint, format!("[{} {}]", clean(self.rule), clean(self.reason)));
        output.line(format!("{} {step}{} {rule}", output.paint(paint, word), clean(self.problem)))?;
        if !self.fix.is_empty() {
            output.line(format!("        fix: {}", clean(self.fix)))?;
        }
        if !self.available.is_empty() {
            output.line(format!("        available: {}", clean(&self.available.join(", "))))?;
        }
        Ok(())
    }
}

/// In one line.
impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_error() { "error: " } else { "warning: " })?;
        if let Some(step) = self.step_id {
            write!(f, "step `{step}`: ")?;
        }
        f.write_str(self.problem)?;
        if !self.fix.is_empty() {
            write!(f, " ({})", self.fix)?;
        }
        write!(f, " [{}]", self.rule)
    }
}

/// Findings of here or of a server, to be written as JSON.
pub(super) fn as_json<'a, F>(findings: &'a [F]) -> Vec<Shown<'a>>
where
    Shown<'a>: From<&'a F>,
{
    findings.iter().map(Shown::from).collect()
}

/// Prints findings one by one, each with its rule and what to do.
pub(super) fn show<'a, F>(findings: &'a [F], output: &Output) -> anyhow::Result<()>
where
    Shown<'a>: From<&'a F>,
{
    findings.iter().try_for_each(|finding| Shown::from(finding).show(output))
}

/// Tells why there is no plan to go on with; `word` says what cannot be had, `advice` what helps.
pub(super) fn refuse<'a, F>(findings: &'a [F], word: &str, advice: &str, output: &Output) -> anyhow::Result<Answer>
where
    Shown<'a>: From<&'a F>,
{
    if output.is_json() {
        output.value(&json!({ "ok": false, "findings": as_json(findings) }))?;
    } else {
        show(findings, output)?;
        output.line(format!("{}: {advice}", output.paint(Paint::Bad, word)))?;
    }
    Ok(Answer::Negative)
}

/// Prints findings beside the data, where the data is the plan itself.
pub(super) fn note<'a, F>(findings: &'a [F], output: &Output)
where
    Shown<'a>: From<&'a F>,
{
    for finding in findings {
        output.note(clean(&Shown::from(finding).to_string()));
    }
}

/// `1 error, 2 warnings`.
pub(super) fn tally<'a, F>(findings: &'a [F]) -> String
where
    Shown<'a>: From<&'a F>,
{
    let (errors, warnings) = numbers(findings);
    format!("{}, {}", count(errors, "error", "errors"), count(warnings, "warning", "warnings"))
}

pub(super) fn numbers<'a, F>(findings: &'a [F]) -> (u64, u64)
where
    Shown<'a>: From<&'a F>,
{
    let errors = findings.iter().filter(|finding| Shown::from(*finding).is_error()).count() as u64;
    (errors, findings.len() as u64 - errors)
}
