//! Runs that wait for a reservation, in the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::{Agent, Budget, Purpose, Short, Want};

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiter>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    agent: Arc<Agent>,
    want: Want,
    granted: oneshot::Sender<()>,
}

impl Queue {
    pub(super) fn push(&mut self, agent: &Arc<Agent>, want: Want) -> (u64, oneshot::Receiver<()>) {
        let (granted, receiver) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push_back(Waiter { id, agent: Arc::clone(agent), want, granted });
        (id, receiver)
    }

    /// Removes a run that waits no longer; says whether it was still waiting.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let place = self.waiting.iter().position(|waiter| waiter.id == id);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// Grants all that can be granted, first come, first served.
    ///
    /// A run that is short of its agent's share holds up that agent alone. One that is short of the total holds up all
    /// behind it, so that it gets its turn, but for the work of runs that hold memory themselves: that work releases it.
    pub(super) fn grant(&mut self, budget: &Budget) {
        let (mut calls_blocked, mut work_blocked) = (false, false);
        let mut agents_blocked: Vec<(Arc<Agent>, Purpose)> = Vec::new();
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            let Want { purpose, holds, .. } = waiter.want;
            let blocked = match purpose {
                Purpose::Call => calls_blocked,
                Purpose::Work => work_blocked && !holds,
            };
            let behind_own =
                agents_blocked.iter().any(|(agent, blocked)| Arc::ptr_eq(agent, &waiter.agent) && *blocked == purpose);
            if blocked || (behind_own && !holds) {
                at += 1;
                continue;
            }
            match budget.reserve(&waiter.agent, waiter.want) {
                Ok(()) => {
                    let Some(waiter) = self.waiting.remove(at) else { return };
                    budget.waiting.fetch_sub(1, Ordering::SeqCst);
                    // A run that has just given up waiting finds the grant when it leaves, and returns it.
                    let _ = waiter.granted.send(());
                    continue;
                }
                Err(Short::Share) => agents_blocked.push((Arc::clone(&waiter.agent), purpose)),
                Err(Short::Total) => {
                    calls_blocked = true;
                    work_blocked |= purpose == Purpose::Work;
                }
            }
            at += 1;
        }
    }
}
