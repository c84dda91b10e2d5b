//! Digests, keys and canonical text: the published vectors, what they cover and what they do not.

mod rules;

use macp_plan_core::digest::{self, Digest};
use macp_plan_core::effect::{effect_key, request_digest};
use macp_plan_core::plan::{FrozenPlan, plan_hash};
use macp_plan_core::rate_card::RateCard;
use macp_wire::canonical;
use rules::{PLAN, PLAN_HASH, published_card};
use serde_json::{Value, json};

const MINIMAL: &str = concat!(
    r#"{"agent_id":"a1","context":{"allowed_skills":["http_call"],"budget_cents":1000},"goal":"g","plan_id":"p1","#,
    r#""steps":[{"parameters":{"method":"GET","timeout_ms":5000,"url":"https://api.example.com/data"},"#,
    r#""skill_id":"http_call","skill_version":"1.2.0","step_id":"s1"}]}"#
);

fn parsed(text: &str) -> Value {
    canonical::parse(text.as_bytes()).expect("JSON")
}

/// AOS-9: the published vectors.
#[test]
fn plan_hash_vectors() {
    let minimal = parsed(MINIMAL);
    assert_eq!(canonical::to_string(&minimal).expect("canonical"), MINIMAL);
    let expected = "sha256:7fed53b7bc7f30d35f93ddf6885dcd816716e2ca540c5846153d0051ec215d2d";
    assert_eq!(plan_hash(&minimal).expect("a digest").as_str(), expected);
    let frozen = FrozenPlan::parse(PLAN.as_bytes()).expect("the published plan");
    assert_eq!(frozen.hash.as_str(), PLAN_HASH);
    // Written from the model, the plan is the same plan.
    let written = serde_json::to_value(&frozen.plan).expect("JSON");
    assert_eq!(plan_hash(&written).expect("a digest").as_str(), PLAN_HASH);
    assert_eq!(written, frozen.value);
    assert_eq!(FrozenPlan::parse(frozen.text().as_bytes()).expect("its own text").hash, frozen.hash);
}

/// AOS-9: when a plan was made changes nothing, neither do order of keys and spelling of numbers; all else does.
#[test]
fn plan_hash_covers_everything_but_the_time() {
    let plan = parsed(PLAN);
    let mut later = plan.clone();
    later["created_at"] = json!("2031-12-24T18:00:00+01:00");
    assert_eq!(plan_hash(&later).expect("a digest").as_str(), PLAN_HASH);
    let mut timeless = plan.clone();
    timeless.as_object_mut().expect("an object").remove("created_at");
    assert_eq!(plan_hash(&timeless).expect("a digest").as_str(), PLAN_HASH);
    let respelled = PLAN.replace("5000", "5.0e3").replace("\"budget_cents\": 5", "\"budget_cents\": 5.0");
    assert_eq!(plan_hash(&parsed(&respelled)).expect("a digest").as_str(), PLAN_HASH);
    let members = plan.as_object().expect("an object").iter().rev();
    let backwards: Vec<String> = members.map(|(key, value)| format!("\n \"{key}\" : {value}")).collect();
    let backwards = format!("{{{}}}", backwards.join(","));
    assert_eq!(plan_hash(&parsed(&backwards)).expect("a digest").as_str(), PLAN_HASH);

    // Every leaf and every key, one at a time.
    let mut places = Vec::new();
    leaves(&plan, String::new(), &mut places);
    assert!(places.len() > 40, "the plan has many leaves");
    for place in places.iter().filter(|place| *place != "/created_at") {
        let mut changed = plan.clone();
        let leaf = changed.pointer_mut(place).expect(place);
        *leaf = match leaf {
            Value::String(text) => Value::String(format!("{text}x")),
            Value::Bool(flag) => Value::Bool(!*flag),
            Value::Null => json!(1),
            Value::Number(_) => json!(424_242),
            Value::Array(_) | Value::Object(_) => json!("gone"),
        };
        assert_ne!(plan_hash(&changed).expect("a digest").as_str(), PLAN_HASH, "{place}");
    }
    let mut more = plan;
    more["steps"][0]["description"] = json!("");
    assert_ne!(plan_hash(&more).expect("a digest").as_str(), PLAN_HASH);
}

/// JSON pointers to everything that holds nothing.
fn leaves(value: &Value, place: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            members.iter().for_each(|(key, member)| leaves(member, format!("{place}/{key}"), found));
        }
        Value::Array(elements) if !elements.is_empty() => {
            elements.iter().enumerate().for_each(|(index, it)| leaves(it, format!("{place}/{index}"), found));
        }
        _ => found.push(place),
    }
}

/// AOS-55.
#[test]
fn rate_card_vector() {
    let expected = concat!(
        r#"{"currency":"USD","id":"rc-2026-03","skills":{"http_call@1.2.0":{"base":0},"llm_invoke@2.0.0":{"models":"#,
        r#"{"claude-sonnet-4-20250514":{"input":300,"output":1500}}}}}"#
    );
    let card = RateCard::from_value(published_card()).expect("a card");
    assert_eq!(canonical::to_string(card.value()).expect("canonical"), expected);
    let digest = "sha256:ad3123d3bb307e947914ae1cdfca2f96558bf6d87bc28c22d7c0aa5c05da6da7";
    assert_eq!(card.digest().as_str(), digest);
}

