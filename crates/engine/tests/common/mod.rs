//! Envelopes of classic sessions, and stores that fail on purpose.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use macp_engine::{Engine, Error, Options, Reply, Silent};
use macp_kernel::{Caller, Command, Input, Registered, Settled, SignatureCheck};
use macp_ledger::contract::Around;
use macp_ledger::{Append, AppendError, Failure, FailureKind, Head, PutMode, PutOutcome, Record, Store};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::v1::Envelope;
use prost::Message;

pub fn engine(store: Arc<dyn Store>, options: Options) -> Engine {
    Engine::start(store, options, Arc::new(Silent)).expect("threads can be started")
}

pub fn envelope(session: &str, message_type: &str, message_id: &str, sender: &str, payload: &[u8]) -> Envelope {
    Envelope {
        macp_version: "1.0".into(),
        message_type: message_type.into(),
        message_id: message_id.into(),
        session_id: session.into(),
        sender: sender.into(),
        payload: payload.to_vec().into(),
        ..Envelope::default()
    }
}

pub fn start(session: &str, ttl_ms: i64) -> Envelope {
    let payload = SessionStartPayload { ttl_ms, ..SessionStartPayload::default() };
    envelope(session, "SessionStart", "m-start", "alice", &payload.encode_to_vec())
}

pub fn command(envelope: Envelope) -> Command {
    Command {
        caller: Caller::anonymous(),
        input: Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() },
    }
}

pub async fn send(engine: &Engine, envelope: Envelope) -> Result<Reply, Error> {
    let session = envelope.session_id.clone();
    engine.submit(&session, command(envelope)).await
}

/// Sends and expects acceptance.
pub async fn accept(engine: &Engine, envelope: Envelope) {
    let reply = send(engine, envelope).await.expect("the engine answers");
    assert!(matches!(reply.settled, Settled::Accepted { .. }), "{reply:?}");
}

/// A session up to the point where it can be committed.
pub async fn open_decision(engine: &Engine, session: &str) {
    accept(engine, start(session, 60_000)).await;
    accept(engine, envelope(session, "Proposal", "m-p", "alice", br#"{"proposal_id":"p"}"#)).await;
    accept(engine, envelope(session, "Vote", "m-v", "bob", br#"{"proposal_id":"p","vote":"approve"}"#)).await;
}

pub fn code(reply: &Reply) -> &str {
    match &reply.settled {
        Settled::Rejected(rejection) => rejection.code.as_str(),
        other => panic!("not rejected: {other:?}"),
    }
}

/// Holds appends back, fails them or panics while told to, and counts what it is asked.
#[derive(Debug)]
pub struct Flaky<S> {
    pub inner: S,
    pub broken: AtomicBool,
    pub deletes_fail: AtomicBool,
    /// Appends and loads panic.
    pub panics: AtomicBool,
    /// Reads of histories under way, and the most there ever were at once.
    pub reads: AtomicUsize,
    pub reads_most: AtomicUsize,
    /// Pages read so far.
    pub reads_all: AtomicUsize,
    /// Appends that the writer's thread made, and all of them.
    pub appends_by_writer: AtomicUsize,
    pub appends_all: AtomicUsize,
    /// Records behind this sequence are lost.
    pub lost_after: AtomicU64,
    hold: Mutex<Hold>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Hold {
    closed: bool,
    /// An append waits.
    waiting: bool,
}

impl<S> Flaky<S> {
    pub fn new(inner: S) -> Arc<Self> {
        Arc::new(Flaky {
            inner,
            broken: false.into(),
            deletes_fail: false.into(),
            panics: false.into(),
            reads: 0.into(),
            reads_most: 0.into(),
            reads_all: 0.into(),
            appends_by_writer: 0.into(),
            appends_all: 0.into(),
            lost_after: u64::MAX.into(),
            hold: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Appends wait from now on, or go on.
    pub fn hold(&self, closed: bool) {
        self.hold.lock().expect("no panic").closed = closed;
        self.changed.notify_all();
    }

    /// Blocks until an append waits.
    pub fn wait_for_append(&self) {
        let hold = self.hold.lock().expect("no panic");
        drop(self.changed.wait_while(hold, |hold| !hold.waiting).expect("no panic"));
    }

    fn pass(&self) {
        let mut hold = self.hold.lock().expect("no panic");
        hold.waiting = true;
        self.changed.notify_all();
        let mut hold = self.changed.wait_while(hold, |hold| hold.closed).expect("no panic");
        hold.waiting = false;
    }

    fn failure() -> Failure {
        Failure::new(FailureKind::DiskFull, "told to fail")
    }
}

impl<S: Store> Around for Flaky<S> {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        self.pass();
        let is_writer = std::thread::current().name() == Some("macp-writer");
        self.appends_by_writer.fetch_add(usize::from(is_writer), Ordering::SeqCst);
        self.appends_all.fetch_add(1, Ordering::SeqCst);
        if self.broken.load(Ordering::SeqCst) {
            return batch.iter().map(|_| Err(AppendError::Failed(Self::failure()))).collect();
        }
        assert!(!self.panics.load(Ordering::SeqCst), "told to panic");
        self.inner.append(batch)
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        assert!(!self.panics.load(Ordering::SeqCst), "told to panic");
        self.inner.head(session_id)
    }

    fn read(&self, session_id: &str, after: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        let reads = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        self.reads_most.fetch_max(reads, Ordering::SeqCst);
        self.reads_all.fetch_add(1, Ordering::SeqCst);
        // Long enough for others to come.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let page = self.inner.read(session_id, after, limit, bytes_max);
        self.reads.fetch_sub(1, Ordering::SeqCst);
        let lost_after = self.lost_after.load(Ordering::SeqCst);
        page.map(|records| records.into_iter().filter(|record| record.sequence <= lost_after).collect())
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Self::failure());
        }
        self.inner.put_document(kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        if self.deletes_fail.load(Ordering::SeqCst) || self.broken.load(Ordering::SeqCst) {
            return Err(Self::failure());
        }
        self.inner.delete_document(kind, key)
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Self::failure());
        }
        self.inner.move_document(kind, key, new_key, bytes)
    }

    fn probe(&self) -> Result<(), Failure> {
        if self.broken.load(Ordering::SeqCst) { Err(Self::failure()) } else { self.inner.probe() }
    }
}
