//! The rules a run is decided by, one method each, so that a test or a what-if can exchange a single one.

use std::fmt::Debug;

use serde_json::{Map, Value};

use crate::budget::{self, Breach};
use crate::cause::Cause;
use crate::cost::{MICROCENTS_MAX, Price, Usage};
use crate::effect::Effect;
use crate::plan::{Plan, RetryPolicy};
use crate::retry;
use crate::skill::PureSkill;
use crate::taxonomy::Taxonomy;

/// What a cost beyond everything is accounted as: the smallest amount that no budget covers.
pub const OVER_EVERY_BUDGET: u64 = MICROCENTS_MAX + 1;

/// The rules. Every method has the pinned rule as its body; production uses [`Pinned`], which changes none.
pub trait Rules: Debug + Send + Sync {
    /// The code of a cause.
    fn code(&self, taxonomy: &Taxonomy, cause: &Cause, skill: &dyn PureSkill) -> &'static str {
        taxonomy.resolve(cause, skill)
    }

    /// Whether a code is of the kind that can go away by itself.
    fn retryable(&self, taxonomy: &Taxonomy, code: &str) -> bool {
        taxonomy.retryable(code)
    }

    /// Whether another attempt follows.
    fn retry(&self, policy: &RetryPolicy, attempt: u32, code: &str) -> bool {
        retry::should_retry(policy, attempt, code)
    }

    /// The wait after an attempt that failed.
    fn backoff_ms(&self, policy: &RetryPolicy, attempt: u32, jitter_seed: &str) -> u64 {
        retry::backoff_ms(policy, attempt, jitter_seed)
    }

    /// What a usage costs; an amount beyond everything is accounted as [`OVER_EVERY_BUDGET`].
    fn cost(&self, price: &Price, usage: &Usage) -> u64 {
        price.cost(usage).unwrap_or(OVER_EVERY_BUDGET)
    }

    /// The limit a requirement breaks, if it breaks one.
    fn breach(&self, required: u64, remaining: i64, ceiling: Option<u64>) -> Option<Breach> {
        budget::check(required, remaining, ceiling)
    }

    /// The effects of one dispatch, in order.
    fn effects(&self, skill: &dyn PureSkill, parameters: &Map<String, Value>) -> Vec<Effect> {
        skill.effects(parameters)
    }

    /// Which step comes after so many have finished, by its place in the plan.
    fn next_step(&self, plan: &Plan, finished: usize) -> Option<usize> {
        (finished < plan.steps.len()).then_some(finished)
    }
}

/// The rules as they are pinned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pinned;

impl Rules for Pinned {}
