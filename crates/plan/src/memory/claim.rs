//! What one run has reserved, and how it waits for more.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Agent, Budget, Purpose, Want};

tokio::task_local! {
    /// The claim of the run whose call the task makes.
    static CLAIM: Arc<Claim>;
}

/// Does the work of a call under a claim.
pub(crate) async fn within<F: Future>(claim: Arc<Claim>, work: F) -> F::Output {
    CLAIM.scope(claim, work).await
}

/// The claim of the run whose call this task makes; none for calls that are made without an executor.
pub(crate) fn current() -> Option<Arc<Claim>> {
    CLAIM.try_with(Arc::clone).ok()
}

/// Waits for the time of the call that this task makes to be over; time in which it waits for memory does not count.
pub(crate) async fn elapsed(limit: Duration) {
    match current() {
        Some(claim) => claim.elapsed(limit).await,
        None => tokio::time::sleep(limit).await,
    }
}

/// How soon at least the end of a call's time is looked at again.
const GLANCE: Duration = Duration::from_millis(20);

/// Called when a run begins to wait, and when it no longer does.
pub(crate) type Waiting = Box<dyn Fn(bool) + Send + Sync>;

/// The reservations of one run; all of them are released when it is dropped.
pub(crate) struct Claim {
    budget: Arc<Budget>,
    agent: Arc<Agent>,
    held: Mutex<Held>,
    waiting: Waiting,
}

#[derive(Debug, Default)]
struct Held {
    call: Option<usize>,
    work: Option<usize>,
    /// How long its calls have waited for memory, and since when one does.
    waited: Duration,
    since: Option<Instant>,
}

impl Claim {
    pub(crate) fn new(budget: &Arc<Budget>, agent_id: &str, waiting: Waiting) -> Self {
        let agent = budget.agent(agent_id);
        Self { budget: Arc::clone(budget), agent, held: Mutex::default(), waiting }
    }

    /// Whether so much is reserved for a call.
    pub(crate) fn has_call(&self, bytes: usize) -> bool {
        self.held().call.is_some_and(|reserved| reserved >= bytes)
    }

    /// Whether memory for work is reserved.
    pub(crate) fn has_work(&self) -> bool {
        self.held().work.is_some()
    }

    /// Reserves for a call if that needs no wait.
    pub(crate) fn try_call(&self, bytes: usize) -> bool {
        debug_assert!(!self.has_call(0), "a call is reserved once");
        let reserved = self.budget.try_reserve(&self.agent, self.want(Purpose::Call, bytes));
        if reserved {
            self.set(Purpose::Call, bytes);
        }
        reserved
    }

    /// Reserves for a call, however long that takes. A run that waits here must hold nothing.
    pub(crate) async fn call(&self, bytes: usize) {
        debug_assert!(!self.has_call(0), "a run that waits for its call holds nothing");
        if !self.try_call(bytes) {
            self.wait(Purpose::Call, bytes).await;
        }
    }

    /// Reserves for work until [`Claim::end_work`], however long that takes, which is never long: work waits for no call.
    pub(crate) async fn work(&self, bytes: usize) {
        self.end_work();
        if self.budget.try_reserve(&self.agent, self.want(Purpose::Work, bytes)) {
            self.set(Purpose::Work, bytes);
        } else {
            self.wait(Purpose::Work, bytes).await;
        }
    }

    /// Shrinks what is reserved for a call to what it takes.
    pub(crate) fn shrink_call(&self, bytes: usize) {
        let mut held = self.held();
        let Some(reserved) = held.call else { return };
        let kept = reserved.min(bytes);
        held.call = Some(kept);
        drop(held);
        self.budget.release(&self.agent, reserved - kept, false);
    }

    pub(crate) fn end_work(&self) {
        let ended = self.held().work.take();
        if let Some(bytes) = ended {
            self.budget.release(&self.agent, bytes, true);
        }
    }

    /// Releases everything.
    pub(crate) fn release(&self) {
        self.end_work();
        let ended = self.held().call.take();
        if let Some(bytes) = ended {
            self.budget.release(&self.agent, bytes, false);
        }
    }

    /// Waits for a time to be over in which the run does not wait for memory: that is no fault of its call.
    pub(crate) async fn elapsed(&self, limit: Duration) {
        let (began, waited_before) = (Instant::now(), self.waited());
        loop {
            let waited = self.waited().saturating_sub(waited_before);
            let left = limit.saturating_add(waited).saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            // While it waits, the end moves on with the clock; it is looked at now and then.
            let until = if waited.is_zero() { left } else { left.max(GLANCE) };
            tokio::time::sleep(until).await;
        }
    }

