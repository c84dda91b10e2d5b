//! The handle to the engine: cheap to clone, and the only thing the doors hold.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use macp_kernel::{Caller, Command, Input, Limits, Registered, Rejection, SignatureCheck, trace};
use macp_ledger::Store;
use macp_wire::codes::Code;
use macp_wire::v1::Envelope;
use prost::Message;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::commit::{Commits, Health};
use crate::driver::{self, Waiter, Wiring, clock};
use crate::feed::Feed;
use crate::gate::Gate;
use crate::shard::{Answer, Event, Keep, Request, RequestKind, Shard, Snapshot};
use crate::submission::{Asked, Submission};
use crate::subscription::{READS_MAX, Subscription};
use crate::sweeper::Sweeper;
use crate::watchers::Watch;
use crate::{Error, Lifecycle, Observer, Options, Signal, loader, writer};

/// Threads that load sessions, so that one long history does not hold up the next session.
const LOADERS: usize = 2;

/// The ordering authority of one node.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
    feed: Arc<Feed>,
    health: Arc<Health>,
    observer: Arc<dyn Observer>,
    shards: Vec<ShardHandle>,
    /// One for each page of history that subscribers may read at once.
    history_reads: Arc<Semaphore>,
    stop: Mutex<Option<Stop>>,
}

#[derive(Debug)]
struct ShardHandle {
    /// Behind a lock because the sender is taken away to stop the shard; sending only ever reads.
    events: std::sync::RwLock<Option<mpsc::UnboundedSender<Event<Waiter>>>>,
    resident: Arc<AtomicUsize>,
}

/// What it takes to stop the tasks and threads, in this order.
#[derive(Debug)]
struct Stop {
    sweeper: Sender<()>,
    /// Closes when the last shard has ended.
    shards_ended: Receiver<()>,
    shards: Vec<AbortHandle>,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts the threads, and the shards as tasks of the runtime it is called on. Reads nothing: sessions are loaded
    /// when someone asks for them.
    pub fn start(store: Arc<dyn Store>, options: Options, observer: Arc<dyn Observer>) -> std::io::Result<Engine> {
        let runtime = tokio::runtime::Handle::try_current().map_err(std::io::Error::other)?;
        let shards = options.shards.max(1);
        let feed = Arc::new(Feed::new(options.watcher_buffer));
        let health = Arc::new(Health::default());
        let gate = Gate::new(options.requests_in_flight_max, options.bytes_in_flight_max);
        let (events, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded_channel()).unzip();
        let (load_sender, load_receiver) = channel();
        let (load_sender, load_receiver) = (Arc::new(Mutex::new(load_sender)), Arc::new(Mutex::new(load_receiver)));
        let (batch_sender, batches) = channel();
        let (sweeper_stop, stop) = channel();
        let (ended, shards_ended) = channel();
        let workers = runtime.metrics().num_workers();
        let commits = Commits::new(Arc::clone(&store), Arc::clone(&health), Arc::clone(&observer), workers);
        let (mut tasks, mut threads) = (Vec::new(), Vec::new());
        let mut handles = Vec::new();

        for (index, (events, receiver)) in events.iter().cloned().zip(receivers).enumerate() {
            let resident = Arc::new(AtomicUsize::new(0));
            let wiring = Wiring {
                index,
                events: receiver,
                loads: Arc::clone(&load_sender),
                batches: batch_sender.clone(),
                commits: Arc::clone(&commits),
                feed: Arc::clone(&feed),
                gate: Arc::clone(&gate),
                observer: Arc::clone(&observer),
                resident: Arc::clone(&resident),
                _ended: ended.clone(),
            };
            let keep = Keep {
                sessions_max: options.resident_sessions_max.div_ceil(shards),
                // With less room than the longest session needs, its messages would wait for it to be loaded each time.
                bytes_max: (options.resident_bytes_max / shards as u64).max(options.limits.session_bytes_max),
                idle_ms_max: options.idle_ms_max,
            };
            let shard = Shard::new(options.limits.clone(), keep, options.trace);
            tasks.push(runtime.spawn(driver::run(shard, wiring)).abort_handle());
            handles.push(ShardHandle { events: std::sync::RwLock::new(Some(events)), resident });
        }
        drop((batch_sender, load_sender, ended));

        // The threads below hold weak ends or clones that must not keep the shards alive: they send through `relay`,
        // which finds the shard closed once the engine stops.
        let inner = Arc::new(Inner {
            gate: Arc::clone(&gate),
            options,
            store: Arc::clone(&store),
            feed: Arc::clone(&feed),
            health: Arc::clone(&health),
            observer: Arc::clone(&observer),
            shards: handles,
            history_reads: Arc::new(Semaphore::new(READS_MAX)),
            stop: Mutex::new(None),
        });
        for index in 0..LOADERS {
            let (store, queue, inner) = (Arc::clone(&store), Arc::clone(&load_receiver), Arc::downgrade(&inner));
            threads.push(spawn(format!("macp-loader-{index}"), move || {
                loader::run(store, queue, |load, result| {
                    if let Some(inner) = inner.upgrade() {
                        let shard = inner.shard_of(&load.session_id);
                        inner.relay(shard, Event::Loaded { load, result });
                    }
                });
            })?);
        }
        {
            let inner = Arc::downgrade(&inner);
            threads.push(spawn("macp-writer".into(), move || {
                writer::run(&commits, batches, &gate, |shard, results| {
                    if let Some(inner) = inner.upgrade() {
                        for (session_id, result) in results {
                            inner.relay(shard, Event::Appended { session_id, result });
                        }
                    }
                });
            })?);
        }
        {
            let (expirer, ticker) = (Arc::downgrade(&inner), Arc::downgrade(&inner));
            threads.push(spawn("macp-sweeper".into(), move || {
                let expire = |head: macp_ledger::Head| {
                    if let Some(inner) = expirer.upgrade() {
                        inner.relay(inner.shard_of(&head.session_id), Event::Due(head));
                    }
                };
                let tick = || {
                    if let Some(inner) = ticker.upgrade() {
                        (0..inner.shards.len()).for_each(|shard| inner.relay(shard, Event::Tick));
                    }
                };
                Sweeper::new(store, health, feed).run(&stop, clock, expire, tick);
            })?);
        }
        let stop = Stop { sweeper: sweeper_stop, shards_ended, shards: tasks, threads };
        *inner.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        Ok(Engine { inner })
    }

