//! Failing writes, damaged histories: clear errors, nothing half there, and recovery without a restart.

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Flaky, accept, command, engine, envelope, open_decision, send, start};
use macp_engine::{Engine, Error, Observer, Options};
use macp_kernel::{Settled, trace};
use macp_ledger::{Append, IndexUpdate, MemoryStore, SqliteStore, Store};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_writes_lets_reads_go_on_and_heals() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;

    store.broken.store(true, Ordering::SeqCst);
    let failed = send(&engine, envelope("s", "Commitment", "c", "alice", b"")).await;
    assert!(matches!(&failed, Err(Error::Write(cause)) if cause.contains("disk is full")), "{failed:?}");
    assert!(!engine.is_healthy());
    let snapshot = engine.session("s").await.expect("reads go on").expect("there");
    assert_eq!(snapshot.ordinal, 3, "what was not stored is not shown");
    let duplicate = send(&engine, envelope("s", "Vote", "m-v", "bob", b"{}")).await.expect("answered");
    assert!(matches!(duplicate.settled, Settled::Duplicate { .. }));

    store.broken.store(false, Ordering::SeqCst);
    let healed = async {
        while !engine.is_healthy() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), healed).await.expect("the probe notices");
    accept(&engine, envelope("s", "Commitment", "c", "alice", b"")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_on_a_failed_write_falls_with_it() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;
    store.broken.store(true, Ordering::SeqCst);
    let burst: Vec<_> = (0..50)
        .map(|at| {
            let engine = engine.clone();
            let message = if at % 2 == 0 { "Message" } else { "Commitment" };
            let envelope = envelope("s", message, &format!("b{at}"), "alice", b"");
            tokio::spawn(async move { engine.submit("s", command(envelope)).await })
        })
        .collect();
    for one in burst {
        let result = one.await.expect("no panic");
        assert!(matches!(result, Err(Error::Write(_))), "an answer left that nothing durable backs: {result:?}");
    }
    store.broken.store(false, Ordering::SeqCst);
    for at in 0..50 {
        let message = envelope("s", "Message", &format!("b{at}"), "alice", b"");
        let reply = send(&engine, message).await.expect("answered");
        assert!(matches!(reply.settled, Settled::Accepted { .. }), "a failed write consumed an id: {reply:?}");
    }
}

#[test]
fn a_disk_that_hangs_under_a_lone_request_holds_up_one_thread_alone() {
    // Whatever else happens in an engine once a second wakes a thread too, and a busy machine may take as long.
    let is_in_time = || timers_beside_a_hanging_commit(Duration::from_millis(500));
    assert!((0..5).any(|_| is_in_time()), "nobody waits for timers beside a commit that hangs");
}

/// Whether a timer goes off in time while the thread that waited for timers before waits for a disk.
fn timers_beside_a_hanging_commit(patience: Duration) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("threads");
    let _inside = runtime.enter();
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    store.hold(true);
    let (answered, answer) = std::sync::mpsc::channel();
    let (rang, bell) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        answered.send(send(&engine, start("s", 60_000)).await).expect("waited for");
    });
    runtime.spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Nobody waits any more if it is late.
        let _late = rang.send(());
    });
    store.wait_for_append();
    let is_in_time = bell.recv_timeout(patience).is_ok();
    store.hold(false);
    let reply = answer.recv_timeout(Duration::from_secs(20)).expect("in time").expect("answered");
    assert!(matches!(reply.settled, Settled::Accepted { .. }), "{reply:?}");
    assert_eq!(store.appends_by_writer.load(Ordering::SeqCst), 0, "the request was alone");
    is_in_time
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_was_changed_stops_its_session_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    {
        let store = Arc::new(SqliteStore::open(directory.path()).expect("a store"));
        let engine = engine(store.clone(), Options::default());
        open_decision(&engine, "good").await;
        // A history with a good chain that no rule would have let through.
        let entry = macp_wire::history::v1::Entry { sequence: 1, ordinal: 1, ..Default::default() };
        let record = macp_ledger::record::seal(None, &entry);
        let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 1, summary: None };
        let append = Append {
            session_id: "bad".into(),
            expected_sequence: 0,
            expected_hash: None,
            records: vec![record],
            index,
        };
        assert!(store.append(&[append]).remove(0).is_ok());
        let bad = send(&engine, envelope("bad", "Vote", "m", "a", b"{}")).await;
        assert!(matches!(bad, Err(Error::Replay(_))), "{bad:?}");
        accept(&engine, envelope("good", "Commitment", "c", "alice", b"")).await;
        engine.shut_down();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn life_5_a_deadline_is_noticed_without_a_touch_and_without_a_load() {
    let store = Flaky::new(MemoryStore::new());
    let first = engine(store.clone(), Options::default());
    let mut lifecycle = first.watch_lifecycle();
    accept(&first, start("resident", 50)).await;
    accept(&first, start("evicted", 50)).await;
    first.shut_down();
    let created = lifecycle.recv().await.expect("an event");
    assert_eq!(created.event, macp_engine::LifecycleEvent::Created);

    // A new engine knows neither session, and nobody asks for them.
    let second = engine(store.clone(), Options::default());
    let mut lifecycle = second.watch_lifecycle();
    for _ in 0..2 {
        let expired = tokio::time::timeout(Duration::from_secs(20), lifecycle.recv()).await;
        let expired = expired.expect("in time").expect("an event");
        assert_eq!(expired.event, macp_engine::LifecycleEvent::Expired);
        assert_eq!(expired.session.state, 3);
        assert_eq!(expired.session.initiator, "alice");
    }
    assert_eq!(store.open_sessions().expect("countable"), 0);
    assert_eq!(second.resident_sessions(), 0, "a session was loaded to expire");
    let snapshot = second.session("evicted").await.expect("answered").expect("there");
    assert_eq!(second.resident_sessions(), 1, "what is loaded stays a while");
    assert_eq!(snapshot.metadata.state, 3);
    assert_eq!(snapshot.sequence, 2);
    second.shut_down();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_panics_fails_what_it_was_asked_and_nothing_else() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;

    store.panics.store(true, Ordering::SeqCst);
    let written = send(&engine, envelope("s", "Message", "m", "alice", b"")).await;
    assert!(matches!(written, Err(Error::Write(_))), "{written:?}");
    let loaded = engine.session("another").await;
    assert!(matches!(loaded, Err(Error::Internal)), "{loaded:?}");

    store.panics.store(false, Ordering::SeqCst);
    accept(&engine, envelope("s", "Message", "m", "alice", b"")).await;
    assert!(engine.session("another").await.expect("answered").is_none());
    assert!(engine.is_healthy());
}

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<trace::Event>>);

