//! Whatever is given, the rules answer: no input makes freezing, reading, checking or resolving panic.

mod rules;

use macp_plan_core::check::preflight;
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::lint::lint;
use macp_plan_core::plan::{FrozenPlan, plan_hash};
use macp_plan_core::rate_card::RateCard;
use macp_plan_core::reference;
use macp_plan_core::taxonomy;
use proptest::prelude::*;
use rules::{PLAN, shelf};
use serde_json::{Map, Value};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,20}",
        "[a-z0-9._-]{0,70}",
        "[{}.\\[\\]a-z0-9 \u{e9}]{0,30}",
        Just("{{s1.body}}".to_owned()),
        Just("ERR_HTTP_503".to_owned()),
        "ERR_HTTP_[0-9]{0,4}_[A-Z]{0,3}",
        Just("1.2.0".to_owned()),
        Just("http_call".to_owned()),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_u64..20).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Keys that mean something half of the time.
fn key() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "steps",
        "step_id",
        "skill_id",
        "skill",
        "parameters",
        "params",
        "retry_policy",
        "max_retries",
        "max_attempts",
        "retryable_codes",
        "aliases",
        "run_if",
        "status_in",
        "code_in",
        "pins",
        "rate_card",
        "card",
        "id",
        "hash",
        "context",
        "budget_policy",
        "budget_cents",
        "depends_on",
        "initial_delay_seconds",
        "backoff_multiplier",
    ]);
    prop_oneof![known.prop_map(str::to_owned), text()]
}

/// The published plan with some of its places replaced.
fn mutated() -> impl Strategy<Value = Value> {
    let plan: Value = serde_json::from_str(PLAN).expect("the published plan");
    let mut places = Vec::new();
    collect(&plan, String::new(), &mut places);
    prop::collection::vec((prop::sample::select(places), json()), 0..4).prop_map(move |changes| {
        let mut plan = plan.clone();
        for (place, value) in changes {
            if let Some(target) = plan.pointer_mut(&place) {
                *target = value;
            }
        }
        plan
    })
}

fn collect(value: &Value, place: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, it)| collect(it, format!("{place}/{key}"), found)),
        Value::Array(elements) => {
            elements.iter().enumerate().for_each(|(index, it)| collect(it, format!("{place}/{index}"), found));
        }
        _ => {}
    }
    found.push(place);
}

fn options() -> FreezeOptions {
    FreezeOptions {
        plan_id: Some("p".to_owned()),
        created_at: Some("2026-11-03T10:00:00Z".to_owned()),
        ..FreezeOptions::default()
    }
}

/// Everything that takes a value from outside.
fn exercise(value: &Value) -> Result<(), TestCaseError> {
    let shelf = shelf();
    let _ = plan_hash(value);
    let _ = RateCard::from_value(value.clone());
    let frozen = freeze(value, &shelf, &options());
    if let Ok(frozen) = &frozen {
        // What was frozen can be read back, passes, and is not changed by freezing it again.
        let again =
            FrozenPlan::parse(frozen.text().as_bytes()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&again.hash, &frozen.hash);
        prop_assert!(preflight(frozen, &shelf).iter().all(|finding| !finding.is_error()));
        let twice =
            freeze(&frozen.value, &shelf, &options()).map_err(|found| TestCaseError::fail(format!("{found:?}")))?;
        prop_assert_eq!(&twice.hash, &frozen.hash);
    }
    if let Err(findings) = &frozen {
        prop_assert!(findings.iter().any(|finding| finding.is_error()), "a refusal says why");
    }
    if let Ok(frozen) = FrozenPlan::from_value(value.clone()) {
        let _ = preflight(&frozen, &shelf);
    }
    let _ = lint(value.to_string().as_bytes(), &shelf, &options());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn any_value_is_answered(value in json()) {
        exercise(&value)?;
    }

    #[test]
    fn any_change_of_a_plan_is_answered(plan in mutated()) {
        exercise(&plan)?;
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = FrozenPlan::parse(&bytes);
        let _ = lint(&bytes, &shelf(), &options());
    }

    #[test]
    fn any_template_is_answered(parameters in prop::collection::btree_map(key(), json(), 0..5), outputs in json()) {
        let parameters: Map<String, Value> = parameters.into_iter().collect();
        let lookup = |name: &str| outputs.get(name);
        let resolved = reference::resolve(&parameters, &lookup);
        match reference::references(&parameters) {
            Ok(found) if found.is_empty() => prop_assert_eq!(resolved, Ok(parameters)),
            Ok(_) => {}
            Err(_) => prop_assert!(resolved.is_err(), "what is malformed is never resolved"),
        }
    }

    #[test]
    fn any_code_is_answered(code in text()) {
        let known = taxonomy::explain(&code);
        prop_assert_eq!(known.is_some(), taxonomy::VERSIONS[1].code(&code).is_some() || taxonomy::alias(&code).is_some());
    }
}
