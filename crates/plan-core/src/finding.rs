//! Findings: what is wrong with a plan, which rule says so, and what to do.

use serde::Serialize;

use crate::limits;

/// Whether a finding keeps a plan from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Error,
    Warning,
}

/// One finding about a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// The code a run that is rejected for this ends with.
    pub code: &'static str,
    /// The rule, such as `AOS-68`.
    pub rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// One word for programs, such as `skill_not_registered`.
    pub reason: &'static str,
    /// What is wrong, in a sentence for people.
    pub problem: String,
    /// What to do about it.
    pub fix: String,
    /// What could be had instead, where that can be listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub available: Vec<String>,
}

impl Finding {
    /// A finding that keeps the plan from running with `ERR_VALIDATION_FAILED`, which most do.
    pub(crate) fn error(rule: &'static str, reason: &'static str, problem: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            code: "ERR_VALIDATION_FAILED",
            rule,
            step_id: None,
            reason,
            problem: problem.into(),
            fix: String::new(),
            available: Vec::new(),
        }
    }

    pub(crate) fn warning(rule: &'static str, reason: &'static str, problem: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::error(rule, reason, problem) }
    }

    pub(crate) fn at(mut self, step_id: &str) -> Self {
        self.step_id = Some(step_id.to_owned());
        self
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    pub(crate) fn available(mut self, available: Vec<String>) -> Self {
        self.available = available;
        self
    }

    #[must_use]
    pub fn is_error(&self) -> bool {
        self.level == Level::Error
    }
}

/// The reason of the finding that stands for those left out.
const LEFT_OUT: &str = "findings_left_out";

/// Puts errors before warnings and keeps as many as one check lists; one more finding says that there were others.
/// Applied again to what was bounded before, it still says so once.
pub(crate) fn bound(found: &mut Vec<Finding>) {
    let total = found.len();
    let said = found.iter().find(|finding| finding.reason == LEFT_OUT).map(Finding::is_error);
    found.retain(|finding| finding.reason != LEFT_OUT);
    found.sort_by_key(|finding| !finding.is_error());
    if said.is_none() && total <= limits::FINDINGS_MAX {
        return;
    }
    let left_out = found.get(limits::FINDINGS_MAX).map(Finding::is_error);
    found.truncate(limits::FINDINGS_MAX);
    let problem = format!("there are more findings than the {} that are listed", found.len());
    let fix = "correct what is listed and check again";
    let more = match said == Some(true) || left_out == Some(true) {
        true => Finding::error("AOS-12", LEFT_OUT, problem),
        false => Finding::warning("AOS-12", LEFT_OUT, problem),
    };
    // Behind the last of its level, so that errors still come first.
    let place = found.iter().rposition(|finding| finding.level == more.level).map_or(found.len(), |last| last + 1);
    found.insert(place, more.fix(fix));
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(step) = &self.step_id {
            write!(f, "step `{step}`: ")?;
        }
        f.write_str(&self.problem)?;
        if !self.fix.is_empty() {
            write!(f, " ({})", self.fix)?;
        }
        write!(f, " [{}]", self.rule)
    }
}
