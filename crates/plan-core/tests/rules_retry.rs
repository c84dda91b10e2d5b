//! Retry decisions and waits: the two-condition rule, the published vectors, exact arithmetic, the same everywhere.

mod rules;

use std::cmp::Ordering;
use std::process::Command;

use macp_plan_core::plan::{RetryPolicy, Thousandths};
use macp_plan_core::retry::{backoff_ms, jitter_percent, should_retry, wait_ms};
use proptest::prelude::*;
use rules::policy;

/// AOS-40, AOS-41: every attempt, every limit, listed and not; a hundred times over.
#[test]
fn retry_truth_table() {
    for max_retries in 0..=10 {
        for attempt in 0..=11 {
            for (code, listed) in [("ERR_HTTP_503", true), ("ERR_HTTP_404", false), ("ERR_HTTP_50", false)] {
                let policy = RetryPolicy { max_retries, ..policy() };
                for _ in 0..100 {
                    assert_eq!(should_retry(&policy, attempt, code), attempt < max_retries && listed);
                }
            }
        }
    }
    // With three retries there are four attempts.
    let attempts = (0..).take_while(|attempt| *attempt == 0 || should_retry(&policy(), attempt - 1, "ERR_HTTP_503"));
    assert_eq!(attempts.count(), 4);
}

proptest! {
    /// AOS-94: what else a policy holds, and whoever runs, changes no decision and no wait beyond the seed's own part.
    #[test]
    fn retry_ignores_noise(
        seeds in (".*", ".*"),
        attempt in 0_u32..12,
        waits in (0_u64..600_000, 0_u64..600_000, any::<bool>()),
    ) {
        let (base, jitter_max_ms, jitter_enabled) = waits;
        let noisy = RetryPolicy { backoff_base_ms: base, jitter_max_ms, jitter_enabled, ..policy() };
        for code in ["ERR_HTTP_503", "ERR_HTTP_404"] {
            prop_assert_eq!(should_retry(&noisy, attempt, code), should_retry(&policy(), attempt, code));
        }
        let quiet = RetryPolicy { jitter_enabled: false, ..noisy };
        prop_assert_eq!(backoff_ms(&quiet, attempt, &seeds.0), backoff_ms(&quiet, attempt, &seeds.1));
    }

    /// AOS-45: the whole legal range against arithmetic without bounds.
    #[test]
    fn backoff_no_overflow(
        backoff_base_ms in 0_u64..=600_000,
        multiplier in 1000_u32..=10_000,
        jitter_max_ms in 0_u64..=600_000,
        max_delay_ms in 0_u64..=3_600_000,
        attempt in 0_u32..=10,
        jitter_enabled in any::<bool>(),
        seed in "[a-z0-9-]{0,40}",
    ) {
        let policy = RetryPolicy {
            backoff_base_ms,
            backoff_multiplier: Thousandths(multiplier),
            jitter_enabled,
            jitter_max_ms,
            max_delay_ms,
            ..policy()
        };
        let wait = backoff_ms(&policy, attempt, &seed);
        prop_assert!(is_floor(&policy, attempt, &seed, wait), "{wait} for {policy:?} after attempt {attempt}");
        prop_assert!(wait <= max_delay_ms + jitter_max_ms);
    }
}

/// A number of any size, in digits of 32 bits, least first.
#[derive(Clone, PartialEq, Eq)]
struct Big(Vec<u32>);

impl Big {
    fn new(number: u64) -> Self {
        Big(vec![(number & 0xffff_ffff) as u32, (number >> 32) as u32])
    }

    fn times(mut self, factor: u32) -> Self {
        let mut carry = 0_u64;
        for digit in &mut self.0 {
            let product = u64::from(*digit) * u64::from(factor) + carry;
            *digit = (product & 0xffff_ffff) as u32;
            carry = product >> 32;
        }
        self.0.push(carry as u32);
        self
    }

    fn times_power(self, factor: u32, exponent: u32) -> Self {
        (0..exponent).fold(self, |number, _| number.times(factor))
    }

    fn plus(mut self, mut other: Self) -> Self {
        let length = self.0.len().max(other.0.len()) + 1;
        self.0.resize(length, 0);
        other.0.resize(length, 0);
        let mut carry = 0_u64;
        for (digit, more) in self.0.iter_mut().zip(other.0) {
            let sum = u64::from(*digit) + u64::from(more) + carry;
            *digit = (sum & 0xffff_ffff) as u32;
            carry = sum >> 32;
        }
        self
    }

    fn compare(&self, other: &Self) -> Ordering {
        let significant = |number: &Self| number.0.iter().rposition(|digit| *digit != 0).map_or(0, |place| place + 1);
        let (ours, theirs) = (significant(self), significant(other));
        ours.cmp(&theirs).then_with(|| self.0[..ours].iter().rev().cmp(other.0[..theirs].iter().rev()))
    }
}

/// Whether `wait` is the largest whole number that is not above `min(B·m^a, C) + J·r/100`. Everything is compared after
/// multiplying by `100·1000^a`, so that nothing is ever divided.
fn is_floor(policy: &RetryPolicy, attempt: u32, seed: &str, wait: u64) -> bool {
    let scaled = |number: u64| Big::new(number).times_power(1000, attempt).times(100);
    let grown = Big::new(policy.backoff_base_ms).times_power(policy.backoff_multiplier.0, attempt).times(100);
    let cap = scaled(policy.max_delay_ms);
    let exponential = if grown.compare(&cap) == Ordering::Less { grown } else { cap };
    let percent = if policy.jitter_enabled { jitter_percent(seed, attempt) } else { 0 };
    let jitter = Big::new(policy.jitter_max_ms * u64::from(percent)).times_power(1000, attempt);
    let exact = exponential.plus(jitter);
    scaled(wait).compare(&exact) != Ordering::Greater && exact.compare(&scaled(wait + 1)) == Ordering::Less
}

