//! Drives a shard with a task: drains what has arrived, decides each in order, hands over one batch.
//!
//! A task and not a thread, because requests come from tasks and answers go to tasks: on the runtime's own threads both
//! are a push to a local queue, between threads each is a wake-up by the kernel. A step takes microseconds and never
//! blocks. A step that panics costs its session what was decided and not yet written, and nothing else.
//!
//! What is decided goes to the writer. While there is but one request in the engine, the shard commits it itself, for
//! the same reason, and waits: there is nothing else to decide, and the disk was quick the last time.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use crate::commit::Commits;
use crate::feed::Feed;
use crate::gate::{Gate, Permit};
use crate::loader::Load;
use crate::panic::contain;
use crate::writer::Batch;
use crate::{Answer, Effect, Error, Event, Observer, Outgoing, Shard};

/// Events taken before what they decided is handed over.
pub(crate) const EVENTS_PER_FLUSH_MAX: usize = 1024;

/// Where a request's answer goes; its place in the gate is free once it is answered.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<Result<Answer, Error>>,
    pub(crate) permit: Permit,
}

impl Waiter {
    fn answer(self, result: Result<Answer, Error>) {
        drop(self.permit);
        // A client that hung up does not want to know.
        let _hung_up = self.answer.send(result);
    }
}

/// What a shard's task is connected to.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) index: usize,
    pub(crate) events: mpsc::UnboundedReceiver<Event<Waiter>>,
    pub(crate) loads: Arc<Mutex<Sender<Load>>>,
    pub(crate) batches: Sender<Batch>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) gate: Arc<Gate>,
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
    let mut deliveries = Vec::new();
    let mut events = Vec::new();
    // Appends whose results this shard has not taken in yet, whether they are written or not.
    let mut under_way = 0_usize;
    while !events.is_empty() || wiring.events.recv_many(&mut events, EVENTS_PER_FLUSH_MAX).await > 0 {
        // Not for what is there already, such as the next message of a client that sends one after the other.
        if wiring.gate.requests() > events.len() {
            give_way().await;
        }
        while events.len() < EVENTS_PER_FLUSH_MAX
            && let Ok(event) = wiring.events.try_recv()
        {
            events.push(event);
        }
        for event in events.drain(..) {
            under_way = under_way.saturating_sub(usize::from(matches!(event, Event::Appended { .. })));
            let session_id = event.session_id().map(Arc::clone);
            let stepped = contain("a step", session_id.as_deref(), || shard.step(event, clock(), &mut effects));
            if let (Err(_logged), Some(session_id)) = (stepped, session_id) {
                shard.abandon(&session_id, &mut effects);
            }
        }
        shard.flush(&mut effects);
        wiring.resident.store(shard.resident(), Ordering::Relaxed);
        // Results come in the order of their appends, so none may be on its way from the writer. And whoever was told
        // something goes on on this thread, which must not wait for a disk then.
        let is_alone = matches!(effects[..], [Effect::Append(_)]) && under_way == 0 && wiring.gate.requests() == 1;
        for effect in effects.drain(..) {
            match effect {
                Effect::Append(append) => appends.push(append),
                Effect::Publish { session_id, records } => deliveries.push((session_id, records)),
                other => {
                    // An answer that is lost with it reaches its asker as an internal error.
                    let _logged = contain("an effect", None, || perform(other, &wiring));
                }
            }
        }
        under_way += appends.len();
        if is_alone && let Some(turn) = wiring.commits.at_once() {
            call_another_thread();
            let landed = turn.commit(std::mem::take(&mut appends));
            events.extend(landed.map(|(session_id, result)| Event::Appended { session_id, result }));
        } else if !appends.is_empty() {
            // The next batch is likely to be as long.
            let next = Vec::with_capacity(appends.len());
            let batch = Batch { shard: wiring.index, appends: std::mem::replace(&mut appends, next) };
            wiring.batches.send(batch).expect("the writer outlives the shards");
        }
        if !deliveries.is_empty() && wiring.feed.has_subscribers() {
            // Whoever waits for an answer goes on to send the next message; a hundred subscribers before it in the line
            // would keep the writer idle for as long.
            give_way().await;
        }
        for (session_id, records) in deliveries.drain(..) {
            let _logged = contain("a delivery", Some(&session_id), || wiring.feed.publish(&session_id, &records));
        }
    }
}

