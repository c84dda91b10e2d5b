//! Turns to read: so many at a time, for one caller only a part of them, and a bounded queue behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use macp_wire::codes::Code;
use smol_str::SmolStr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::access::Access;
use crate::status;

/// Callers remembered before those that neither read nor wait are forgotten.
const CALLERS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Readers {
    all: Arc<Semaphore>,
    /// For callers without a name together.
    strangers: Arc<Semaphore>,
    callers: Mutex<HashMap<Caller, Arc<Share>>>,
    per_caller: usize,
    waiting_max: usize,
}

/// Whose turn it is. Callers without a name are told apart by their connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Named(SmolStr),
    Connection(u64),
}

/// What one caller may do at once.
#[derive(Debug)]
struct Share {
    turns: Arc<Semaphore>,
    /// Reads that have begun to wait, those being read included.
    queued: AtomicUsize,
}

/// A turn to read, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _shared: OwnedSemaphorePermit,
    _strangers: Option<OwnedSemaphorePermit>,
    _own: OwnedSemaphorePermit,
    _queued: Queued,
}

/// Counts a read of a caller until it is dropped.
#[derive(Debug)]
struct Queued(Arc<Share>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Readers {
    /// Each caller gets a quarter of the turns, at least one, and a queue of so many reads. Callers without a name get
    /// half of the turns together.
    pub(crate) fn new(at_once: usize, waiting_max: usize) -> Self {
        let per_caller = at_once.div_ceil(4);
        Readers {
            all: Arc::new(Semaphore::new(at_once)),
            strangers: Arc::new(Semaphore::new(at_once.div_ceil(2))),
            callers: Mutex::default(),
            per_caller,
            waiting_max,
        }
    }

    /// Waits for a turn. Refused only when the caller has too many reads waiting already.
    pub(crate) async fn enter(&self, access: &Access) -> Result<Turn, Status> {
        self.enter_as(match access.identity() {
            Some(identity) => Caller::Named(identity.into()),
            None => Caller::Connection(access.connection),
        })
        .await
    }

    async fn enter_as(&self, caller: Caller) -> Result<Turn, Status> {
        let is_stranger = matches!(caller, Caller::Connection(_));
        let share = self.share(caller);
        let queued = share.queued.fetch_add(1, Ordering::Relaxed);
        let counted = Queued(Arc::clone(&share));
        if queued >= self.waiting_max.saturating_add(self.per_caller) {
            let text = format!("{queued} reads of this caller are waiting already; retry when some have ended");
            return Err(status::coded(Code::RateLimited, text));
        }
        // The caller's own share first: what waits for it takes no turn that others could use, and at the shared queue
        // no caller has more than its share. So turns go around.
        let own = acquire(Arc::clone(&share.turns)).await;
        let strangers = match is_stranger {
            true => Some(acquire(Arc::clone(&self.strangers)).await),
            false => None,
        };
        Ok(Turn { _shared: acquire(Arc::clone(&self.all)).await, _strangers: strangers, _own: own, _queued: counted })
    }

    fn share(&self, caller: Caller) -> Arc<Share> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&caller) {
            // Each read holds the share as well, and there are no more of those than requests.
            callers.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let new = || Arc::new(Share { turns: Arc::new(Semaphore::new(self.per_caller)), queued: AtomicUsize::new(0) });
        Arc::clone(callers.entry(caller).or_insert_with(new))
    }
}

async fn acquire(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    fn named(name: &str) -> Caller {
        Caller::Named(name.into())
    }

    /// A turn, if there is one at once.
    async fn at_once(readers: &Readers, caller: Caller) -> Option<Turn> {
        let mut entering = pin!(readers.enter_as(caller));
        poll_fn(|cx| {
            Poll::Ready(match entering.as_mut().poll(cx) {
                Poll::Ready(turn) => Some(turn.expect("not refused")),
                Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn one_caller_leaves_turns_for_others() {
        let readers = Readers::new(8, usize::MAX);
        let mut alice = Vec::new();
        while let Some(turn) = at_once(&readers, named("alice")).await {
            alice.push(turn);
        }
        assert_eq!(alice.len(), 2);
        let bob = at_once(&readers, named("bob")).await.expect("bob has a share of his own");
        let stranger = at_once(&readers, Caller::Connection(1)).await.expect("so has a connection without a caller");
        alice.pop();
        assert!(at_once(&readers, named("alice")).await.is_some(), "what is released can be had again");
        drop((bob, stranger));
    }

    #[tokio::test]
    async fn all_together_are_bounded() {
        let readers = Readers::new(8, usize::MAX);
        let mut turns = Vec::new();
        for number in 0..20 {
            turns.extend(at_once(&readers, named(&number.to_string())).await);
            turns.extend(at_once(&readers, Caller::Connection(number)).await);
        }
        assert_eq!(turns.len(), 8);
        drop(turns);
        let mut strangers = Vec::new();
        for number in 0..20 {
            strangers.extend(at_once(&readers, Caller::Connection(number)).await);
        }
        assert_eq!(strangers.len(), 4, "half of the turns");
    }

    #[tokio::test]
    async fn a_read_beyond_the_queue_of_its_caller_is_refused() {
        let readers = Readers::new(4, 2);
        let turn = at_once(&readers, named("alice")).await.expect("the first");
        let mut waiting = [pin!(readers.enter_as(named("alice"))), pin!(readers.enter_as(named("alice")))];
        for waiting in &mut waiting {
            let is_pending = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
        }
        let status = readers.enter_as(named("alice")).await.expect_err("two wait already");
        assert_eq!(status.metadata().get(status::ERROR_CODE).expect("a code"), "RATE_LIMITED");
        assert!(at_once(&readers, named("bob")).await.is_some());
        drop(turn);
        for waiting in waiting {
            drop(waiting.await.expect("its turn"));
        }
    }

    #[tokio::test]
    async fn callers_without_a_read_are_forgotten() {
        let readers = Readers::new(8, usize::MAX);
        let turns = [at_once(&readers, named("alice")).await, at_once(&readers, named("alice")).await];
        for number in 0..2 * CALLERS_MAX {
            drop(at_once(&readers, named(&number.to_string())).await);
        }
        assert!(readers.callers.lock().expect("not poisoned").len() <= CALLERS_MAX);
        assert!(at_once(&readers, named("alice")).await.is_none(), "a share in use is not given twice");
        drop(turns);
    }
}
