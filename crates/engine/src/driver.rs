//! Drives a shard with a task: drains what has arrived, decides each in order, hands over one batch.
//!
//! A task and not a thread, because requests come from tasks and answers go to tasks: on the runtime's own threads both
//! are a push to a local queue, between threads each is a wake-up by the kernel. A step takes microseconds and never
//! blocks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use crate::feed::Feed;
use crate::gate::Permit;
use crate::writer::Batch;
use crate::{Answer, Effect, Error, Event, Observer, Outgoing, Shard};

/// Events taken before what they decided is handed over.
const EVENTS_PER_FLUSH_MAX: usize = 1024;

/// Where a request's answer goes; its place in the gate is free once it is answered.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<Result<Answer, Error>>,
    pub(crate) permit: Permit,
}

/// What a shard's task is connected to.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) index: usize,
    pub(crate) events: mpsc::UnboundedReceiver<Event<Waiter>>,
    pub(crate) loads: Arc<Mutex<Sender<Arc<str>>>>,
    pub(crate) batches: Sender<Batch>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) resident: Arc<AtomicUsize>,
    /// Dropped with the task, which is how the engine learns that it has ended.
    pub(crate) _ended: Sender<()>,
}

/// Unix time in milliseconds.
pub(crate) fn clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Runs until nobody can send events any more.
pub(crate) async fn run(mut shard: Shard<Waiter>, mut wiring: Wiring) {
    let mut effects = Vec::new();
    let mut appends = Vec::new();
    let mut events = Vec::new();
    while wiring.events.recv_many(&mut events, EVENTS_PER_FLUSH_MAX).await > 0 {
        for event in events.drain(..) {
            shard.step(event, clock(), &mut effects);
        }
        shard.flush(&mut effects);
        wiring.resident.store(shard.resident(), Ordering::Relaxed);
        for effect in effects.drain(..) {
            match effect {
                Effect::Append(append) => appends.push(append),
                other => perform(other, &wiring),
            }
        }
        if !appends.is_empty() {
            let batch = Batch { shard: wiring.index, appends: std::mem::take(&mut appends) };
            wiring.batches.send(batch).expect("the writer outlives the shards");
        }
    }
}

fn perform(effect: Effect<Waiter>, wiring: &Wiring) {
    match effect {
        Effect::Load(session_id) => {
            let loads = wiring.loads.lock().unwrap_or_else(PoisonError::into_inner);
            loads.send(session_id).expect("the loaders outlive the shards");
        }
        Effect::Append(_) => unreachable!("appends are batched"),
        Effect::Publish { session_id, records } => wiring.feed.publish(&session_id, &records),
        Effect::Send(Outgoing::Answer(Waiter { answer, permit }, result)) => {
            drop(permit);
            // A client that hung up does not want to know.
            let _hung_up = answer.send(result);
        }
        Effect::Send(Outgoing::Lifecycle(lifecycle)) => wiring.feed.announce(lifecycle),
        Effect::Send(Outgoing::Trace(event)) => wiring.observer.traced(*event),
    }
}
