//! AOS-36: what may be kept of an agent's runs is bounded, and what is beyond is refused where a replay refuses it too.

use std::sync::atomic::Ordering;
use std::time::Duration;

use macp_ledger::{Append, IndexUpdate};
use macp_plan::executor::{AgentLimits, Executor, Start, StartError};
use macp_plan::export::{self, Exporter};
use macp_plan::store::Status;
use macp_plan_core::journal::{Body, LimiterVerdict, SessionLink};
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::stores::{Failing, Writes};
use super::world::{World, begin, codes, contents, ended, frozen, step_of};

const FULL: &str = "ERR_STORAGE_QUOTA_EXCEEDED";

fn with_quota(mut world: World, kept_bytes_max: u64) -> World {
    world.settings.agent = AgentLimits { kept_bytes_max: Some(kept_bytes_max), ..AgentLimits::default() };
    world
}

/// A plan of one agent that returns so many bytes; every number is a plan of its own.
fn returning(agent_id: &str, number: u32, bytes: u32) -> Value {
    let mut value = plan(1_000, vec![step("s1", "http_call", json!({"script": format!("large {bytes}")}))]);
    value["agent_id"] = json!(agent_id);
    value["plan_id"] = json!(format!("p-{number}"));
    value
}

async fn run(executor: &Executor, value: Value) -> macp_plan::result::RunResult {
    let run_id = begin(executor, value).await;
    ended(executor, &run_id).await
}

/// What the admission of a run says was kept of its agent's runs.
async fn counted(executor: &Executor, run_id: &str) -> u64 {
    let run = executor.runs().load(run_id).await.unwrap().unwrap();
    let limits = run.bodies().find_map(|body| match body {
        Body::Admission(admission) => Some(admission.limits.clone()),
        _ => None,
    });
    limits.unwrap()["kept_bytes"].as_u64().unwrap()
}

/// What a store holds of runs: every entry, and every output beside them.
fn held(world: &World) -> u64 {
    let mut bytes = 0;
    for head in world.store.list(None, 1_000, macp_ledger::Filter::All).unwrap() {
        let records = world.store.read(&head.session_id, 0, 100_000, usize::MAX).unwrap();
        bytes += records.iter().map(|record| record.bytes.len() as u64).sum::<u64>();
    }
    let outputs = world.store.documents("aos.body", None, 1_000).unwrap();
    bytes + outputs.iter().map(|output| output.bytes.len() as u64).sum::<u64>()
}

