//! Subscribers see every accepted envelope once, in order, from the history into the live feed.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{accept, engine, envelope, open_decision};
use macp_engine::{Engine, Options, Subscription, SubscriptionError};
use macp_ledger::MemoryStore;

async fn next(subscription: &mut Subscription) -> (u64, String) {
    let delivery = tokio::time::timeout(Duration::from_secs(20), subscription.next()).await;
    let delivery = delivery.expect("in time").expect("no error");
    (delivery.ordinal, delivery.envelope.message_id)
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
    // Joins while it waits: nothing that was there before is delivered.
    let waited = tokio::time::timeout(Duration::from_millis(100), subscription.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    talk(&engine, 0, 1).await;
    assert_eq!(next(&mut subscription).await, (4, "m0".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_subscriber_is_dropped_and_can_resume() {
    let options = Options { subscriber_buffer: 8, ..Options::default() };
    let engine = engine(Arc::new(MemoryStore::new()), options);
    open_decision(&engine, "s").await;
    let mut slow = engine.subscribe("s", 3);
    let waited = tokio::time::timeout(Duration::from_millis(100), slow.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    talk(&engine, 0, 100).await;
    let mut last = 3;
    let error = loop {
        match slow.next().await {
            Ok(delivery) => {
                assert_eq!(delivery.ordinal, last + 1);
                last = delivery.ordinal;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SubscriptionError::Lagged(_)), "{error:?}");
    assert!(last < 103);
    let mut resumed = engine.subscribe("s", last);
    for expected in last + 1..=103 {
        assert_eq!(next(&mut resumed).await.0, expected);
    }
}
