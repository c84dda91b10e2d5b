//! `json_transform`: the language, its limits, and that it always ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use macp_plan::skill::Skill;
use macp_plan_core::cause::Cause;
use serde_json::{Value, json};

use crate::world::{call, expect_code, object, registry, settings};

fn skill() -> Arc<dyn Skill> {
    registry(&settings()).callable("json_transform", "2.0.0").expect("json_transform comes with the runtime")
}

async fn result(input: Value, expression: &str) -> Value {
    let skill = skill();
    let seen = call(&*skill, json!({"input": input, "expression": expression}), Duration::from_secs(60)).await;
    expect_code(&*skill, &seen, "OK_JSON_TRANSFORM");
    seen.output.unwrap()["result"].clone()
}

async fn refusal(input: Value, expression: &str) -> String {
    let skill = skill();
    let seen = call(&*skill, json!({"input": input, "expression": expression}), Duration::from_secs(60)).await;
    assert_eq!(seen.cause, Cause::InputInvalid, "{expression}: {seen:?}");
    expect_code(&*skill, &seen, "ERR_VALIDATION_FAILED");
    assert_eq!(seen.output, None);
    seen.message
}

/// Every kind of expression, with what the specification of the language says it gives.
#[tokio::test]
async fn the_language() {
    let people = json!({"people": [
        {"name": "b", "age": 30, "tags": ["x", "y"]},
        {"name": "a", "age": 50, "tags": []},
        {"name": "c", "age": 40}
    ], "n": {"one": 1, "two": 2}, "nested": [[1, 2], [3, [4]], 5]});
    let rows = [
        ("n.one", json!(1)),
        ("missing.at.all", json!(null)),
        ("people[0].name", json!("b")),
        ("people[-1].name", json!("c")),
        ("people[9]", json!(null)),
        ("people[-9]", json!(null)),
        ("n[0]", json!(null)),
        ("people[*].name", json!(["b", "a", "c"])),
        ("people[*].tags[0]", json!(["x"])),
        ("people[?age > `35`].name", json!(["a", "c"])),
        ("people[?age > `35` && name != 'c'].name", json!(["a"])),
        ("people[?!tags].name", json!(["a", "c"])),
        ("n.*", json!([1, 2])),
        ("nested[]", json!([1, 2, 3, [4], 5])),
        ("nested[][]", json!([1, 2, 3, 4, 5])),
        ("people[0:2].name", json!(["b", "a"])),
        ("people[::-1].name", json!(["c", "a", "b"])),
        ("people[1:].name", json!(["a", "c"])),
        ("people[:-1].name", json!(["b", "a"])),
        ("people[::2147483647].name", json!(["b"])),
        ("people[2147483647:-2147483647:-2147483647].name", json!(["c"])),
        ("people[-2147483647:2147483647:1].name", json!(["b", "a", "c"])),
        ("people[-2147483647]", json!(null)),
        ("n.[one, two]", json!([1, 2])),
        ("n.{first: one, second: two}", json!({"first": 1, "second": 2})),
        ("missing.[one]", json!(null)),
        ("missing || n.two", json!(2)),
        ("n.one && n.two", json!(2)),
        ("!missing", json!(true)),
        ("people[*].name | [0]", json!("b")),
        ("n.one == `1`", json!(true)),
        ("'a' < 'b'", json!(null)),
        ("`[1,\"x\"]`", json!([1, "x"])),
        ("@.n.one", json!(1)),
        ("length(people)", json!(3)),
        ("sort_by(people, &age)[*].name", json!(["b", "c", "a"])),
        ("sort_by(people, &name)[0].age", json!(50)),
        ("min_by(people, &age).name", json!("b")),
        ("max_by(people, &age).name", json!("a")),
        ("max_by(`[]`, &age)", json!(null)),
        ("map(&tags, people)", json!([["x", "y"], [], null])),
        ("map(&[0], nested)", json!([1, 3, null])),
        ("join(', ', people[*].name)", json!("b, a, c")),
        ("sort(people[*].name)", json!(["a", "b", "c"])),
        ("sum(people[*].age)", json!(120)),
        ("avg(people[*].age)", json!(40)),
        ("avg(`[]`)", json!(null)),
        ("avg(people[?age > `99`].age)", json!(null)),
        ("sum(`[]`)", json!(0)),
        ("max(`[]`)", json!(null)),
        ("min(`[]`)", json!(null)),
        ("join(', ', `[]`)", json!("")),
        ("sort(`[]`)", json!([])),
        ("keys(n)", json!(["one", "two"])),
        ("values(n)", json!([1, 2])),
        ("merge(n, `{\"two\": 3}`)", json!({"one": 1, "two": 3})),
        ("not_null(missing, n.one)", json!(1)),
        ("to_number('12.5')", json!(12.5)),
        ("to_number('12')", json!(12)),
        ("to_number('[1]')", json!(null)),
        ("to_number(n)", json!(null)),
        ("to_string(n)", json!("{\"one\":1,\"two\":2}")),
        ("type(n)", json!("object")),
        ("reverse(people[*].age)", json!([40, 50, 30])),
        ("contains(people[*].name, 'a')", json!(true)),
        ("starts_with('abc', 'ab')", json!(true)),
        ("abs(`-3`)", json!(3)),
        ("ceil(`1.2`)", json!(2)),
    ];
    for (expression, expected) in rows {
        let found = result(people.clone(), expression).await;
        // Compared as texts: 3 and 3.0 must not differ before and after a journal.
        assert_eq!(found.to_string(), expected.to_string(), "{expression}");
    }
}

