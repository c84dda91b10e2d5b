//! Writing journals: durable before anything is answered, grouped, owned by one writer, honest about failures.

use std::sync::Arc;
use std::task::Poll;

use macp_ledger::Store;
use macp_plan::store::{JournalError, RunStore, Status};
use macp_plan_core::journal::{Body, RunStatus};
use macp_plan_core::plan::StepStatus;

use crate::sample::{self, create, run_finished, run_id, started, step_finished, step_started};
use crate::wrapped::{Wrapped, Writes};

fn open(wrapped: &Arc<Wrapped>) -> RunStore {
    RunStore::open(Arc::clone(wrapped) as Arc<dyn Store>).unwrap()
}

async fn seqs(store: &RunStore, run_id: &str) -> Vec<u64> {
    store.load(run_id).await.unwrap().unwrap().entries.iter().map(|sealed| sealed.seq()).collect()
}

#[tokio::test]
async fn an_append_returns_only_when_the_store_has_it() {
    let wrapped = Wrapped::new();
    let store = open(&wrapped);
    let run_id = run_id(0);
    let mut journal = create(&store, &run_id).await;
    wrapped.hold();
    let appending = tokio::spawn(async move { journal.append(vec![step_started("s1")]).await.map(|_| journal) });
    let waiting = Arc::clone(&wrapped);
    tokio::task::spawn_blocking(move || waiting.wait_for_commits(2)).await.unwrap();
    tokio::task::yield_now().await;
    assert!(!appending.is_finished(), "answered before the commit has ended");
    assert_eq!(seqs(&store, &run_id).await, [0]);
    wrapped.release();
    let journal = appending.await.unwrap().unwrap();
    assert_eq!(journal.next_seq(), 2);
    assert_eq!(seqs(&store, &run_id).await, [0, 1]);
}

#[tokio::test]
async fn appends_of_many_runs_share_commits() {
    let wrapped = Wrapped::new();
    let store = open(&wrapped);
    let mut journals = Vec::new();
    for second in 0..64 {
        journals.push(create(&store, &run_id(second)).await);
    }
    let (commits_before, appends_before) = wrapped.counts();
    wrapped.hold();
    let mut appending: Vec<_> =
        journals.iter_mut().map(|journal| Box::pin(journal.append(vec![step_started("s1")]))).collect();
    // Every run hands over its append before the first commit ends.
    std::future::poll_fn(|context| {
        assert!(appending.iter_mut().all(|append| append.as_mut().poll(context).is_pending()));
        Poll::Ready(())
    })
    .await;
    wrapped.release();
    for append in appending {
        append.await.unwrap();
    }
    let (commits, appends) = wrapped.counts();
    assert_eq!(appends - appends_before, 64);
    assert!(commits - commits_before <= 2, "{} commits for 64 runs", commits - commits_before);
}

#[tokio::test]
async fn a_failed_write_stops_the_run_until_it_is_loaded_again() {
    for (writes, stored) in [(Writes::Fail, 1), (Writes::StoreAndFail, 2), (Writes::Panic, 1)] {
        let wrapped = Wrapped::new();
        let store = open(&wrapped);
        let run_id = run_id(0);
        let mut journal = create(&store, &run_id).await;
        wrapped.set(writes);
        let error = journal.append(vec![step_started("s1")]).await.unwrap_err();
        assert!(matches!(error, JournalError::Failed { .. }), "{writes:?}: {error}");
        assert_eq!(store.is_writable(), writes == Writes::Panic, "{writes:?}");
        wrapped.set(Writes::Work);
        // AOS-66: the handle does not guess what is stored.
        let error = journal.append(vec![step_started("s1")]).await.unwrap_err();
        assert!(matches!(error, JournalError::Lost(_)), "{writes:?}: {error}");
        let run = store.load(&run_id).await.unwrap().unwrap();
        assert_eq!(run.entries.len(), stored, "{writes:?}");
        let mut journal = store.resume(&run).unwrap();
        journal.append(vec![step_started("s2")]).await.unwrap();
        assert_eq!(seqs(&store, &run_id).await.len(), stored + 1);
        assert!(store.is_writable());
    }
}

#[tokio::test]
async fn a_write_nobody_waited_for_leaves_the_handle_lost() {
    let wrapped = Wrapped::new();
    let store = open(&wrapped);
    let run_id = run_id(0);
    let mut journal = create(&store, &run_id).await;
    wrapped.hold();
    tokio::select! {
        biased;
        _ = journal.append(vec![step_started("s1")]) => panic!("the commit is held back"),
        () = std::future::ready(()) => {}
    }
    wrapped.release();
    let error = journal.append(vec![step_started("s1")]).await.unwrap_err();
    assert!(matches!(error, JournalError::Lost(_)), "{error}");
    store.shutdown().await;
    assert_eq!(seqs(&store, &run_id).await, [0, 1]);
}

#[tokio::test]
async fn only_one_writer_gets_on() {
    let store = sample::memory();
    let run_id = run_id(0);
    create(&store, &run_id).await;
    let run = store.load(&run_id).await.unwrap().unwrap();
    let (mut first, mut second) = (store.resume(&run).unwrap(), store.resume(&run).unwrap());
    first.append(vec![step_started("s1")]).await.unwrap();
    let error = second.append(vec![step_started("s2")]).await.unwrap_err();
    assert!(matches!(error, JournalError::NotOwner { expected: 1, found: 2, .. }), "{error}");
    first.append(vec![step_finished("s1", StepStatus::Success)]).await.unwrap();
    assert_eq!(seqs(&store, &run_id).await, [0, 1, 2]);
    let start = run.start().clone();
    let error = store.create(started(start)).await.unwrap_err();
    assert!(matches!(error, JournalError::Exists(id) if id == run_id));
}

