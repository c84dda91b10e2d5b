//! How much one sender may ask for: a sliding minute, with a bucket for SessionStarts and one for everything else.
//!
//! Time comes in as an argument. Memory is bounded: a sender costs a fixed number of counters, and once too many are
//! tracked the further ones share so many buckets and no more, so that inventing names gains little and a busy sender
//! holds up few others. Names longer than any sender's may be share one.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use macp_kernel::ID_BYTES_MAX;
use smol_str::SmolStr;

/// Counters per window: one a second. A request counts for 60 s and at most one second more.
const SLOTS: usize = 60;

/// Senders with buckets of their own: some 5 MB of counters, and at most half as much for the names.
const SENDERS_MAX: usize = 10_000;

/// Buckets that the other senders share, some 0.5 MB.
const SHARED: usize = 1_024;

/// What is being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Start,
    Message,
}

/// The share is used up; there is room again after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) retry_after: Duration,
}

/// The limits of a server; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerMinute {
    pub(crate) starts: u32,
    pub(crate) messages: u32,
}

#[derive(Debug)]
pub(crate) struct Limiter {
    per_minute: PerMinute,
    senders_max: usize,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    senders: HashMap<SmolStr, Sender>,
    /// Shared by those for whom there was no room; made when first needed.
    others: Vec<Sender>,
    /// Shared by names that are too long.
    too_long: Sender,
    /// Second of the last look for senders to forget.
    swept: u64,
}

#[derive(Debug, Default)]
struct Sender {
    starts: Window,
    messages: Window,
}

/// Requests of the last minute, by second.
#[derive(Debug)]
struct Window {
    counts: [u32; SLOTS],
    /// Second of the newest slot.
    second: u64,
    total: u32,
}

impl Limiter {
    /// None when nothing is limited.
    pub(crate) fn new(per_minute: PerMinute) -> Option<Self> {
        Self::with_senders_max(per_minute, SENDERS_MAX)
    }

    fn with_senders_max(per_minute: PerMinute, senders_max: usize) -> Option<Self> {
        let limits = per_minute.starts > 0 || per_minute.messages > 0;
        limits.then(|| Limiter { per_minute, senders_max, buckets: Mutex::default() })
    }

    /// Takes one request out of a sender's share. A refused one does not count against it.
    pub(crate) fn take(&self, sender: &str, kind: Kind, now: Duration) -> Result<(), Exhausted> {
        let limit = match kind {
            Kind::Start => self.per_minute.starts,
            Kind::Message => self.per_minute.messages,
        };
        if limit == 0 {
            return Ok(());
        }
        // The counters are whole between any two of their changes, so a poisoned lock guards nothing broken.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = buckets.of(sender, self.senders_max, now);
        let window = match kind {
            Kind::Start => &mut sender.starts,
            Kind::Message => &mut sender.messages,
        };
        window.take(limit, now)
    }
}

impl Buckets {
    fn of(&mut self, sender: &str, senders_max: usize, now: Duration) -> &mut Sender {
        if sender.len() > ID_BYTES_MAX {
            return &mut self.too_long;
        }
        if !self.senders.contains_key(sender) {
            if self.senders.len() >= senders_max && self.swept != now.as_secs() {
                self.swept = now.as_secs();
                self.senders.retain(|_, sender| !sender.is_idle(now));
            }
            if self.senders.len() >= senders_max {
                return self.shared(sender);
            }
        }
        self.senders.entry(SmolStr::new(sender)).or_default()
    }

    /// Nobody outside knows who shares with whom: the key of the hash is made up at every start.
    fn shared(&mut self, sender: &str) -> &mut Sender {
        let place = self.senders.hasher().hash_one(sender) % SHARED as u64;
        self.others.resize_with(SHARED, Sender::default);
        &mut self.others[usize::try_from(place).expect("smaller than the number of buckets")]
    }
}

impl Sender {
    fn is_idle(&mut self, now: Duration) -> bool {
        self.starts.advance(now);
        self.messages.advance(now);
        self.starts.total == 0 && self.messages.total == 0
    }
}

impl Default for Window {
    fn default() -> Self {
        Window { counts: [0; SLOTS], second: 0, total: 0 }
    }
}

impl Window {
    fn take(&mut self, limit: u32, now: Duration) -> Result<(), Exhausted> {
        self.advance(now);
        if self.total >= limit {
            return Err(Exhausted { retry_after: self.retry_after(now) });
        }
        self.counts[slot(self.second)] += 1;
        self.total += 1;
        Ok(())
    }

    /// Empties the slots whose second is a minute past.
    fn advance(&mut self, now: Duration) {
        let passed = now.as_secs().saturating_sub(self.second);
        for second in (self.second + 1..).take(usize::try_from(passed).unwrap_or(SLOTS).min(SLOTS)) {
            self.total -= std::mem::take(&mut self.counts[slot(second)]);
        }
        self.second += passed;
    }

