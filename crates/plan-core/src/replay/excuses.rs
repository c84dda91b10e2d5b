//! Which facts from outside can have led to a difference at a step.
//!
//! A cause, a usage or a verdict reaches its own step and everything after it, by codes, costs and conditions. What a
//! call returned reaches only the steps that refer to it, and what follows those if they then went another way. How long
//! a target asked to wait reaches nothing: it lengthens a wait and decides nothing (AOS-94).

use crate::compare::{InputChanged, Mismatch};
use crate::machine::reads;
use crate::plan::Plan;

/// The place of whatever belongs to no step: the end of the run comes after all of them.
const END: usize = usize::MAX;

/// Changed facts, each with the places it can have led to.
pub(super) struct Excuses<'a> {
    plan: &'a Plan,
    reaches: Vec<(&'a InputChanged, Reach)>,
}

struct Reach {
    /// Steps that are concerned by themselves.
    steps: Vec<usize>,
    /// From where on everything is.
    from: Option<usize>,
}

impl<'a> Excuses<'a> {
    pub(super) fn of(plan: &'a Plan, changed: &'a [InputChanged], mismatches: &[Mismatch]) -> Self {
        let mut excuses = Self { plan, reaches: Vec::new() };
        let differing: Vec<usize> = mismatches.iter().map(|mismatch| excuses.place(mismatch)).collect();
        let reads = reads(plan);
        for changed in changed {
            let at = changed.step_id.as_deref().and_then(|step_id| excuses.place_of(step_id));
            let reach = match (changed.field.as_str(), at) {
                ("retry_after_ms", _) => continue,
                ("output_ref", Some(at)) => {
                    let name = plan.steps[at].name();
                    let refers = |place: &usize| reads[*place].contains(name);
                    let steps: Vec<usize> = (at + 1..plan.steps.len()).filter(refers).collect();
                    let from = steps.iter().copied().find(|place| differing.contains(place));
                    Reach { steps, from }
                }
                (_, at) => Reach { steps: Vec::new(), from: Some(at.unwrap_or(0)) },
            };
            excuses.reaches.push((changed, reach));
        }
        excuses
    }

    /// The first fact that can have led to a difference at a place.
    pub(super) fn find(&self, at: usize) -> Option<&'a InputChanged> {
        let leads = |reach: &Reach| reach.from.is_some_and(|from| from <= at) || reach.steps.contains(&at);
        self.reaches.iter().find(|(_, reach)| leads(reach)).map(|(changed, _)| *changed)
    }

    /// Where a difference is.
    pub(super) fn place(&self, mismatch: &Mismatch) -> usize {
        mismatch.step_id.as_deref().and_then(|step_id| self.place_of(step_id)).unwrap_or(END)
    }

    fn place_of(&self, step_id: &str) -> Option<usize> {
        self.plan.steps.iter().position(|step| step.step_id == step_id)
    }
}
