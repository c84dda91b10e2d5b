//! References: values keep their type, texts become text, and nothing unresolved passes.

use macp_plan_core::limits::{REFERENCE_BYTES_MAX, STEP_ID_MAX};
use macp_plan_core::reference::{Reference, is_literal, references, resolve};
use serde_json::{Map, Value, json};

fn outputs() -> Value {
    json!({
        "s1": {
            "body": "hello {{s2.x}}",
            "count": 3,
            "ratio": 1.50,
            "items": [{"id": "a"}, {"id": null}, [10, 20]],
            "ok": true,
            "none": null,
            "tree": {"z": 1, "a": [1, "two"]},
        },
        "a": {"b": {"c": "short"}},
        "a.b": {"c": "long"},
        "list": [1, 2, 3],
        "text": "plain",
    })
}

fn resolved(template: Value) -> Result<Value, String> {
    let outputs = outputs();
    let parameters = Map::from_iter([("p".to_owned(), template)]);
    let lookup = |name: &str| outputs.get(name);
    resolve(&parameters, &lookup)
        .map(|mut parameters| parameters.remove("p").expect("the parameter"))
        .map_err(|error| error.to_string())
}

/// AOS-15: a string that is one reference becomes the value, whatever it is.
#[test]
fn a_whole_reference_keeps_the_type() {
    for (template, value) in [
        ("{{s1.count}}", json!(3)),
        ("{{s1.ratio}}", json!(1.5)),
        ("{{s1.ok}}", json!(true)),
        ("{{s1.none}}", json!(null)),
        ("{{s1.items[0].id}}", json!("a")),
        ("{{s1.items[2][1]}}", json!(20)),
        ("{{s1.tree}}", json!({"z": 1, "a": [1, "two"]})),
        ("{{list[2]}}", json!(3)),
        ("{{text}}", json!("plain")),
        ("{{ s1.count }}", json!(3)),
        // What an output holds is data and is not read again.
        ("{{s1.body}}", json!("hello {{s2.x}}")),
    ] {
        assert_eq!(resolved(json!(template)), Ok(value), "{template}");
    }
}

