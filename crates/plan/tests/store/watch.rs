//! Following runs: in order, without gaps, from anywhere, to the end.

use std::time::Duration;

use macp_plan::store::{RunStore, StoreError, Watch};
use macp_plan_core::journal::RunStatus;

use crate::sample::{self, create, finished_run, run_finished, step_started};

/// Longest any of this may take before it counts as stuck.
const STUCK: Duration = Duration::from_secs(20);

async fn next(watch: &mut Watch) -> Result<Option<Vec<u64>>, StoreError> {
    let page = tokio::time::timeout(STUCK, watch.next()).await.expect("a watch got stuck")?;
    Ok(page.map(|page| page.iter().map(|sealed| sealed.seq()).collect()))
}

async fn watch(store: &RunStore, run_id: &str, from_seq: u64) -> Watch {
    store.watch(run_id, from_seq).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_sees_every_entry_once_and_goes_on_where_an_earlier_one_stopped() {
    const ENTRIES: u64 = 400;
    let store = sample::memory();
    let mut journal = create(&store, "r").await;
    let mut readers = Vec::new();
    for restart_every in [1, 3, 1_000] {
        let store = store.clone();
        readers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut pages = 0;
            let mut following = watch(&store, "r", 0).await;
            while let Some(page) = next(&mut following).await.unwrap() {
                seen.extend(page);
                pages += 1;
                if pages % restart_every == 0 {
                    following = watch(&store, "r", following.next_seq()).await;
                }
            }
            seen
        }));
    }
    while journal.next_seq() < ENTRIES - 1 {
        journal.append(vec![step_started("s1")]).await.unwrap();
    }
    journal.append(vec![run_finished(RunStatus::Succeeded)]).await.unwrap();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), (0..ENTRIES).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_watch_waits_for_more_and_can_be_left_while_it_does() {
    let store = sample::memory();
    let mut journal = create(&store, "r").await;
    let mut following = watch(&store, "r", 1).await;
    let early = tokio::time::timeout(Duration::from_millis(20), following.next()).await;
    assert!(early.is_err(), "nothing is there yet: {early:?}");
    journal.append(vec![step_started("s1"), step_started("s2")]).await.unwrap();
    assert_eq!(next(&mut following).await.unwrap(), Some(vec![1, 2]));
    // Entry 5 comes later than entries 3 and 4, and is the first this watch asked for.
    let mut ahead = watch(&store, "r", 5).await;
    let waiting = tokio::spawn(async move { next(&mut ahead).await.unwrap() });
    for _ in 0..3 {
        journal.append(vec![step_started("s1")]).await.unwrap();
    }
    assert_eq!(waiting.await.unwrap(), Some(vec![5]));
}

#[tokio::test]
async fn a_finished_run_ends_the_watch_wherever_it_begins() {
    let store = sample::memory();
    finished_run(&store, "r", Default::default()).await;
    let mut following = watch(&store, "r", 4).await;
    assert_eq!(next(&mut following).await.unwrap(), Some(vec![4, 5]));
    assert_eq!(next(&mut following).await.unwrap(), None);
    assert_eq!(next(&mut following).await.unwrap(), None);
    assert_eq!(next(&mut watch(&store, "r", 77).await).await.unwrap(), None);
    assert!(store.watch("no such run", 0).await.unwrap().is_none());
}

#[tokio::test]
async fn a_shutdown_ends_a_watch_that_waits() {
    let store = sample::memory();
    create(&store, "r").await;
    let mut following = watch(&store, "r", 1).await;
    let waiting = tokio::spawn(async move { next(&mut following).await });
    tokio::task::yield_now().await;
    store.shutdown().await;
    assert!(matches!(waiting.await.unwrap(), Err(StoreError::Closed)));
    let mut late = watch(&store, "r", 0).await;
    assert_eq!(next(&mut late).await.unwrap(), Some(vec![0]));
    assert!(matches!(next(&mut late).await, Err(StoreError::Closed)));
}
