//! Whether a run from a file follows from itself: every decision is taken again before anyone builds on them. A chain
//! proves that nobody changed the file since it was made, and nothing about who made it.

use std::sync::Arc;

use macp_plan_core::compare::{Mismatch, Origin, PinViolation, Report, Verdict};
use macp_plan_core::journal::{Broken, Journal};
use macp_plan_core::plan::{FrozenPlan, PlanError};
use macp_plan_core::replay::{Mock, Options, Refused, mock_replay};
use macp_plan_core::skill::Catalog;

use super::ExportedRun;

/// Why a run is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum NotReplayed {
    #[error("run {0:?} is not finished; it belongs to the server it runs on")]
    Open(Arc<str>),
    #[error("its plan cannot be read")]
    Plan(#[from] PlanError),
    #[error("its journal cannot be read")]
    Journal(#[from] Broken),
    #[error("it cannot be replayed")]
    Refused(#[from] Refused),
    #[error("it does not replay: its decisions do not follow from its inputs: {0}")]
    Diverged(String),
    /// Nobody can tell a forgery from what the other build makes of the same inputs.
    #[error("it does not replay here, where another build of a skill is than its plan pins: {difference}; {pins}")]
    OtherBuild { difference: String, pins: String },
    #[error("nothing of it can be decided again here: {0}")]
    NotEvaluated(String),
}

impl NotReplayed {
    /// Whether there is no run in the file that anyone could read, rather than one that is refused for how it stands.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        match self {
            Self::Plan(_) | Self::Journal(_) => true,
            Self::Open(_) | Self::Refused(_) | Self::Diverged(_) | Self::OtherBuild { .. } | Self::NotEvaluated(_) => {
                false
            }
        }
    }
}

/// Replays a run against its own recording. Gives what could not be decided again here for want of something, such as a
/// version of a skill, and what came out otherwise behind it, of which nobody can tell whose doing it is; everything else
/// was decided again, and is the same. A run of which nothing could be decided again is not taken, nor is one that has no
/// end yet to compare.
pub fn replayed(exported: &ExportedRun, catalog: &Arc<dyn Catalog>) -> Result<Vec<String>, NotReplayed> {
    if !exported.run.is_finished() {
        return Err(NotReplayed::Open(Arc::clone(&exported.run.run_id)));
    }
    let plan = Arc::new(FrozenPlan::from_value(exported.plan.clone())?);
    let entries = exported.run.entries.iter().map(|sealed| (sealed.text.clone(), sealed.hash.to_string()));
    let journal = Journal::read(entries)?;
    // Nobody ever looks for this replay.
    let options = Options::new(format!("import-of-{}", exported.run.run_id));
    let body = |digest: &_| exported.body(digest);
    let Mock { report, .. } = mock_replay(&plan, &journal, &body, catalog, &options)?;
    match report.verdict {
        Verdict::Match => Ok(open(&report)),
        Verdict::NotComparable if report.behavior_match.values().any(Option::is_some) => Ok(open(&report)),
        Verdict::NotComparable => Err(NotReplayed::NotEvaluated(open(&report).join("; "))),
        Verdict::Diverged | Verdict::Explained | Verdict::Estimate => Err(diverged(&report)),
    }
}

/// What kept the replay from comparing everything, and what follows from that.
fn open(report: &Report) -> Vec<String> {
    // A skill that may not be called any more is asked for nothing else than before (AOS-99).
    let pins = report.pin_violations.iter().filter(|violation| violation.kind != "skill_disabled").map(pin);
    let skipped = report.skipped.iter().map(|skipped| {
        let aspect = skipped.aspect.map_or("everything", |aspect| aspect.key());
        let step = skipped.step_id.as_ref().map(|step| format!(" of step {step}")).unwrap_or_default();
        format!("{aspect}{step}: {}", skipped.why)
    });
    pins.chain(skipped).chain(report.mismatches.iter().map(told)).collect()
}

/// Why a run that is decided otherwise is refused: for a difference that nothing explains, if there is one, else for the
/// pins that the others are put down to.
fn diverged(report: &Report) -> NotReplayed {
    let unexplained = report.mismatches.iter().find(|mismatch| mismatch.cause != Origin::Pin);
    let difference = unexplained.or(report.mismatches.first());
    let difference = difference.map_or_else(|| "what is recorded and what is decided differ".to_owned(), told);
    let builds = report.pin_violations.iter().filter(|violation| violation.kind == "skill_build_changed");
    let pins: Vec<String> = builds.map(pin).collect();
    match unexplained.is_some() || pins.is_empty() {
        true => NotReplayed::Diverged(difference),
        false => NotReplayed::OtherBuild { difference, pins: pins.join("; ") },
    }
}

/// A pin that does not hold here, in words.
fn pin(PinViolation { kind, subject, why }: &PinViolation) -> String {
    format!("{kind} {subject}: {why}")
}

/// A difference in words.
fn told(mismatch: &Mismatch) -> String {
    let step = mismatch.step_id.as_ref().map(|step| format!("step {step}, ")).unwrap_or_default();
    let entry = mismatch.seq.map(|seq| format!("entry {seq}, ")).unwrap_or_default();
    let (aspect, field) = (mismatch.aspect.key(), &mismatch.field);
    format!("{entry}{step}{aspect}, {field}: {} is recorded, {} is decided", mismatch.original, mismatch.replay)
}
