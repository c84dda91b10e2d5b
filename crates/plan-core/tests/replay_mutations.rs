//! One rule changed at a time: exactly the aspects that are about it turn false (test 32).

use std::sync::Arc;

use macp_plan_core::budget::{self, Breach};
use macp_plan_core::cause::Cause;
use macp_plan_core::compare::{Aspect, Origin, Report, Verdict};
use macp_plan_core::cost::{Price, Usage};
use macp_plan_core::effect::Effect;
use macp_plan_core::journal::Body;
use macp_plan_core::machine::{Pinned, Rules};
use macp_plan_core::plan::{Plan, RetryPolicy};
use macp_plan_core::rate_card::RateCard;
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::retry;
use macp_plan_core::skill::PureSkill;
use macp_plan_core::taxonomy::Taxonomy;
use macp_plan_core::testkit::{Answer, Kit, World, execute, freeze, http, llm_step, plan, rate_card, step};
use serde_json::{Map, Value, json};

/// Runs under the pinned rules, replays under others, and gives the aspects that differ.
fn differing(budget: u64, steps: Vec<Value>, world: World, rules: impl Rules + 'static) -> (Vec<Aspect>, Report) {
    differing_in(plan(budget, steps), world, rules)
}

fn differing_in(plan: Value, world: World, rules: impl Rules + 'static) -> (Vec<Aspect>, Report) {
    let plan = freeze(plan);
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, world);
    let options = Options { rules: Arc::new(rules), ..Options::new("r-replay") };
    let report = mock_replay(&plan, &run.journal, &|_| None, &catalog, &options).expect("its own plan").report;
    assert_eq!(report.verdict, Verdict::Diverged);
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Runtime));
    assert!(report.mismatches.iter().all(|mismatch| mismatch.why.contains("AOS-")), "every difference names its rule");
    assert!(report.first_divergence.is_some());
    let differing = report.behavior_match.iter().filter(|(_, matches)| **matches == Some(false));
    (differing.map(|(aspect, _)| *aspect).collect(), report)
}

fn failing() -> (Vec<Value>, World) {
    let steps = vec![step("s1", "http_call", json!({"host": "x.example"})), step("s2", "post_call", json!({}))];
    (steps, World::new().always("s1", http(503)))
}

#[derive(Debug)]
struct MoreRetries;

impl Rules for MoreRetries {
    fn retry(&self, policy: &RetryPolicy, attempt: u32, code: &str) -> bool {
        retry::should_retry(&RetryPolicy { max_retries: policy.max_retries + 1, ..policy.clone() }, attempt, code)
    }
}

#[test]
fn one_retry_more() {
    let (steps, world) = failing();
    assert_eq!(differing(10, steps, world, MoreRetries).0, [Aspect::RetryCount]);
}

#[derive(Debug)]
struct AnotherCode;

impl Rules for AnotherCode {
    fn code(&self, taxonomy: &Taxonomy, cause: &Cause, skill: &dyn PureSkill) -> &'static str {
        match taxonomy.resolve(cause, skill) {
            "ERR_HTTP_503" => "ERR_HTTP_500",
            other => other,
        }
    }
}

#[test]
fn another_code() {
    let (steps, world) = failing();
    let (differing, report) = differing(10, steps, world, AnotherCode);
    assert_eq!(differing, [Aspect::ErrorCodes]);
    // Four attempts, the outcome and the run: all of them, not only the first.
    assert_eq!(report.mismatches.len(), 6);
    let first = &report.mismatches[0];
    assert_eq!((&first.original, &first.replay), (&json!("ERR_HTTP_503"), &json!("ERR_HTTP_500")));
    assert_eq!(report.first_divergence.expect("it diverges").attempt, Some(0));
}

#[derive(Debug)]
struct HigherPrice;

impl Rules for HigherPrice {
    fn cost(&self, price: &Price, usage: &Usage) -> u64 {
        Pinned.cost(&Price { input: price.input + 1, ..*price }, usage)
    }
}

#[test]
fn a_higher_price() {
    let steps = vec![llm_step("s1", "say", 10), step("s2", "http_call", json!({}))];
    let world = World::new().always("s1", Answer::of(Cause::Success).tokens(100, 10));
    let (differing, report) = differing(10, steps, world, HigherPrice);
    assert_eq!(differing, [Aspect::CostCents]);
    let cost = report.mismatches.iter().find(|it| it.field == "cost_microcents").expect("listed");
    assert_eq!((&cost.original, &cost.replay), (&json!(45_000), &json!(45_100)));
}

#[derive(Debug)]
struct OneEffectLess;

impl Rules for OneEffectLess {
    fn effects(&self, skill: &dyn PureSkill, parameters: &Map<String, Value>) -> Vec<Effect> {
        let mut effects = skill.effects(parameters);
        if effects.len() > 1 {
            effects.pop();
        }
        effects
    }
}

#[derive(Debug)]
struct OtherTarget;