impl Observer for Recorder {
    fn traced(&self, event: trace::Event) {
        self.0.lock().expect("no panic").push(event);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overload_and_failed_writes_are_traced_as_operational_refusals() {
    let store = Flaky::new(MemoryStore::new());
    let recorder = Arc::new(Recorder::default());
    let options = Options { trace: true, requests_in_flight_max: 0, ..Options::default() };
    let full = Engine::start(store.clone(), options.clone(), recorder.clone()).expect("started");
    let refused = send(&full, start("s", 60_000)).await;
    assert!(matches!(refused, Err(Error::Overloaded)), "{refused:?}");

    let options = Options { requests_in_flight_max: 10, ..options };
    let engine = Engine::start(store.clone(), options, recorder.clone()).expect("started");
    store.broken.store(true, Ordering::SeqCst);
    let failed = send(&engine, start("s", 60_000)).await;
    assert!(matches!(failed, Err(Error::Write(_))), "{failed:?}");
    store.broken.store(false, Ordering::SeqCst);
    accept(&engine, start("s", 60_000)).await;

    let refused = |code: &str| trace::TracedVerdict::Rejected { code: code.into(), operational: true };
    let events = recorder.0.lock().expect("no panic");
    let verdicts: Vec<_> = events.iter().map(|event| event.verdict.clone()).collect();
    let expected = [refused("RATE_LIMITED"), refused("INTERNAL_ERROR"), trace::TracedVerdict::Accepted];
    assert_eq!(verdicts, expected);
    let mut replayer = trace::Replayer::default();
    let compared: Vec<_> = events.iter().map(|event| replayer.feed(event).expect("well-formed")).collect();
    let operational = trace::Comparison::Operational;
    assert_eq!(compared, [operational.clone(), operational, trace::Comparison::Same]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_session_past_its_deadline_gets_no_entry_and_degrades_nobody() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    let mut lifecycle = engine.watch_lifecycle();
    open_decision(&engine, "whole").await;
    let mut records = store.read("whole", 0, 3, usize::MAX).expect("readable");
    records[2].bytes = records[1].bytes.clone();
    let index = IndexUpdate { open: true, deadline_ms: 1, state: 1, summary: None };
    let append = Append { session_id: "damaged".into(), expected_sequence: 0, expected_hash: None, records, index };
    assert!(store.append(&[append]).remove(0).is_ok());

    // Due after the damaged one, so that a look that ends this one has met the other.
    accept(&engine, start("brief", 50)).await;
    let expired =
        async { while lifecycle.recv().await.expect("an event").event != macp_engine::LifecycleEvent::Expired {} };
    tokio::time::timeout(Duration::from_secs(20), expired).await.expect("in time");
    assert!(!store.head("brief").expect("readable").expect("there").open);
    let damaged = store.head("damaged").expect("readable").expect("there");
    assert_eq!((damaged.sequence, damaged.open), (3, true), "history was added to a damaged session");
    assert!(engine.is_healthy());
}
