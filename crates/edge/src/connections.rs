//! The open connections: how many there may be, and which are closed when they run short.
//!
//! A connection on which a valid credential was presented is never closed for another one. The others are worth what
//! they do: one without a call in progress is closed, oldest first, before a new connection is refused.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Context;

use futures_util::task::AtomicWaker;

use crate::replies::{CallMemory, ConnectionReplies};

/// The part of all connections that may be closing on top of those that are open. Beyond it the one that has been
/// closing for longest is cut off: a flood of new connections must neither pile up old ones nor have to wait for them.
const CLOSING_PART: usize = 8;

/// Calls that need no credential and never end, so that they do not keep a connection open.
const ENDLESS: [&str; 8] = [
    "/macp.v1.MACPRuntimeService/StreamSession",
    "/macp.v1.MACPRuntimeService/WatchModeRegistry",
    "/macp.v1.MACPRuntimeService/WatchRoots",
    "/macp.v1.MACPRuntimeService/WatchSessions",
    "/macp.v1.MACPRuntimeService/WatchSignals",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// What one client can have many addresses of: an address of IPv4, a network of 64 bits of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        Network(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let bits = u128::from(address) >> 64 << 64;
                IpAddr::V6(bits.into())
            }
        })
    }
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    /// Of one network, without a valid credential.
    pub(crate) per_network: usize,
}

/// All connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    memory: Arc<CallMemory>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next_number: u64,
    /// In the order in which they came.
    connections: BTreeMap<u64, Arc<Connection>>,
    /// Connections without a valid credential.
    strangers: HashMap<Network, usize>,
    /// Closing, oldest first.
    closing: VecDeque<Arc<Connection>>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// As many as there may be.
    All,
    /// As many without a credential as one address may have.
    Network,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, memory: Arc<CallMemory>) -> Arc<Self> {
        Arc::new(Connections { limits, memory, open: Mutex::default() })
    }

    /// Admits a new connection, in place of an idle one if there are too many.
    pub(crate) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Result<Admitted, Full> {
        let network = Network::of(peer.ip());
        let mut open = self.open();
        if open.strangers.get(&network).is_some_and(|count| *count >= self.limits.per_network) {
            self.close_idle(&mut open, Some(network)).ok_or(Full::Network)?;
        }
        if open.connections.len() >= self.limits.all {
            self.close_idle(&mut open, None).ok_or(Full::All)?;
        }
        let number = open.next_number;
        open.next_number += 1;
        *open.strangers.entry(network).or_default() += 1;
        let connection = Arc::new(Connection {
            number,
            network,
            replies: self.memory.connection(),
            is_identified: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            ending: AtomicU8::new(OPEN),
            task: AtomicWaker::new(),
            all: Arc::downgrade(self),
        });
        open.connections.insert(number, Arc::clone(&connection));
        Ok(Admitted { connection, all: Arc::clone(self) })
    }

    /// Begins to close the oldest connection that may be closed.
    fn close_idle(&self, open: &mut Open, of: Option<Network>) -> Option<()> {
        let idle = |connection: &&Arc<Connection>| {
            !connection.is_identified()
                && connection.calls.load(Ordering::SeqCst) == 0
                && of.is_none_or(|network| network == connection.network)
        };
        let oldest = open.connections.values().find(idle).map(Arc::clone)?;
        open.remove(&oldest);
        oldest.end(CLOSING);
        open.closing.push_back(oldest);
        if open.closing.len() > self.limits.all.div_ceil(CLOSING_PART)
            && let Some(longest) = open.closing.pop_front()
        {
            longest.end(CUT_OFF);
        }
        Some(())
    }

    /// Returns how many connections have a valid credential, and how many have not.
    pub(crate) fn count(&self) -> [usize; 2] {
        let open = self.open();
        let strangers = open.strangers.values().sum();
        [open.connections.len() - strangers, strangers]
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn remove(&mut self, connection: &Connection) {
        self.connections.remove(&connection.number);
        if !connection.is_identified() {
            self.forget_stranger(connection.network);
        }
    }

    fn forget_stranger(&mut self, network: Network) {
        if let Some(count) = self.strangers.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.strangers.remove(&network);
            }
        }
    }
}

/// The place of a connection among all, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) connection: Arc<Connection>,
    all: Arc<Connections>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.all.open();
        match self.connection.is_open() {
            true => open.remove(&self.connection),
            false => open.closing.retain(|closing| closing.number != self.connection.number),
        }
    }
}

/// One connection, as its calls and all others see it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    network: Network,
    pub(crate) replies: ConnectionReplies,
    is_identified: AtomicBool,
    /// Calls in progress.
    calls: AtomicUsize,
    /// One of the three below.
    ending: AtomicU8,
    task: AtomicWaker,
    all: Weak<Connections>,
}

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CUT_OFF: u8 = 2;

/// How a connection must end for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After a moment for its client to read that it ends.
    Closing,
    CutOff,
}

impl Connection {
    fn is_open(&self) -> bool {
        self.ending.load(Ordering::SeqCst) == OPEN
    }

