//! What the replies of one connection hold, and which of them are not read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smol_str::SmolStr;

use super::charge::Budgets;
use super::unwritten::{Reply, Unwritten};
use super::{CallMemory, ConnectionShare};

/// Replies listed before those that have ended are removed.
const LISTED_MIN: usize = 64;

/// Where the calls of one caller on one connection count.
#[derive(Clone, Debug)]
pub(crate) struct CallerMemory {
    pub(crate) calls: Arc<Budgets>,
    pub(crate) requests: Arc<Budgets>,
    pub(crate) replies: Arc<Budgets>,
    /// Messages of streams that are not yet part of a reply.
    pub(crate) queued: Arc<Budgets>,
}

/// The replies of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionReplies {
    calls: ConnectionShare,
    requests: ConnectionShare,
    replies: ConnectionShare,
    queued: ConnectionShare,
    /// For calls that ask for health or readiness.
    probes: Arc<Budgets>,
    /// For callers without a valid credential.
    strangers: Arc<CallerMemory>,
    /// Of the caller that called last: most connections have only one.
    last_caller: Mutex<Option<(SmolStr, Arc<CallerMemory>)>>,
    /// The current age of bytes being handed over.
    age: AtomicUsize,
    /// Of calls that share the task of the connection.
    pub(super) brief: Unwritten,
    open: Mutex<Open>,
}

/// The replies that have a call of their own.
#[derive(Debug)]
struct Open {
    replies: Vec<Weak<Reply>>,
    /// How many may be listed before those that have ended are removed.
    listed_max: usize,
}

impl ConnectionReplies {
    pub(super) fn new(memory: &CallMemory) -> Self {
        // How many calls a connection has is bounded by its streams, and many may send large requests on it at once.
        let calls = memory.calls.of_connection_without_bound();
        let requests = memory.requests.of_connection_without_bound();
        let (replies, queued) = (memory.replies.of_connection(), memory.queued.of_connection());
        let probes = Budgets { connection: replies.budget(), caller: None, total: Arc::clone(&memory.probes) };
        ConnectionReplies {
            strangers: Arc::new(CallerMemory {
                calls: calls.budgets(None),
                requests: requests.budgets(None),
                replies: replies.budgets(None),
                queued: queued.budgets(None),
            }),
            calls,
            requests,
            replies,
            queued,
            probes: Arc::new(probes),
            last_caller: Mutex::default(),
            age: AtomicUsize::new(0),
            brief: Unwritten::default(),
            open: Mutex::new(Open { replies: Vec::new(), listed_max: LISTED_MIN }),
        }
    }

    /// Returns where the calls of a caller count; `None` is a caller without a valid credential.
    pub(crate) fn of_caller(&self, identity: Option<&str>) -> Arc<CallerMemory> {
        let Some(identity) = identity else {
            return Arc::clone(&self.strangers);
        };
        let mut last = self.last_caller.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((caller, memory)) if caller == identity => Arc::clone(memory),
            _ => {
                let memory = Arc::new(CallerMemory {
                    calls: self.calls.budgets(Some(identity)),
                    requests: self.requests.budgets(Some(identity)),
                    replies: self.replies.budgets(Some(identity)),
                    queued: self.queued.budgets(Some(identity)),
                });
                *last = Some((identity.into(), Arc::clone(&memory)));
                memory
            }
        }
    }

    /// Returns where the replies to callers without a valid credential count.
    pub(crate) fn of_strangers(&self) -> &Arc<Budgets> {
        &self.strangers.replies
    }

    /// Returns where calls that ask for health or readiness count, whoever calls.
    pub(crate) fn of_probes(&self) -> &Arc<Budgets> {
        &self.probes
    }

    /// Returns whether anything of the connection's calls is in memory.
    pub(super) fn is_active(&self) -> bool {
        self.replies.budget.as_ref().is_some_and(|budget| budget.used() > 0)
    }

    pub(super) fn age(&self) -> usize {
        self.age.load(Ordering::Relaxed)
    }

    /// Lists a reply to be checked for progress.
    pub(crate) fn open(&self) -> Arc<Reply> {
        let reply = Arc::new(Reply::default());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.replies.len() >= open.listed_max {
            open.replies.retain(|reply| reply.strong_count() > 0);
            open.listed_max = LISTED_MIN.max(2 * open.replies.len());
        }
        open.replies.push(Arc::downgrade(&reply));
        reply
    }

    /// Advances the age of bytes, and resets replies with overdue ones.
    ///
    /// Returns whether the connection is stuck: something overdue can only end with it.
    pub(super) fn advance(&self) -> bool {
        let next = self.age().wrapping_add(1);
        let mut is_stuck = self.brief.has(next);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for reply in open.replies.iter().filter_map(Weak::upgrade) {
            let is_overdue = reply.unwritten.has(next);
            let was_in_vain = reply.was_reset() && reply.unwritten.total() > 0;
            is_stuck |= was_in_vain || (is_overdue && !reply.reset());
        }
        self.age.store(next, Ordering::Relaxed);
        is_stuck
    }
}
