//! The comparison of a live replay with its original: what differs, and whether the world or the runtime is why.

use std::sync::Arc;

use super::excuses::Excuses;
use super::mock::{check_digests, digest_of, mock_replay};
use super::{Bodies, Options, Refused, check_plan, pins};
use crate::behavior::{Behavior, StepBehavior};
use crate::compare::{self, Aspect, BehaviorDigests, InputChanged, Mismatch, Origin, Report, Skipped, Verdict};
use crate::journal::{Journal, RunMode};
use crate::plan::FrozenPlan;
use crate::skill::Catalog;

/// Compares a live replay with its original. `bodies` gives the replay's outputs that are kept apart.
///
/// The replay's own journal is decided anew under the pinned rules first. A difference is the world's doing if that
/// finds nothing and some input differs that can have led there; everything else is the runtime's.
pub fn full_replay(
    plan: &Arc<FrozenPlan>,
    original: &Journal,
    replay: &Journal,
    bodies: Bodies<'_>,
    catalog: &Arc<dyn Catalog>,
) -> Result<Report, Refused> {
    check_plan(plan, &original.start().plan_hash)?;
    check_plan(plan, &replay.start().plan_hash)?;
    let run_ids = (original.start().run_id.clone(), replay.start().run_id.clone());
    let mut report = Report::not_comparable(RunMode::FullReplay, run_ids.0, run_ids.1.clone(), plan.hash.clone());
    let revisions = [original.start().revision, replay.start().revision];
    let checked = pins::check(&plan.plan, &revisions, catalog.as_ref());
    report.pin_violations = checked.violations;
    if checked.fatal || checked.skill_missing || checked.skill_disabled {
        return Ok(report);
    }
    let conformance = mock_replay(plan, replay, bodies, catalog, &Options::new(run_ids.1))?.report;
    let own_doing = |mismatch: &&Mismatch| matches!(mismatch.cause, Origin::Runtime | Origin::Pin);
    let strays: Vec<&Mismatch> = conformance.mismatches.iter().filter(own_doing).collect();
    report.conformance = match strays.is_empty() {
        true => (conformance.verdict == Verdict::Match).then_some(true),
        false => Some(false),
    };
    report.inputs_changed = compare::inputs_changed(original.entries(), replay.entries());
    let (one, other) = (Behavior::of(original.entries()), Behavior::of(replay.entries()));
    report.behavior_digest = BehaviorDigests { original: digest_of(&one), replay: digest_of(&other) };
    let mut comparison = compare::behaviors(&plan.plan, &one, &other);
    check_digests(&mut comparison, &report.behavior_digest, &one);
    let excuses = Excuses::of(&plan.plan, &report.inputs_changed, &comparison.mismatches);
    for mismatch in &mut comparison.mismatches {
        let at = excuses.place(mismatch);
        mismatch.cause = match excuses.find(at) {
            // What another build observes cannot be told from what it makes of it, so that no input excuses it.
            _ if checked.tainted_from.is_some_and(|from| from <= at) => Origin::Pin,
            Some(_) if !strays.is_empty() => Origin::Runtime,
            Some(changed) => {
                mismatch.why = format!("{}; {}", told(changed), mismatch.why);
                Origin::External
            }
            None => Origin::Runtime,
        };
    }
    for stray in strays {
        let why = format!("in the replay's own journal: {}", stray.why);
        comparison.mismatches.push(Mismatch { why, seq: None, ..stray.clone() });
    }
    for (journal, whose) in [(original, "original"), (replay, "replay")] {
        if !journal.finished() {
            let why = format!("the {whose} has not come to its end");
            report.skipped.push(Skipped { step_id: None, aspect: Some(Aspect::Status), why });
        }
    }
    let codes = |step: &StepBehavior| step.attempts.iter().map(|attempt| attempt.code.clone()).collect::<Vec<_>>();
    for step in one.steps.iter().filter(|step| other.step(&step.step_id).is_some_and(|it| codes(it) != codes(step))) {
        let why = "the attempts ended with other codes (AOS-93)".to_owned();
        report.skipped.push(Skipped { step_id: Some(step.step_id.clone()), aspect: Some(Aspect::BackoffMs), why });
    }
    report.conclude(comparison);
    Ok(report)
}

fn told(changed: &InputChanged) -> String {
    let place = match (&changed.step_id, changed.attempt) {
        (Some(step_id), Some(attempt)) => format!(" at `{step_id}`, attempt {attempt}"),
        _ => String::new(),
    };
    format!("the world answered otherwise: {}{place} was {}, then {}", changed.field, changed.original, changed.replay)
}
