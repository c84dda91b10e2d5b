//! Subscribers see every accepted envelope once, in order, from the history into the live feed.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Flaky, accept, engine, envelope, open_decision};
use macp_engine::{Engine, Options, Subscription, SubscriptionError};
use macp_ledger::{Append, IndexUpdate, MemoryStore, Store};
use macp_wire::v1::Envelope;
use prost::Message;

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("in time")
}

async fn next(subscription: &mut Subscription) -> (u64, String) {
    let delivery = in_time(subscription.next()).await.expect("no error");
    (delivery.ordinal, Envelope::decode(delivery.envelope.clone()).expect("an envelope").message_id)
}

async fn talk(engine: &Engine, from: usize, to: usize) {
    for at in from..to {
        accept(engine, envelope("s", "Message", &format!("m{at}"), "alice", b"hello")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_then_live_without_gap_or_repetition() {
    let options = Options { subscriber_buffer: 4096, ..Options::default() };
    let engine = engine(Arc::new(MemoryStore::new()), options);
    open_decision(&engine, "s").await;
    talk(&engine, 0, 500).await;
    let talker = {
        let engine = engine.clone();
        tokio::spawn(async move { talk(&engine, 500, 1500).await })
    };
    let mut subscription = engine.subscribe("s", 0);
    for expected in 1..=1503 {
        let (ordinal, _) = next(&mut subscription).await;
        assert_eq!(ordinal, expected);
    }
    talker.await.expect("no panic");

    let mut tail = engine.subscribe("s", 1500);
    assert_eq!(next(&mut tail).await.0, 1501);
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_end_means_whatever_comes_next() {
    let engine = engine(Arc::new(MemoryStore::new()), Options::default());
    open_decision(&engine, "s").await;
    let mut subscription = engine.subscribe("s", 1_000_000);
    // It joins while it waits, at a moment nobody can see: messages are sent until one arrives.
    let waiting = tokio::spawn(async move { next(&mut subscription).await });
    let mut sent = 0;
    while !waiting.is_finished() {
        talk(&engine, sent, sent + 1).await;
        sent += 1;
    }
    let (ordinal, message_id) = waiting.await.expect("no panic");
    assert!(ordinal > 3, "{message_id} was there before");
    assert_eq!(message_id, format!("m{}", ordinal - 4));
}

/// Lets a subscriber fall behind, by messages of a size, until it is dropped; it must be able to resume.
async fn falls_behind(options: Options, payload: &[u8], messages: usize) {
    let engine = engine(Arc::new(MemoryStore::new()), options);
    open_decision(&engine, "s").await;
    let mut slow = engine.subscribe("s", 3);
    let (mut sent, mut last) = (0, 3);
    let speak = async |at: usize| {
        accept(&engine, envelope("s", "Message", &format!("m{at}"), "alice", payload)).await;
    };
    // As long as it has not joined the live feed it reads from the history and cannot fall behind. It joins while it
    // waits, so it is let wait again and again.
    let error = 'dropped: loop {
        let (mut next, ()) = tokio::join!(slow.next(), speak(sent));
        sent += 1;
        for _ in 0..messages {
            speak(sent).await;
            sent += 1;
        }
        loop {
            match next {
                Ok(delivery) => assert_eq!(delivery.ordinal, last + 1),
                Err(error) => break 'dropped error,
            }
            last += 1;
            if last == 3 + sent as u64 {
                break;
            }
            next = slow.next().await;
        }
    };
    assert!(matches!(error, SubscriptionError::Lagged(_)), "{error:?}");
    let mut resumed = engine.subscribe("s", last);
    for expected in last + 1..=3 + sent as u64 {
        assert_eq!(next(&mut resumed).await.0, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_slow_by_count_is_dropped_and_can_resume() {
    let options = Options { subscriber_buffer: 8, ..Options::default() };
    in_time(falls_behind(options, b"hello", 20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_slow_by_bytes_is_dropped_and_can_resume() {
    in_time(falls_behind(Options::default(), &vec![b'x'; 1_000_000], 10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_record_ends_the_subscription_from_anywhere() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;
    let records = store.read("s", 0, 3, usize::MAX).expect("readable");
    let mut second = records[1].clone();
    second.bytes = records[2].bytes.clone();
    // The same history with its second record changed, under a hash that belongs to the first version.
    let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 1, summary: None };
    let records = vec![records[0].clone(), second, records[2].clone()];
    let append = Append { session_id: "changed".into(), expected_sequence: 0, expected_hash: None, records, index };
    assert!(store.append(&[append]).remove(0).is_ok());
    for after in [0, 1] {
        let mut subscription = engine.subscribe("changed", after);
        let error = in_time(subscription.next()).await.expect_err("the record was changed");
        assert!(matches!(&error, SubscriptionError::Frame(corruption) if corruption.sequence == 2), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_subscribers_at_once_share_a_few_reads() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;
    let subscribers = (0..64).map(|_| {
        let mut subscription = engine.subscribe("s", 0);
        tokio::spawn(async move {
            for expected in 1..=4 {
                assert_eq!(next(&mut subscription).await.0, expected);
            }
        })
    });
    let subscribers: Vec<_> = subscribers.collect();
    talk(&engine, 0, 1).await;
    for subscriber in subscribers {
        subscriber.await.expect("no panic");
    }
    let most = store.reads_most.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_joins_a_session_that_never_rests_leaves_its_history_all_the_same() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options { subscriber_buffer: 4096, ..Options::default() });
    open_decision(&engine, "s").await;
    talk(&engine, 0, 10).await;
    let talker = {
        let engine = engine.clone();
        tokio::spawn(async move { talk(&engine, 10, 2_000).await })
    };
    let before = store.reads_all.load(Ordering::SeqCst);
    let mut subscription = engine.subscribe("s", 0);
    for expected in 1..=2_003 {
        assert_eq!(next(&mut subscription).await.0, expected);
    }
    talker.await.expect("no panic");
    let pages = store.reads_all.load(Ordering::SeqCst) - before;
    assert!(pages <= 8, "what was said while it read was read too, in {pages} pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_lost_its_end_ends_the_subscription() {
    let store = Flaky::new(MemoryStore::new());
    let engine = engine(store.clone(), Options::default());
    open_decision(&engine, "s").await;
    talk(&engine, 0, 7).await;
    store.lost_after.store(5, Ordering::SeqCst);
    for (after, first_lost) in [(0, 6), (7, 7)] {
        let mut subscription = engine.subscribe("s", after);
        let error = loop {
            if let Err(error) = in_time(subscription.next()).await {
                break error;
            }
        };
        assert!(matches!(&error, SubscriptionError::Frame(lost) if lost.sequence == first_lost), "{error:?}");
    }
}
