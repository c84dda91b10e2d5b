//! The open connections: how many there may be, and which are closed when they run short.
//!
//! Before a new connection is refused, idle ones without a valid credential are closed, oldest first. Then idle ones of
//! a caller that has more than its part of all, and, where callers are authenticated, any without a valid credential.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Context;

use futures_util::task::AtomicWaker;
use smol_str::SmolStr;

use crate::replies::{CallMemory, ConnectionReplies};

/// The part of all connections that may be closing on top of those that are open. Beyond it the one that has been
/// closing for longest is cut off: a flood of new connections must neither pile up old ones nor have to wait for them.
const CLOSING_PART: usize = 8;

/// The part of all connections that one caller keeps however short they run.
const CALLER_PART: usize = 4;

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
    /// Whether callers are authenticated: then a connection without a valid credential can be closed although a call is
    /// in progress on it.
    pub(crate) authenticated: bool,
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
    /// Connections of each caller with one.
    callers: HashMap<SmolStr, usize>,
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
            self.close_stranger(&mut open, |connection| connection.network == network).ok_or(Full::Network)?;
        }
        if open.connections.len() >= self.limits.all {
            self.make_room(&mut open).ok_or(Full::All)?;
        }
        let number = open.next_number;
        open.next_number += 1;
        *open.strangers.entry(network).or_default() += 1;
        let connection = Arc::new(Connection {
            number,
            network,
            replies: self.memory.connection(),
            caller: OnceLock::new(),
            calls: AtomicUsize::new(0),
            ending: AtomicU8::new(OPEN),
            task: AtomicWaker::new(),
            all: Arc::downgrade(self),
        });
        open.connections.insert(number, Arc::clone(&connection));
        Ok(Admitted { connection, all: Arc::clone(self) })
    }

    fn make_room(&self, open: &mut Open) -> Option<()> {
        self.close_stranger(open, |_| true).or_else(|| {
            let most = self.limits.all.div_ceil(CALLER_PART);
            let Open { connections, callers, .. } = &*open;
            let has_many = |caller: &SmolStr| callers.get(caller).is_some_and(|count| *count > most);
            let may_close = |one: &&Arc<Connection>| one.is_idle() && one.caller.get().is_some_and(has_many);
            let oldest = connections.values().find(may_close).map(Arc::clone)?;
            self.close(open, oldest);
            Some(())
        })
    }

    /// Closes the oldest of these connections without a valid credential: an idle one, or else any if that is allowed.
    fn close_stranger(&self, open: &mut Open, is_one: impl Fn(&Connection) -> bool) -> Option<()> {
        let strangers = || open.connections.values().filter(|one| !one.is_identified() && is_one(one));
        let idle = strangers().find(|one| one.is_idle());
        let any = || strangers().next().filter(|_| self.limits.authenticated);
        let oldest = idle.or_else(any).map(Arc::clone)?;
        self.close(open, oldest);
        Some(())
    }

    fn close(&self, open: &mut Open, oldest: Arc<Connection>) {
        open.remove(&oldest);
        oldest.end(CLOSING);
        open.closing.push_back(oldest);
        if open.closing.len() > self.limits.all.div_ceil(CLOSING_PART)
            && let Some(longest) = open.closing.pop_front()
        {
            longest.end(CUT_OFF);
        }
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
        match connection.caller.get() {
            None => self.forget_stranger(connection.network),
            Some(caller) => decrement(&mut self.callers, caller),
        }
    }

    fn forget_stranger(&mut self, network: Network) {
        decrement(&mut self.strangers, &network);
    }
}

fn decrement<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
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
    /// Whose valid credential was presented on it first.
    caller: OnceLock<SmolStr>,
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

    fn is_idle(&self) -> bool {
        self.calls.load(Ordering::SeqCst) == 0
    }

    fn is_identified(&self) -> bool {
        self.caller.get().is_some()
    }

    /// Notes that a valid credential was presented on it.
    pub(crate) fn identify(&self, caller: &SmolStr) {
        if self.is_identified() {
            return;
        }
        let Some(all) = self.all.upgrade() else {
            return;
        };
        // Under the lock, so that it is counted as a stranger's exactly until now.
        let mut open = all.open();
        // One that is closing, or gone, is counted no more.
        if self.caller.set(caller.clone()).is_ok() && open.connections.contains_key(&self.number) {
            open.forget_stranger(self.network);
            *open.callers.entry(caller.clone()).or_default() += 1;
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
        Connections::new(
            ConnectionLimits { all, per_network, authenticated: false },
            Arc::new(CallMemory::new(1 << 20, 1 << 20)),
        )
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
        identified.connection.identify(&"alice".into());
        let busy = all.admit(peer("10.0.0.2")).expect("room");
        let call = busy.connection.begin("/service/Call");
        let idle = all.admit(peer("10.0.0.3")).expect("room");
        let watch = idle.connection.begin(ENDLESS[0]);
        assert!(watch.is_none(), "it does not keep its connection open");
        let new = all.admit(peer("10.0.0.4")).expect("the idle one goes");
        assert!(is_closing(&idle) && !is_closing(&busy) && !is_closing(&identified));
        new.connection.identify(&"bob".into());
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
        second.connection.identify(&"alice".into());
        let third = all.admit(peer("2001:db8::3")).expect("the second is counted no more");
        drop(calls);
        let fourth = all.admit(peer("2001:db8::4")).expect("the first is idle");
        assert!(is_closing(&first) && !is_closing(&second) && !is_closing(&third) && !is_closing(&other));
        drop((first, second, third, fourth, other));
        assert!(all.open().strangers.is_empty() && all.open().connections.is_empty() && all.open().closing.is_empty());
    }

    #[test]
    fn a_caller_with_many_connections_makes_room_and_others_do_not() {
        let all = connections(8, 8);
        let admitted: Vec<_> = (0..8).map(|_| all.admit(peer("10.0.0.1")).expect("room")).collect();
        for (number, one) in admitted.iter().enumerate() {
            one.connection.identify(&if number < 2 { "bob" } else { "alice" }.into());
        }
        let call = admitted[2].connection.begin("/service/Call");
        for _ in 0..4 {
            let new = all.admit(peer("10.0.0.1")).expect("alice has more than a quarter");
            new.connection.identify(&"cleo".into());
            std::mem::forget(new);
        }
        let closing: Vec<_> = admitted.iter().map(is_closing).collect();
        assert_eq!(closing, [false, false, false, true, true, true, true, false], "the oldest idle ones of alice");
        drop(call);
        std::mem::forget(admitted);
    }

    #[test]
    fn where_callers_are_authenticated_a_stranger_with_a_call_makes_room_too() {
        let limits = ConnectionLimits { all: 2, per_network: 2, authenticated: true };
        let all = Connections::new(limits, Arc::new(CallMemory::new(1 << 20, 1 << 20)));
        let admitted = [all.admit(peer("10.0.0.1")).expect("room"), all.admit(peer("10.0.0.2")).expect("room")];
        let calls = [&admitted[0], &admitted[1]].map(|one| one.connection.begin("/service/Call"));
        let new = all.admit(peer("10.0.0.3")).expect("the oldest makes room");
        assert!(is_closing(&admitted[0]) && !is_closing(&admitted[1]));
        drop((calls, new));
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
