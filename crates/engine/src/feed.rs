//! What leaves the engine besides answers, always after it is durable: envelopes to the subscribers of a session,
//! lifecycle events and signals to watchers. Every queue is bounded by count and by bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use macp_ledger::{Record, record};
use macp_wire::history::v1::{Entry, entry};
use macp_wire::v1::{Envelope, SessionMetadata, SessionState};
use prost::Message;

use crate::Snapshot;
use crate::live::{self, Live, Subscriber};
use crate::live_memory::LiveMemory;
use crate::watchers::{Watch, Watchers};

/// An accepted envelope on its way to a subscriber.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub sequence: u64,
    pub ordinal: u64,
    /// The envelope, encoded once for all subscribers.
    pub envelope: Bytes,
}

impl Delivery {
    /// None for bookkeeping entries, which are never delivered.
    pub(crate) fn from_entry(entry: Entry, hold: impl FnOnce(Vec<u8>) -> Bytes) -> Option<Delivery> {
        match entry.input {
            Some(entry::Input::Envelope(envelope)) => {
                let envelope = hold(envelope.encode_to_vec());
                Some(Delivery { sequence: entry.sequence, ordinal: entry.ordinal, envelope })
            }
            _ => None,
        }
    }
}

/// What happened to a session, for those who watch them all.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    pub event: LifecycleEvent,
    pub session: SessionMetadata,
    pub observed_at_ms: i64,
    /// The payload of the message that resolved the session: whoever looks for certain commitments can tell from it
    /// whether there is anything to read.
    pub resolved_by: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleEvent {
    Created,
    Suspended,
    Resumed,
    Resolved,
    Expired,
    Cancelled,
}

impl LifecycleEvent {
    /// What an entry tells those who watch; none for a message that leaves the session open.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        if let Some(terminal) = &entry.terminal {
            return match terminal.state() {
                SessionState::Resolved => Some(LifecycleEvent::Resolved),
                SessionState::Cancelled => Some(LifecycleEvent::Cancelled),
                _ => Some(LifecycleEvent::Expired),
            };
        }
        match &entry.input {
            Some(entry::Input::SessionSuspend(_)) => Some(LifecycleEvent::Suspended),
            Some(entry::Input::SessionResume(_)) => Some(LifecycleEvent::Resumed),
            _ if entry.sequence == 1 => Some(LifecycleEvent::Created),
            _ => None,
        }
    }
}

/// A Signal or Progress on its way to watchers.
#[derive(Clone, Debug)]
pub struct Signal {
    pub envelope: Envelope,
    pub sender_authenticated: bool,
    /// The session it is about, where the door looked at it: whoever watches need not look again.
    pub about: Option<Snapshot>,
}

/// Where subscribers and watchers are attached.
#[derive(Debug)]
pub(crate) struct Feed {
    sessions: Mutex<HashMap<Arc<str>, Vec<Subscriber>>>,
    /// How many subscribers there are, so that the common case of none costs no lock.
    subscribers: AtomicUsize,
    memory: Arc<LiveMemory>,
    lifecycle: Watchers<Lifecycle>,
    signals: Watchers<Signal>,
}

impl Feed {
    pub(crate) fn new(watcher_buffer: usize) -> Self {
        Feed {
            sessions: Mutex::default(),
            subscribers: AtomicUsize::new(0),
            memory: Arc::default(),
            lifecycle: Watchers::new(watcher_buffer),
            signals: Watchers::new(watcher_buffer),
        }
    }

    /// Joins a session's live feed; what was committed before is the history's to tell.
    pub(crate) fn join(&self, session_id: &Arc<str>, buffer: usize, neighbourhood: u64) -> Live {
        let (subscriber, live) = live::connect(buffer, neighbourhood);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let subscribers = sessions.entry(Arc::clone(session_id)).or_default();
        let place = subscribers.partition_point(|other| other.neighbourhood <= neighbourhood);
        subscribers.insert(place, subscriber);
        self.subscribers.fetch_add(1, Ordering::SeqCst);
        live
    }

    pub(crate) fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::SeqCst) > 0
    }

    /// Hands committed records to the session's subscribers, and wakes them when all have theirs. A full subscriber is
    /// dropped and told why; one that left is forgotten.
    pub(crate) fn publish(&self, session_id: &Arc<str>, records: &[Record]) {
        if !self.has_subscribers() {
            return;
        }
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(subscribers) = sessions.get_mut(session_id) else {
            return;
        };
        let before = subscribers.len();
        let behind_max = self.memory.behind_max();
        subscribers.retain(|subscriber| subscriber.keeps_up(behind_max));
        for record in records {
            let entry = record::open(&record.bytes).expect("the record was sealed by this process");
            let Some(delivery) = Delivery::from_entry(entry, |envelope| self.memory.hold(envelope)) else {
                continue;
            };
            subscribers.retain(|subscriber| subscriber.deliver(&delivery, self.memory.behind_max()));
        }
        self.subscribers.fetch_sub(before - subscribers.len(), Ordering::SeqCst);
        subscribers.iter().for_each(Subscriber::wake);
        if subscribers.is_empty() {
            sessions.remove(session_id);
        }
    }

    /// Forgets subscribers and watchers that left without being noticed, because all is quiet.
    pub(crate) fn prune(&self) {
        self.lifecycle.prune();
        self.signals.prune();
        if !self.has_subscribers() {
            return;
        }
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, subscribers| {
            subscribers.retain(|subscriber| {
                let gone = subscriber.has_left();
                if gone {
                    self.subscribers.fetch_sub(1, Ordering::SeqCst);
                }
                !gone
            });
            !subscribers.is_empty()
        });
    }

    pub(crate) fn announce(&self, lifecycle: Lifecycle) {
        if !self.lifecycle.is_empty() {
            let payload = lifecycle.resolved_by.as_ref().map_or(0, Bytes::len);
            let size = lifecycle.session.encoded_len() + payload;
            self.lifecycle.publish(lifecycle, size);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if !self.signals.is_empty() {
            let about = signal.about.as_ref().map_or(0, |session| session.metadata.encoded_len());
            let size = signal.envelope.encoded_len() + about;
            self.signals.publish(signal, size);
        }
    }

    pub(crate) fn watch_lifecycle(&self) -> Watch<Lifecycle> {
        self.lifecycle.join()
    }

    pub(crate) fn watch_signals(&self) -> Watch<Signal> {
        self.signals.join()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_who_share_a_way_out_are_beside_each_other() {
        let feed = Feed::new(1);
        let session_id = Arc::from("s");
        let lives: Vec<Live> = [7, 3, 7, 0, 3].map(|number| feed.join(&session_id, 1, number)).into();
        let sessions = feed.sessions.lock().expect("whole");
        let order: Vec<u64> = sessions[&session_id].iter().map(|subscriber| subscriber.neighbourhood).collect();
        assert_eq!(order, [0, 3, 3, 7, 7]);
        assert_eq!(lives.len(), order.len());
    }
}
