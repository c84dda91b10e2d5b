//! Leave to read at length: for so many at a time, and for one caller only a part of them, so that nobody waits because
//! someone else asked for everything at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use smol_str::SmolStr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Callers remembered before those are forgotten who read nothing and wait for nothing.
const CALLERS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Readers {
    all: Arc<Semaphore>,
    callers: Mutex<HashMap<SmolStr, Arc<Semaphore>>>,
    per_caller: usize,
}

/// Leave to read, until it is dropped.
#[derive(Debug)]
pub(crate) struct Leave {
    _shared: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl Readers {
    /// Each caller gets a quarter, and at least one.
    pub(crate) fn new(at_once: usize) -> Self {
        Readers { all: Arc::new(Semaphore::new(at_once)), callers: Mutex::default(), per_caller: at_once.div_ceil(4) }
    }

    /// Waits while too many read, or this caller reads too much. Nobody by name is nobody's share.
    pub(crate) async fn enter(&self, caller: Option<&str>) -> Leave {
        // The own share first: whoever waits for it holds nothing others could use.
        let own = match caller {
            Some(caller) => Some(acquire(self.share(caller)).await),
            None => None,
        };
        Leave { _shared: acquire(Arc::clone(&self.all)).await, _own: own }
    }

    fn share(&self, caller: &str) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(caller) {
            // Whoever reads or waits holds the share as well, and of those there are no more than requests.
            callers.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = callers.entry(caller.into()).or_insert_with(|| Arc::new(Semaphore::new(self.per_caller)));
        Arc::clone(share)
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

    /// Leave, if there is any at once.
    async fn at_once(readers: &Readers, caller: Option<&str>) -> Option<Leave> {
        let mut entering = pin!(readers.enter(caller));
        poll_fn(|cx| {
            Poll::Ready(match entering.as_mut().poll(cx) {
                Poll::Ready(leave) => Some(leave),
                Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn one_caller_leaves_room_for_others() {
        let readers = Readers::new(8);
        let mut alice = Vec::new();
        while let Some(leave) = at_once(&readers, Some("alice")).await {
            alice.push(leave);
        }
        assert_eq!(alice.len(), 2);
        let bob = at_once(&readers, Some("bob")).await.expect("bob has a share of his own");
        alice.pop();
        assert!(at_once(&readers, Some("alice")).await.is_some(), "what is given back can be had again");
        drop(bob);
    }

    #[tokio::test]
    async fn all_together_are_bounded() {
        let readers = Readers::new(8);
        let mut leaves = Vec::new();
        for number in 0..20 {
            leaves.extend(at_once(&readers, Some(&number.to_string())).await);
            leaves.extend(at_once(&readers, None).await);
        }
        assert_eq!(leaves.len(), 8);
    }

    #[tokio::test]
    async fn callers_who_read_nothing_are_forgotten() {
        let readers = Readers::new(8);
        let kept = [at_once(&readers, Some("alice")).await, at_once(&readers, Some("alice")).await];
        for number in 0..2 * CALLERS_MAX {
            drop(at_once(&readers, Some(&number.to_string())).await);
        }
        assert!(readers.callers.lock().expect("not poisoned").len() <= CALLERS_MAX);
        assert!(at_once(&readers, Some("alice")).await.is_none(), "a share in use is not given twice");
        drop(kept);
    }
}
