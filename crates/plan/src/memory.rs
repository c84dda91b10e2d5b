//! The memory budget of runs: one total for all runs of an executor, with a share per agent.
//!
//! ```text
//!  before a call       Claim::call ──▶ waits in order ──▶ parameters + largest answer ──▶ released after the call
//!  while it is read    Claim::work ──▶ waits briefly  ──▶ parse, redact, store        ──▶ released once stored
//! ```
//!
//! A reservation is made before the memory is taken, by an upper bound, and shrinks to what is really held. Calls leave
//! a quarter of the total free for work: parsing an answer, or putting outputs into a request. Work never waits for a
//! call and a run that waits for its call holds nothing, so runs cannot wait for each other for ever. A reservation that
//! is larger than the total, or than the share of an agent, is granted once nothing else is reserved; work for a call that
//! is out is granted as soon as no other work is under way, and may then exceed the total by what it takes beyond a
//! quarter of it.
//!
//! No decision of a run depends on the budget: a run waits, and neither its journal nor its outcome shows that it did.

mod claim;
mod queue;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(crate) use claim::{Claim, current, elapsed, within};
use queue::Queue;

/// One part in so many of the total is left to work. Reading the largest answer takes less than a quarter of the default.
const WORK_PART: usize = 4;
/// One part in so many of the total is what one agent may reserve, so that no agent has it all.
const AGENT_PART: usize = 2;

/// What a reservation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Held for as long as a call is out.
    Call,
    /// Held for as long as it takes to compute something and to store it.
    Work,
}

/// The use of a budget at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes reserved.
    pub reserved: usize,
    /// The most that all runs reserve together.
    pub total: usize,
    /// Runs that wait for a reservation.
    pub waiting: usize,
    /// Waits so far.
    pub waits: u64,
}

/// The budget. Where no run waits, a reservation is two atomic additions.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    used: AtomicUsize,
    /// Reservations for work.
    working: AtomicUsize,
    /// Runs in the queue; while there are any, every reservation goes through it.
    waiting: AtomicUsize,
    waits: AtomicU64,
    queue: Mutex<Queue>,
    agents: Mutex<BTreeMap<Arc<str>, Weak<Agent>>>,
}

/// What one agent has reserved.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    used: AtomicUsize,
    working: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            queue: Mutex::default(),
            agents: Mutex::default(),
        })
    }

    pub(crate) fn now(&self) -> MemoryUse {
        MemoryUse {
            reserved: self.used.load(Ordering::Relaxed),
            total: self.total,
            waiting: self.waiting.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
        }
    }

    /// What is left to work, however many calls are out.
    pub(crate) fn spare(&self) -> usize {
        self.total / WORK_PART
    }

    /// Returns the account of an agent, which all of its runs share.
    pub(crate) fn agent(&self, agent_id: &str) -> Arc<Agent> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = agents.get(agent_id).and_then(Weak::upgrade) {
            return agent;
        }
        agents.retain(|_, agent| agent.strong_count() > 0);
        let agent = Arc::default();
        agents.insert(agent_id.into(), Arc::downgrade(&agent));
        agent
    }

    /// Reserves if that is possible now and no run waits for the same.
    fn try_reserve(&self, agent: &Agent, want: Want) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.reserve(agent, want).is_ok()
    }

    /// Reserves if the rules allow it now, whether or not other runs wait.
    fn reserve(&self, agent: &Agent, want: Want) -> Result<(), Short> {
        match want.purpose {
            Purpose::Call => self.reserve_call(agent, want.bytes),
            Purpose::Work => self.reserve_work(agent, want),
        }
    }

    fn reserve_call(&self, agent: &Agent, bytes: usize) -> Result<(), Short> {
        let share = self.total / AGENT_PART;
        let own = add_within(&agent.used, bytes, |before, after| after <= share || before == 0);
        own.ok_or(Short::Share)?;
        let most = self.total - self.spare();
        if add_within(&self.used, bytes, |before, after| after <= most || before == 0).is_none() {
            agent.used.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Short::Total);
        }
        Ok(())
    }

    fn reserve_work(&self, agent: &Agent, Want { bytes, holds, .. }: Want) -> Result<(), Short> {
        let share = self.total / AGENT_PART;
        // One at a time is never refused, so that the call it belongs to ends and releases its memory.
        let alone = agent.working.fetch_add(1, Ordering::SeqCst) == 0;
        if add_within(&agent.used, bytes, |_, after| after <= share || alone).is_none() {
            agent.working.fetch_sub(1, Ordering::SeqCst);
            return Err(Short::Share);
        }
        let alone = self.working.fetch_add(1, Ordering::SeqCst) == 0;
        let may_exceed = alone && (holds || bytes <= self.spare());
        let fits = |before: usize, after: usize| after <= self.total || before == 0 || may_exceed;
        if add_within(&self.used, bytes, fits).is_none() {
            self.working.fetch_sub(1, Ordering::SeqCst);
            agent.used.fetch_sub(bytes, Ordering::SeqCst);
            agent.working.fetch_sub(1, Ordering::SeqCst);
            return Err(Short::Total);
        }
        Ok(())
    }

    /// Returns a part of a reservation. The last part of one for work ends the work.
    fn release(&self, agent: &Agent, bytes: usize, ends_work: bool) {
        if ends_work {
            agent.working.fetch_sub(1, Ordering::SeqCst);
            self.working.fetch_sub(1, Ordering::SeqCst);
        }
        if bytes > 0 {
            agent.used.fetch_sub(bytes, Ordering::SeqCst);
            self.used.fetch_sub(bytes, Ordering::SeqCst);
        }
        // A run counts itself as waiting before it looks a last time, so that one of the two sees the other.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.queue().grant(self);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reservation to be made.
#[derive(Clone, Copy, Debug)]
struct Want {
    purpose: Purpose,
    bytes: usize,
    /// The run has reserved for a call already, and releases that only after this.
    holds: bool,
}

/// What a reservation is short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    Share,
    Total,
}

/// Adds to a counter if the rule allows it, given the value before and after.
fn add_within(counter: &AtomicUsize, bytes: usize, allows: impl Fn(usize, usize) -> bool) -> Option<()> {
    let added = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| {
        let after = before.checked_add(bytes)?;
        allows(before, after).then_some(after)
    });
    added.ok().map(drop)
}