/// Ids are large numbers next to each other, and none of them is another.
#[tokio::test]
async fn numbers_are_compared_exactly() {
    let (one, next) = (9_007_199_254_740_990_u64, 9_007_199_254_740_991_u64);
    let input = json!({"one": one, "next": next, "list": [one, 0.1], "other": [next, 0.1], "in": {"id": one},
        "out": {"id": next}, "whole": 3, "same": 3.0, "part": 0.30000000000000004, "near": 0.3, "more": [one, one]});
    let rows = [
        ("one == next", false),
        ("one != next", true),
        ("one < next", true),
        ("one >= next", false),
        ("one == one", true),
        ("list == other", false),
        ("list == list", true),
        ("list == more", false),
        ("in == out", false),
        ("in == {id: one}", true),
        ("in == {it: one}", false),
        ("[in] != [out]", true),
        ("contains(list, next)", false),
        ("contains(list, one)", true),
        ("contains([in], out)", false),
        ("contains([in], in)", true),
        ("whole == same", true),
        ("part == near", false),
        ("part > near", true),
        ("whole == '3'", false),
        ("`18446744073709551615` > `1.8446744073709550e19`", true),
        ("`18446744073709551615` < `1e300`", true),
    ];
    for (expression, expected) in rows {
        assert_eq!(result(input.clone(), expression).await, json!(expected), "{expression}");
    }
}

#[tokio::test]
async fn bindings_stand_beside_the_input() {
    let skill = skill();
    let parameters =
        json!({"input": [1, 2, 3], "bindings": {"factor": {"x": 7}}, "expression": "[input[0], factor.x]"});
    let seen = call(&*skill, parameters, Duration::from_secs(60)).await;
    assert_eq!(seen.output, Some(json!({"result": [1, 7]})));
    let clash = json!({"input": 1, "bindings": {"input": 2}, "expression": "@"});
    assert!(skill.check_input(&object(clash)).is_err());
}

#[tokio::test]
async fn expressions_that_fail_say_why() {
    let told = refusal(json!({}), "a[").await;
    assert!(told.contains("not a JMESPath expression") && told.contains("at character"), "{told}");
    assert!(refusal(json!({}), "frobnicate(@)").await.contains("no function `frobnicate`"));
    assert!(refusal(json!({"a": 1}), "length(a)").await.contains("at /expression"));
    assert!(refusal(json!({}), "length()").await.contains("at /expression"));
    assert!(refusal(json!([1]), "[::0]").await.contains("step of 0"));
    assert!(refusal(json!([{"a": 1}, {"a": "x"}]), "sort_by(@, &a)").await.contains("`sort_by`"));
    assert!(refusal(json!([1e308, 1e308]), "sum(@)").await.contains("`sum` adds up to more than a number can be"));
    assert!(refusal(json!([1e308, 1e308]), "avg(@)").await.contains("`avg` adds up to more than a number can be"));
    assert!(refusal(json!(["x"]), "avg(@)").await.contains("at /expression"));
    assert!(refusal(json!({}), "map(&a, @)").await.contains("`map` needs an array"));
    assert!(refusal(json!({}), "map(@, &a)").await.contains("at /expression"));
    assert!(refusal(json!({}), "&a").await.contains("not a value"));
    assert!(refusal(json!({}), "[&a]").await.contains("not a value"));
    assert!(refusal(json!({}), "`9007199254740993`").await.contains("2^53"));
}

