//! Replays through the executor: what differs and whose doing it is, pins that do not hold, records that stay as they are.

use std::sync::Arc;

use macp_ledger::{Append, IndexUpdate, MemoryStore, Store};
use macp_plan::executor::{ReplayError, Start, StartError, StartMode};
use macp_plan::registry::Registry;
use macp_plan::store::Status;
use macp_plan_core::compare::{Origin, Report, Verdict};
use macp_plan_core::digest;
use macp_plan_core::journal::{Journal, RunMode, RunStart};
use macp_plan_core::machine::{Pinned, Rules};
use macp_plan_core::plan::RetryPolicy;
use macp_plan_core::replay::WhatIf;
use macp_plan_core::skill::Catalog;
use macp_plan_core::testkit::{self, freeze, plan, rate_card, step};
use serde_json::{Value, json};

use super::execution::call;
use super::world::{Stage, World, actor, begin, contents, count, ended, kit, lines};

fn kinds(report: &Report) -> Vec<&str> {
    report.pin_violations.iter().map(|violation| violation.kind.as_str()).collect()
}

/// Test 35, AOS-92: the same world gives a match; a world that answers otherwise is what explains the difference.
#[tokio::test(start_paused = true)]
async fn full_replay_external() {
    for world in World::both() {
        let executor = world.executor();
        let same = begin(&executor, plan(10, vec![call("s1", "200"), step("s2", "post_call", json!({}))])).await;
        ended(&executor, &same).await;
        let report = executor.full_replay(&same, Vec::new(), "olga").await.unwrap();
        assert_eq!((report.verdict, report.conformance), (Verdict::Match, Some(true)), "{report:#?}");
        assert_eq!(report.replay_mode, RunMode::FullReplay);

        // 503 once more than before, since the script goes on.
        let value = plan(10, vec![call("other", "200, 503, 503, 200"), call("next", "200")]);
        let original = begin(&executor, value).await;
        ended(&executor, &original).await;
        let report = executor.full_replay(&original, Vec::new(), "olga").await.unwrap();
        assert_eq!((report.verdict, report.conformance), (Verdict::Explained, Some(true)), "{report:#?}");
        assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::External));
        assert!(!report.inputs_changed.is_empty());
        let replay = executor.result(&report.replay_run_id).await.unwrap().unwrap();
        assert_eq!((replay.mode, replay.retry_count), (RunMode::FullReplay, 2));
        assert_eq!(replay.original_run_id.as_deref(), Some(original.as_str()));
        let original = executor.result(&original).await.unwrap().unwrap();
        assert_eq!(replay.jitter_seed, original.jitter_seed, "or the waits could never agree (AOS-47)");
        // The replay is a run that can be replayed from its own recording.
        ended(&executor, &report.replay_run_id).await;
    }
}

/// Test 35: an executor that decides otherwise is found out, although the world gave it reason to differ.
#[tokio::test(start_paused = true)]
async fn full_replay_runtime() {
    #[derive(Debug)]
    struct OnceMore;
    impl Rules for OnceMore {
        fn retry(&self, policy: &RetryPolicy, attempt: u32, code: &str) -> bool {
            attempt <= policy.max_retries && policy.retryable_codes.iter().any(|listed| listed == code)
        }
    }
    let world = World::memory();
    let executor = world.executor();
    let value = plan(10, vec![call("s1", "503")]);
    let original = begin(&executor, value.clone()).await;
    ended(&executor, &original).await;
    let start = executor.runs().load(&original).await.unwrap().unwrap().start().clone();
    let start = RunStart {
        run_id: "r-patched".to_owned(),
        mode: RunMode::FullReplay,
        original_run_id: Some(original.clone()),
        ..start
    };
    let catalog: Arc<dyn Catalog> = Arc::clone(&world.registry) as Arc<dyn Catalog>;
    let patched = testkit::World::new().always("s1", testkit::http(503));
    let run = testkit::run(&freeze(value), &catalog, Arc::new(OnceMore), start, patched);
    let bodies = |journal: &Journal| journal.entries().iter().map(|entry| entry.body.clone()).collect::<Vec<_>>();
    executor.runs().create(bodies(&run.journal)).await.unwrap();
    let report = executor.compare(&original, "r-patched").await.unwrap();
    assert_eq!((report.verdict, report.conformance), (Verdict::Diverged, Some(false)), "{report:#?}");
    assert!(report.mismatches.iter().any(|mismatch| mismatch.cause == Origin::Runtime));
}