/// AOS-15: inside a longer text strings go in as they are and everything else as canonical JSON.
#[test]
fn inside_a_text_it_becomes_text() {
    for (template, text) in [
        ("n={{s1.count}}", "n=3"),
        (" {{s1.count}}", " 3"),
        ("{{s1.count}}{{s1.ok}}", "3true"),
        ("<{{s1.body}}>", "<hello {{s2.x}}>"),
        ("{{s1.ratio}}!", "1.5!"),
        ("{{s1.none}}.", "null."),
        ("t: {{s1.tree}}", r#"t: {"a":[1,"two"],"z":1}"#),
        ("no reference } } { {", "no reference } } { {"),
        ("", ""),
    ] {
        assert_eq!(resolved(json!(template)), Ok(json!(text)), "{template}");
    }
    let nested = json!({"a": ["{{s1.count}}", {"b": "x{{text}}"}], "{{text}}": 1});
    assert_eq!(resolved(nested), Ok(json!({"a": [3, {"b": "xplain"}], "{{text}}": 1})), "keys are no templates");
}

/// AOS-15: everything else is refused, with the reference and the reason.
#[test]
fn what_cannot_be_resolved_is_refused() {
    for (template, why) in [
        ("{{s9.body}}", "no earlier step"),
        ("{{s1.missing}}", "no member `missing` in an object"),
        ("{{s1.items[3]}}", "no element 3 in an array"),
        ("{{s1.items.id}}", "no member `id` in an array"),
        ("{{s1.count.more}}", "no member `more` in a number"),
        ("{{text[0]}}", "no element 0 in a text"),
        ("{{s1.items[-1]}}", "named by its number"),
        ("{{s1.items[+1]}}", "named by its number"),
        ("{{s1.items[]}}", "named by its number"),
        ("{{s1.items[99999999999999999999999]}}", "named by its number"),
        ("{{s1.items[0}}", "made of"),
        ("{{s1..body}}", "followed by the name"),
        ("{{s1.}}", "followed by the name"),
        ("{{}}", "begin with the name"),
        ("{{.body}}", "begin with the name"),
        ("{{ s1 | upper }}", "begin with the name"),
        ("{{s1.body", "never closed"),
        ("ok {{text}} then {{", "never closed"),
        ("{{{text}}}", "begin with the name"),
    ] {
        let error = resolved(json!(template)).expect_err(template);
        assert!(error.contains(why), "{template}: {error}");
        assert!(error.contains("cannot be resolved"), "{error}");
    }
}

/// Names may hold points; the longest that is known is meant.
#[test]
fn the_longest_name_wins() {
    assert_eq!(resolved(json!("{{a.b.c}}")), Ok(json!("long")));
    assert_eq!(resolved(json!("{{a}}")), Ok(json!({"b": {"c": "short"}})));
    let names: Vec<String> = Reference { text: "a.b.c[0].d".to_owned() }.names().map(str::to_owned).collect();
    assert_eq!(names, ["a.b.c", "a.b", "a"]);
    let spaced = Reference { text: "a.key with blank".to_owned() };
    assert_eq!(spaced.names().collect::<Vec<_>>(), ["a"]);
}

/// A small template over a large output must not become a huge request.
#[test]
fn insertion_is_bounded() {
    let large = json!("x".repeat(1024 * 1024));
    let template = |times: usize| Map::from_iter([("p".to_owned(), json!("{{s}}".repeat(times)))]);
    let lookup = |name: &str| (name == "s").then_some(&large);
    assert!(resolve(&template(15), &lookup).is_ok());
    let error = resolve(&template(17), &lookup).expect_err("too large").to_string();
    assert!(error.contains("grow beyond"), "{error}");
}

#[test]
fn references_are_listed() {
    let Value::Object(parameters) = json!({"a": "{{s1.body}} and {{s2[0]}}", "b": {"c": ["{{s3}}"]}, "d": 1}) else {
        panic!("an object")
    };
    let listed: Vec<String> = references(&parameters).expect("well-formed").into_iter().map(|it| it.text).collect();
    assert_eq!(listed, ["s1.body", "s2[0]", "s3"]);
    assert!(!is_literal(&parameters));
    let Value::Object(literal) = json!({"a": "{s1}", "b": [1, null]}) else { panic!("an object") };
    assert!(is_literal(&literal));
    let Value::Object(broken) = json!({"a": "{{s1"}) else { panic!("an object") };
    assert!(references(&broken).is_err() && !is_literal(&broken));
}

/// A name is never longer than a step id may be, so that a long reference has few names.
#[test]
fn a_long_reference_has_few_names() {
    let long = Reference { text: format!("a{}", ".a".repeat(200_000)) };
    assert_eq!(long.names().count(), STEP_ID_MAX / 2);
    assert!(long.names().all(|name| name.len() <= STEP_ID_MAX));
    let longest = "n".repeat(STEP_ID_MAX);
    for (text, names) in [
        (longest.clone(), vec![longest.as_str()]),
        (format!("{longest}.body"), vec![longest.as_str()]),
        (format!("{longest}[0]"), vec![longest.as_str()]),
        (format!("{longest}n.body"), vec![]),
    ] {
        assert_eq!(Reference { text: text.clone() }.names().collect::<Vec<_>>(), names, "{text}");
    }
}

/// AOS-15: beyond its limit a reference is malformed, whatever it would lead to, and the error does not repeat it.
#[test]
fn over_long_references_are_malformed() {
    let template = |length: usize| json!(format!("{{{{s1.{}}}}}", "x".repeat(length - "s1.".len())));
    let error = resolved(template(REFERENCE_BYTES_MAX)).expect_err("no such member");
    assert!(error.contains("there is no member"), "{error}");
    for length in [REFERENCE_BYTES_MAX + 1, 400_000] {
        let error = resolved(template(length)).expect_err("too long");
        assert!(error.contains("1024 are the most") && error.len() < 300, "{error}");
        let parameters = Map::from_iter([("p".to_owned(), template(length))]);
        assert!(references(&parameters).is_err() && !is_literal(&parameters));
    }
}
