//! The comparison of two runs: aspect by aspect, every difference with both values, whose doing it is, and the rule.

mod aspect;
mod behaviors;
mod decisions;
mod inputs;
mod report;

pub use aspect::Aspect;
pub use behaviors::{Comparison, behaviors};
pub use inputs::{InputChanged, inputs_changed};
pub use report::{
    BehaviorDigests, Evaluated, FirstDivergence, Mismatch, Origin, PinViolation, Report, Skipped, Substitution, Verdict,
};
