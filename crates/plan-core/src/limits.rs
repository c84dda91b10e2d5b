//! The limits of a plan, each in one place.

/// A plan's text, in bytes.
pub const PLAN_BYTES_MAX: usize = 512 * 1024;
/// How deep parameters may nest.
pub const NESTING_MAX: usize = 100;
pub const STEPS_MAX: usize = 256;
/// Characters of a step id or output key.
pub const STEP_ID_MAX: usize = 64;
/// Characters of every other id.
pub const ID_MAX: usize = 128;
/// Bytes of a reference, name and path together.
pub const REFERENCE_BYTES_MAX: usize = 1024;
/// Findings one check lists; a plan with more is told so once, because nobody reads on and every one takes memory.
pub const FINDINGS_MAX: usize = 200;
/// Names of earlier steps one finding offers, the nearest.
pub const OFFERED_NAMES_MAX: usize = 32;
/// How long after a call's own timeout the executor ends it, so that a skill which keeps its time reports first (AOS-72).
pub const GUARD_MS: u64 = 1_000;
pub const TIMEOUT_MS_MAX: u64 = 3_600_000;
pub const BUDGET_CENTS_MAX: u64 = 9_000_000_000;
pub const RETRIES_MAX: u32 = 10;
pub const BACKOFF_BASE_MS_MAX: u64 = 600_000;
pub const JITTER_MS_MAX: u64 = 600_000;
pub const DELAY_MS_MAX: u64 = 3_600_000;
/// A rate card's text where it is embedded in a plan, in bytes.
pub const EMBEDDED_CARD_BYTES_MAX: usize = 64 * 1024;
/// What references may put into the parameters of one step, in bytes: a small template must not become a huge request.
pub const RESOLVED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What a run holds at once of outputs that later steps refer to, about in bytes of memory: the largest answer that a
/// skill reads fits, whatever it is made of, and some more beside it. Without it a plan of 256 steps could hold gigabytes.
pub const HELD_BYTES_MAX: usize = 120 * 1024 * 1024;
/// What references may put into the parameters of one step, about in bytes of memory: everything that is held, once. Of
/// small objects a short text makes much more than that.
pub const RESOLVED_MEMORY_MAX: usize = HELD_BYTES_MAX;
/// Codes a retry policy or a condition may list; more than any taxonomy has would only be noise.
pub const CODES_MAX: usize = 256;
