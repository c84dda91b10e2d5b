//! Outputs that a machine names and does not hold: they are read back when a request is prepared from them.
//!
//! A machine that runs nothing but decisions holds every output that is still to be read. One that drives a run is made
//! [`Machine::lean`]: it holds what is small, and what it does not hold is handed to [`Machine::supply`] where the
//! question [`super::Question::Outputs`] asks for it. Both decide the same, since both weigh outputs by the same rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_wire::memory;
use serde_json::Value;

use super::state::{Current, Held, Phase};
use super::{Machine, OutOfPlace};
use crate::digest::Digest;
use crate::journal::Body;
use crate::limits::{RESOLVED_BYTES_MAX, RESOLVED_MEMORY_MAX};
use crate::reference::{self, Counted};

/// What a lean machine holds of small outputs, and of the parameters of the step under way, each in bytes of memory.
/// Small enough for a thousand runs, and most plans never need more.
const HELD_SMALL_MAX: usize = 64 * 1024;
/// A request that takes no more is prepared without a question: it is less than what a run takes anyway.
const PREPARED_SMALL_MAX: usize = 256 * 1024;
/// How much longer a value's text can be than what it weighs: a control character is written as six.
const TEXT_FACTOR: usize = 6;

/// The size of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// What the value takes in memory, by the weights of [`memory`].
    pub memory: usize,
    /// The length of its canonical text.
    pub text: usize,
}

/// What a lean machine needs for its next decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The outputs that the step refers to and the machine does not hold.
    pub outputs: Vec<Digest>,
    /// What reading them and preparing the request takes at most, in bytes of memory.
    pub bytes: usize,
}

/// Where outputs are read from.
pub trait Outputs {
    /// Returns an output, or None if it no longer exists.
    fn value(&self, digest: &Digest) -> Option<Value>;

    /// Returns the size of an output, or None if it no longer exists.
    fn size(&self, digest: &Digest) -> Option<Size>;
}

/// An output that an entry names by digest alone, as far as it is at hand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given<'v> {
    Nothing,
    Value(&'v Value),
    Size(Size),
}

/// What is known of a step's template before it is resolved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Template {
    memory: usize,
    references: Counted,
}

impl Template {
    pub(super) fn of(parameters: &serde_json::Map<String, Value>) -> Self {
        let memory = parameters.iter().map(|(name, value)| memory::of_text(name) + memory::of(value)).sum();
        Self { memory, references: reference::counted(parameters) }
    }

    /// What the parameters take at most, if no output they refer to takes more than `largest`.
    fn resolved(&self, largest: usize) -> usize {
        let Counted { whole, embedded } = self.references;
        let inserted = whole
            .saturating_mul(largest)
            .saturating_add(embedded.saturating_mul(largest).saturating_mul(TEXT_FACTOR))
            .min(RESOLVED_MEMORY_MAX + TEXT_FACTOR * RESOLVED_BYTES_MAX);
        self.memory.saturating_add(inserted)
    }
}

impl Machine {
    /// Holds only small outputs and small parameters; the rest is handed in where it is needed.
    #[must_use]
    pub fn lean(mut self) -> Self {
        self.lean = true;
        self
    }

    /// Applies an entry; `size` is that of an output that the entry names by digest alone.
    pub fn apply_sized(&mut self, body: &Body, size: Option<Size>) -> Result<(), OutOfPlace> {
        self.apply_given(body, size.map_or(Given::Nothing, Given::Size))
    }

    /// Returns what has to be supplied before the next decision, if anything.
    #[must_use]
    pub fn demand(&self) -> Option<Demand> {
        match (&self.state.phase, self.state.unprepared, &self.state.current) {
            (Phase::StepStart, Some(index), _) => Some(self.demand_of(index)),
            (Phase::Dispatch, _, Some(current)) if current.prepared.is_set_down => {
                Some(self.demand_of(current.prepared.index))
            }
            _ => None,
        }
    }