/// A run of an older revision is compared with one that is decided by the same rules: the newest ones alone make no
/// difference.
#[tokio::test(start_paused = true)]
async fn full_replay_by_the_rules_of_the_original() {
    let world = World::memory();
    let executor = world.executor();
    // A soft limit that is passed is told by the first revision once, and by later ones at every check.
    let steps = ["s1", "s2", "s3"];
    let mut value = plan(1, steps.map(|id| step(id, "mail_send", json!({}))).into());
    value["context"]["budget_policy"]["hard_limit"] = json!(false);
    let bound = begin(&executor, value.clone()).await;
    ended(&executor, &bound).await;
    let start = executor.runs().load(&bound).await.unwrap().unwrap().start().clone();
    let start = RunStart { run_id: "r-older".to_owned(), revision: 1, ..start };
    let catalog: Arc<dyn Catalog> = Arc::clone(&world.registry) as Arc<dyn Catalog>;
    let outside = steps.into_iter().fold(testkit::World::new(), |world, id| world.always(id, testkit::http(200)));
    let run = testkit::run(&freeze(value), &catalog, Arc::new(Pinned), start, outside);
    let bodies = run.journal.entries().iter().map(|entry| entry.body.clone()).collect();
    executor.runs().create(bodies).await.unwrap();
    let report = executor.full_replay("r-older", steps.map(str::to_owned).into(), "olga").await.unwrap();
    let replay = executor.runs().load(&report.replay_run_id).await.unwrap().unwrap();
    assert_eq!(replay.start().revision, 1);
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::External), "{report:#?}");
    assert_eq!(report.conformance, Some(true), "{report:#?}");
}

/// Test 36, AOS-89: the outside sees the keys it knows; what nothing recognises is repeated only by name.
#[tokio::test(start_paused = true)]
async fn full_replay_reuses_effect_keys() {
    for world in World::both() {
        let executor = world.executor();
        let value = plan(10, vec![step("s1", "post_call", json!({"script": "200, 503, 200", "effects": 2}))]);
        let original = begin(&executor, value).await;
        ended(&executor, &original).await;
        let report = executor.full_replay(&original, Vec::new(), "olga").await.unwrap();
        assert_eq!(report.verdict, Verdict::Explained);
        assert_eq!(world.stage.calls(), 3, "it really was called");
        assert_eq!(world.stage.counts().len(), 1, "under the original's key");

        let unkeyed = begin(&executor, plan(10, vec![step("mail", "mail_send", json!({}))])).await;
        ended(&executor, &unkeyed).await;
        let refused = executor.full_replay(&unkeyed, Vec::new(), "olga").await;
        let Err(ReplayError::Start(StartError::Unrepeatable { steps })) = refused else { panic!("{refused:?}") };
        assert_eq!((steps, world.stage.calls()), (vec!["mail".to_owned()], 4));
        let report = executor.full_replay(&unkeyed, vec!["mail".to_owned()], "olga").await.unwrap();
        assert_eq!((report.verdict, world.stage.calls()), (Verdict::Match, 5));
        let again = executor.full_replay(&report.replay_run_id, Vec::new(), "olga").await;
        assert!(matches!(again, Err(ReplayError::Start(StartError::ReplayOfReplay { .. }))), "{again:?}");
    }
}

/// Test 40, AOS-90: byte by byte, the original's record is what it was.
#[tokio::test(start_paused = true)]
async fn replay_leaves_original_untouched() {
    for world in World::both() {
        let executor = world.executor();
        let steps = vec![
            call("s1", "503, 200"),
            step("s2", "post_call", json!({"script": "give", "value": "w".repeat(20_000)})),
            step("s3", "http_call", json!({"script": "give", "value": "{{s2.value}}"})),
        ];
        let original = begin(&executor, plan(10, steps)).await;
        ended(&executor, &original).await;
        let before = contents(&*world.store);
        executor.mock_replay(&original, WhatIf::default()).await.unwrap();
        assert_eq!(contents(&*world.store), before, "a mock replay writes nothing at all");
        let report = executor.full_replay(&original, Vec::new(), "olga").await.unwrap();
        let after = contents(&*world.store);
        assert!(before.iter().all(|found| after.contains(found)), "everything is as it was");
        let new: Vec<_> = after.iter().filter(|found| !before.contains(found)).collect();
        assert!(new.iter().all(|(_, place, _)| place != "head" || !place.contains(&original)));
        let runs: Vec<_> = new.iter().filter(|(_, place, _)| place == "head").map(|(id, _, _)| id.clone()).collect();
        assert_eq!(runs, [report.replay_run_id]);
    }
}