    /// How long the run has waited for work so far.
    fn waited(&self) -> Duration {
        let held = self.held();
        held.waited + held.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    async fn wait(&self, purpose: Purpose, bytes: usize) {
        // A run that stops waiting, such as for a cancel, leaves the queue and releases what was granted meanwhile.
        let want = self.want(purpose, bytes);
        let mut ticket = Ticket { claim: self, id: 0, purpose, bytes, taken: false };
        let granted = {
            let mut queue = self.budget.queue();
            self.budget.waiting.fetch_add(1, Ordering::SeqCst);
            self.budget.waits.fetch_add(1, Ordering::Relaxed);
            let (id, granted) = queue.push(&self.agent, want);
            ticket.id = id;
            // What was released before the run counted as waiting woke no one.
            queue.grant(&self.budget);
            granted
        };
        if purpose == Purpose::Work {
            self.held().since = Some(Instant::now());
        }
        (self.waiting)(true);
        granted.await.expect("the queue grants what it removes, and lives as long as the claim");
        ticket.taken = true;
        self.set(purpose, bytes);
    }

    fn want(&self, purpose: Purpose, bytes: usize) -> Want {
        Want { purpose, bytes, holds: self.has_call(0) }
    }

    fn set(&self, purpose: Purpose, bytes: usize) {
        let mut held = self.held();
        match purpose {
            Purpose::Call => held.call = Some(bytes),
            Purpose::Work => held.work = Some(bytes),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue.
struct Ticket<'c> {
    claim: &'c Claim,
    id: u64,
    purpose: Purpose,
    bytes: usize,
    taken: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Claim { budget, agent, waiting, .. } = self.claim;
        {
            let mut held = self.claim.held();
            if let Some(since) = held.since.take() {
                held.waited += since.elapsed();
            }
        }
        waiting(false);
        if self.taken {
            return;
        }
        let mut queue = budget.queue();
        if queue.remove(self.id) {
            budget.waiting.fetch_sub(1, Ordering::SeqCst);
            // It may have been what held up the others.
            queue.grant(budget);
        } else {
            drop(queue);
            budget.release(agent, self.bytes, self.purpose == Purpose::Work);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("held", &*self.held()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryUse;
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn claim(budget: &Arc<Budget>, agent_id: &str) -> Claim {
        Claim::new(budget, agent_id, Box::new(|_| {}))
    }

    /// Whether a wait is over, given a moment in which nothing else can happen.
    async fn granted(wait: impl Future<Output = ()>) -> bool {
        tokio::time::timeout(Duration::from_secs(1), wait).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_reserves_its_share_and_calls_leave_some_for_work() {
        let budget = Budget::new(100 * MIB);
        let (one, two, other) = (claim(&budget, "a"), claim(&budget, "a"), claim(&budget, "b"));
        one.call(40 * MIB).await;
        assert!(!granted(two.call(20 * MIB)).await, "half is the share of an agent");
        assert!(!granted(other.call(40 * MIB)).await, "a quarter is left for work");
        other.call(30 * MIB).await;
        two.work(20 * MIB).await;
        assert_eq!(budget.now().reserved, 90 * MIB);
        drop((one, two, other));
        assert_eq!(budget.now(), MemoryUse { reserved: 0, waiting: 0, ..budget.now() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_alone_may_always_proceed() {
        let budget = Budget::new(10 * MIB);
        let (large, small) = (claim(&budget, "a"), claim(&budget, "b"));
        large.call(50 * MIB).await;
        assert!(!granted(small.call(MIB)).await);
        large.work(100 * MIB).await;
        drop(large);
        small.call(MIB).await;
        let large = claim(&budget, "a");
        assert!(!granted(large.call(50 * MIB)).await, "it is not alone");
        drop(small);
        assert!(granted(large.call(50 * MIB)).await);
    }

    /// Two calls that are out and both need more than is left: one after the other gets it.
    #[tokio::test(start_paused = true)]
    async fn work_for_calls_that_are_out_never_waits_for_calls() {
        let budget = Budget::new(100 * MIB);
        let (one, two) = (claim(&budget, "a"), claim(&budget, "a"));
        one.call(25 * MIB).await;
        two.call(25 * MIB).await;
        one.work(80 * MIB).await;
        assert!(!granted(two.work(80 * MIB)).await, "one at a time");
        assert!(two.waited() >= Duration::from_secs(1));
        one.end_work();
        assert!(granted(two.work(80 * MIB)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn runs_get_memory_in_the_order_in_which_they_came() {
        let budget = Budget::new(100 * MIB);
        let first = claim(&budget, "a");
        first.call(50 * MIB).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..4 {
            let (claim, order) = (claim(&budget, "a"), Arc::clone(&order));
            // The first of them needs the most, and those behind it do not overtake it.
            let bytes = if number == 0 { 50 * MIB } else { MIB };
            tasks.push(tokio::spawn(async move {
                claim.call(bytes).await;
                order.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        first.shrink_call(10 * MIB);
        tokio::task::yield_now().await;
        assert!(order.lock().unwrap().is_empty(), "those behind the first do not overtake it");
        assert!(granted(claim(&budget, "b").call(5 * MIB)).await, "another agent has its own share");
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
        assert_eq!(budget.now().reserved, 0);
    }

    /// In any order of events no reservation is lost, and every run gets its turn.
    #[tokio::test]
    async fn nothing_is_lost_when_runs_give_up_waiting() {
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        println!("seed {seed}");
        let budget = Budget::new(100 * MIB);
        let mut tasks = Vec::new();
        for number in 0..64_u64 {
            let budget = Arc::clone(&budget);
            tasks.push(tokio::spawn(async move {
                let mut state = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut below = |most: usize| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    usize::try_from(state >> 33).unwrap_or_default() % most
                };
                let claim = claim(&budget, ["a", "b", "c"][below(3)]);
                for _ in 0..50 {
                    let call = claim.call((1 + below(60)) * MIB);
                    let gives_up = below(3) == 0;
                    if gives_up {
                        let _ = tokio::time::timeout(Duration::from_micros(below(50) as u64), call).await;
                    } else {
                        call.await;
                    }
                    tokio::task::yield_now().await;
                    if claim.has_call(0) && below(2) == 0 {
                        claim.work((1 + below(120)) * MIB).await;
                        claim.shrink_call(MIB);
                    }
                    tokio::task::yield_now().await;
                    claim.release();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(budget.now(), MemoryUse { reserved: 0, waiting: 0, ..budget.now() });
        assert_eq!(budget.working.load(Ordering::SeqCst), 0);
    }
}