    fn end(&self, how: u8) {
        self.ending.store(how, Ordering::SeqCst);
        self.task.wake();
    }

    fn is_identified(&self) -> bool {
        self.is_identified.load(Ordering::SeqCst)
    }

    /// Notes that a valid credential was presented on it.
    pub(crate) fn identify(&self) {
        if self.is_identified() {
            return;
        }
        let Some(all) = self.all.upgrade() else {
            return;
        };
        // Under the lock, so that it is counted as a stranger's exactly until now.
        let mut open = all.open();
        // One that is closing, or gone, is counted no more.
        if !self.is_identified.swap(true, Ordering::SeqCst) && open.connections.contains_key(&self.number) {
            open.forget_stranger(self.network);
        }
    }

    /// Counts a call until the result is dropped, unless it is one that does not keep its connection open.
    pub(crate) fn begin(self: &Arc<Self>, path: &str) -> Option<InProgress> {
        if ENDLESS.contains(&path) {
            return None;
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        Some(InProgress(Arc::clone(self)))
    }

    /// Returns how the connection must end for a new one, if it must. The task is woken when that changes.
    pub(crate) fn poll_ending(&self, cx: &Context<'_>) -> Option<Ending> {
        self.task.register(cx.waker());
        match self.ending.load(Ordering::SeqCst) {
            OPEN => None,
            CLOSING => Some(Ending::Closing),
            _ => Some(Ending::CutOff),
        }
    }
}

/// A call in progress on a connection.
#[derive(Debug)]
pub(crate) struct InProgress(Arc<Connection>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(all: usize, per_network: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits { all, per_network }, Arc::new(CallMemory::new(1 << 20, 1 << 20)))
    }

    fn peer(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().expect("an address"), 1)
    }

    fn is_closing(admitted: &Admitted) -> bool {
        !admitted.connection.is_open()
    }

    #[test]
    fn the_oldest_idle_stranger_makes_room() {
        let all = connections(3, 3);
        let identified = all.admit(peer("10.0.0.1")).expect("room");
        identified.connection.identify();
        let busy = all.admit(peer("10.0.0.2")).expect("room");
        let call = busy.connection.begin("/service/Call");
        let idle = all.admit(peer("10.0.0.3")).expect("room");
        let watch = idle.connection.begin(ENDLESS[0]);
        assert!(watch.is_none(), "it does not keep its connection open");
        let new = all.admit(peer("10.0.0.4")).expect("the idle one goes");
        assert!(is_closing(&idle) && !is_closing(&busy) && !is_closing(&identified));
        new.connection.identify();
        assert_eq!(all.admit(peer("10.0.0.5")).map(drop), Err(Full::All), "one has a call, two have credentials");
        drop((idle, call));
        drop(all.admit(peer("10.0.0.5")).expect("the call has ended"));
        assert!(is_closing(&busy));
    }

    #[test]
    fn one_network_has_its_share_and_callers_with_a_credential_are_not_counted() {
        let all = connections(100, 2);
        let first = all.admit(peer("2001:db8::1")).expect("room");
        let second = all.admit(peer("2001:db8::2")).expect("room");
        let calls = [&first, &second].map(|one| one.connection.begin("/service/Call"));
        assert_eq!(all.admit(peer("2001:db8::3")).map(drop), Err(Full::Network));
        let other = all.admit(peer("2001:db8:0:1::1")).expect("another network");
        second.connection.identify();
        let third = all.admit(peer("2001:db8::3")).expect("the second is counted no more");
        drop(calls);
        let fourth = all.admit(peer("2001:db8::4")).expect("the first is idle");
        assert!(is_closing(&first) && !is_closing(&second) && !is_closing(&third) && !is_closing(&other));
        drop((first, second, third, fourth, other));
        assert!(all.open().strangers.is_empty() && all.open().connections.is_empty() && all.open().closing.is_empty());
    }

    #[test]
    fn addresses_of_ipv4_within_ipv6_are_told_apart() {
        assert_ne!(Network::of(peer("::ffff:10.0.0.1").ip()), Network::of(peer("::ffff:10.0.0.2").ip()));
        assert_eq!(Network::of(peer("::ffff:10.0.0.1").ip()), Network::of(peer("10.0.0.1").ip()));
    }

    #[test]
    fn beyond_a_part_of_all_the_longest_closing_one_is_cut_off() {
        let all = connections(8, 8);
        let admitted: Vec<_> = (0..10).map(|_| all.admit(peer("10.0.0.1")).expect("an idle one closes")).collect();
        let ending = |admitted: &Admitted| admitted.connection.ending.load(Ordering::SeqCst);
        let endings: Vec<u8> = admitted.iter().map(ending).collect();
        assert_eq!(endings, [CUT_OFF, CLOSING, OPEN, OPEN, OPEN, OPEN, OPEN, OPEN, OPEN, OPEN]);
        assert_eq!(all.open().connections.len(), 8);
        drop(admitted);
        assert!(all.open().connections.is_empty() && all.open().closing.is_empty());
    }
}