    /// Gives a command on a session to the engine, which decides those of one session in the order of these calls.
    pub fn submit(&self, session_id: &str, command: Command) -> Submission<'_> {
        let bytes = match &command.input {
            Input::Envelope { envelope, .. } => envelope.encoded_len() as u64,
            Input::Cancel { reason } | Input::Suspend { reason } | Input::Resume { reason } => reason.len() as u64,
            Input::Touch | Input::Expire(_) | Input::Synthetic { .. } => 0,
        };
        let traced = self.inner.options.trace.then(|| Box::new((session_id.to_owned(), command.clone())));
        let asked = self.ask(session_id, RequestKind::Command(Box::new(command)), bytes);
        Submission { asked, traced }
    }

    /// A command that got no verdict was refused for reasons outside the replay boundary. Where its session stood is
    /// not known, and nobody compares it.
    pub(crate) fn trace_failure(&self, session_id: &str, command: &Command, error: &Error) {
        let code = if matches!(error, Error::Overloaded) { Code::RateLimited } else { Code::InternalError };
        let verdict = (&Rejection::operational(code, error.to_string())).into();
        let event = trace::Event::new(clock(), session_id, 0, command, &self.inner.options.limits, verdict);
        self.inner.observer.traced(event);
    }

    /// What a session is like now; none if there is no such session.
    pub async fn session(&self, session_id: &str) -> Result<Option<Snapshot>, Error> {
        match self.ask(session_id, RequestKind::Read, 0).await? {
            Answer::Read(snapshot) => Ok(snapshot.map(|snapshot| *snapshot)),
            Answer::Verdict(_) => unreachable!("a read is answered by a snapshot"),
        }
    }

    fn ask(&self, session_id: &str, kind: RequestKind, bytes: u64) -> Asked<'_> {
        let inner = &self.inner;
        let answer = inner.gate.enter(bytes).map(|permit| {
            let (answer, answered) = oneshot::channel();
            let request = Request { session_id: session_id.into(), kind, reply: Waiter { answer, permit } };
            inner.relay(inner.shard_of(session_id), Event::Request(request));
            answered
        });
        Asked { engine: self, answer }
    }

    /// Whether new requests are refused because the engine shuts down.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.gate.is_closed()
    }

    /// Passes a Signal or Progress that was admitted on to those who watch.
    pub fn signal(&self, signal: Signal) {
        self.inner.feed.signal(signal);
    }

    /// Records a verdict that was reached at the door, before any session was asked to decide.
    pub fn trace(
        &self,
        envelope: &Envelope,
        signature: &SignatureCheck,
        caller: &Caller,
        verdict: trace::TracedVerdict,
    ) {
        let inner = &self.inner;
        if !inner.options.trace {
            return;
        }
        let input = Input::Envelope {
            envelope: envelope.clone(),
            signature: signature.clone(),
            registered: Registered::default(),
        };
        let command = Command { caller: caller.clone(), input };
        let event = trace::Event::new(clock(), &envelope.session_id, 0, &command, &inner.options.limits, verdict);
        inner.observer.traced(event);
    }

    /// Everything accepted into a session after an ordinal, from its history and then live.
    pub fn subscribe(&self, session_id: &str, after_ordinal: u64) -> Subscription {
        let Inner { feed, store, history_reads, options, .. } = &*self.inner;
        let (feed, store, reads) = (Arc::clone(feed), Arc::clone(store), Arc::clone(history_reads));
        Subscription::new(feed, store, reads, session_id.into(), after_ordinal, options.subscriber_buffer)
    }

    /// Lifecycle events from now on.
    pub fn watch_lifecycle(&self) -> Watch<Lifecycle> {
        self.inner.feed.watch_lifecycle()
    }

    /// Signals and Progress from now on.
    pub fn watch_signals(&self) -> Watch<Signal> {
        self.inner.feed.watch_signals()
    }

    /// For reading histories; it shows only what is durable.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub fn limits(&self) -> &Limits {
        &self.inner.options.limits
    }

    /// Whether the last write worked, or a probe since, and every task and thread is at work.
    pub fn is_healthy(&self) -> bool {
        let stop = self.inner.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let at_work = stop.as_ref().is_some_and(|stop| {
            let tasks = stop.shards.iter().all(|task| !task.is_finished());
            tasks && stop.threads.iter().all(|thread| !thread.is_finished())
        });
        at_work && self.inner.health.is_good()
    }

    /// Requests inside the engine.
    pub fn requests_in_flight(&self) -> usize {
        self.inner.gate.requests()
    }

    /// Sessions in memory.
    pub fn resident_sessions(&self) -> usize {
        self.inner.shards.iter().map(|shard| shard.resident.load(Ordering::Relaxed)).sum()
    }

    pub fn now_ms(&self) -> i64 {
        clock()
    }

    /// Refuses new requests and returns once everything inside is answered and all is at rest. Blocks.
    pub fn shut_down(&self) {
        let inner = &self.inner;
        inner.gate.close();
        let Some(stop) = inner.stop.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        drop(stop.sweeper);
        while inner.gate.requests() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for shard in &inner.shards {
            shard.events.write().unwrap_or_else(PoisonError::into_inner).take();
        }
        // Nobody sends: it closes when the last shard lets go of its end.
        let _closed = stop.shards_ended.recv();
        for thread in stop.threads {
            if thread.join().is_err() {
                tracing::error!("an engine thread panicked");
            }
        }
    }
}

impl Inner {
    /// Where a session belongs; the same place for the life of the process.
    fn shard_of(&self, session_id: &str) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(session_id);
        usize::try_from(hash % self.shards.len() as u64).expect("smaller than the number of shards")
    }

    /// A closed shard drops the event, and with it the way to answer, which the asker takes for a shutdown.
    fn relay(&self, shard: usize, event: Event<Waiter>) {
        let events = self.shards[shard].events.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = events.as_ref() {
            let _gone = events.send(event);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.gate.close();
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(run)
}
