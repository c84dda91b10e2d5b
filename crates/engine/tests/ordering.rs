//! One authority per session: order, races, duplicates, restarts.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use common::{Flaky, accept, code, engine, envelope, open_decision, send, start};
use macp_engine::Options;
use macp_kernel::{Settled, State};
use macp_ledger::{History, MemoryStore, SqliteStore};

#[tokio::test(flavor = "multi_thread")]
async fn life_2_first_commitment_wins() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    open_decision(&engine, "race").await;
    let racers: Vec<_> = (0..100)
        .map(|racer| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let commitment = envelope("race", "Commitment", &format!("c{racer}"), "alice", b"");
                send(&engine, commitment).await.expect("the engine answers")
            })
        })
        .collect();
    let mut winners = 0;
    for racer in racers {
        let reply = racer.await.expect("no racer panics");
        match &reply.settled {
            Settled::Accepted { .. } => winners += 1,
            _ => assert_eq!(code(&reply), "SESSION_NOT_OPEN"),
        }
        assert_eq!(reply.state, Some(State::Resolved));
    }
    assert_eq!(winners, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rec_2_a_restart_changes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let accepted_at = {
        let engine = engine(Arc::new(SqliteStore::open(directory.path()).expect("a store")), Options::default());
        open_decision(&engine, "s").await;
        let again = send(&engine, start("s", 60_000)).await.expect("the engine answers");
        engine.shut_down();
        match again.settled {
            Settled::Duplicate { accepted_at_ms } => accepted_at_ms,
            other => panic!("{other:?}"),
        }
    };
    let engine = engine(Arc::new(SqliteStore::open(directory.path()).expect("the store again")), Options::default());
    let again = send(&engine, start("s", 60_000)).await.expect("the engine answers");
    assert_eq!(again.settled, Settled::Duplicate { accepted_at_ms: accepted_at });
    accept(&engine, envelope("s", "Commitment", "c", "alice", b"")).await;
    let store = Arc::clone(engine.store());
    let mut history = History::open(&*store, "s").expect("readable").expect("there");
    let page = history.next_page().expect("whole");
    assert_eq!(page.len(), 4);
    assert!(history.next_page().expect("whole").is_empty());
    assert!(page[3].1.terminal.is_some());
    engine.shut_down();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_alone_and_in_bursts_become_one_history() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Flaky::new(SqliteStore::open(directory.path()).expect("a store"));
    let engine = engine(store.clone(), Options::default());
    accept(&engine, start("s", 60_000)).await;
    for round in 0..20 {
        accept(&engine, envelope("s", "Message", &format!("alone-{round}"), "alice", b"")).await;
        let message = |at| envelope("s", "Message", &format!("burst-{round}-{at}"), "alice", b"");
        let burst: Vec<_> = (0..8).map(|at| (engine.clone(), message(at))).collect();
        let burst =
            burst.into_iter().map(|(engine, message)| tokio::spawn(async move { accept(&engine, message).await }));
        for one in burst.collect::<Vec<_>>() {
            one.await.expect("accepted");
        }
    }
    let mut history = History::open(&*store, "s").expect("readable").expect("there");
    let mut entries = 0;
    loop {
        match history.next_page().expect("whole").len() {
            0 => break,
            more => entries += more,
        }
    }
    assert_eq!(entries, 1 + 20 * 9);
    let (by_writer, all) = (store.appends_by_writer.load(SeqCst), store.appends_all.load(SeqCst));
    assert!(0 < by_writer && by_writer < all, "{by_writer} of {all} commits by the writer: not both ways were taken");
    engine.shut_down();
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_4_concurrent_copies_of_one_message_become_one_entry() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    let copies: Vec<_> = (0..64)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { send(&engine, start("copies", 60_000)).await.expect("answered") })
        })
        .collect();
    let mut accepted = 0;
    for copy in copies {
        match copy.await.expect("no panic").settled {
            Settled::Accepted { .. } => accepted += 1,
            Settled::Duplicate { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 1);
    let head = engine.store().head("copies").expect("readable").expect("there");
    assert_eq!(head.sequence, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_sessions_cost_nothing() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    for at in 0..200 {
        let reply = send(&engine, envelope(&format!("none-{at}"), "Vote", "m", "a", b"{}")).await.expect("answered");
        assert_eq!(code(&reply), "SESSION_NOT_FOUND");
    }
    let too_long = "x".repeat(300);
    let reply = send(&engine, envelope(&too_long, "Vote", "m", "a", b"{}")).await.expect("answered");
    assert_eq!(code(&reply), "INVALID_ENVELOPE");
    assert!(engine.session("none-1").await.expect("answered").is_none());
    assert_eq!(engine.resident_sessions(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_beyond_the_bound_are_let_go_and_come_back() {
    let options = Options { resident_sessions_max: 8, shards: 2, ..Options::default() };
    let engine = engine(Arc::new(MemoryStore::new()), options);
    for at in 0..100 {
        open_decision(&engine, &format!("s{at}")).await;
    }
    assert!(engine.resident_sessions() <= 10, "{}", engine.resident_sessions());
    for at in 0..100 {
        let snapshot = engine.session(&format!("s{at}")).await.expect("answered").expect("there");
        assert_eq!(snapshot.ordinal, 3);
        let again =
            send(&engine, envelope(&format!("s{at}"), "Proposal", "m-p", "alice", b"")).await.expect("answered");
        assert!(matches!(again.settled, Settled::Duplicate { .. }), "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_at_once_is_refused_and_nothing_is_lost() {
    let options = Options { requests_in_flight_max: 4, ..Options::default() };
    let engine = engine(Arc::new(MemoryStore::new()), options);
    let crowd: Vec<_> = (0..500)
        .map(|at| {
            let engine = engine.clone();
            tokio::spawn(async move { (at, send(&engine, start(&format!("crowd-{at}"), 60_000)).await) })
        })
        .collect();
    let mut refused = 0;
    for one in crowd {
        let (at, result) = one.await.expect("no panic");
        let stored = engine.store().head(&format!("crowd-{at}")).expect("readable").is_some();
        match result {
            Ok(reply) => {
                assert!(matches!(reply.settled, Settled::Accepted { .. }));
                assert!(stored, "acknowledged and not stored");
            }
            Err(macp_engine::Error::Overloaded) => {
                refused += 1;
                assert!(!stored, "refused and stored");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0, "five hundred at once never met a bound of four");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shut_down_engine_says_so() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    accept(&engine, start("s", 60_000)).await;
    let stopped = engine.clone();
    tokio::task::spawn_blocking(move || stopped.shut_down()).await.expect("no panic");
    let refused = send(&engine, start("t", 60_000)).await;
    assert!(matches!(refused, Err(macp_engine::Error::ShuttingDown)), "{refused:?}");
    assert!(!engine.is_healthy());
}
