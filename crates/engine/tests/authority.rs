//! History is the authority: nothing leaves before it is in there, and it alone brings everything back.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{Flaky, accept, engine, envelope, open_decision, send, start};
use macp_engine::{Engine, LifecycleEvent, Options};
use macp_kernel::{Settled, State, replay};
use macp_ledger::{Append, History, MemoryStore, SqliteStore, Store};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::{Entry, entry};
use prost::Message;

// With one thread, so that the entry is written by the writer while its shard goes on deciding.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn adm_3_nothing_leaves_before_what_it_depends_on_is_durable() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;
    store.hold(true);
    let commit = envelope("s", "Commitment", "c", "alice", b"");
    let (copy, late) = (commit.clone(), envelope("s", "Vote", "late", "bob", b"{}"));
    let spawn = |envelope| {
        let engine = engine.clone();
        tokio::spawn(async move { send(&engine, envelope).await.expect("answered").settled })
    };
    let accepted = spawn(commit);
    tokio::task::block_in_place(|| store.wait_for_append());
    // Decided on top of an entry that is still being written: a duplicate, a refusal and a read.
    let (duplicate, refused) = (spawn(copy), spawn(late));
    let read = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.session("s").await.expect("answered").expect("there").metadata.state })
    };
    while engine.requests_in_flight() < 4 {
        tokio::task::yield_now().await;
    }
    assert!(!accepted.is_finished() && !duplicate.is_finished() && !refused.is_finished() && !read.is_finished());
    assert_eq!(store.head("s").expect("readable").expect("there").sequence, 3);
    store.hold(false);
    assert!(matches!(accepted.await.expect("no panic"), Settled::Accepted { .. }));
    assert!(matches!(duplicate.await.expect("no panic"), Settled::Duplicate { .. }));
    assert!(matches!(refused.await.expect("no panic"), Settled::Rejected(_)));
    assert_eq!(read.await.expect("no panic"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_5_one_authority_puts_a_session_in_one_order() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), Options { shards: 4, ..Options::default() });
    accept(&engine, start("s", 60_000)).await;
    let senders: Vec<_> = (0..8)
        .map(|sender| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for at in 0..50 {
                    let id = format!("{sender}-{at:02}");
                    accept(&engine, envelope("s", "Message", &id, &format!("sender-{sender}"), b"")).await;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("no panic");
    }
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    let entries = entries(&*store, "s");
    assert_eq!(entries.len(), 401);
    for (at, entry) in entries.iter().enumerate() {
        assert_eq!((entry.sequence, entry.ordinal), (at as u64 + 1, at as u64 + 1));
        let Some(entry::Input::Envelope(envelope)) = &entry.input else { panic!("an envelope") };
        let before = last.insert(envelope.sender.clone(), envelope.message_id.clone());
        assert!(before.is_none_or(|before| before < envelope.message_id), "a sender's order was not kept");
    }
}

fn entries(store: &dyn Store, session_id: &str) -> Vec<Entry> {
    let mut history = History::open(store, session_id).expect("readable").expect("there");
    let mut entries = Vec::new();
    loop {
        let page = history.next_page().expect("whole");
        if page.is_empty() {
            return entries;
        }
        entries.extend(page.into_iter().map(|(_, entry)| entry));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rec_1_the_history_alone_brings_a_session_back() {
    let store = Arc::new(MemoryStore::new());
    let first = engine(store.clone(), Options::default());
    open_decision(&first, "s").await;
    let before = first.session("s").await.expect("answered").expect("there");
    // All a new engine gets is the records: a store made from nothing else.
    let copy = Arc::new(MemoryStore::new());
    let head = store.head("s").expect("readable").expect("there");
    let append = Append {
        session_id: "s".into(),
        expected_sequence: 0,
        expected_hash: None,
        records: store.read("s", 0, 100, usize::MAX).expect("readable"),
        index: macp_ledger::IndexUpdate {
            open: head.open,
            deadline_ms: head.deadline_ms,
            state: head.state,
            summary: None,
        },
    };
    copy.append(&[append]).remove(0).expect("stored");
    let second = engine(copy, Options::default());
    let after = second.session("s").await.expect("answered").expect("there");
    assert_eq!((before.metadata, before.sequence, before.ordinal), (after.metadata, after.sequence, after.ordinal));
}

/// The same messages, with and without sessions being let go in between, make the same history.
#[tokio::test(flavor = "multi_thread")]
async fn replay_7_a_rehydrated_session_goes_on_like_one_that_stayed() {
    async fn told(resident_sessions_max: usize) -> Vec<Option<entry::Input>> {
        let store = Arc::new(MemoryStore::new());
        let engine: Engine = engine(store.clone(), Options { resident_sessions_max, shards: 1, ..Options::default() });
        for step in 0..4 {
            for session in ["a", "b", "c"] {
                match step {
                    0 => accept(&engine, start(session, 60_000)).await,
                    1 => accept(&engine, envelope(session, "Proposal", "p", "x", br#"{"proposal_id":"p"}"#)).await,
                    2 => accept(&engine, envelope(session, "Vote", "v", "y", br#"{"vote":"approve"}"#)).await,
                    _ => accept(&engine, envelope(session, "Commitment", "c", "x", b"")).await,
                }
            }
        }
        ["a", "b", "c"].iter().flat_map(|session| entries(&*store, session)).map(|entry| entry.input).collect()
    }
    assert_eq!(told(1).await, told(1_000).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_1_a_session_expires_in_the_background() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    let mut lifecycle = engine.watch_lifecycle();
    accept(&engine, start("s", 20)).await;
    let expired = async {
        loop {
            if lifecycle.recv().await.expect("an event").event == LifecycleEvent::Expired {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), expired).await.expect("nobody touched it, and still");
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_2_the_replay_engine_reproduces_a_live_session() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;
    accept(&engine, envelope("s", "Commitment", "c", "alice", br#"{"action":"go"}"#)).await;
    let mut replayer = replay::Replayer::new(replay::Options { semantic: true, ..replay::Options::default() });
    for entry in entries(&*store, "s") {
        replayer.feed(&entry).expect("the same decision");
    }
    let report = replayer.finish().expect("a whole history");
    assert_eq!((report.state, report.resolution.as_deref()), (State::Resolved, Some(&br#"{"action":"go"}"#[..])));
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_4_a_majority_ends_a_session() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    let payload = SessionStartPayload {
        participants: ["a", "b", "c"].map(str::to_owned).to_vec(),
        context: br#"{"convergence":{"strategy":"majority"}}"#.to_vec().into(),
        ..SessionStartPayload::default()
    };
    let mut start = envelope("s", "SessionStart", "m", "a", &payload.encode_to_vec());
    start.mode = "multi_round".into();
    accept(&engine, start).await;
    accept(&engine, envelope("s", "Contribute", "1", "a", br#"{"value":"x"}"#)).await;
    let last = send(&engine, envelope("s", "Contribute", "2", "c", br#"{"value":"x"}"#)).await.expect("answered");
    assert_eq!(last.state, Some(State::Resolved));
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_5_sessions_outlive_the_process_that_kept_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = engine(Arc::new(SqliteStore::open(directory.path()).expect("a store")), Options::default());
    open_decision(&first, "s").await;
    tokio::task::block_in_place(|| first.shut_down());
    drop(first);
    let second = engine(Arc::new(SqliteStore::open(directory.path()).expect("the store")), Options::default());
    assert_eq!(second.session("s").await.expect("answered").expect("there").ordinal, 3);
}