/// AOS-75: the published key; the same whatever the attempt, another for every part of the identity.
#[test]
fn effect_key_vectors() {
    let key = effect_key("acme", "sess-42", "p1", "s1", 1, 0);
    assert_eq!(key, "aos1-4375d1048f8b4f2d550106dc5b8aa894e229693d9054076a70fba6d48dbfffb1");
    let others = [
        effect_key("other", "sess-42", "p1", "s1", 1, 0),
        effect_key("acme", "", "p1", "s1", 1, 0),
        effect_key("acme", "sess-42", "p2", "s1", 1, 0),
        effect_key("acme", "sess-42", "p1", "s2", 1, 0),
        effect_key("acme", "sess-42", "p1", "s1", 2, 0),
        effect_key("acme", "sess-42", "p1", "s1", 1, 1),
        effect_key("acme\",\"sess-42", "", "p1", "s1", 1, 0),
        effect_key("acme", "sess-42", "p1", "s1", u64::MAX, u32::MAX),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(*other, key);
        assert!(!others[..index].contains(other), "{index}");
    }
    // The parts are written as JSON texts, so quotes and controls cannot imitate a boundary.
    let array = json!(["a\"\\\u{1}", "\u{e9}", "p", "s", 7, 3]);
    let digits = digest::hex_of(digest::EFFECT_KEY_LABEL, canonical::to_string(&array).expect("canonical").as_bytes());
    assert_eq!(effect_key("a\"\\\u{1}", "\u{e9}", "p", "s", 7, 3), format!("aos1-{digits}"));
}

/// AOS-8, AOS-15.
#[test]
fn request_digest_vector() {
    let parameters = json!({"url": "https://api.example.com/data", "timeout_ms": 5000, "method": "GET"});
    let Value::Object(parameters) = parameters else { panic!("an object") };
    let digest = request_digest("http_call", "1.2.0", &parameters).expect("a digest");
    assert_eq!(digest.as_str(), "sha256:02c87e301e0db5cee6f3956e274d1c24acc7ead7c0e67c65065d527ef76d380b");
    assert_ne!(request_digest("http_call", "1.2.1", &parameters).expect("a digest"), digest);
    let Value::Object(large) = json!({"n": u64::MAX}) else { panic!("an object") };
    assert!(request_digest("http_call", "1.2.0", &large).is_err(), "a number that readers disagree on has no digest");
}

/// AOS-8: only the one form is a digest.
#[test]
fn digests_are_read_strictly() {
    let good = digest::of_bytes("label", b"bytes");
    assert_eq!(Digest::try_from(good.as_str().to_owned()), Ok(good.clone()));
    assert_eq!(good.as_str(), format!("sha256:{}", good.hex()));
    let upper = format!("sha256:{}", good.hex().to_uppercase());
    let bad = ["", "sha256:", good.hex(), &upper, &good.as_str()[..70], &format!("{good}0"), "sha256:\u{e9}"];
    for bad in bad {
        assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
    }
}

/// AOS-7: what the canonical form must do for plans and journals, beyond what its own room tests.
#[test]
fn canonical_json_suite() {
    // Numbers of RFC 8785, appendix B.
    let numbers = [
        ("0", "0"),
        ("-0", "0"),
        ("5e-324", "5e-324"),
        ("-5e-324", "-5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("9007199254740991", "9007199254740991"),
        ("9.999999999999997e22", "9.999999999999997e+22"),
        ("1e23", "1e+23"),
        ("1.0000000000000001e23", "1.0000000000000001e+23"),
        ("999999999999999700000", "999999999999999700000"),
        ("1e21", "1e+21"),
        ("9.999999999999997e-7", "9.999999999999997e-7"),
        ("0.000001", "0.000001"),
        ("333333333.3333332", "333333333.3333332"),
        ("333333333.33333325", "333333333.33333325"),
        ("-0.0000033333333333333333", "-0.0000033333333333333333"),
        ("1424953923781206.2", "1424953923781206.2"),
        ("1.50", "1.5"),
        ("2.000", "2"),
    ];
    for (text, expected) in numbers {
        assert_eq!(canonical::to_string(&parsed(text)).expect(text), expected, "{text}");
    }
    // Nulls, empty containers and the case of keys all count.
    let texts = [r#"{"a":null}"#, "{}", r#"{"A":null}"#, r#"{"a":[]}"#, r#"{"a":{}}"#, r#"{"a":""}"#];
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(canonical::to_string(&parsed(text)).expect(text), *text);
        let digest = plan_hash(&parsed(text)).expect("a digest");
        assert!(texts[..index].iter().all(|other| plan_hash(&parsed(other)).expect("a digest") != digest));
    }
    for bad in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, "NaN", "Infinity", "-Infinity", "1e999", "[1,]", "{}{}"] {
        assert!(canonical::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    for bad in ["9007199254740992", "-9007199254740992"] {
        assert!(plan_hash(&parsed(&format!(r#"{{"seq":{bad}}}"#))).is_err(), "{bad}");
    }
}
