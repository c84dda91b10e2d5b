//! Starting: once for one request, no more than there may be, and many at once.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use macp_ledger::{MemoryStore, Store};
use macp_plan::executor::{Executor, Start, StartError, StartMode};
use macp_plan::store::{Query, RunId, Status};
use macp_plan_core::testkit::plan;
use serde_json::{Value, json};

use super::execution::call;
use super::stores::{Failing, Writes};
use super::world::{NOON_MS, World, ended, frozen};

fn request(value: Value, request_id: &str) -> Start {
    Start { request_id: Some(request_id.to_owned()), ..Start::execute(frozen(value), "alice") }
}

async fn runs(executor: &Executor) -> usize {
    executor.runs().list(Query::default(), None, 1_000).await.unwrap().runs.len()
}

/// The same request from the same caller is one run, however often and however concurrently it is made, also after a
/// restart.
#[tokio::test]
async fn one_request_is_one_run() {
    for world in World::both() {
        let executor = world.executor();
        let value = || plan(0, vec![call("s1", "200")]);
        let mut starts = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let executor = executor.clone();
            starts.spawn(async move { executor.start(request(value(), "q-1")).await.unwrap() });
        }
        let started = starts.join_all().await;
        let run_id = started[0].run_id.clone();
        assert!(started.iter().all(|started| started.run_id == run_id));
        assert_eq!(started.iter().filter(|started| !started.existing).count(), 1);
        assert_eq!(ended(&executor, &run_id).await.status, Status::Succeeded);
        assert_eq!((world.stage.calls(), runs(&executor).await), (1, 1));
        executor.shutdown().await;

        let executor = world.executor();
        let again = executor.start(request(value(), "q-1")).await.unwrap();
        assert!(again.existing && again.run_id == run_id);
        let other = executor.start(request(plan(1, vec![call("s1", "200")]), "q-1")).await;
        assert!(matches!(other, Err(StartError::RequestReused { .. })), "{other:?}");
        let bob = Start { by: "bob".to_owned(), ..request(value(), "q-1") };
        let bob = executor.start(bob).await.unwrap();
        assert!(!bob.existing, "requests of another caller are other requests");
        ended(&executor, &bob.run_id).await;
        assert_eq!(runs(&executor).await, 2);
    }
}

/// A process that ended between naming a run and creating it: whoever asks again creates it under that name.
#[tokio::test]
async fn a_named_run_is_created_later() {
    let world = World::memory();
    let executor = world.executor();
    let start = request(plan(0, vec![call("s1", "200")]), "q-1");
    let run_id = RunId::new(NOON_MS).into_string();
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (executor, start, run_id) = (executor.clone(), start.clone(), run_id.clone());
        starts.spawn(async move { executor.start_as(run_id, start).await.unwrap() });
    }
    let started = starts.join_all().await;
    assert!(started.iter().all(|started| started.run_id == run_id));
    assert_eq!(started.iter().filter(|started| !started.existing).count(), 1);
    ended(&executor, &run_id).await;
    assert_eq!(world.stage.calls(), 1);
}

/// No more runs than there may be, exactly; and a request that was answered before is answered again nevertheless.
#[tokio::test]
async fn starts_beyond_the_limit_are_refused() {
    let mut world = World::memory();
    world.settings.runs_live_max = 5;
    world.settings.agent.runs_max = Some(5);
    let executor = world.executor();
    let numbered = |number: usize| {
        let mut value = plan(0, vec![call("s1", "gate")]);
        value["plan_id"] = json!(format!("p-{number}"));
        request(value, &format!("q-{number}"))
    };
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..20 {
        let executor = executor.clone();
        starts.spawn(async move { (number, executor.start(numbered(number)).await) });
    }
    let (started, refused): (Vec<_>, Vec<_>) =
        starts.join_all().await.into_iter().partition(|(_, started)| started.is_ok());
    assert_eq!((started.len(), refused.len(), executor.live()), (5, 15, 5));
    assert!(refused.iter().all(|(_, refused)| matches!(refused, Err(StartError::Overloaded { limit: 5 }))));
    let (number, first) = &started[0];
    let again = executor.start(numbered(*number)).await.unwrap();
    assert!(again.existing && again.run_id == first.as_ref().unwrap().run_id);
    world.stage.gate.add_permits(100);
    for (_, started) in &started {
        ended(&executor, &started.as_ref().unwrap().run_id).await;
    }
    // A refused request is made again when there is room.
    let (number, _) = &refused[0];
    let later = executor.start(numbered(*number)).await.unwrap();
    assert!(!later.existing);
    assert_eq!(ended(&executor, &later.run_id).await.status, Status::Succeeded);
}