/// Starts plans of an agent until there is no room for another, and gives the number of the last.
async fn fill(executor: &Executor, agent_id: &str) -> u32 {
    for number in 0..10 {
        let mut start = Start::execute(frozen(returning(agent_id, number, 10_000)), "tester");
        start.request_id = Some(format!("request {number}"));
        match executor.start(start).await {
            Ok(started) => assert_eq!(ended(executor, &started.run_id).await.status, Status::Succeeded),
            Err(StartError::NoRoom { kept, kept_max, .. }) => {
                assert!(kept >= kept_max);
                return number;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("ten runs are more than there is room for");
}

/// A run that is rejected is kept like any other; so there is none, however often it is asked for.
#[tokio::test(start_paused = true)]
async fn nothing_is_started_and_kept_for_an_agent_without_room() {
    for world in World::both() {
        let world = with_quota(world, 40_000);
        let executor = world.executor();
        let last = fill(&executor, "full").await;
        let before = contents(&*world.store);
        for _ in 0..3 {
            let mut start = Start::execute(frozen(returning("full", last, 10_000)), "tester");
            start.request_id = Some(format!("request {last}"));
            let error = executor.start(start).await.expect_err("must be refused").to_string();
            assert!(error.starts_with(FULL) && error.contains("may keep 40000"), "{error}");
        }
        let mut again = Start::execute(frozen(returning("full", 0, 10_000)), "tester");
        again.request_id = Some("request 0".to_owned());
        assert!(executor.start(again.clone()).await.unwrap().existing, "what was started is there");
        again.epoch = 2;
        assert!(matches!(executor.start(again).await, Err(StartError::RequestReused { .. })));
        assert_eq!(contents(&*world.store), before);
        assert_eq!(run(&executor, returning("other", 20, 1)).await.status, Status::Succeeded, "agents are apart");
        executor.shutdown().await;
        let again = world.executor().start(Start::execute(frozen(returning("full", 21, 1)), "tester")).await;
        assert!(matches!(again, Err(StartError::NoRoom { .. })), "a restart gives no new room: {again:?}");
    }
}

/// AOS-106: that a commitment is not carried out is put down, once for it.
#[tokio::test(start_paused = true)]
async fn a_committed_plan_of_an_agent_without_room_is_rejected() {
    let world = with_quota(World::memory(), 40_000);
    let executor = world.executor();
    let last = fill(&executor, "full").await;
    let link = SessionLink {
        session_id: "session".to_owned(),
        commitment_hash: "commitment".to_owned(),
        position: 1,
        mode_version: "1.0.0".to_owned(),
        configuration_version: "1.0.0".to_owned(),
        policy_version: "1.0.0".to_owned(),
    };
    let start = Start { session: Some(link), ..Start::execute(frozen(returning("full", last, 1)), "tester") };
    let run_id = executor.start(start).await.unwrap().run_id;
    let refused = ended(&executor, &run_id).await;
    assert_eq!((refused.status, refused.final_code.as_deref()), (Status::Rejected, Some(FULL)));
    assert!(counted(&executor, &run_id).await >= 40_000);
    let [finding] = refused.findings.as_slice() else { panic!("{:?}", refused.findings) };
    assert_eq!((finding.reason.as_str(), finding.code.as_str()), ("kept_max", FULL));
    assert!(finding.explanation.contains("may keep 40000"), "{}", finding.explanation);
}

/// A run that was admitted is not stopped in the middle of a call, but before the next.
#[tokio::test(start_paused = true)]
async fn a_run_under_way_calls_nothing_more() {
    let world = with_quota(World::sqlite(), 30_000);
    let mut first = step("s1", "http_call", json!({"script": "large 15000"}));
    first["on_error"] = json!("continue");
    let mut more = first.clone();
    more["step_id"] = json!("s2");
    let mail = step("s4", "mail_send", json!({}));
    let executor = world.executor();
    // What was answered last is written with what leads to the next call, and counts from there on.
    let small = step("s3", "http_call", json!({"script": "200"}));
    let result = run(&executor, plan(1_000, vec![first, more, small, mail])).await;
    let ok = "OK_HTTP_CALL";
    assert_eq!(codes(&result), [("s1", ok), ("s2", ok), ("s3", ok), ("s4", FULL)]);
    let refused = step_of(&result, "s4");
    assert!(refused.outcome.message.contains("nothing was called"), "{}", refused.outcome.message);
    assert_eq!((refused.outcome.side_effects.len(), refused.outcome.cost_microcents), (0, 0));
    assert!(!refused.outcome.details.contains_key("effect"), "nothing was sent, so that nothing is in doubt");
    let journal = executor.runs().load(&result.run_id).await.unwrap().unwrap();
    let verdicts = journal.bodies().filter(
        |body| matches!(body, Body::LimiterVerdict { step_id, verdict: LimiterVerdict::StorageLimited, .. } if step_id == "s4"),
    );
    assert_eq!(verdicts.count(), 1);
}

/// An answer that is too large for what is left was paid for, and is not kept.
#[tokio::test(start_paused = true)]
async fn an_output_beyond_the_quota_is_not_kept() {
    let world = with_quota(World::memory(), 50_000);
    let executor = world.executor();
    let result = run(&executor, returning("a", 1, 60_000)).await;
    assert_eq!(codes(&result), [("s1", FULL)]);
    let told = &step_of(&result, "s1").outcome.message;
    assert!(told.contains("is not kept") && told.contains("may keep 50000"), "{told}");
    assert!(world.store.documents("aos.body", None, 10).unwrap().is_empty());
}

/// Of answers that come together, each finds the room that the others have left.
#[tokio::test]
async fn no_two_answers_are_kept_in_the_same_room() {
    for world in World::both() {
        let world = with_quota(world, 50_000);
        let executor = world.executor();
        let mut runs = Vec::new();
        for number in 1..=3 {
            let mut value = returning("a", number, 0);
            value["steps"][0]["parameters"] = json!({"script": "gate 30000"});
            runs.push(begin(&executor, value).await);
        }
        world.stage.wait_for_calls(3).await;
        world.stage.gate.add_permits(3);
        let mut ends = Vec::new();
        for run_id in &runs {
            ends.push(codes(&ended(&executor, run_id).await)[0].1.to_owned());
        }
        ends.sort();
        assert_eq!(ends, [FULL, FULL, "OK_HTTP_CALL"]);
        // Three answers that are the same are one body, and would be three if they were not.
        assert!(held(&world) < 50_000, "{}", held(&world));
    }
}

/// What was counted and then could not be kept is not counted.
#[tokio::test]
async fn an_answer_that_cannot_be_kept_takes_no_room() {
    let world = with_quota(World::memory(), 1_000_000_000);
    let executor = world.executor();
    let result = run(&executor, returning("a", 1, 64 * 1_024 * 1_024)).await;
    assert_ne!(result.status, Status::Succeeded, "{result:?}");
    let kept = held(&world);
    let run_id = run(&executor, returning("a", 2, 1)).await.run_id;
    let started = executor.runs().load(&run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
    assert_eq!(counted(&executor, &run_id).await, kept + started);
}

/// What is counted is what is there: while it grows, after a restart, and with a run that was under way then.
#[tokio::test]
async fn what_is_counted_is_what_is_kept() {
    let world = with_quota(World::sqlite(), 10_000_000);
    let executor = world.executor();
    for (number, bytes) in [(1, 100), (2, 20_000), (3, 40_000)] {
        let kept = held(&world);
        let run_id = run(&executor, returning("a", number, bytes)).await.run_id;
        let started = executor.runs().load(&run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
        assert_eq!(counted(&executor, &run_id).await, kept + started);
    }
    let mut waiting = returning("a", 4, 0);
    waiting["steps"] = json!([
        step("s1", "http_call", json!({"script": "large 30000"})),
        step("s2", "http_call", json!({"script": "gate"})),
    ]);
    waiting["agent_id"] = json!("a");
    let waits = begin(&executor, waiting).await;
    world.stage.wait_for_calls(5).await;
    executor.shutdown().await;
    let kept = held(&world);
    let executor = world.executor();
    let run_id = run(&executor, returning("a", 5, 100)).await.run_id;
    let started = executor.runs().load(&run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
    assert_eq!(counted(&executor, &run_id).await, kept + started, "read from the index");
    world.stage.gate.add_permits(1);
    executor.recover().await.unwrap();
    ended(&executor, &waits).await;
    let kept = held(&world);
    let run_id = run(&executor, returning("a", 6, 100)).await.run_id;
    let started = executor.runs().load(&run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
    assert_eq!(counted(&executor, &run_id).await, kept + started, "kept up since");
}

/// A run that was taken over takes room like any other.
#[tokio::test(start_paused = true)]
async fn imported_runs_count() {
    let elsewhere = World::memory();
    let executor = elsewhere.executor();
    let run_id = run(&executor, returning("a", 1, 40_000)).await.run_id;
    let mut file = Vec::new();
    let mut exporter = Exporter::open(&*elsewhere.store, &run_id).unwrap().unwrap();
    while let Some(chunk) = exporter.next_chunk().unwrap() {
        file.extend_from_slice(&chunk);
    }
    for asked_before in [true, false] {
        let world = with_quota(World::memory(), 40_000);
        let executor = world.executor();
        if asked_before {
            assert_eq!(run(&executor, returning("a", 2, 1)).await.status, Status::Succeeded);
        }
        executor.runs().import(export::read(file.as_slice()).unwrap()).await.unwrap();
        let refused = executor.start(Start::execute(frozen(returning("a", 3, 1)), "tester")).await;
        assert!(matches!(refused, Err(StartError::NoRoom { .. })), "{refused:?}");
    }
}

/// A write of which nobody knows whether it took place is counted as it turned out, and nobody reads the index again.
#[tokio::test(start_paused = true)]
async fn an_uncertain_write_is_counted_as_it_turned_out() {
    for how in [Writes::Fail, Writes::StoreAndFail] {
        let failing = Failing::over(std::sync::Arc::new(macp_ledger::MemoryStore::new()));
        let world = with_quota(World::over(failing.clone()), 10_000_000);
        let executor = world.executor();
        run(&executor, returning("a", 1, 100)).await;
        let listed = failing.listed.load(Ordering::SeqCst);
        // Both the answer and the end of a run.
        let mut waiting = returning("a", 2, 0);
        waiting["steps"][0]["parameters"] = json!({"script": "gate"});
        let waits = begin(&executor, waiting).await;
        world.stage.wait_for_calls(2).await;
        failing.fail_next_append(how);
        world.stage.gate.add_permits(1);
        ended(&executor, &waits).await;
        // And its very beginning.
        failing.fail_next_append(how);
        let start = Start::execute(frozen(returning("a", 3, 100)), "tester");
        assert!(executor.start_as("r-3".to_owned(), start).await.is_err());
        if how == Writes::StoreAndFail {
            ended(&executor, "r-3").await;
        }
        assert_eq!(failing.listed.load(Ordering::SeqCst), listed);
        let kept = held(&world);
        let run_id = run(&executor, returning("a", 4, 100)).await.run_id;
        let started = executor.runs().load(&run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
        assert_eq!(counted(&executor, &run_id).await, kept + started);
        assert_eq!(failing.refused(), 2);
    }
}

/// While nothing can be written, what is tried again is counted once, and the index is left alone.
#[tokio::test(start_paused = true)]
async fn an_outage_is_not_counted_over_and_over() {
    let failing = Failing::over(std::sync::Arc::new(macp_ledger::MemoryStore::new()));
    let world = with_quota(World::over(failing.clone()), 10_000_000);
    let executor = world.executor();
    let mut waiting = returning("a", 1, 0);
    waiting["steps"][0]["parameters"] = json!({"script": "gate"});
    let waits = begin(&executor, waiting).await;
    world.stage.wait_for_calls(1).await;
    let listed = failing.listed.load(Ordering::SeqCst);
    failing.set(Writes::FailEntries);
    world.stage.gate.add_permits(1);
    while failing.refused() < 20 {
        let start = Start::execute(frozen(returning("b", 2, 100)), "tester");
        assert!(executor.start(start).await.is_err());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    failing.set(Writes::Work);
    ended(&executor, &waits).await;
    let kept = held(&world);
    for (agent_id, kept) in [("a", kept), ("b", 0)] {
        let run_id = run(&executor, returning(agent_id, 3, 100)).await.run_id;
        let started = executor.runs().load(&run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
        assert_eq!(counted(&executor, &run_id).await, kept + started, "{agent_id}");
    }
    assert_eq!(failing.listed.load(Ordering::SeqCst), listed + 1, "by this test alone");
}

/// One damaged row stops nobody: neither whoever wants to begin, nor an answer that was paid for.
#[tokio::test]
async fn a_row_that_cannot_be_read_counts_to_nobody() {
    for world in World::both() {
        let world = with_quota(world, 10_000_000);
        let executor = world.executor();
        let whole = run(&executor, returning("a", 1, 20_000)).await.run_id;
        executor.shutdown().await;
        let (kept, records) = (held(&world), world.store.read(&whole, 0, 1, usize::MAX).unwrap());
        let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 0, summary: Some("{".into()) };
        let (expected_sequence, expected_hash) = (0, None);
        let damaged = Append { session_id: "damaged".into(), expected_sequence, expected_hash, records, index };
        assert!(world.store.append(&[damaged]).into_iter().all(|result| result.is_ok()));
        let executor = world.executor();
        let result = tokio::time::timeout(Duration::from_secs(30), run(&executor, returning("a", 2, 20_000)));
        let result = result.await.expect("the run ends");
        assert_eq!(result.status, Status::Succeeded);
        let started = executor.runs().load(&result.run_id).await.unwrap().unwrap().entries[0].text.len() as u64;
        assert_eq!(counted(&executor, &result.run_id).await, kept + started);
    }
}
