//! Bounds what calls hold in memory: while they are open, and their replies until they are written to the socket.
//!
//! ```text
//!  request ─▶ reserve: connection, caller, total ─▶ handler ─▶ body ─▶ pieces ─▶ transport ─▶ socket
//!               waits while there is no room                     │        │ each counts until it was written
//!                                                                │        └ not written in time: the reply is reset
//!                                                                └ a stream makes no message while there is no room
//! ```
//!
//! A client that does not read stops its own connection first, then its other connections. Callers without a valid
//! credential share a part of the total that is theirs alone, and cannot take what identified callers need.
//!
//! Four kinds of memory are divided in this way: open calls, requests being received (`requests.rs`), messages queued in
//! streams, and replies. What waits for one kind holds nothing of those that are used up before it.

mod body;
mod budget;
mod charge;
mod connection;
mod size;
mod stall;
mod unwritten;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use smol_str::SmolStr;

pub(crate) use self::body::{OpenCall, ReplyBody};
use self::budget::Budget;
pub(crate) use self::charge::{Budgets, Charge};
pub(crate) use self::connection::{CallerMemory, ConnectionReplies};
pub(crate) use self::size::ReplySize;
pub(crate) use self::stall::StallTimer;
pub(crate) use self::unwritten::Reply;

/// The part of the total that one connection may hold.
const CONNECTION_PART: usize = 16;

/// The part of the total that callers without a valid credential share, and the part one identified caller may hold.
const STRANGERS_PART: usize = 4;
const CALLER_PART: usize = 4;

/// The part of all memory that is for messages queued in streams.
///
/// Queued messages leave only as replies, so the two count separately: if both waited for the same bytes, streams full
/// of queued messages could wait for each other for ever.
const QUEUED_PART: usize = 4;

/// Memory of calls that ask for health or readiness, with their replies.
const PROBE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Callers remembered before those without a reply are forgotten.
const CALLERS_MAX: usize = 1_024;

/// The memory of all calls.
#[derive(Debug)]
pub(crate) struct CallMemory {
    /// Calls that are open, without their requests and replies.
    calls: Shares,
    /// Bytes of requests that are being received.
    requests: Shares,
    /// Replies that are made and not yet written.
    replies: Shares,
    /// Messages of streams that are not yet part of a reply.
    queued: Shares,
    /// Health and readiness, whose replies must not wait for those of others.
    probes: Arc<Budget>,
}

impl CallMemory {
    /// Divides so many bytes of replies and of requests among connections and callers. Open calls may take as many as
    /// replies; they count separately, since many of them wait for ever.
    pub(crate) fn new(reply_bytes_max: usize, request_bytes_max: usize) -> Self {
        let queued = reply_bytes_max / QUEUED_PART;
        CallMemory {
            calls: Shares::new(reply_bytes_max),
            requests: Shares::new(request_bytes_max),
            replies: Shares::new(reply_bytes_max - queued),
            queued: Shares::new(queued),
            probes: Arc::new(Budget::new(PROBE_BYTES_MAX)),
        }
    }

    /// The share of a new connection.
    pub(crate) fn connection(&self) -> ConnectionReplies {
        ConnectionReplies::new(self)
    }

    /// Bytes held for identified callers, and for all others.
    pub(crate) fn used(&self) -> (usize, usize) {
        let sum = |of: fn(&Shares) -> &Budget| of(&self.replies).used() + of(&self.queued).used();
        (sum(|shares| &shares.identified), sum(|shares| &shares.strangers))
    }
}

/// Bytes divided among connections, identified callers and all others.
#[derive(Clone, Debug)]
struct Shares {
    connection_max: usize,
    identified: Arc<Budget>,
    strangers: Arc<Budget>,
    callers: Arc<CallerBudgets>,
}

impl Shares {
    fn new(bytes_max: usize) -> Self {
        let strangers = bytes_max / STRANGERS_PART;
        Shares {
            connection_max: bytes_max / CONNECTION_PART,
            identified: Arc::new(Budget::new(bytes_max - strangers)),
            strangers: Arc::new(Budget::new(strangers)),
            callers: Arc::new(CallerBudgets { each: bytes_max / CALLER_PART, budgets: Mutex::default() }),
        }
    }

    /// The part of one connection of these shares.
    fn of_connection(&self) -> ConnectionShare {
        ConnectionShare { budget: Some(Arc::new(Budget::new(self.connection_max))), shares: self.clone() }
    }

    fn of_connection_without_bound(&self) -> ConnectionShare {
        ConnectionShare { budget: None, shares: self.clone() }
    }
}

/// The part of the shares that one connection has.
#[derive(Debug)]
struct ConnectionShare {
    budget: Option<Arc<Budget>>,
    shares: Shares,
}

impl ConnectionShare {
    fn budget(&self) -> Option<Arc<Budget>> {
        self.budget.clone()
    }

    /// The budgets of a caller on this connection; `None` is a caller without a valid credential.
    fn budgets(&self, identity: Option<&str>) -> Arc<Budgets> {
        let (caller, total) = match identity {
            Some(identity) => (Some(self.shares.callers.of(identity)), &self.shares.identified),
            None => (None, &self.shares.strangers),
        };
        Arc::new(Budgets { connection: self.budget(), caller, total: Arc::clone(total) })
    }
}

/// The budget of each identified caller.
#[derive(Debug)]
struct CallerBudgets {
    each: usize,
    budgets: Mutex<HashMap<SmolStr, Arc<Budget>>>,
}

impl CallerBudgets {
    fn of(&self, identity: &str) -> Arc<Budget> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if budgets.len() >= CALLERS_MAX && !budgets.contains_key(identity) {
            // One in use is held by its connections as well.
            budgets.retain(|_, budget| Arc::strong_count(budget) > 1);
        }
        Arc::clone(budgets.entry(identity.into()).or_insert_with(|| Arc::new(Budget::new(self.each))))
    }
}