/// Recovery while runs are being started: every run has one task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_and_starts_do_not_meet() {
    let world = World::sqlite();
    let executor = world.executor();
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..32 {
        let starting = executor.clone();
        starts.spawn(async move {
            let mut value = plan(0, vec![call("s1", "200"), call("s2", "200")]);
            value["plan_id"] = json!(format!("p-{number}"));
            Some(super::world::begin(&starting, value).await)
        });
        let recovering = executor.clone();
        starts.spawn(async move {
            recovering.recover().await.unwrap();
            None
        });
    }
    for run_id in starts.join_all().await.into_iter().flatten() {
        assert_eq!(ended(&executor, &run_id).await.status, Status::Succeeded);
    }
    assert_eq!(world.stage.calls(), 64, "nothing is called twice");
}

/// Whoever asked for a run may go away at any moment: a run that exists is worked on.
#[tokio::test]
async fn a_start_nobody_waits_for() {
    let world = World::sqlite();
    let executor = world.executor();
    for polls in 0..40 {
        let mut value = plan(0, vec![call("s1", "200")]);
        value["plan_id"] = json!(format!("p-{polls}"));
        let mut start = Box::pin(executor.start(Start::execute(frozen(value), "alice")));
        for _ in 0..polls {
            let polled = std::future::poll_fn(|context| Poll::Ready(start.as_mut().poll(context).is_ready()));
            if polled.await {
                break;
            }
            // A thread of the store may be at work for it.
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
    let listed = executor.runs().list(Query::default(), None, 1_000).await.unwrap().runs;
    assert!(!listed.is_empty());
    for run in listed {
        let ended = tokio::time::timeout(Duration::from_secs(60), ended(&executor, &run.run_id)).await;
        assert_eq!(ended.expect("someone is at work on it").status, Status::Succeeded);
    }
}

/// A write that failed although it was stored: the run is there, and at work when it is asked for again.
#[tokio::test]
async fn a_start_whose_write_failed() {
    for writes in [Writes::Fail, Writes::StoreAndFail] {
        let failing = Failing::over(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let world = World::over(Arc::clone(&failing) as Arc<dyn Store>);
        let executor = world.executor();
        let value = plan(0, vec![call("s1", "200")]);
        let first = executor.start(request(value.clone(), "q-0")).await.unwrap();
        ended(&executor, &first.run_id).await;
        failing.fail_next_append(writes);
        let failed = executor.start(request(value.clone(), "q-1")).await;
        assert!(matches!(failed, Err(StartError::Journal(_))), "{failed:?}");
        let again = executor.start(request(value, "q-1")).await.unwrap();
        assert_eq!(again.existing, writes == Writes::StoreAndFail);
        let ended = tokio::time::timeout(Duration::from_secs(60), ended(&executor, &again.run_id)).await;
        assert_eq!(ended.expect("someone is at work on it").status, Status::Succeeded);
        assert_eq!(runs(&executor).await, 2);
    }
}

/// What a start refers to must be there, be finished, and have the plan that is given.
#[tokio::test]
async fn a_start_must_fit_what_it_refers_to() {
    let world = World::memory();
    let executor = world.executor();
    let value = plan(0, vec![call("s1", "gate")]);
    let retry = |run_id: &str, value: &Value, from_step: Option<&str>| {
        let (parent_run_id, from_step) = (run_id.to_owned(), from_step.map(str::to_owned));
        let mode = StartMode::Retry { parent_run_id, from_step };
        executor.start(Start { mode, ..Start::execute(frozen(value.clone()), "tester") })
    };
    assert!(matches!(retry("r-none", &value, None).await, Err(StartError::NoRun(_))));
    let run_id = super::world::begin(&executor, value.clone()).await;
    assert!(matches!(retry(&run_id, &value, None).await, Err(StartError::NotFinished(_))));
    world.stage.gate.add_permits(1);
    ended(&executor, &run_id).await;
    let other = plan(1, vec![call("s1", "gate")]);
    assert!(matches!(retry(&run_id, &other, None).await, Err(StartError::OtherPlan { .. })));
    assert!(matches!(retry(&run_id, &value, None).await, Err(StartError::Succeeded { .. })));
    assert!(matches!(retry(&run_id, &value, Some("s9")).await, Err(StartError::NoStep(_))));
}