fn registry_without(left_out: &str, stage: &Arc<Stage>) -> Registry {
    let mut registry = Registry::new();
    registry.add_rate_card(rate_card()).unwrap();
    for pure in kit().into_iter().filter(|pure| pure.metadata.skill_id != left_out) {
        registry.register(actor(pure, stage), None).unwrap();
    }
    registry
}

fn build(text: &str) -> digest::Digest {
    digest::of_bytes("test", text.as_bytes())
}

/// Registers every skill, of one build.
fn all(registry: &mut Registry, stage: &Arc<Stage>, built: Option<&str>) {
    for pure in kit() {
        registry.register(actor(pure, stage), built.map(build)).unwrap();
    }
}

/// Test 38, AOS-99: the cells of the matrix for execute, dry_run and full_replay.
#[tokio::test(start_paused = true)]
async fn pin_matrix() {
    let value = || plan(10, vec![call("s1", "200"), step("s2", "post_call", json!({}))]);
    // What is changed after the original ran, the code of an execution, and what a full replay is told.
    type Case = (&'static str, Value, fn(&mut Registry, &Arc<Stage>), Option<&'static str>, Verdict, &'static str);
    let cases: [Case; 4] = [
        (
            "not registered",
            value(),
            |registry, stage| *registry = registry_without("post_call", stage),
            Some("ERR_SKILL_NOT_FOUND"),
            Verdict::NotComparable,
            "skill_missing",
        ),
        (
            "disabled",
            value(),
            |registry, stage| {
                all(registry, stage, None);
                registry.disable(&["post_call".to_owned()]).unwrap();
            },
            Some("ERR_SKILL_DISABLED"),
            Verdict::NotComparable,
            "skill_disabled",
        ),
        (
            "another build",
            {
                let mut value = value();
                value["pins"]["skill_builds"] = json!({"post_call@1.0.0": build("then")});
                value
            },
            |registry, stage| all(registry, stage, Some("now")),
            None,
            Verdict::Match,
            "skill_build_changed",
        ),
        (
            "another card",
            {
                let mut card = rate_card();
                card["id"] = json!("rc-gone");
                let mut value = value();
                let hash = macp_plan_core::rate_card::RateCard::from_value(card).unwrap().digest().clone();
                value["pins"]["rate_card"] = json!({"id": "rc-gone", "hash": hash});
                value
            },
            |registry, stage| all(registry, stage, None),
            Some("ERR_VALIDATION_FAILED"),
            Verdict::NotComparable,
            "rate_card",
        ),
    ];
    for (name, value, change, code, verdict, kind) in cases {
        let world = World::memory().with_registry(|registry, stage| {
            all(registry, stage, Some("then"));
            let mut card = rate_card();
            card["id"] = json!("rc-gone");
            registry.add_rate_card(card).unwrap();
        });
        let executor = world.executor();
        let original = begin(&executor, value.clone()).await;
        assert_eq!(ended(&executor, &original).await.status, Status::Succeeded, "{name}");
        executor.shutdown().await;
        let calls = world.stage.calls();
        let world = world.with_registry(change);
        let executor = world.executor();

        let mut anew = value.clone();
        anew["plan_id"] = json!("p-anew");
        let estimate = executor.dry_run(&freeze(anew.clone())).unwrap();
        let executed = begin(&executor, anew).await;
        let executed = executor.finished(&executed).await.unwrap().unwrap();
        let reported = |code: &str| estimate.findings.iter().any(|finding| finding.code == code);
        match code {
            Some(code) => {
                assert_eq!((executed.status, executed.final_code.as_deref()), (Status::Rejected, Some(code)), "{name}");
                assert!(reported(code), "{name}: {:?}", estimate.findings);
                assert_eq!(world.stage.calls(), calls, "{name}: nothing is called");
            }
            None => {
                assert_eq!(executed.status, Status::Succeeded, "{name}");
                assert!(estimate.findings.iter().any(|finding| finding.reason == kind), "{name}");
                assert!(executed.findings.iter().any(|finding| finding.reason == kind), "{name}");
            }
        }
        let calls = world.stage.calls();
        let report = executor.full_replay(&original, Vec::new(), "olga").await.unwrap();
        assert_eq!((report.verdict, kinds(&report)), (verdict, vec![kind]), "{name}: {report:#?}");
        let invoked = world.stage.calls() - calls;
        assert_eq!(invoked, if verdict == Verdict::NotComparable { 0 } else { 2 }, "{name}");
    }
}

/// AOS-99: other pins than those of the kit are unknown to everyone, and an altered plan is not executed at all.
#[tokio::test(start_paused = true)]
async fn unknown_pins_are_reported_by_an_estimate() {
    let world = World::memory();
    let executor = world.executor();
    for (pin, pinned) in [("taxonomy_version", "9.0.0"), ("jitter", "dice/1"), ("token_estimator", "guess/1")] {
        let mut value = plan(0, vec![call("s1", "200")]);
        value["pins"][pin] = json!(pinned);
        let estimate = executor.dry_run(&freeze(value.clone())).unwrap();
        assert!(estimate.findings.iter().any(|finding| finding.code == "ERR_VALIDATION_FAILED"), "{pin}");
        let executed = world.run_unreplayed(value).await;
        assert_eq!(executed.final_code.as_deref(), Some("ERR_VALIDATION_FAILED"), "{pin}");
    }
    let mut altered = super::world::frozen(plan(0, vec![call("s1", "200")]));
    altered.value["goal"] = json!("another");
    let refused = executor.start(macp_plan::executor::Start::execute(altered, "tester")).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(world.stage.calls(), 0);
}

/// AOS-99, last row: a record that cannot be believed is compared with nothing, and the report says where it breaks.
#[tokio::test(start_paused = true)]
async fn a_broken_journal_is_not_comparable() {
    let world = World::memory();
    let executor = world.executor();
    let original = begin(&executor, plan(0, vec![call("s1", "200")])).await;
    ended(&executor, &original).await;
    let calls = world.stage.calls();
    // The same journal with one byte changed in its sixth record.
    let broken = MemoryStore::new();
    let head = world.store.head(&original).unwrap().unwrap();
    let mut records = world.store.read(&original, 0, 1_000, usize::MAX).unwrap();
    let text = String::from_utf8(records[5].bytes.to_vec()).unwrap();
    let changed = text.replace("s1", "s7");
    assert_ne!(changed, text);
    records[5].bytes = changed.into_bytes().into();
    let index = IndexUpdate { open: false, deadline_ms: i64::MAX, state: head.state, summary: Some(head.summary) };
    let append =
        Append { session_id: original.as_str().into(), expected_sequence: 0, expected_hash: None, records, index };
    assert!(broken.append(&[append]).into_iter().all(|result| result.is_ok()));
    let world = world.moved_to(Arc::new(broken));
    let executor = world.executor();
    for report in [
        executor.mock_replay(&original, WhatIf::default()).await.unwrap(),
        executor.full_replay(&original, Vec::new(), "olga").await.unwrap(),
    ] {
        assert_eq!((report.verdict, kinds(&report)), (Verdict::NotComparable, vec!["journal"]));
        assert_eq!(report.pin_violations[0].subject, "entry 5");
        assert!(report.behavior_match.values().all(Option::is_none));
    }
    assert_eq!(world.stage.calls(), calls, "nothing is called");
}

/// AOS-85: a replay that is not admitted is compared all the same, and the difference is the world's.
#[tokio::test(start_paused = true)]
async fn a_rejected_replay_is_compared() {
    let mut world = World::memory();
    let executor = world.executor();
    let original = begin(&executor, plan(0, vec![call("s1", "200")])).await;
    ended(&executor, &original).await;
    executor.shutdown().await;
    world.settings.agent.runs_max = Some(0);
    let executor = world.executor();
    let report = executor.full_replay(&original, Vec::new(), "olga").await.unwrap();
    assert_eq!(report.verdict, Verdict::Explained, "{report:#?}");
    assert_eq!(count(&executor, &report.replay_run_id, "step_started").await, 0);
    assert!(lines(&executor, &report.replay_run_id).await.contains("concurrency_limited"));
}

/// AOS-85: a run that took over what another had done is replayed against the world, which is what then differs.
#[tokio::test(start_paused = true)]
async fn a_retry_is_replayed_in_full() {
    let world = World::memory();
    let executor = world.executor();
    // A step that is harmless to repeat is taken over from the parent, and a replay has no parent.
    let value = plan(10, vec![call("s0", "200"), step("s1", "post_call", json!({})), call("s2", "404, 200")]);
    let parent_run_id = begin(&executor, value.clone()).await;
    ended(&executor, &parent_run_id).await;
    let mode = StartMode::Retry { parent_run_id, from_step: None };
    let start = Start { mode, ..Start::execute(super::world::frozen(value), "olga") };
    let retry = executor.start(start).await.unwrap().run_id;
    assert_eq!(ended(&executor, &retry).await.status, Status::Succeeded);
    let report = executor.full_replay(&retry, Vec::new(), "olga").await.unwrap();
    assert_eq!((report.verdict, report.conformance), (Verdict::Explained, Some(true)), "{report:#?}");
    assert_eq!(world.stage.counts().len(), 3, "under the keys that are known");
}
