//! A small seeded generator, so that the suite needs no dependency and a failure can be repeated.

use std::hash::{BuildHasher, RandomState};

/// The seed in `MACP_SEED`, or a new one.
///
/// # Panics
///
/// If `MACP_SEED` is set and is no number.
#[must_use]
pub fn seed() -> u64 {
    match std::env::var("MACP_SEED") {
        Ok(text) => text.parse().expect("MACP_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0),
    }
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