#[test]
fn a_literal_expression_is_checked_beforehand() {
    let skill = skill();
    let check =
        |expression: &str| skill.check_input(&object(json!({"input": "{{s1.body}}", "expression": expression})));
    assert!(check("a.b[?c].d").is_ok());
    assert!(check("a[").unwrap_err().contains("/expression"));
    assert!(check("nothing(@)").unwrap_err().contains("nothing"));
    assert!(check("{{s1.expression}}").is_ok(), "what is not known yet is checked when it is");
    assert!(check(&"a".repeat(4096)).is_ok());
    assert!(check(&"a".repeat(4097)).is_err());
}

/// Nothing runs away: neither the parser nor an evaluation, on a stack of the size every thread has.
#[tokio::test]
async fn expressions_that_would_run_away_are_refused() {
    for nested in [
        "(".repeat(2000) + "a" + &")".repeat(2000),
        "[".repeat(2000) + "a" + &"]".repeat(2000),
        "!".repeat(4000) + "a",
        vec!["a"; 2000].join("."),
        vec!["a"; 2000].join("|"),
        vec!["a"; 1000].join("||"),
        "a".to_owned() + &"[0]".repeat(1300),
        "a".to_owned() + &"[]".repeat(2000),
        "abs(".repeat(800) + "a" + &")".repeat(800),
        "[?".repeat(1300) + "a" + &"]".repeat(1300),
        "*.".repeat(2000) + "a",
    ] {
        assert!(refusal(json!({"a": 1}), &nested).await.contains("nested"), "{}", &nested[..20]);
    }
    let doubling = ["[@,@]", "[@,@][]", "join('',[@,@])", "{a:@,b:@}", "[to_string(@),to_string(@)]", "[@[],@[]][]"];
    for step in doubling {
        let input = if step.starts_with("join") { json!("x") } else { json!([1, 2]) };
        let expression = vec![step; 30].join("|");
        let begun = Instant::now();
        let told = refusal(input, &expression).await;
        assert!(told.contains("more ") || told.contains("nested"), "{step}: {told}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{step} took {:?}", begun.elapsed());
    }
}

/// What a function makes is paid before it is made: these would take more memory than there is, whatever comes of them.
#[tokio::test]
async fn results_that_repeat_long_texts_are_refused() {
    let text = "x".repeat(400_000);
    let doubled = |list: &str| vec![list; 1].into_iter().chain(vec!["[@,@][]"; 17]).collect::<Vec<_>>().join("|");
    let many = |of: &str| format!("{}|[*].{of}", doubled("[@,@]"));
    let joined = format!("join(g, {})", doubled("['','']"));
    let rows = [
        (json!({"g": text}), joined),
        (json!({text.as_str(): 1}), many("keys(@)")),
        (json!({text.as_str(): 1}), many("merge(@)")),
    ];
    for (input, expression) in rows {
        let told = refusal(input, &expression).await;
        assert!(told.contains("more work"), "{expression}: {told}");
    }
    assert_eq!(result(json!({"g": "-"}), "join(g, ['a','b','c'])").await, json!("a-b-c"));
    assert_eq!(result(json!({"a": 1, "b": {"c": 2}}), "keys(merge(@, b))").await, json!(["a", "b", "c"]));
}

/// A result is measured before it is made: a list that names one object many times is short until nothing is shared.
#[tokio::test]
async fn results_that_would_take_too_much_memory_are_never_made() {
    let tiny = |count: usize| Value::from(vec![json!({"": 0}); count]);
    let many = format!("[{}]", vec!["@"; 56].join(","));
    let told = refusal(tiny(30_000), &many).await;
    assert!(told.contains("makes more than is allowed in memory"), "{told}");
    let told = refusal(json!("x".repeat(200_000)), &many).await;
    assert!(told.contains("the result has more than the 8388608 bytes that are kept"), "{told}");
    let objects = format!("[{}][] | [*].{{a: @}} | length(@)", ["@"; 7].join(","));
    let told = refusal(tiny(60_000), &objects).await;
    assert!(told.contains("makes more than is allowed in memory"), "{told}");
}