#[tokio::test]
async fn entries_out_of_order_are_refused_and_do_no_harm() {
    let store = sample::memory();
    let plan_hash = store.plans().keep(sample::plan("p1")).await.unwrap();
    let invalid = |result: Result<_, JournalError>| matches!(result, Err(JournalError::Invalid(_)));
    assert!(invalid(store.create(vec![step_started("s1")]).await.map(drop)));
    assert!(invalid(store.create(started(sample::start("", &plan_hash))).await.map(drop)));
    assert!(invalid(store.create(started(sample::start(&"x".repeat(129), &plan_hash))).await.map(drop)));
    let mut journal = create(&store, "r-2031").await;
    assert!(invalid(journal.append(started(sample::start("r-2031", &plan_hash))).await.map(drop)));
    let after_end = vec![run_finished(RunStatus::Failed), step_started("s1")];
    assert!(invalid(journal.append(after_end).await.map(drop)));
    assert_eq!(journal.append(Vec::new()).await.unwrap().len(), 0);
    journal.append(vec![run_finished(RunStatus::Failed)]).await.unwrap();
    let error = journal.append(vec![step_started("s1")]).await.unwrap_err();
    assert!(matches!(error, JournalError::Finished(_)));
    let run = store.load("r-2031").await.unwrap().unwrap();
    assert!(matches!(store.resume(&run), Err(JournalError::Finished(_))));
}

#[tokio::test]
async fn an_entry_without_canonical_form_is_refused_and_the_journal_goes_on() {
    let store = sample::memory();
    let mut journal = create(&store, "r").await;
    let error = journal.append(vec![Body::DeadlineReached { limit_ms: u64::MAX }]).await.unwrap_err();
    assert!(error.to_string().contains("2^53"), "{error}");
    journal.append(vec![step_started("s1")]).await.unwrap();
    assert_eq!(seqs(&store, "r").await, [0, 1]);
}

#[tokio::test]
async fn a_run_without_its_plan_is_not_created() {
    let store = sample::memory();
    let plan_hash = sample::request_digest("no plan");
    let error = store.create(started(sample::start("r", &plan_hash))).await.unwrap_err();
    assert!(matches!(error, JournalError::NoPlan(hash) if hash == plan_hash));
    assert!(store.load("r").await.unwrap().is_none());
}

#[tokio::test]
async fn the_summary_follows_the_run() {
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(sample::NOON_MS + 7));
    let reading = Arc::clone(&clock);
    let read = move || reading.load(std::sync::atomic::Ordering::Relaxed);
    let store = RunStore::open_with(Arc::new(macp_ledger::MemoryStore::new()), Arc::new(read)).unwrap();
    let run_id = run_id(0);
    let mut journal = sample::create_with(&store, &run_id, |start| start.session = Some(sample::session("sess"))).await;
    let begun = store.summary(&run_id).await.unwrap().unwrap();
    assert_eq!((begun.status, begun.steps_done, begun.steps_total), (Status::Running, 0, 2));
    assert_eq!((begun.started_at_ms, begun.finished_at_ms), (sample::NOON_MS, None));
    assert_eq!((begun.agent_id.as_str(), begun.session_id.as_deref()), ("agent-1", Some("sess")));
    journal.append(vec![step_started("s1"), step_finished("s1", StepStatus::Success)]).await.unwrap();
    let halfway = store.summary(&run_id).await.unwrap().unwrap();
    assert_eq!((halfway.steps_done, halfway.retry_count, halfway.cost_microcents), (1, 1, 250));
    clock.store(sample::NOON_MS + 99, std::sync::atomic::Ordering::Relaxed);
    journal.append(vec![run_finished(RunStatus::Failed)]).await.unwrap();
    let ended = store.summary(&run_id).await.unwrap().unwrap();
    assert_eq!((ended.status, ended.final_code.as_deref()), (Status::Failed, Some("ERR_HTTP_503")));
    assert_eq!((ended.retry_count, ended.cost_microcents), (2, 500));
    assert_eq!(ended.finished_at_ms, Some(sample::NOON_MS + 99));
    assert_eq!(store.load(&run_id).await.unwrap().unwrap().summary, ended);
}

#[tokio::test]
async fn runs_survive_a_restart_and_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = sample::sqlite(&directory);
    let (open_id, ended_id) = (run_id(0), run_id(1));
    create(&store, &open_id).await.append(vec![step_started("s1")]).await.unwrap();
    sample::finished_run(&store, &ended_id, Default::default()).await;
    drop(store);
    let store = sample::sqlite(&directory);
    let open = store.open_runs(None, 10).await.unwrap();
    assert_eq!(open.iter().map(|id| &**id).collect::<Vec<_>>(), [open_id.as_str()]);
    let run = store.load(&open_id).await.unwrap().unwrap();
    store.resume(&run).unwrap().append(vec![run_finished(RunStatus::Succeeded)]).await.unwrap();
    assert_eq!(seqs(&store, &open_id).await, [0, 1, 2]);
    assert!(store.open_runs(None, 10).await.unwrap().is_empty());
    store.shutdown().await;
    let mut journal = store.resume(&run).unwrap();
    assert!(matches!(journal.append(vec![step_started("s2")]).await, Err(JournalError::Closed)));
}