/// AOS-44 to AOS-47: the published vectors.
#[test]
fn backoff_vectors() {
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let vectors = [
        (uuid, 0, 53, 100, 2000, 50, 126),
        (uuid, 1, 90, 100, 2000, 50, 245),
        (uuid, 2, 56, 100, 2000, 50, 428),
        ("run_abc123", 4, 84, 250, 1500, 333, 1545),
        ("run-\u{e9}-7", 9, 94, 1000, 2000, 1000, 60_940),
        ("run-18", 0, 29, 1, 2000, 100, 30),
    ];
    for (seed, attempt, percent, backoff_base_ms, multiplier, jitter_max_ms, expected) in vectors {
        let policy = RetryPolicy {
            backoff_base_ms,
            backoff_multiplier: Thousandths(multiplier),
            jitter_enabled: true,
            jitter_max_ms,
            ..policy()
        };
        for _ in 0..100 {
            assert_eq!(jitter_percent(seed, attempt), percent, "{seed}:{attempt}");
            assert_eq!(backoff_ms(&policy, attempt, seed), expected, "{seed}:{attempt}");
        }
    }
    // The waits of the published outcome: run r-2031.
    let published = RetryPolicy { jitter_enabled: true, jitter_max_ms: 50, ..policy() };
    assert_eq!([0, 1, 2].map(|attempt| backoff_ms(&published, attempt, "r-2031")), [137, 229, 445]);
}

/// Caps, a base of nothing, and multipliers at the ends of their range.
#[test]
fn backoff_at_the_edges() {
    let wait = |base, multiplier, cap, attempt| {
        let policy = RetryPolicy {
            backoff_base_ms: base,
            backoff_multiplier: Thousandths(multiplier),
            max_delay_ms: cap,
            ..policy()
        };
        backoff_ms(&policy, attempt, "seed")
    };
    assert_eq!(wait(0, 10_000, 3_600_000, 9), 0);
    assert_eq!(wait(100, 1000, 60_000, 9), 100);
    assert_eq!(wait(100, 1500, 60_000, 9), 3844); // 100 · 1.5^9 = 3844.3359375
    assert_eq!(wait(100, 1001, 60_000, 9), 100); // 100.9036...
    assert_eq!(wait(1, 10_000, 3_600_000, 6), 1_000_000);
    assert_eq!(wait(1, 10_000, 3_600_000, 7), 3_600_000);
    assert_eq!(wait(600_000, 10_000, 3_600_000, 9), 3_600_000);
    assert_eq!(wait(600_000, 2000, 1000, 0), 1000);
    assert_eq!(wait(100, 2000, 0, 3), 0);
    // The cap is for the exponential part; jitter comes on top of it.
    let seed = "550e8400-e29b-41d4-a716-446655440000";
    let jittery = RetryPolicy { max_delay_ms: 10, jitter_enabled: true, jitter_max_ms: 600_000, ..policy() };
    assert_eq!(backoff_ms(&jittery, 1, seed), 10 + 540_000);
    // A policy beyond its limits, as none can be parsed, still gives a number.
    let wild = RetryPolicy {
        backoff_base_ms: u64::MAX,
        backoff_multiplier: Thousandths(u32::MAX),
        max_delay_ms: u64::MAX,
        jitter_max_ms: u64::MAX,
        jitter_enabled: true,
        ..policy()
    };
    assert_eq!(backoff_ms(&wild, u32::MAX, "seed"), u64::MAX);
}

/// AOS-48: a hint lengthens the wait up to the cap and never shortens it.
#[test]
fn retry_after_lengthens_within_the_cap() {
    let policy = policy();
    assert_eq!(wait_ms(&policy, 500, None), 500);
    assert_eq!(wait_ms(&policy, 500, Some(100)), 500);
    assert_eq!(wait_ms(&policy, 500, Some(2000)), 2000);
    assert_eq!(wait_ms(&policy, 500, Some(u64::MAX)), 60_000);
    assert_eq!(wait_ms(&policy, 60_040, Some(u64::MAX)), 60_040);
}

const CHILD: &str = "MACP_PLAN_CORE_JITTER_CHILD";

/// AOS-46: three processes, one answer. The test runs itself again with a variable set, and then only prints.
#[test]
fn jitter_stable_across_processes() {
    let seeds = ["r-2031", "run-\u{e9}-7", ""];
    let percents: Vec<String> = seeds
        .iter()
        .flat_map(|seed| (0..10).map(move |attempt| format!("{seed}:{attempt}={}", jitter_percent(seed, attempt))))
        .collect();
    let line = format!("percents {}", percents.join(" "));
    if std::env::var_os(CHILD).is_some() {
        println!("{line}");
        return;
    }
    let program = std::env::current_exe().expect("the test's own program");
    for _ in 0..3 {
        let output = Command::new(&program)
            .args(["--exact", "jitter_stable_across_processes", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("the test runs itself");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.contains(&line), "{text}");
    }
}
