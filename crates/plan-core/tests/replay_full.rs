//! Two live runs side by side: what the world changed is explained, what the runtime changed is not (test 35).

use std::sync::Arc;

use macp_plan_core::cause::{Cause, ConnectionFault};
use macp_plan_core::compare::{Aspect, Origin, Report, Verdict};
use macp_plan_core::cost::{Price, Usage};
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

/// AOS-93, AOS-95: costs are compared and not how they came about, waits where the codes are the same, and the first
/// difference is an entry that differs.
#[test]
fn only_what_an_aspect_is_about_is_compared() {
    let refused = || Answer::of(Cause::Connection { fault: ConnectionFault::Refused });
    let report =
        compared(vec![step("s1", "http_call", json!({}))], World::new().always("s1", refused()), World::new(), Pinned);
    assert_eq!(report.verdict, Verdict::Explained);
    assert_eq!(report.behavior_match[&Aspect::CostCents], Some(true), "{:#?}", report.mismatches);

    let report = compared(steps(), World::new(), World::new().always("s1", http(503)), Pinned);
    assert_eq!(report.behavior_match[&Aspect::BackoffMs], None, "{:#?}", report.skipped);
    let at = |report: &Report, field: &str| {
        let found = report.mismatches.iter().find(|it| it.field == field && it.step_id.as_deref() == Some("s1"));
        found.map(|it| (it.seq.expect("an entry"), it.attempt)).expect("it is told")
    };
    // The original has no entry of what it did not do: what the replay did more is told at the end of the step.
    let first = report.first_divergence.as_ref().expect("it differs");
    assert_eq!((first.seq, first.attempt), at(&report, "attempts.code"), "{:#?}", report.mismatches);
    assert!(at(&report, "count").0 > first.seq && at(&report, "count").1 == Some(1), "{:#?}", report.mismatches);
    // What the original did more is told where it did it.
    let report = compared(steps(), World::new().always("s1", http(503)), World::new(), Pinned);
    let (first, count) = (at(&report, "attempts.code"), at(&report, "count"));
    assert!(count.0 > first.0 && count.1 == Some(1), "{:#?}", report.mismatches);
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

#[derive(Debug)]
struct Dearer;

impl Rules for Dearer {
    fn cost(&self, price: &Price, usage: &Usage) -> u64 {
        Pinned.cost(price, usage) + 1
    }
}

/// The causes of what differs at a step, each once.
fn causes(report: &Report, step_id: Option<&str>) -> Vec<Origin> {
    let at = report.mismatches.iter().filter(|mismatch| mismatch.step_id.as_deref() == step_id);
    let mut causes: Vec<Origin> = at.map(|mismatch| mismatch.cause).collect();
    causes.dedup();
    causes
}

/// AOS-92, AOS-94: neither words nor a hint excuse a difference that cannot follow from them. Both runs were decided by
/// other rules than the pinned ones here, so that no conformance check finds it out first.
#[test]
fn what_decides_nothing_excuses_nothing() {
    let plan = freeze(plan(1_000, steps()));
    let catalog = Kit::standard().shared();
    let hinted = |hint, text: &str| {
        let refused = Answer { retry_after_ms: hint, ..http(503) };
        let said = Answer::of(Cause::Success).output(json!({"body": text}));
        World::new().answer("s1", 0, refused).answer("s1", 1, said)
    };
    let original = run(&plan, &catalog, Arc::new(Dearer), start(&plan, "r-original"), hinted(None, "one"));
    let replay = execute(&plan, &catalog, hinted(Some(7), "two"));
    let report = full_replay(&plan, &original.journal, &replay.journal, &|_| None, &catalog).expect("its own plan");
    let changed: Vec<&str> = report.inputs_changed.iter().map(|changed| changed.field.as_str()).collect();
    assert_eq!(changed, ["retry_after_ms", "output_ref"], "told, and no more than that");
    assert_eq!((report.verdict, report.conformance), (Verdict::Diverged, Some(true)));
    assert!(report.mismatches.iter().all(|it| it.cause == Origin::Runtime), "{:#?}", report.mismatches);
}

/// AOS-92: words reach the steps that refer to them, and from there on everything.
#[test]
fn words_excuse_what_refers_to_them() {
    let llm = |id: &str, prompt: &str| llm_step(id, prompt, 10);
    let said = |text: &str| World::new().always("s1", Answer::of(Cause::Success).output(json!({"body": text})));
    let steps = vec![step("s1", "http_call", json!({})), llm("s2", "constant"), llm("s3", "{{s1.body}}")];
    let report = compared(steps, said("short"), said(&"long".repeat(50)), Pinned);
    assert_eq!(report.verdict, Verdict::Explained, "{:#?}", report.mismatches);
    assert_eq!(causes(&report, Some("s2")), []);
    assert_eq!(causes(&report, Some("s3")), [Origin::External], "{:#?}", report.mismatches);
    assert_eq!(causes(&report, None), [Origin::External], "the sum follows from it");
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
