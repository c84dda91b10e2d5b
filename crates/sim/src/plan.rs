//! What a seed makes of a run: sizes, rates and limits, drawn anew for each.
//!
//! A fault that is always possible hides what happens without it, so every kind is left out of some runs altogether.

use macp_engine::Keep;
use macp_kernel::Limits;

use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) shards: usize,
    pub(crate) clients: usize,
    pub(crate) resident_max: usize,
    pub(crate) resident_bytes_max: u64,
    pub(crate) idle_ms_max: i64,
    pub(crate) limits: Limits,
    /// Sessions clients talk to at a time.
    pub(crate) sessions_at_once: usize,
    pub(crate) ttl_ms_max: i64,
    /// Of a thousand sessions, how many are started under the standard profile.
    pub(crate) standard: u64,
    /// Most milliseconds between two steps.
    pub(crate) pace_ms_max: u64,
    /// Steps a client waits for an answer before it asks again.
    pub(crate) patience_steps: u64,
    pub(crate) events_per_turn_max: u64,
    pub(crate) batches_per_commit_max: u64,
    /// Whether anybody subscribes; without, a mistake must show in the answers.
    pub(crate) subscribed: bool,
    pub(crate) traced: bool,
    pub(crate) rates: Rates,
    pub(crate) weights: Weights,
}

/// How often faults strike, in a thousand of their occasions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    /// One append of a commit is refused.
    pub(crate) append_fails: u64,
    /// A whole commit is refused.
    pub(crate) commit_fails: u64,
    /// The sync fails, so that a crash may still bring the commit back.
    pub(crate) sync_fails: u64,
    pub(crate) read_fails: u64,
}

/// How often the scheduler chooses each kind of step, relative to the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) client: u64,
    pub(crate) turn: u64,
    pub(crate) write: u64,
    pub(crate) load: u64,
    pub(crate) sweep: u64,
    pub(crate) tick: u64,
    pub(crate) jump: u64,
    pub(crate) step_back: u64,
    pub(crate) crash: u64,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let limits = Limits {
            payload_bytes_max: 2048,
            skew_ms_max: 5_000,
            session_entries_max: *random.pick(&[8, 40, 100_000]),
            session_bytes_max: *random.pick(&[1_500, 1 << 20]),
            ..Limits::default()
        };
        Plan {
            shards: 1 + random.index(4),
            clients: 2 + random.index(9),
            resident_max: *random.pick(&[1, 2, 4, 100]),
            idle_ms_max: *random.pick(&[0, 200, 5_000, 300_000]),
            limits,
            sessions_at_once: 1 + random.index(6),
            ttl_ms_max: *random.pick(&[1_000, 10_000, 60_000]),
            standard: *random.pick(&[0, 500, 1_000]),
            pace_ms_max: *random.pick(&[1, 5, 30]),
            patience_steps: *random.pick(&[15, 60, 400]),
            events_per_turn_max: *random.pick(&[1, 4, 16]),
            batches_per_commit_max: *random.pick(&[1, 3, 16]),
            subscribed: random.chance(700),
            traced: random.chance(700),
            rates: Rates::draw(random),
            weights: Weights::draw(random),
            resident_bytes_max: *random.pick(&[5_000, 20_000, u64::MAX]),
        }
    }

    /// What a shard keeps in memory.
    pub(crate) fn keep(&self) -> Keep {
        Keep { sessions_max: self.resident_max, bytes_max: self.resident_bytes_max, idle_ms_max: self.idle_ms_max }
    }
}

impl Rates {
    fn draw(random: &mut Random) -> Self {
        let mut rate = |rates: &[u64]| if random.chance(400) { 0 } else { *random.pick(rates) };
        Rates {
            append_fails: rate(&[5, 40, 200]),
            commit_fails: rate(&[5, 40, 200]),
            sync_fails: rate(&[5, 40, 200]),
            read_fails: rate(&[5, 40, 200]),
        }
    }
}

impl Weights {
    fn draw(random: &mut Random) -> Self {
        Weights {
            client: *random.pick(&[200, 300, 500]),
            turn: *random.pick(&[150, 300, 500]),
            // A slow disk makes appends pile up on one another, a fast one keeps them apart.
            write: *random.pick(&[60, 150, 400]),
            load: *random.pick(&[40, 100, 300]),
            sweep: *random.pick(&[5, 20]),
            tick: *random.pick(&[1, 10]),
            jump: *random.pick(&[0, 1, 3]),
            step_back: *random.pick(&[0, 0, 10]),
            crash: *random.pick(&[0, 1, 3]),
        }
    }
}