/// Lets the tasks that are ready go first, once. The runtime runs a task that was just woken before all others, so that
/// without this a shard would take the request of the first handler alone, and the writer commit it alone, while the
/// next handlers stand in line. A task that wakes itself goes to the end of that line.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|cx| {
        if gave_way {
            return Poll::Ready(());
        }
        gave_way = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Sees to it that another of the runtime's threads is awake and listens to the network while this one waits for a
/// disk. Of two new tasks the runtime keeps one for the thread that made them; the other is for any, and it wakes one
/// for it.
fn call_another_thread() {
    drop((tokio::spawn(async {}), tokio::spawn(async {})));
}

fn perform(effect: Effect<Waiter>, wiring: &Wiring) {
    match effect {
        Effect::Load(load) => {
            let loads = wiring.loads.lock().unwrap_or_else(PoisonError::into_inner);
            loads.send(load).expect("the loaders outlive the shards");
        }
        Effect::Append(_) | Effect::Publish { .. } => unreachable!("gathered"),
        Effect::Send(Outgoing::Answer(waiter, result)) => waiter.answer(result),
        Effect::Send(Outgoing::Lifecycle(lifecycle)) => wiring.feed.announce(*lifecycle),
        Effect::Send(Outgoing::Trace(event)) => wiring.observer.traced(*event),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use macp_kernel::{Caller, Command, Input, Limits, Registered, SignatureCheck};
    use macp_ledger::{Hash, Head, MemoryStore};
    use macp_wire::classic::v1::SessionStartPayload;
    use macp_wire::v1::{Envelope, SessionMetadata};
    use prost::Message;

    use super::*;
    use crate::{Keep, Request, RequestKind, Silent};

    fn read(gate: &Arc<Gate>, session_id: &str) -> (Event<Waiter>, oneshot::Receiver<Result<Answer, Error>>) {
        let (answer, answered) = oneshot::channel();
        let reply = Waiter { answer, permit: gate.enter(0).expect("there is room") };
        (Event::Request(Request { session_id: session_id.into(), kind: RequestKind::Read, reply }), answered)
    }

    async fn in_time(answered: oneshot::Receiver<Result<Answer, Error>>) -> Result<Answer, Error> {
        let answer = tokio::time::timeout(Duration::from_secs(20), answered).await;
        answer.expect("in time").expect("answered")
    }

    /// A shard at work, and the other ends of what it is connected to.
    struct Connected {
        events: mpsc::UnboundedSender<Event<Waiter>>,
        to_load: Receiver<Load>,
        batches: Receiver<Batch>,
        gate: Arc<Gate>,
        driver: tokio::task::JoinHandle<()>,
    }

    fn connected(workers: usize) -> Connected {
        let (events, receiver) = mpsc::unbounded_channel();
        let (loads, to_load) = channel();
        let (batch_sender, batches) = channel();
        let (ended, _ended) = channel();
        let gate = Gate::new(10, 10_000);
        let wiring = Wiring {
            index: 0,
            events: receiver,
            loads: Arc::new(Mutex::new(loads)),
            batches: batch_sender,
            commits: Commits::new(Arc::new(MemoryStore::new()), Arc::default(), Arc::new(Silent), workers),
            feed: Arc::new(Feed::new(1)),
            gate: Arc::clone(&gate),
            observer: Arc::new(Silent),
            resident: Arc::default(),
            _ended: ended,
        };
        let shard =
            Shard::new(Limits::default(), Keep { sessions_max: 10, bytes_max: u64::MAX, idle_ms_max: 1_000 }, false);
        Connected { events, to_load, batches, gate, driver: tokio::spawn(run(shard, wiring)) }
    }

    fn start(gate: &Arc<Gate>, session_id: &str) -> (Event<Waiter>, oneshot::Receiver<Result<Answer, Error>>) {
        let payload = SessionStartPayload { ttl_ms: 60_000, ..SessionStartPayload::default() }.encode_to_vec();
        let envelope = Envelope {
            macp_version: "1.0".into(),
            message_type: "SessionStart".into(),
            message_id: "m".into(),
            session_id: session_id.into(),
            sender: "alice".into(),
            payload: payload.into(),
            ..Envelope::default()
        };
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
        let kind = RequestKind::Command(Box::new(Command { caller: Caller::anonymous(), input }));
        let (answer, answered) = oneshot::channel();
        let reply = Waiter { answer, permit: gate.enter(0).expect("there is room") };
        (Event::Request(Request { session_id: session_id.into(), kind, reply }), answered)
    }

    /// What time ends has nobody who waits for it, so that requests alone do not show that it is under way.
    #[tokio::test]
    async fn nothing_is_committed_at_once_while_a_result_is_on_its_way() {
        let Connected { events, batches, gate, .. } = connected(2);
        let batches = Arc::new(Mutex::new(batches));
        let next_batch = || {
            let batches = Arc::clone(&batches);
            let next = move || batches.lock().expect("one at a time").recv_timeout(Duration::from_secs(20));
            async { tokio::task::spawn_blocking(next).await.expect("no panic").expect("for the writer") }
        };
        let summary = SessionMetadata { expires_at_unix_ms: 1, ..SessionMetadata::default() }.encode_to_vec();
        let hash = Hash::from_bytes([0; 32]);
        let (session_id, summary) = ("late".into(), summary.into());
        let head = Head { session_id, sequence: 1, hash, open: true, deadline_ms: 1, state: 1, summary };
        events.send(Event::Due(head)).expect("the shard runs");
        let expiry = next_batch().await.appends.remove(0);

        let (request, answered) = start(&gate, "behind");
        events.send(request).expect("the shard runs");
        let behind = next_batch().await.appends.remove(0);
        assert_eq!(&*behind.session_id, "behind");
        for append in [expiry, behind] {
            let (session_id, result) = (append.session_id, Ok(append.records));
            events.send(Event::Appended { session_id, result }).expect("the shard runs");
        }
        in_time(answered).await.expect("accepted");

        let (request, answered) = start(&gate, "alone");
        events.send(request).expect("the shard runs");
        in_time(answered).await.expect("accepted");
        assert!(batches.lock().expect("free").try_recv().is_err(), "it was committed at once");
    }

    #[tokio::test]
    async fn a_step_that_panics_fails_its_session_and_the_shard_goes_on() {
        let Connected { events, to_load, batches: _batches, gate, driver } = connected(1);
        let (bad, bad_answered) = read(&gate, "bad");
        let (good, good_answered) = read(&gate, "good");
        events.send(bad).expect("the shard runs");
        // Nothing of this session is being written, so that the shard's assertion fails.
        events.send(Event::Appended { session_id: "bad".into(), result: Ok(Vec::new()) }).expect("the shard runs");
        assert!(matches!(in_time(bad_answered).await, Err(Error::Internal)));
        events.send(good).expect("the shard runs");
        let loads = tokio::task::spawn_blocking(move || to_load.iter().take(2).collect::<Vec<_>>()).await;
        let loads = loads.expect("two loads");
        assert_eq!(loads.iter().map(|load| &*load.session_id).collect::<Vec<_>>(), ["bad", "good"]);
        for load in loads {
            events.send(Event::Loaded { load, result: Ok(None) }).expect("the shard runs");
        }
        assert!(matches!(in_time(good_answered).await, Ok(Answer::Read(None))));
        drop(events);
        driver.await.expect("the driver ends by itself");
        assert_eq!(gate.requests(), 0);
    }
}
