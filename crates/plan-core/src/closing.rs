//! Ends a run that cannot go on: a skill or the rate card it began with is not here any more, so that nobody can say
//! what its next call would be. What it takes to cancel it follows from the plan and the journal alone, and is decided
//! as if all of that were here. So the journal stays one that replays once it is.

use std::sync::Arc;

use crate::behavior::Behavior;
use crate::cause::Cause;
use crate::effect::Idempotency;
use crate::journal::{Body, Entry, Output, RunStart};
use crate::machine::{Machine, Next, OutOfPlace, Pinned, Question};
use crate::plan::FrozenPlan;
use crate::replay::Bodies;
use crate::replay::recording::assumptions;
use crate::skill::Catalog;
use crate::taxonomy::Taxonomy;

/// Who ends a run, and why.
#[derive(Clone, Copy, Debug)]
pub struct Closing<'c> {
    pub by: &'c str,
    pub reason: &'c str,
}

/// A run that cannot even be ended here.
#[derive(Debug, thiserror::Error)]
pub enum Unclosable {
    #[error("its taxonomy {0} is not known here")]
    Taxonomy(String),
    #[error("the call of step `{0}` was out, and what it costs cannot be told without the rate card or the skill")]
    Unpriced(String),
    #[error("what came of the last call of step `{0}` cannot be judged without its skill")]
    Unjudged(String),
    #[error(
        "whether a call of step `{0}` was out, or it waited for its effect to be free, cannot be told without its skill"
    )]
    Ambiguous(String),
    #[error("whether step `{0}` could begin cannot be told without its skill")]
    Unprepared(String),
    #[error("its journal does not fit its plan: {0}")]
    Misfit(#[from] OutOfPlace),
}

/// The entries that end a run where its journal ends: cancelled at a boundary, in doubt where a call with effects was
/// out. The skill that could say whether a repetition is harmless may be the one that is gone.
pub fn close<'e>(
    plan: &Arc<FrozenPlan>,
    catalog: &Arc<dyn Catalog>,
    start: &RunStart,
    entries: impl IntoIterator<Item = &'e Entry> + Clone,
    bodies: Bodies<'_>,
    Closing { by, reason }: Closing<'_>,
) -> Result<Vec<Body>, Unclosable> {
    let taxonomy = &plan.plan.pins.taxonomy_version;
    if Taxonomy::version(taxonomy).is_none() {
        return Err(Unclosable::Taxonomy(taxonomy.clone()));
    }
    let behavior = Behavior::of(entries.clone());
    let machine = Machine::new(Arc::clone(plan), Arc::clone(catalog), Arc::new(Pinned), start.clone());
    let mut machine = machine.assuming(assumptions(&behavior, Idempotency::None)).closing();
    for entry in entries {
        let apart = machine.wants_output(&entry.body).and_then(bodies);
        machine.apply(&entry.body, apart.as_ref())?;
    }
    let mut closed = Vec::new();
    loop {
        let body = if machine.boundary() {
            Body::CancelRequested { by: by.to_owned(), reason: reason.to_owned() }
        } else {
            match machine.next() {
                Next::Finished => return Ok(closed),
                Next::Decide(body) => {
                    check_known(&machine, &body, closed.is_empty())?;
                    *body
                }
                Next::Ask(question) => unanswered(&machine, &question, &behavior)?,
            }
        };
        machine.apply(&body, None)?;
        closed.push(body);
    }
}

/// Whether a decision would be the same if everything were here.
fn check_known(machine: &Machine, body: &Body, first: bool) -> Result<(), Unclosable> {
    match body {
        Body::AttemptJudged { step_id, .. } if first && machine.assumes().is_some() => {
            Err(Unclosable::Unjudged(step_id.clone()))
        }
        Body::StepStarted { step_id, .. } if machine.is_refused() => Err(Unclosable::Unprepared(step_id.clone())),
        _ => Ok(()),
    }
}

/// What came of a call that was out. One without effects was broken off, and that is all there is to say of it.
fn unanswered(machine: &Machine, question: &Question<'_>, behavior: &Behavior) -> Result<Body, Unclosable> {
    let Question::Dispatch { step, attempt, effects, .. } = question else {
        // The other questions are asked at boundaries, but for that of admission: then nothing was done yet.
        let (expected, found) = ("cancel_requested", "admission");
        return Err(OutOfPlace::Kind { expected, found }.into());
    };
    let step_id = step.step_id.clone();
    let cause = if effects.is_empty() { Cause::Cancelled } else { Cause::EffectInDoubt };
    // Intents follow a claim at once. Without either it is not known whether there were to be any.
    let claimed = behavior.step(&step_id).is_some_and(|step| step.claimed);
    if effects.is_empty() && !claimed && machine.assumes().is_some() {
        return Err(Unclosable::Ambiguous(step_id));
    }
    if cause == Cause::EffectInDoubt && !machine.is_priced() {
        return Err(Unclosable::Unpriced(step_id));
    }
    let (usage, retry_after_ms, output) = (None, None, Output::default());
    Ok(Body::AttemptObserved { step_id, attempt: *attempt, cause, usage, retry_after_ms, output })
}