    /// What the request of the step under way takes at most, until its call is over: its parameters, and most of them once
    /// more where they are written as text. What was set down has to be read back first.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        let Some(current) = &self.state.current else { return 0 };
        let prepared = &current.prepared;
        if prepared.is_set_down { self.demand_of(prepared.index).bytes } else { prepared.memory.saturating_mul(2) }
    }

    /// Prepares the step that is due from the outputs that were demanded.
    pub fn supply(&mut self, outputs: &BTreeMap<Digest, Value>) -> Result<(), OutOfPlace> {
        if let Some(index) = self.state.unprepared {
            self.check_supplied(index, outputs)?;
            let prepared = self.prepare(index, outputs);
            self.state.current = Some(Current::new(prepared));
            self.state.unprepared = None;
            return Ok(());
        }
        let Some(current) = self.state.current.as_ref().filter(|current| current.prepared.is_set_down) else {
            return Ok(());
        };
        let index = current.prepared.index;
        self.check_supplied(index, outputs)?;
        // The same template and the same outputs: this was resolved before, and is again.
        let resolved = self.resolve(&self.plan.plan.steps[index], &std::cell::Cell::new(false), outputs);
        let parameters = resolved.map_err(|unresolved| OutOfPlace::Changed {
            step_id: self.plan.plan.steps[index].step_id.clone(),
            why: unresolved.to_string(),
        })?;
        if let Some(current) = &mut self.state.current {
            current.prepared.hold(parameters);
        }
        Ok(())
    }

    /// Drops the parameters of the step under way, unless they are small. They are demanded again before its call.
    pub fn set_down(&mut self) {
        if self.lean
            && let Some(current) = &mut self.state.current
        {
            current.prepared.set_down(HELD_SMALL_MAX);
        }
    }

    /// Makes the step the next one; it is prepared at once if that takes little or the machine is not lean.
    pub(super) fn make_current(&mut self, index: usize) {
        let demand = if self.lean { self.demand_of(index) } else { Demand::default() };
        if demand.outputs.is_empty() && demand.bytes <= PREPARED_SMALL_MAX {
            self.state.current = Some(Current::new(self.prepare(index, &BTreeMap::new())));
            self.state.unprepared = None;
        } else {
            self.state.current = None;
            self.state.unprepared = Some(index);
        }
    }

    fn demand_of(&self, index: usize) -> Demand {
        let step = &self.plan.plan.steps[index];
        // Such a step ends without a request.
        if !self.is_due(step) {
            return Demand::default();
        }
        let (mut demand, mut largest) = (Demand::default(), 0);
        for name in &self.reads[index] {
            match self.state.outputs.get(name) {
                Some(Held::Stored { digest, size }) => {
                    largest = largest.max(size.memory);
                    if !demand.outputs.contains(digest) {
                        demand.outputs.push(digest.clone());
                        // An eighth more: weights leave out what allocators round up.
                        demand.bytes += size.memory + size.memory / 8 + size.text;
                    }
                }
                Some(Held::Known { memory, .. }) => largest = largest.max(*memory),
                Some(Held::Unknown | Held::TooMuch) | None => {}
            }
        }
        // The parameters, a copy that their schema is checked with, and their text.
        let resolved = self.templates[index].resolved(largest);
        demand.bytes = demand.bytes.saturating_add(resolved.saturating_mul(3));
        demand
    }

    fn check_supplied(&self, index: usize, outputs: &BTreeMap<Digest, Value>) -> Result<(), OutOfPlace> {
        let demand = self.demand_of(index);
        match demand.outputs.into_iter().find(|digest| !outputs.contains_key(digest)) {
            None => Ok(()),
            Some(digest) => {
                let step_id = self.plan.plan.steps[index].step_id.clone();
                Err(OutOfPlace::OutputMissing { step_id, digest })
            }
        }
    }

    /// An output as a lean machine holds it: by digest, unless it is small.
    pub(super) fn lean_hold(value: &Value, digest: Option<&Digest>) -> Held {
        let memory = memory::of(value);
        match digest {
            Some(digest) if memory > HELD_SMALL_MAX => {
                Held::Stored { digest: digest.clone(), size: Size { memory, text: 0 } }
            }
            _ => Held::Known { value: value.clone(), memory, digest: digest.cloned() },
        }
    }

    /// What a machine holds of small outputs at most; None for one that holds everything.
    pub(super) fn small_max(&self) -> Option<usize> {
        self.lean.then_some(HELD_SMALL_MAX)
    }
}

impl super::prepare::Prepared {
    pub(super) fn hold(&mut self, parameters: serde_json::Map<String, Value>) {
        self.memory = parameters.iter().map(|(name, value)| memory::of_text(name) + memory::of(value)).sum();
        self.parameters = Arc::new(parameters);
        self.is_set_down = false;
    }

    fn set_down(&mut self, most: usize) {
        if self.memory > most {
            self.parameters = Arc::default();
            self.is_set_down = true;
        }
    }
}