    /// Until the oldest slot with something in it is emptied: the ring's next slots are its oldest.
    fn retry_after(&self, now: Duration) -> Duration {
        let ahead = (1..=SLOTS as u64).find(|ahead| self.counts[slot(self.second + ahead)] > 0).unwrap_or(1);
        Duration::from_secs(self.second + ahead).saturating_sub(now)
    }
}

fn slot(second: u64) -> usize {
    usize::try_from(second % SLOTS as u64).expect("smaller than the number of slots")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONLY_STARTS: PerMinute = PerMinute { starts: 2, messages: 0 };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn no_limit_is_no_limiter() {
        assert!(Limiter::new(PerMinute { starts: 0, messages: 0 }).is_none());
    }

    #[test]
    fn the_window_slides() {
        let limiter = Limiter::new(ONLY_STARTS).expect("limited");
        assert_eq!(limiter.take("alice", Kind::Start, at(500)), Ok(()));
        assert_eq!(limiter.take("alice", Kind::Start, at(30_000)), Ok(()));
        let exhausted = limiter.take("alice", Kind::Start, at(59_000));
        assert_eq!(exhausted, Err(Exhausted { retry_after: Duration::from_secs(1) }));
        assert_eq!(limiter.take("alice", Kind::Start, at(60_000)), Ok(()), "the first one left the window");
        let exhausted = limiter.take("alice", Kind::Start, at(60_250));
        assert_eq!(exhausted, Err(Exhausted { retry_after: Duration::from_millis(29_750) }));
        assert_eq!(limiter.take("alice", Kind::Start, at(90_000)), Ok(()));
        assert_eq!(limiter.take("alice", Kind::Start, at(1_000_000)), Ok(()));
    }

    #[test]
    fn kinds_and_senders_do_not_touch_each_other() {
        let limiter = Limiter::new(PerMinute { starts: 1, messages: 1 }).expect("limited");
        assert_eq!(limiter.take("alice", Kind::Start, at(0)), Ok(()));
        assert_eq!(limiter.take("alice", Kind::Message, at(0)), Ok(()));
        assert_eq!(limiter.take("bob", Kind::Start, at(0)), Ok(()));
        assert!(limiter.take("alice", Kind::Start, at(1)).is_err());
        assert!(limiter.take("alice", Kind::Message, at(1)).is_err());
        let unlimited = Limiter::new(ONLY_STARTS).expect("limited");
        assert!((0..1000).all(|_| unlimited.take("alice", Kind::Message, at(0)).is_ok()));
    }

    #[test]
    fn a_flood_of_names_shares_so_many_buckets_and_idle_names_are_forgotten() {
        let limiter = Limiter::with_senders_max(ONLY_STARTS, 3).expect("limited");
        for name in ["a", "b", "c", "d"] {
            assert_eq!(limiter.take(name, Kind::Start, at(0)), Ok(()));
        }
        let taken = (0..20_000).filter(|n| limiter.take(&n.to_string(), Kind::Start, at(0)).is_ok()).count();
        // Of 20,000 names at least one falls into nearly every bucket.
        assert!((SHARED..2 * SHARED).contains(&taken), "{taken} of them took what the rest share");
        assert_eq!(limiter.take("a", Kind::Start, at(0)), Ok(()), "who is tracked is not affected");
        assert_eq!(limiter.take("g", Kind::Start, at(60_000)), Ok(()));
        let buckets = limiter.buckets.lock().expect("not poisoned");
        assert_eq!(buckets.senders.keys().collect::<Vec<_>>(), ["g"]);
    }

    #[test]
    fn names_too_long_for_a_sender_are_not_kept() {
        let limiter = Limiter::new(ONLY_STARTS).expect("limited");
        for (index, expected) in [(0, true), (1, true), (2, false)] {
            let name = format!("{index}{}", "x".repeat(ID_BYTES_MAX));
            assert_eq!(limiter.take(&name, Kind::Start, at(0)).is_ok(), expected, "they share a bucket");
        }
        assert!(limiter.buckets.lock().expect("not poisoned").senders.is_empty());
    }

    #[test]
    fn a_clock_that_stands_still_or_steps_back_counts_on() {
        let limiter = Limiter::new(ONLY_STARTS).expect("limited");
        assert_eq!(limiter.take("alice", Kind::Start, at(10_000)), Ok(()));
        assert_eq!(limiter.take("alice", Kind::Start, at(5_000)), Ok(()));
        assert!(limiter.take("alice", Kind::Start, at(5_000)).is_err());
    }
}
