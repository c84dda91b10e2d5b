//! Whether to try again and how long to wait: the two-condition rule and exact integer backoff.

use sha2::{Digest as _, Sha256};

use crate::plan::RetryPolicy;

/// Whether another attempt follows attempt number `attempt` (from 0) that ended with an error code.
///
/// Exactly two things decide: retries are left, and the policy lists the code.
#[must_use]
pub fn should_retry(policy: &RetryPolicy, attempt: u32, code: &str) -> bool {
    attempt < policy.max_retries && policy.retryable_codes.iter().any(|listed| listed == code)
}

/// The wait after attempt number `attempt` failed, in milliseconds: `floor(min(base · multiplier^attempt, cap) + jitter)`.
///
/// The power is kept as an exact fraction `numerator / denominator` and rounded once, at the end. It stops growing at
/// the cap, so that with a policy inside its limits nothing comes near 2^128; for a policy outside of them the value
/// goes to the cap.
#[must_use]
pub fn backoff_ms(policy: &RetryPolicy, attempt: u32, jitter_seed: &str) -> u64 {
    let cap = u128::from(policy.max_delay_ms);
    let multiplier = u128::from(policy.backoff_multiplier.0);
    let mut numerator = u128::from(policy.backoff_base_ms).min(cap);
    let mut denominator = 1_u128;
    for _ in 0..attempt {
        let grown = numerator.checked_mul(multiplier).zip(denominator.checked_mul(1000));
        let capped = grown.and_then(|(_, denominator)| cap.checked_mul(denominator));
        match (grown, capped) {
            (Some((above, below)), Some(capped)) if above < capped => (numerator, denominator) = (above, below),
            _ => {
                (numerator, denominator) = (cap, 1);
                break;
            }
        }
        if multiplier == 1000 {
            break;
        }
    }
    let percent = if policy.jitter_enabled { u128::from(jitter_percent(jitter_seed, attempt)) } else { 0 };
    let jitter = u128::from(policy.jitter_max_ms) * percent;
    // Scaled by the denominator, whole part and rest apart so that the sum cannot overflow either.
    let whole = numerator / denominator;
    let rest = numerator % denominator;
    let hundredths = 100 * whole + jitter;
    let carried = (100 * rest) / denominator;
    u64::try_from((hundredths + carried) / 100).unwrap_or(u64::MAX)
}

/// The share of the largest jitter, in percent from 0 to 99: a digest of seed and attempt, the same in every process.
#[must_use]
pub fn jitter_percent(jitter_seed: &str, attempt: u32) -> u32 {
    let digest = Sha256::digest(format!("{jitter_seed}:{attempt}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u32::try_from(u64::from_be_bytes(first) % 100).expect("a remainder of 100 is small")
}

/// How long to wait in fact: the target's own hint may lengthen the wait up to the cap, never shorten it.
#[must_use]
pub fn wait_ms(policy: &RetryPolicy, backoff_ms: u64, retry_after_ms: Option<u64>) -> u64 {
    backoff_ms.max(retry_after_ms.map_or(0, |hint| hint.min(policy.max_delay_ms)))
}
