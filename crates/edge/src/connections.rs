//! The open connections: how many there may be, and which are closed when they run short.
//!
//! A connection on which a valid credential was presented is never closed for another one. The others are worth what
//! they do: one without a call in progress is closed, oldest first, before a new connection is refused.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Context;

use futures_util::task::AtomicWaker;

use crate::replies::{ConnectionReplies, ReplyMemory};

/// How many may be closing at once on top of those that are open: a flood of new connections must not pile up old ones.
const CLOSING_PART: usize = 8;

/// Calls that need no credential and never end, so that they do not keep a connection open.
const ENDLESS: [&str; 5] = [
    "/macp.v1.MACPRuntimeService/WatchRoots",
    "/macp.v1.MACPRuntimeService/WatchModeRegistry",
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
    memory: Arc<ReplyMemory>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next_number: u64,
    /// In the order in which they came.
    connections: BTreeMap<u64, Arc<Connection>>,
    /// Connections without a valid credential.
    strangers: HashMap<Network, usize>,
    /// Asked to close, and not gone yet.
    closing: usize,
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
    pub(crate) fn new(limits: ConnectionLimits, memory: Arc<ReplyMemory>) -> Arc<Self> {
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
            is_closing: AtomicBool::new(false),
            task: AtomicWaker::new(),
            all: Arc::downgrade(self),
        });
        open.connections.insert(number, Arc::clone(&connection));
        Ok(Admitted { connection, all: Arc::clone(self) })
    }

    /// Tells the oldest connection that may be closed to close, and gives its place away.
    fn close_idle(&self, open: &mut Open, of: Option<Network>) -> Option<()> {
        if open.closing >= self.limits.all.div_ceil(CLOSING_PART) {
            return None;
        }
        let idle = |connection: &&Arc<Connection>| {
            !connection.is_identified()
                && connection.calls.load(Ordering::SeqCst) == 0
                && of.is_none_or(|network| network == connection.network)
        };
        let oldest = open.connections.values().find(idle).map(Arc::clone)?;
        open.remove(&oldest);
        open.closing += 1;
        oldest.is_closing.store(true, Ordering::SeqCst);
        oldest.task.wake();
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
        if self.connection.is_closing.load(Ordering::SeqCst) {
            open.closing -= 1;
        } else {
            open.remove(&self.connection);
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
    is_closing: AtomicBool,
    task: AtomicWaker,
    all: Weak<Connections>,
}

impl Connection {
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
        if !self.is_identified.swap(true, Ordering::SeqCst) && !self.is_closing.load(Ordering::SeqCst) {
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

    /// Returns whether the connection must close for a new one. If not, the task is woken when it must.
    pub(crate) fn poll_closing(&self, cx: &Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.is_closing.load(Ordering::SeqCst)
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
        Connections::new(ConnectionLimits { all, per_network }, Arc::new(ReplyMemory::new(1 << 20)))
    }

    fn peer(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().expect("an address"), 1)
    }

    fn is_closing(admitted: &Admitted) -> bool {
        admitted.connection.is_closing.load(Ordering::SeqCst)
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
        assert!(all.open().strangers.is_empty() && all.open().connections.is_empty() && all.open().closing == 0);
    }

    #[test]
    fn addresses_of_ipv4_within_ipv6_are_told_apart() {
        assert_ne!(Network::of(peer("::ffff:10.0.0.1").ip()), Network::of(peer("::ffff:10.0.0.2").ip()));
        assert_eq!(Network::of(peer("::ffff:10.0.0.1").ip()), Network::of(peer("10.0.0.1").ip()));
    }

    #[test]
    fn no_more_close_at_once_than_a_part_of_all() {
        let all = connections(8, 8);
        let mut held: Vec<_> = (0..8).map(|_| all.admit(peer("10.0.0.1")).expect("room")).collect();
        held.push(all.admit(peer("10.0.0.1")).expect("one closes"));
        assert_eq!(all.admit(peer("10.0.0.1")).map(drop), Err(Full::Network));
        let closed = held.iter().position(is_closing).expect("one closes");
        drop(held.remove(closed));
        held.push(all.admit(peer("10.0.0.1")).expect("it is gone"));
    }
}
