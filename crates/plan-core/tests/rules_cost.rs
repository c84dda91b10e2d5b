//! Cost and budget: exact sums, one rounding, boundaries.

mod rules;

use macp_plan_core::budget::{self, Breach};
use macp_plan_core::check;
use macp_plan_core::cost::{self, CostOverflow, MICROCENTS_MAX, Price, Usage};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::rate_card::{self, RateCard, RateCardError};
use proptest::prelude::*;
use rules::{PLAN, published_card, reasons, shelf};
use serde_json::{Value, json};

const LLM: &str = "llm_invoke@2.0.0";

fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

/// AOS-53, AOS-59: the published table, a hundred times over.
#[test]
fn cost_vectors() {
    let card = rate_card::builtin();
    let vectors = [
        ("claude-sonnet-4-20250514", 1000, 500, 1_050_000, 2),
        ("gpt-4o-mini", 1000, 500, 45_000, 1),
        ("gpt-4o", 1, 0, 250, 1),
        ("claude-3-haiku-20240307", 40_000, 0, 1_000_000, 1),
        ("stub", 999, 999, 0, 0),
    ];
    for (model, input, output, microcents, cents) in vectors {
        let price = card.price(LLM, Some(model)).expect(model);
        for _ in 0..100 {
            assert_eq!(price.cost(&tokens(input, output)), Ok(microcents), "{model}");
            assert_eq!(cost::cents(microcents), cents, "{model}");
        }
    }
    assert!(card.price(LLM, Some("stub")).expect("priced").is_free());
    assert!(card.price("http_call@1.2.0", None).expect("priced").is_free());
    let transform = card.price("json_transform@2.0.0", None).expect("priced");
    for (bytes, microcents) in [(0, 0), (1, 1000), (1024, 1000), (1025, 2000)] {
        assert_eq!(transform.cost(&Usage { bytes, ..Usage::default() }), Ok(microcents));
    }
    assert!(!transform.is_free() && !transform.is_flat());
    assert!(Price { base: 5, ..Price::default() }.is_flat());
}

proptest! {
    /// AOS-54, AOS-59: tokens can be counted in any portions, and nothing is lost or won by adding.
    #[test]
    fn cost_linear_no_rounding_in_sum(
        parts in prop::collection::vec((0_u64..1_000_000, 0_u64..1_000_000, 0_u64..1_000), 0..20),
        input in 0_u64..10_000,
        output in 0_u64..10_000,
        per_request in 0_u64..10_000,
    ) {
        let price = Price { per_request, input, output, ..Price::default() };
        let usage = |(input_tokens, output_tokens, requests)| Usage { input_tokens, output_tokens, requests, bytes: 0 };
        let whole = parts.iter().fold((0, 0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1, sum.2 + part.2));
        let sum: u64 = parts.iter().map(|part| price.cost(&usage(*part)).expect("small")).sum();
        prop_assert_eq!(price.cost(&usage(whole)), Ok(sum));
    }

    #[test]
    fn cents_is_ceil(microcents in 0..=MICROCENTS_MAX) {
        let cents = cost::cents(microcents);
        prop_assert!(cents * 1_000_000 >= microcents);
        prop_assert!(cents == 0 || (cents - 1) * 1_000_000 < microcents);
        prop_assert_eq!(cost::cents(cents * 1_000_000), cents);
    }

    /// AOS-60: whatever is multiplied, the answer is the exact cost or a refusal.
    #[test]
    fn cost_never_overflows(
        prices in prop::array::uniform5(prop_oneof![any::<u64>(), 0_u64..1_000_000]),
        used in prop::array::uniform4(prop_oneof![any::<u64>(), 0_u64..1_000_000_000]),
    ) {
        let [base, per_request, per_kib, input, output] = prices;
        let [requests, bytes, input_tokens, output_tokens] = used;
        let kib = bytes / 1024 + u64::from(bytes % 1024 != 0);
        let exact = [(1, base), (requests, per_request), (kib, per_kib), (input_tokens, input), (output_tokens, output)]
            .iter()
            .try_fold(0_u128, |sum, (amount, price)| sum.checked_add(u128::from(*amount) * u128::from(*price)));
        let expected = exact.and_then(|cost| u64::try_from(cost).ok()).filter(|cost| *cost <= MICROCENTS_MAX);
        let price = Price { base, per_request, per_kib, input, output };
        let cost = price.cost(&Usage { requests, bytes, input_tokens, output_tokens });
        prop_assert_eq!(cost, expected.ok_or(CostOverflow));
    }

    /// AOS-61: the verdict is the rule and nothing else.
    #[test]
    fn budget_verdict_is_the_rule(required in any::<u64>(), remaining in any::<i64>(), ceiling in any::<Option<u64>>()) {
        let allowed = i128::from(required) <= i128::from(remaining) && ceiling.is_none_or(|most| required <= most);
        prop_assert_eq!(budget::check(required, remaining, ceiling).is_none(), allowed);
    }
}

