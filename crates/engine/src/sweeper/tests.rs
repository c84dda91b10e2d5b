//! Looks at stores with damaged sessions, one look after the other.

use std::cell::RefCell;

use macp_kernel::Limits;
use macp_ledger::contract::Around;
use macp_ledger::{Append, Failure, FailureKind, IndexUpdate, MemoryStore, record};
use macp_wire::history::v1::Binding;
use macp_wire::v1::SessionSuspendPayload;

use super::*;
use crate::shard::{Effect, Event, Keep, Shard};

/// Cannot be probed while told so.
#[derive(Debug, Default)]
struct Probed {
    inner: MemoryStore,
    fails: std::sync::atomic::AtomicBool,
}

impl Around for Probed {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn probe(&self) -> Result<(), Failure> {
        if self.fails.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(Failure::new(FailureKind::DiskFull, "checkpoint database"));
        }
        self.inner.probe()
    }
}

/// Stores a session of two records, the second of which may say something else than its hash covers.
fn store_session(store: &dyn Store, session_id: &str, deadline_ms: i64, damaged: bool) {
    let first = record::seal(None, &Entry { sequence: 1, ..Entry::default() });
    let mut second = record::seal(Some(&first.hash), &Entry { sequence: 2, ..Entry::default() });
    if damaged {
        second.bytes = first.bytes.clone();
    }
    let index = IndexUpdate { open: true, deadline_ms, state: 1, summary: None };
    let append = Append {
        session_id: session_id.into(),
        expected_sequence: 0,
        expected_hash: None,
        records: vec![first, second],
        index,
    };
    assert!(store.append(&[append]).remove(0).is_ok());
}

/// Stores a session whose index row is so long.
fn store_long(store: &dyn Store, session_id: &str, bytes: usize) {
    let first = record::seal(None, &Entry { sequence: 1, ..Entry::default() });
    let index = IndexUpdate { open: true, deadline_ms: 1, state: 1, summary: Some(vec![0; bytes].into()) };
    let append = Append {
        session_id: session_id.into(),
        expected_sequence: 0,
        expected_hash: None,
        records: vec![first],
        index,
    };
    assert!(store.append(&[append]).remove(0).is_ok());
}

fn sweeper(store: Arc<dyn Store>) -> (Sweeper, Arc<Health>) {
    let health = Arc::new(Health::default());
    (Sweeper::new(store, Arc::clone(&health), Arc::new(Feed::new(1))), health)
}

fn look(sweeper: &mut Sweeper, now: i64) -> Vec<String> {
    let sent = RefCell::new(Vec::new());
    sweeper.look(now, &|head| sent.borrow_mut().push(head.session_id.to_string()), &|| {});
    sent.into_inner()
}

#[test]
fn damaged_sessions_get_no_entry_and_starve_nobody() {
    let store = Arc::new(MemoryStore::new());
    for at in 0..2 * DUE_PER_LOOK {
        store_session(&*store, &format!("damaged-{at}"), 1, true);
    }
    store_session(&*store, "whole", 2, false);
    let (mut sweeper, _) = sweeper(store);
    let sent: Vec<_> = (0..3).map(|_| look(&mut sweeper, 10)).collect();
    assert_eq!(sent, [vec![], vec![], vec!["whole".to_owned()]]);
}

#[test]
fn a_session_that_stays_due_is_tried_less_and_less_often() {
    let store = Arc::new(MemoryStore::new());
    store_session(&*store, "s", 1, false);
    let (mut sweeper, health) = sweeper(store);
    let tries: Vec<i64> = (0..100_000).step_by(200).filter(|now| !look(&mut sweeper, 10 + now).is_empty()).collect();
    assert_eq!(tries, [0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000]);

    // A store that could not write is to blame for what failed meanwhile.
    health.set(false);
    assert!(look(&mut sweeper, 100_000).is_empty());
    health.set(true);
    assert_eq!(look(&mut sweeper, 100_200), ["s"]);
}

#[test]
fn a_look_sends_only_so_many_bytes() {
    let store = Arc::new(MemoryStore::new());
    for at in 0..10 {
        store_long(&*store, &format!("long-{at}"), DUE_BYTES_PER_LOOK / 4);
    }
    let (mut sweeper, _) = sweeper(store);
    let sent: Vec<usize> = (0..4).map(|_| look(&mut sweeper, 10).len()).collect();
    assert_eq!(sent, [4, 4, 2, 0]);
}

