//! What an attempt costs: integers only, in microcents, from what was used and the pinned prices.

use macp_wire::canonical::INTEGER_MAX;
use serde::{Deserialize, Serialize};

use crate::plan::MICROCENTS_PER_CENT;

/// The largest amount that is ever accounted: the largest budget, and still exact in JSON.
pub const MICROCENTS_MAX: u64 = 9_000_000_000_000_000;

/// What an attempt used, or at most can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    pub requests: u64,
    pub bytes: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

impl Usage {
    /// The same with no number larger than every reader of the journal reads exactly.
    #[must_use]
    pub fn exact(self) -> Self {
        let Self { requests, bytes, input_tokens, output_tokens } = self;
        let [requests, bytes, input_tokens, output_tokens] =
            [requests, bytes, input_tokens, output_tokens].map(|count| count.min(INTEGER_MAX));
        Self { requests, bytes, input_tokens, output_tokens }
    }
}

/// Where the cost of an attempt came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostBasis {
    Metered,
    Flat,
    Reserved,
    None,
}

/// The prices that apply to one dispatch, in microcents. Token prices are cents per million tokens, which is the same
/// number in microcents per token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    pub base: u64,
    pub per_request: u64,
    pub per_kib: u64,
    pub input: u64,
    pub output: u64,
}

/// A cost beyond [`MICROCENTS_MAX`]. What was metered is then accounted as that maximum, which is over every budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cost is beyond {MICROCENTS_MAX} microcents")]
pub struct CostOverflow;

impl Price {
    /// The cost of what was used: one sum of products, nothing rounded but started kibibytes.
    pub fn cost(&self, usage: &Usage) -> Result<u64, CostOverflow> {
        let product = |amount: u64, price: u64| u128::from(amount) * u128::from(price);
        let parts = [
            product(usage.requests, self.per_request),
            product(usage.bytes.div_ceil(1024), self.per_kib),
            product(usage.input_tokens, self.input),
            product(usage.output_tokens, self.output),
        ];
        let sum = parts.iter().fold(u128::from(self.base), |sum, part| sum.saturating_add(*part));
        u64::try_from(sum).ok().filter(|cost| *cost <= MICROCENTS_MAX).ok_or(CostOverflow)
    }

    /// Whether nothing that is used costs anything.
    #[must_use]
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the cost does not depend on what is used.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        Self { base: 0, ..*self } == Self::default()
    }
}

/// Microcents as whole cents, rounded up. For display and totals of a step or a run, never inside sums.
#[must_use]
pub fn cents(microcents: u64) -> u64 {
    microcents.div_ceil(MICROCENTS_PER_CENT)
}

/// Whole cents in the unit of account.
#[must_use]
pub fn microcents(cents: u64) -> u64 {
    cents.saturating_mul(MICROCENTS_PER_CENT)
}

/// The pinned estimate of how many tokens texts are together: a quarter of their bytes, rounded up.
#[must_use]
pub fn estimated_tokens<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let bytes: usize = texts.into_iter().map(str::len).sum();
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(4)
}