#[test]
fn costs_end_at_the_largest_budget() {
    let price = Price { base: MICROCENTS_MAX, per_request: 1, ..Price::default() };
    assert_eq!(price.cost(&Usage::default()), Ok(MICROCENTS_MAX));
    assert_eq!(price.cost(&Usage { requests: 1, ..Usage::default() }), Err(CostOverflow));
    assert_eq!(cost::microcents(macp_plan_core::limits::BUDGET_CENTS_MAX), MICROCENTS_MAX);
}

/// AOS-56.
#[test]
fn tokens_are_estimated_from_bytes() {
    for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("\u{e9}\u{e9}\u{1f600}", 2)] {
        assert_eq!(cost::estimated_tokens([text]), tokens, "{text}");
    }
}

/// AOS-54: only exact ids have a price, and preflight refuses the rest.
#[test]
fn unknown_model_rejected() {
    let card = rate_card::builtin();
    for model in ["claude-sonnet-4", "claude-sonnet-4-20250514 ", "GPT-4o", "", "gpt-4o-mini-2"] {
        assert_eq!(card.price(LLM, Some(model)), None, "{model}");
    }
    assert_eq!(card.price(LLM, None), None, "a model must be named where prices differ by model");
    assert_eq!(card.price("http_call@1.2.0", Some("gpt-4o")), None, "no price by model where the card has none");
    assert_eq!(card.price("llm_invoke@2.0.1", Some("gpt-4o")), None);
    assert_eq!(card.price("llm_invoke", Some("gpt-4o")), None);

    let mut plan: Value = serde_json::from_str(PLAN).expect("the published plan");
    plan["steps"][1]["parameters"]["model"] = json!("claude-sonnet-4");
    let findings = check::preflight(&FrozenPlan::from_value(plan).expect("a plan"), &shelf());
    assert_eq!(reasons(&findings), ["model_unknown"]);
    let finding = &findings[0];
    assert_eq!((finding.code, finding.step_id.as_deref()), ("ERR_VALIDATION_FAILED", Some("s2")));
    assert_eq!(finding.available, ["claude-sonnet-4-20250514"]);
}

/// AOS-61: below, equal, above; nothing left; less than nothing left; ceilings.
#[test]
fn budget_boundaries() {
    let cases = [
        (99, 100, None, None),
        (100, 100, None, None),
        (101, 100, None, Some(Breach::Budget)),
        (0, 0, None, None),
        (1, 0, None, Some(Breach::Budget)),
        (0, -1, None, Some(Breach::Budget)),
        (0, i64::MIN, Some(0), Some(Breach::Budget)),
        (50, 100, Some(50), None),
        (51, 100, Some(50), Some(Breach::PerStep)),
        (101, 100, Some(50), Some(Breach::Budget)),
        (0, 100, Some(0), None),
        (u64::MAX, i64::MAX, None, Some(Breach::Budget)),
    ];
    for (required, remaining, ceiling, expected) in cases {
        for _ in 0..100 {
            assert_eq!(budget::check(required, remaining, ceiling), expected, "{required} of {remaining}, {ceiling:?}");
        }
    }
    assert_eq!(budget::remaining(5, 1_000_000), 4_000_000);
    assert_eq!(budget::remaining(0, 1), -1);
    assert_eq!(budget::remaining(9_000_000_000, 0), 9_000_000_000_000_000);
}

/// AOS-61: the step's own ceiling comes before the policy's.
#[test]
fn the_ceiling_is_the_steps_own_first() {
    let mut plan = FrozenPlan::parse(PLAN.as_bytes()).expect("the published plan").plan;
    let policy = plan.context.budget_policy.clone();
    assert_eq!(budget::ceiling(&plan.steps[0], &policy), Some(3_000_000));
    plan.steps[0].max_cost_cents = Some(0);
    assert_eq!(budget::ceiling(&plan.steps[0], &policy), Some(0));
}

/// AOS-55: a card is data of one shape, and its digest pins it.
#[test]
fn cards_are_read_strictly() {
    assert!(RateCard::from_value(published_card()).is_ok());
    for wrong in [
        json!({"id": "x"}),
        json!({"id": "x", "skills": {"a@1": {"base": 1.5}}}),
        json!({"id": "x", "skills": {"a@1": {"base": -1}}}),
        json!({"id": "x", "skills": {"a@1": {"per_page": 1}}}),
        json!({"id": "x", "skills": {"a@1": {"models": {"m": {"input": 1}}}}}),
        json!({"id": "x", "skills": {}, "discount": 1}),
        json!([]),
    ] {
        assert!(matches!(RateCard::from_value(wrong.clone()), Err(RateCardError::Shape(_))), "{wrong}");
    }
    assert!(matches!(RateCard::from_value(json!({"id": "", "skills": {}})), Err(RateCardError::Id)));
    let large = json!({"id": "x", "skills": {"a@1": {"base": u64::MAX}}});
    assert!(matches!(RateCard::from_value(large), Err(RateCardError::Canonical(_))));
    let mut changed = published_card();
    changed["skills"]["http_call@1.2.0"]["base"] = json!(1);
    let (before, after) = (RateCard::from_value(published_card()), RateCard::from_value(changed));
    assert_ne!(before.expect("a card").digest(), after.expect("a card").digest());
}
