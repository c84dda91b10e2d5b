//! Places that all agents share, such as those for looking up names: one agent can never have all of them, so that what
//! it waits for keeps nobody else waiting (AOS-3).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

tokio::task_local! {
    /// Whose call the task makes.
    static AGENT: Arc<str>;
}

/// Does the work of a call for an agent.
pub(crate) async fn in_name_of<F: Future>(agent_id: Arc<str>, work: F) -> F::Output {
    AGENT.scope(agent_id, work).await
}

/// So many places, of which each agent has a share.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    share: usize,
    /// The places of agents that have or want one.
    agents: Mutex<BTreeMap<Arc<str>, Weak<Semaphore>>>,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(all: usize, share: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), share, agents: Mutex::default() }
    }

    /// Waits for a place, first for one of the agent's own. Whoever calls in no agent's name shares with all such.
    pub(crate) async fn take(&self) -> Place {
        let agent_id = AGENT.try_with(Arc::clone).unwrap_or_default();
        let own = permit(self.of(agent_id)).await;
        let all = permit(Arc::clone(&self.all)).await;
        Place { _all: all, _own: own }
    }

    fn of(&self, agent_id: Arc<str>) -> Arc<Semaphore> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = agents.get(&agent_id).and_then(Weak::upgrade) {
            return places;
        }
        agents.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.share));
        agents.insert(agent_id, Arc::downgrade(&places));
        places
    }
}

async fn permit(places: Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.acquire_owned().await.expect("nobody closes them")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_agent_never_has_all_places() {
        let places = Places::new(3, 2);
        let take = async |agent: &str| {
            let taken = in_name_of(agent.into(), places.take());
            tokio::time::timeout(Duration::from_secs(1), taken).await.ok()
        };
        let (first, _second) = (take("a").await.expect("free"), take("a").await.expect("free"));
        assert!(take("a").await.is_none(), "its share is used up");
        let _other = take("b").await.expect("what an agent may not have is left to others");
        assert!(take("b").await.is_none(), "there are no more");
        drop(first);
        assert!(take("c").await.is_some());
        assert!(take("a").await.is_some(), "what was given back can be taken again");
        let known = places.agents.lock().unwrap().len();
        assert!(known <= 3, "agents without a place are forgotten");
    }
}