impl Rules for OtherTarget {
    fn effects(&self, skill: &dyn PureSkill, parameters: &Map<String, Value>) -> Vec<Effect> {
        let other = |effect: Effect| Effect { target: effect.target.to_uppercase(), ..effect };
        skill.effects(parameters).into_iter().map(other).collect()
    }
}

#[test]
fn skipped_and_changed_effects() {
    let steps = || vec![step("s1", "http_call", json!({"host": "x.example", "effects": 2}))];
    let (aspects, report) = differing(10, steps(), World::new(), OneEffectLess);
    assert_eq!(aspects, [Aspect::SideEffects]);
    assert_eq!(report.mismatches[0].field, "count");
    let (aspects, report) = differing(10, steps(), World::new(), OtherTarget);
    assert_eq!(aspects, [Aspect::SideEffects]);
    assert_eq!(report.mismatches[0].field, "target");
}

#[derive(Debug)]
struct Backwards;

impl Rules for Backwards {
    fn next_step(&self, plan: &Plan, finished: usize) -> Option<usize> {
        plan.steps.len().checked_sub(finished + 1)
    }
}

#[test]
fn another_order() {
    let steps = ["a", "b", "c"].map(|id| step(id, "http_call", json!({}))).to_vec();
    let (aspects, report) = differing(10, steps, World::new(), Backwards);
    assert_eq!(aspects, [Aspect::StepOrder]);
    assert_eq!(report.mismatches[0].original, json!(["a", "b", "c"]));
    assert_eq!(report.mismatches[0].replay, json!(["c", "b", "a"]));
}

/// Takes what remains for so many microcents more than it is.
#[derive(Debug)]
struct OffByOne(i64);

impl Rules for OffByOne {
    fn breach(&self, required: u64, remaining: i64, ceiling: Option<u64>) -> Option<Breach> {
        budget::check(required, remaining + self.0, ceiling)
    }
}

#[test]
fn a_budget_off_by_one() {
    // The first step costs as many microcents as it uses tokens, the others a cent each.
    let mut card = rate_card();
    card["skills"]["llm_invoke@2.0.0"]["models"]["large"] = json!({"input": 1, "output": 1});
    let digest = RateCard::from_value(card.clone()).expect("a card").digest().clone();
    let mails = ["s1", "s2"].map(|id| step(id, "mail_send", json!({})));
    let mut value = plan(2, [vec![llm_step("s0", "", 1)], mails.to_vec()].concat());
    value["pins"]["rate_card"] = json!({"id": "rc-kit", "hash": digest, "card": card});
    let world = |tokens| World::new().always("s0", Answer::of(Cause::Success).tokens(tokens, 0));
    // One microcent is missing for the last step, and the changed rule does not see it.
    let (aspects, report) = differing_in(value.clone(), world(1), OffByOne(1));
    assert_eq!(aspects, [Aspect::BudgetEnforcement]);
    let verdict = report.mismatches.iter().find(|it| it.field == "budget_checked.allowed").expect("listed");
    assert_eq!(verdict.step_id.as_deref(), Some("s2"));
    assert_eq!((&verdict.original, &verdict.replay), (&json!([false, "budget"]), &json!([true, null])));
    // The other way round the run stops earlier, and everything that follows from that differs too.
    let (aspects, report) = differing_in(value, world(0), OffByOne(-1));
    assert!(aspects.contains(&Aspect::BudgetEnforcement));
    assert_eq!(report.mismatches[0].aspect, Aspect::BudgetEnforcement, "the first difference is the cause");
    assert_eq!(report.first_divergence.expect("it diverges").step_id.as_deref(), Some("s2"));
}

#[derive(Debug)]
struct LongerWaits;

impl Rules for LongerWaits {
    fn backoff_ms(&self, policy: &RetryPolicy, attempt: u32, jitter_seed: &str) -> u64 {
        retry::backoff_ms(policy, attempt, jitter_seed) + 1
    }
}

#[derive(Debug)]
struct NeverRetryable;

impl Rules for NeverRetryable {
    fn retryable(&self, _: &Taxonomy, _: &str) -> bool {
        false
    }
}

/// AOS-95: whoever is led to the first difference finds it there.
#[test]
fn a_wait_parts_where_it_was_scheduled() {
    let (steps, world) = failing();
    let run = execute(&freeze(plan(10, steps)), &Kit::standard().shared(), world);
    let scheduled = run.journal.entries().iter().find(|entry| matches!(entry.body, Body::RetryScheduled { .. }));
    let (steps, world) = failing();
    let (_, report) = differing(10, steps, world, LongerWaits);
    let first = report.first_divergence.expect("it diverges");
    assert_eq!((first.seq, first.attempt), (scheduled.expect("it was tried again").seq, Some(0)));
}

#[test]
fn waits_and_flags() {
    let (steps, world) = failing();
    assert_eq!(differing(10, steps, world, LongerWaits).0, [Aspect::BackoffMs]);
    let (steps, world) = failing();
    assert_eq!(differing(10, steps, world, NeverRetryable).0, [Aspect::Retryable]);
}
