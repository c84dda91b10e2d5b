//! Recovery: a journal cut at any place, taken up again, comes to the same end.

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::journal::{Body, Journal, LimiterVerdict, Output, RunStatus, StopReason};
use macp_plan_core::machine::{Machine, Next, OutOfPlace, Pinned, Question};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::skill::Catalog;
use macp_plan_core::testkit::{Answer, Kit, Run, World, drive, execute, freeze, http, llm_step, plan, random, step};
use serde_json::json;

/// The journal of a run up to a place, and a machine that stands there.
fn cut(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>, run: &Run, length: usize) -> (Machine, Journal) {
    let entries = &run.journal.entries()[..length];
    let mut journal = Journal::begin(run.journal.start().clone()).expect("canonical");
    for entry in &entries[1..] {
        journal.append(entry.body.clone()).expect("canonical");
    }
    let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
    let (plan, catalog) = (Arc::clone(plan), Arc::clone(catalog));
    let machine = Machine::recover(plan, catalog, Arc::new(Pinned), journal.start(), entries, &bodies);
    (machine.expect("its own journal"), journal)
}

/// Test 30 on the level of the machine (AOS-80): every prefix goes on to the same behaviour.
fn comes_to_the_same_end_from_everywhere(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>, world: &World) {
    let whole = execute(plan, catalog, world.clone());
    let digest = &whole.machine.finished().expect("finished").behavior_digest;
    for length in 1..=whole.journal.entries().len() {
        let (mut machine, mut journal) = cut(plan, catalog, &whole, length);
        let mut world = world.clone();
        // Nothing that was answered before is asked again.
        let answered: Vec<(String, u32)> = journal
            .entries()
            .iter()
            .filter_map(|entry| match &entry.body {
                Body::AttemptObserved { step_id, attempt, .. } => Some((step_id.clone(), *attempt)),
                _ => None,
            })
            .collect();
        drive(&mut machine, &mut journal, &mut world);
        assert_eq!(machine.finished().map(|end| &end.behavior_digest), Some(digest), "cut after {length} entries");
        assert_eq!(journal.head(), whole.journal.head(), "cut after {length} entries");
        assert!(world.calls.iter().all(|(step, attempt, _)| !answered.contains(&(step.clone(), *attempt))));
    }
}

#[test]
fn crash_at_every_journal_position() {
    let mut waiting = step("s1", "post_call", json!({"effects": 2}));
    waiting["on_error"] = "continue".into();
    let steps = vec![step("s3", "http_call", json!({})), waiting, llm_step("s2", "look: {{s3.body}}", 100)];
    let world = World::new()
        .always("s1", http(503))
        .limit("s1", 1, LimiterVerdict::RateLimited)
        .answer("s3", 0, http(503))
        .answer("s3", 1, Answer::of(Cause::Success).output(json!({"body": "z".repeat(40_000)})))
        .answer("s2", 0, Answer::of(Cause::Success).tokens(9_000, 80));
    comes_to_the_same_end_from_everywhere(&freeze(plan(7, steps)), &Kit::standard().shared(), &world);
}

#[test]
fn random_runs_recover_from_everywhere() {
    for seed in 0..150 {
        let random::Case { plan, catalog, mut world } = random::case(seed);
        // An interruption that was taken is not repeated, so the worlds of both runs must be the same without one.
        world = world.without_interruption();
        comes_to_the_same_end_from_everywhere(&plan, &catalog, &world);
    }
}

/// Runs a one-step plan up to its call.
fn at_dispatch(skill: &str) -> (Machine, Arc<FrozenPlan>) {
    let plan = freeze(plan(10, vec![step("s1", skill, json!({"effects": 2})), step("s2", "http_call", json!({}))]));
    let start = macp_plan_core::testkit::start(&plan, "r");
    let mut machine = Machine::new(Arc::clone(&plan), Kit::standard().shared(), Arc::new(Pinned), start);
    let mut world = World::new();
    loop {
        let body = match machine.next() {
            Next::Ask(Question::Dispatch { .. }) => return (machine, plan),
            Next::Ask(question) => world.ask(&question),
            Next::Decide(body) => *body,
            Next::Finished => panic!("a call is due before the end"),
        };
        assert!(!machine.in_doubt(), "nothing is in doubt before every intent is written");
        machine.apply(&body, None).expect("in place");
    }
}

/// AOS-80: only what does harm if repeated is in doubt, and then the run ends there, also if steps may fail.
#[test]
fn only_what_cannot_be_repeated_is_in_doubt() {
    assert!(!at_dispatch("http_call").0.in_doubt());
    assert!(!at_dispatch("post_call").0.in_doubt());
    let (mut machine, _) = at_dispatch("mail_send");
    assert!(machine.in_doubt());
    let observed = Body::AttemptObserved {
        step_id: "s1".into(),
        attempt: 0,
        cause: Cause::EffectInDoubt,
        usage: None,
        retry_after_ms: None,
        output: Output::default(),
    };
    machine.apply(&observed, None).expect("in place");
    while let Next::Decide(body) = machine.next() {
        machine.apply(&body, None).expect("in place");
    }
    let end = machine.finished().expect("finished");
    assert_eq!((end.status, end.final_code.as_str()), (RunStatus::InDoubt, "ERR_EFFECT_IN_DOUBT"));
    assert_eq!(end.stop.as_ref().expect("a stop").reason, StopReason::InDoubt);
    assert_eq!(end.not_reached, ["s2"]);
    let result = &machine.results()[0];
    assert_eq!(result.side_effects.len(), 2, "it may have happened");
    assert_eq!(result.cost_microcents, 1_000_000);
}

/// A live run does not go on without an output that it needs.
#[test]
fn an_output_kept_apart_must_be_given() {
    let catalog = Kit::standard().shared();
    let recovered = |parameters: serde_json::Value| {
        let plan = freeze(plan(10, vec![step("s1", "http_call", json!({})), step("s2", "http_call", parameters)]));
        let mut world = World::new();
        world.inline_max = 0;
        let run = execute(&plan, &catalog, world);
        let entries = run.journal.entries();
        Machine::recover(plan, Arc::clone(&catalog), Arc::new(Pinned), run.journal.start(), entries, &|_| None)
    };
    assert!(matches!(
        recovered(json!({"host": "{{s1.body}}"})),
        Err(OutOfPlace::OutputMissing { step_id, .. }) if step_id == "s1"
    ));
    recovered(json!({})).expect("an output that nobody refers to is not needed");
}

/// A journal of another plan is refused.
#[test]
fn a_journal_belongs_to_its_plan() {
    let catalog = Kit::standard().shared();
    let one = freeze(plan(10, vec![step("s1", "http_call", json!({}))]));
    let other = freeze(plan(11, vec![step("s1", "http_call", json!({}))]));
    let run = execute(&one, &catalog, World::new());
    let recovered =
        Machine::recover(other, catalog, Arc::new(Pinned), run.journal.start(), run.journal.entries(), &|_| None);
    assert!(matches!(recovered, Err(OutOfPlace::Plan { .. })));
}