/// The input of the largest size passes where it is made of ordinary objects, as it is and made into others.
#[tokio::test]
async fn a_large_input_of_ordinary_objects_passes() {
    let order = |at: usize| json!({"id": 100_000 + at, "name": "a customer", "cents": 12_345});
    let orders = Value::from((0..85_000).map(order).collect::<Vec<_>>());
    assert!(orders.to_string().len() > 3_900_000 && orders.to_string().len() < 4 * 1024 * 1024);
    assert_eq!(result(orders.clone(), "@").await, orders);
    let made = result(orders, "[*].{id: id, name: name, cents: cents}").await;
    assert_eq!(made.as_array().map(Vec::len), Some(85_000));
}

/// What `to_string` writes is paid as it is written: a number is not one byte, nor is a control character.
#[tokio::test]
async fn texts_of_values_are_paid_by_their_length() {
    for element in [json!(-1.234_567_890_123_456e-300), json!("\u{1}\u{1}\u{1}\u{1}")] {
        let list = Value::from(vec![element; 30_000]);
        let many = format!("[{}] | length(to_string(@))", vec!["@"; 40].join(","));
        let told = refusal(list.clone(), &many).await;
        assert!(told.contains("more work"), "{told}");
        let length = serde_json::to_string(&list).unwrap().len();
        assert_eq!(result(list, "length(to_string(@))").await, json!(length));
    }
    let long = "x".repeat(4_000_000);
    assert_eq!(result(json!(long), "to_string(@)").await, json!(long), "a text is not written again");
    assert!(refusal(json!([1]), "to_string([&a])").await.contains("not a value"));
}

/// The deepest expressions that are taken fit on the stack of a thread.
#[tokio::test]
async fn expressions_at_the_limit_are_evaluated() {
    let deepest = [
        "(".repeat(99) + "a" + &")".repeat(99),
        "!".repeat(100) + "a",
        vec!["@"; 101].join("|"),
        "[?".repeat(50) + "a" + &"]".repeat(50),
        "not_null(".repeat(99) + "a" + &")".repeat(99),
    ];
    for expression in deepest {
        let parameters = object(json!({"input": {"a": 1}, "expression": expression}));
        skill().check_input(&parameters).expect("within the limit");
        result(json!({"a": 1}), &expression).await;
    }
}

#[tokio::test]
async fn inputs_and_results_are_bounded() {
    let large = "x".repeat(4 * 1024 * 1024 - 2);
    assert_eq!(result(json!(large), "length(@)").await, json!(large.len()));
    assert!(refusal(json!(format!("{large}x")), "length(@)").await.contains("at /input"));
    assert!(refusal(json!(large), "[@,@,@]").await.contains("the result has"));
    let mut deep = json!(1);
    for _ in 0..101 {
        deep = json!([deep]);
    }
    assert!(refusal(deep, "@").await.contains("nested"));
    let wrapping = format!("{}@{}", "[".repeat(60), "]".repeat(60));
    let mut half = json!(1);
    for _ in 0..60 {
        half = json!([half]);
    }
    assert!(refusal(half, &wrapping).await.contains("nested more than 100 levels"));
}

/// AOS-54: bytes are those of the input's canonical text, and known beforehand.
#[tokio::test]
async fn usage_is_the_size_of_the_input() {
    let skill = skill();
    let parameters = json!({"input": {"b": 1.0, "a": "é"}, "expression": "a"});
    let bytes = r#"{"a":"é","b":1}"#.len() as u64;
    assert_eq!(skill.usage_bound(&object(parameters.clone())).bytes, bytes);
    assert_eq!(call(&*skill, parameters, Duration::from_secs(60)).await.usage.unwrap().bytes, bytes);
    assert!(skill.effects(&object(json!({"input": 1, "expression": "@"}))).is_empty());
    assert!(skill.metadata().deterministic);
}

/// What it is given is mostly the output of another step. A mistake in what is written beside it is found all the same.
#[test]
fn a_broken_expression_is_found_beside_a_reference() {
    let skill = skill();
    let check =
        |expression: &str| skill.check_template(&object(json!({"input": "{{s1.body}}", "expression": expression})));
    let told = check("foo[").expect_err("must be refused");
    assert!(told.contains("/expression"), "{told}");
    check("foo[0]").expect("an expression");
    check("{{s1.expression}}").expect("what a reference brings is checked when it is there");
    check("foo[{{s1.place}}").expect("nor is what stands around it");
}
