//! Two live runs side by side: what the world changed is explained, what the runtime changed is not (test 35).

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::compare::{Aspect, Origin, Report, Verdict};
use macp_plan_core::journal::RunMode;
use macp_plan_core::machine::{Pinned, Rules};
use macp_plan_core::plan::RetryPolicy;
use macp_plan_core::replay::{Refused, full_replay};
use macp_plan_core::retry;
use macp_plan_core::testkit::{Answer, Kit, World, execute, freeze, http, llm_step, plan, run, start, step};
use serde_json::{Value, json};

fn compared(steps: Vec<Value>, original: World, replay: World, rules: impl Rules + 'static) -> Report {
    let plan = freeze(plan(1_000, steps));
    let catalog = Kit::standard().shared();
    let original = execute(&plan, &catalog, original);
    let mut again = start(&plan, "r-replay");
    again.mode = RunMode::FullReplay;
    again.original_run_id = Some("r-original".to_owned());
    again.jitter_seed = "r-original".to_owned();
    let replay = run(&plan, &catalog, Arc::new(rules), again, replay);
    let bodies = |digest: &_| replay.world.bodies.get(digest).cloned();
    full_replay(&plan, &original.journal, &replay.journal, &bodies, &catalog).expect("its own plan")
}

fn steps() -> Vec<Value> {
    vec![step("s1", "http_call", json!({})), step("s2", "post_call", json!({}))]
}

fn false_aspects(report: &Report) -> Vec<Aspect> {
    report.behavior_match.iter().filter(|(_, it)| **it == Some(false)).map(|(aspect, _)| *aspect).collect()
}

#[test]
fn the_same_world_matches() {
    let world = || World::new().always("s1", http(503));
    let report = compared(steps(), world(), world(), Pinned);
    assert_eq!(report.verdict, Verdict::Match);
    assert_eq!((report.conformance, report.replay_mode), (Some(true), RunMode::FullReplay));
    assert!(report.inputs_changed.is_empty());
    assert_eq!(report.behavior_digest.original, report.behavior_digest.replay);
}

/// AOS-92: a service that has recovered explains everything that follows from it.
#[test]
fn another_world_is_explained() {
    let report =
        compared(steps(), World::new().always("s1", http(503)), World::new().answer("s1", 0, http(503)), Pinned);
    assert_eq!(report.verdict, Verdict::Explained);
    assert_eq!(report.conformance, Some(true));
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::External), "{:#?}", report.mismatches);
    assert!(report.mismatches.iter().any(|mismatch| mismatch.why.contains("`s1`, attempt 1")));
    let changed = &report.inputs_changed[0];
    assert_eq!((changed.step_id.as_deref(), changed.attempt, changed.field.as_str()), (Some("s1"), Some(1), "cause"));
    assert!(false_aspects(&report).contains(&Aspect::RetryCount));
}

/// AOS-92: more tokens than before are the model's doing; the formula held.
#[test]
fn changed_usage_is_external() {
    let answer = |tokens| World::new().always("s1", Answer::of(Cause::Success).tokens(100, tokens));
    let report = compared(vec![llm_step("s1", "say", 100)], answer(10), answer(11), Pinned);
    assert_eq!(report.verdict, Verdict::Explained);
    assert_eq!(false_aspects(&report), [Aspect::CostCents]);
}

/// Words that change nothing but themselves are no difference, and still told.
#[test]
fn other_words_still_match() {
    let answer = |text: &str| World::new().always("s1", Answer::of(Cause::Success).output(json!({"body": text})));
    let report = compared(steps(), answer("one"), answer("two"), Pinned);
    assert_eq!(report.verdict, Verdict::Match);
    assert_eq!(report.inputs_changed[0].field, "output_ref");
}

/// A cancelled replay is explained by whoever cancelled it.
#[test]
fn a_cancel_is_external() {
    let report = compared(steps(), World::new(), World::new().cancel("s2", 0), Pinned);
    assert_eq!(report.verdict, Verdict::Explained, "{:#?}", report.mismatches);
    assert!(report.inputs_changed.iter().any(|changed| changed.field == "cancel_requested"));
}

#[derive(Debug)]
struct Stubborn;

impl Rules for Stubborn {
    fn retry(&self, policy: &RetryPolicy, attempt: u32, code: &str) -> bool {
        retry::should_retry(&RetryPolicy { max_retries: 9, ..policy.clone() }, attempt, code)
    }
}

/// AOS-92: an executor that decides otherwise diverges, in the same world and in another one.
#[test]
fn another_executor_diverges() {
    let failing = || World::new().always("s1", http(503));
    let report = compared(steps(), failing(), failing(), Stubborn);
    assert_eq!((report.verdict, report.conformance), (Verdict::Diverged, Some(false)));
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Runtime));
    let report = compared(steps(), failing().answer("s1", 0, http(500)), failing(), Stubborn);
    assert_eq!(report.verdict, Verdict::Diverged);
    assert!(!report.inputs_changed.is_empty());
    assert!(report.mismatches.iter().any(|mismatch| mismatch.why.starts_with("in the replay's own journal")));
}

#[test]
fn another_plan_is_refused() {
    let catalog = Kit::standard().shared();
    let (one, other) = (freeze(plan(10, steps())), freeze(plan(11, steps())));
    let (first, second) = (execute(&one, &catalog, World::new()), execute(&other, &catalog, World::new()));
    let refused = full_replay(&one, &first.journal, &second.journal, &|_| None, &catalog);
    assert!(matches!(refused, Err(Refused::PlanAltered { .. })));
}
