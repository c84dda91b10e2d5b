//! A recording, arranged to answer the machine's questions: its inputs by where they were asked for.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use crate::behavior::Behavior;
use crate::cause::Cause;
use crate::effect::{Effect, Idempotency};
use crate::journal::{Body, Class, Entry};
use crate::machine::{Assumed, Question};
use crate::plan::{Plan, StepStatus};

/// The place of every step in the plan, by id.
#[derive(Debug)]
pub(super) struct Places<'p> {
    plan: &'p Plan,
    by_id: BTreeMap<&'p str, usize>,
    /// What was looked up last: most entries are about the same step as the one before.
    last: Cell<usize>,
}

impl<'p> Places<'p> {
    pub(super) fn of(plan: &'p Plan) -> Self {
        let by_id = plan.steps.iter().enumerate().map(|(place, step)| (step.step_id.as_str(), place)).collect();
        Self { plan, by_id, last: Cell::new(0) }
    }

    pub(super) fn get(&self, step_id: &str) -> Option<usize> {
        if self.name(self.last.get()) == Some(step_id) {
            return Some(self.last.get());
        }
        let place = self.by_id.get(step_id).copied()?;
        self.last.set(place);
        Some(place)
    }

    pub(super) fn name(&self, place: usize) -> Option<&'p str> {
        self.plan.steps.get(place).map(|step| step.step_id.as_str())
    }
}

/// Where an entry stands, told apart from all others of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    /// The step's place in the plan.
    pub step: Option<usize>,
    pub attempt: u32,
    pub kind: &'static str,
}

impl Spot {
    pub(super) fn of(body: &Body, places: &Places<'_>) -> Self {
        let step = body.step_id().and_then(|id| places.get(id));
        Self { step, attempt: body.attempt().unwrap_or(0), kind: body.kind() }
    }

    /// Where the answer to a question stands.
    pub(super) fn asked(question: &Question<'_>, places: &Places<'_>) -> Self {
        let (step, attempt, kind) = match question {
            Question::Admission => return Self { step: None, attempt: 0, kind: "admission" },
            Question::Limiter { step, attempt, .. } => (step, *attempt, "limiter_verdict"),
            // A key is claimed once per step.
            Question::Dedupe { step, .. } => (step, 0, "dedupe_verdict"),
            Question::Outputs => unreachable!("only a lean machine asks for outputs"),
            Question::Dispatch { step, attempt, .. } => (step, *attempt, "attempt_observed"),
        };
        Self { step: places.get(&step.step_id), attempt, kind }
    }
}

/// The inputs of a recorded run that have not been used yet.
#[derive(Debug, Default)]
pub(super) struct Recording<'e> {
    inputs: BTreeMap<Spot, &'e Entry>,
    /// What interrupted the run, each with the entry it came after.
    interruptions: VecDeque<(Spot, &'e Entry)>,
}

impl<'e> Recording<'e> {
    pub(super) fn new(entries: &'e [Entry], places: &Places<'_>) -> Self {
        let mut recording = Self::default();
        let mut last = Spot { step: None, attempt: 0, kind: "run_started" };
        for entry in entries {
            let spot = Spot::of(&entry.body, places);
            match &entry.body {
                Body::Observed { .. } => continue,
                Body::CancelRequested { .. } | Body::DeadlineReached { .. } => {
                    recording.interruptions.push_back((last, entry));
                }
                body if body.class() == Class::Input => {
                    recording.inputs.entry(spot).or_insert(entry);
                }
                _ => {}
            }
            last = spot;
        }
        recording
    }

    pub(super) fn take(&mut self, spot: &Spot) -> Option<&'e Entry> {
        self.inputs.remove(spot)
    }

    /// An interruption that came after this entry.
    pub(super) fn interruption_after(&mut self, last: &Spot) -> Option<&'e Entry> {
        self.interruptions.pop_front_if(|(after, _)| after == last).map(|(_, entry)| entry)
    }

    /// The next interruption, wherever it came.
    pub(super) fn interruption(&mut self) -> Option<&'e Entry> {
        self.interruptions.pop_front().map(|(_, entry)| entry)
    }

    /// Attempts for which something is left, by the step's place, and the first entry of each step that is.
    pub(super) fn left(&self) -> BTreeMap<usize, (Vec<u32>, u64)> {
        let mut left: BTreeMap<usize, (Vec<u32>, u64)> = BTreeMap::new();
        for (spot, entry) in &self.inputs {
            let Some(step) = spot.step else { continue };
            let (attempts, seq) = left.entry(step).or_insert((Vec::new(), entry.seq));
            if attempts.last() != Some(&spot.attempt) {
                attempts.push(spot.attempt);
            }
            *seq = entry.seq.min(*seq);
        }
        left
    }
}

/// What the recording says about every step, for those whose request cannot be worked out again. How far an effect can
/// be repeated is not recorded: what was claimed is taken to be of the given class.
pub(crate) fn assumptions(original: &Behavior, claimed: Idempotency) -> BTreeMap<String, Assumed> {
    let assume = move |step: &crate::behavior::StepBehavior| {
        let check = step.budget_checks.first();
        let failed = step.finished.as_ref().is_some_and(|finished| finished.status == StepStatus::Failure);
        let idempotency = if step.claimed { claimed } else { Idempotency::Natural };
        let first = step.effects.first().map(|effect| effect.attempt);
        let of_one_dispatch = step.effects.iter().filter(|effect| Some(effect.attempt) == first);
        Assumed {
            request_digest: step.request_digest.clone(),
            bound: check.map(|check| check.bound).unwrap_or_default(),
            required: check.map(|check| check.required),
            effects: of_one_dispatch
                .map(|effect| Effect { kind: effect.effect_type.clone(), target: effect.target.clone(), idempotency })
                .collect(),
            claimed: step.claimed,
            refused: (check.is_none() && failed).then_some(Cause::ReferenceUnresolved),
            charges: step.attempts.iter().map(|attempt| (attempt.cost_microcents, attempt.cost_basis)).collect(),
        }
    };
    original.steps.iter().map(|step| (step.step_id.clone(), assume(step))).collect()
}