#[test]
fn what_has_ended_is_forgotten() {
    let store = Arc::new(MemoryStore::new());
    store_session(&*store, "s", 1, false);
    let (mut sweeper, _) = sweeper(Arc::clone(&store) as Arc<dyn Store>);
    assert_eq!(look(&mut sweeper, 10), ["s"]);
    assert_eq!(sweeper.tried.len(), 1);
    let head = store.head("s").expect("readable").expect("there");
    let expected_hash = Some(head.hash);
    let last = record::seal(expected_hash.as_ref(), &Entry { sequence: 3, ..Entry::default() });
    let index = IndexUpdate { open: false, deadline_ms: 1, state: 3, summary: None };
    let append = Append { session_id: "s".into(), expected_sequence: 2, expected_hash, records: vec![last], index };
    assert!(store.append(&[append]).remove(0).is_ok());
    assert!(look(&mut sweeper, 20).is_empty());
    assert!(sweeper.tried.is_empty());
}

#[test]
fn a_store_that_cannot_write_is_noticed_without_a_commit() {
    let store = Arc::new(Probed::default());
    let (mut sweeper, health) = sweeper(Arc::clone(&store) as Arc<dyn Store>);
    let mut looks = |count| (0..count).for_each(|_| assert!(look(&mut sweeper, 10).is_empty()));
    looks(LOOKS_PER_PROBE);
    assert!(health.is_good());
    store.fails.store(true, std::sync::atomic::Ordering::SeqCst);
    looks(LOOKS_PER_PROBE);
    assert!(!health.is_good());
    store.fails.store(false, std::sync::atomic::Ordering::SeqCst);
    looks(LOOKS_PER_TICK);
    assert!(health.is_good());
}

/// A row changed by hand must not have an entry written that no replay would make.
#[test]
fn a_session_is_loaded_where_the_index_is_not_certain() {
    const BOUND_MS: i64 = 100;
    let check = |input: Option<entry::Input>, state: SessionState, expires_at_unix_ms: i64| {
        let store = Arc::new(MemoryStore::new());
        let binding = Some(Box::new(Binding { deadline_unix_ms: BOUND_MS, ..Binding::default() }));
        let first = record::seal(None, &Entry { sequence: 1, binding, ..Entry::default() });
        let second = record::seal(Some(&first.hash), &Entry { sequence: 2, input, ..Entry::default() });
        let summary = SessionMetadata { expires_at_unix_ms, ..SessionMetadata::default() }.encode_to_vec().into();
        let index = IndexUpdate { open: true, deadline_ms: 1, state: state.into(), summary: Some(summary) };
        let records = vec![first, second];
        let append = Append { session_id: "s".into(), expected_sequence: 0, expected_hash: None, records, index };
        assert!(store.append(&[append]).remove(0).is_ok());
        let (mut sweeper, _) = sweeper(store);
        let keep = Keep { sessions_max: 1, bytes_max: u64::MAX, idle_ms_max: 1_000 };
        let (mut shard, effects) = (Shard::<()>::new(Limits::default(), keep, false), RefCell::new(Vec::new()));
        let shard = RefCell::new(&mut shard);
        let due = |head| shard.borrow_mut().step(Event::Due(head), 200, &mut effects.borrow_mut());
        sweeper.look(200, &due, &|| {});
        shard.borrow_mut().flush(&mut effects.borrow_mut());
        match &effects.borrow()[..] {
            [Effect::Append(_)] => "ends",
            [Effect::Load(_)] => "is loaded",
            other => panic!("{other:?}"),
        }
    };
    let suspended = || Some(entry::Input::SessionSuspend(SessionSuspendPayload::default()));
    assert_eq!(check(None, SessionState::Open, BOUND_MS), "ends");
    assert_eq!(check(None, SessionState::Open, BOUND_MS - 1), "is loaded");
    assert_eq!(check(None, SessionState::Open, BOUND_MS + 1), "is loaded");
    assert_eq!(check(None, SessionState::Suspended, BOUND_MS), "is loaded");
    assert_eq!(check(suspended(), SessionState::Suspended, BOUND_MS), "is loaded");
    assert_eq!(check(suspended(), SessionState::Open, BOUND_MS), "is loaded");
}
