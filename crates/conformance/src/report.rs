//! What came of a fixture or vector, and of many.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Level;

/// What one fixture or vector showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub name: String,
    #[serde(serialize_with = "as_text")]
    pub level: Level,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Expectations of the fixture that the driver could not look at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    Failed {
        reasons: Vec<String>,
    },
    /// It was not run, for a reason that is documented and no fault of the runtime.
    Skipped {
        reason: &'static str,
    },
}

impl Report {
    /// The report on something that was run: it failed if there is any reason to say so.
    pub fn of(name: &str, level: Level, reasons: Vec<String>) -> Report {
        let outcome = if reasons.is_empty() { Outcome::Passed } else { Outcome::Failed { reasons } };
        Report { name: name.to_owned(), level, outcome, unchecked: Vec::new() }
    }

    pub fn skipped(name: &str, level: Level, reason: &'static str) -> Report {
        Report { name: name.to_owned(), level, outcome: Outcome::Skipped { reason }, unchecked: Vec::new() }
    }

    pub fn failures(&self) -> &[String] {
        match &self.outcome {
            Outcome::Failed { reasons } => reasons,
            Outcome::Passed | Outcome::Skipped { .. } => &[],
        }
    }
}

fn as_text<S: serde::Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(level.as_str())
}

/// How many of one kind passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

/// What many reports come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub levels: BTreeMap<Level, Tally>,
}

impl Summary {
    pub fn of<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Summary {
        let mut summary = Summary::default();
        for report in reports {
            summary.add(report);
        }
        summary
    }

    pub fn add(&mut self, report: &Report) {
        let tally = self.levels.entry(report.level).or_default();
        match report.outcome {
            Outcome::Passed => tally.passed += 1,
            Outcome::Failed { .. } => tally.failed += 1,
            Outcome::Skipped { .. } => tally.skipped += 1,
        }
    }

    pub fn total(&self) -> Tally {
        self.levels.values().fold(Tally::default(), |sum, tally| Tally {
            passed: sum.passed + tally.passed,
            failed: sum.failed + tally.failed,
            skipped: sum.skipped + tally.skipped,
        })
    }

    /// The highest level at which, as at all before it, something passed and nothing failed.
    pub fn reached(&self) -> Option<Level> {
        let holds = |level: &Level| self.levels.get(level).is_some_and(|tally| tally.passed > 0 && tally.failed == 0);
        Level::ALL.into_iter().take_while(holds).last()
    }

    /// Whether something passed and nothing failed: running nothing proves nothing.
    pub fn is_good(&self) -> bool {
        let total = self.total();
        total.passed > 0 && total.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(level: Level) -> Report {
        Report::of("f", level, vec!["why".to_owned()])
    }

    fn passed(level: Level) -> Report {
        Report::of("p", level, Vec::new())
    }

    #[test]
    fn a_level_is_reached_only_on_top_of_the_ones_below() {
        use Level::*;
        let reached = |reports: &[Report]| Summary::of(reports).reached();
        assert_eq!(reached(&[]), None);
        assert_eq!(reached(&[passed(Core)]), Some(Core));
        assert_eq!(reached(&[passed(Decision)]), None);
        assert_eq!(reached(&[passed(Core), passed(Decision), failed(Standard), passed(Optional)]), Some(Decision));
        assert_eq!(reached(&[passed(Core), failed(Core)]), None);
        assert_eq!(reached(&[passed(Core), Report::skipped("s", Decision, "why")]), Some(Core));
    }

    #[test]
    fn running_nothing_proves_nothing() {
        assert!(!Summary::default().is_good());
        assert!(!Summary::of([&Report::skipped("s", Level::Core, "why")]).is_good());
        assert!(Summary::of([&passed(Level::Core)]).is_good());
        assert!(!Summary::of([&passed(Level::Core), &failed(Level::Core)]).is_good());
    }

    #[test]
    fn a_report_is_flat_json() {
        let report = Report { unchecked: vec!["mode state"], ..failed(Level::Standard) };
        let expected = serde_json::json!({
            "name": "f", "level": "standard", "outcome": "failed", "reasons": ["why"], "unchecked": ["mode state"],
        });
        assert_eq!(serde_json::to_value(&report).expect("JSON"), expected);
    }
}
