//! Whether a value holds what is expected of it, and where it does not.
//!
//! An object matches when every expected member matches; an array when every expected element matches the one at its
//! place, counted from the start; everything else when it is equal. What is found beyond that is nobody's business.

use std::fmt;

use serde_json::{Number, Value};

/// One place where an expectation is not met.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Such as `votes.p1["agent://a"].vote`; empty for the value itself.
    pub path: String,
    pub expected: Value,
    /// None when there is nothing at that place.
    pub found: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the value" } else { &self.path };
        match &self.found {
            Some(found) => write!(f, "{path}: expected {}, found {found}", self.expected),
            None => write!(f, "{path}: expected {}, found nothing", self.expected),
        }
    }
}

/// Every place where `found` does not hold what `expected` asks for.
pub fn subset(expected: &Value, found: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    compare(&mut String::new(), expected, Some(found), &mut differences);
    differences
}

fn compare(path: &mut String, expected: &Value, found: Option<&Value>, differences: &mut Vec<Difference>) {
    match (expected, found) {
        (Value::Object(expected), Some(Value::Object(found))) => {
            for (name, expected) in expected {
                at(path, &member(name), |path| compare(path, expected, found.get(name), differences));
            }
        }
        (Value::Array(expected), Some(Value::Array(found))) => {
            for (index, expected) in expected.iter().enumerate() {
                at(path, &format!("[{index}]"), |path| compare(path, expected, found.get(index), differences));
            }
        }
        (Value::Number(expected), Some(Value::Number(found))) if is_same(expected, found) => (),
        (expected, Some(found)) if expected == found => (),
        _ => differences.push(Difference {
            path: path.strip_prefix('.').unwrap_or(path).to_owned(),
            expected: expected.clone(),
            found: found.cloned(),
        }),
    }
}

fn at(path: &mut String, step: &str, look: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(step);
    look(path);
    path.truncate(length);
}

/// A member as a step of a path; quoted unless it reads like a word.
fn member(name: &str) -> String {
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    if !name.is_empty() && name.chars().all(is_word) { format!(".{name}") } else { format!("[{}]", Value::from(name)) }
}

/// `1` and `1.0` are one number; integers too large for a float are compared as integers.
fn is_same(one: &Number, other: &Number) -> bool {
    let is_integer = |number: &Number| number.is_i64() || number.is_u64();
    if is_integer(one) && is_integer(other) { one == other } else { one.as_f64() == other.as_f64() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(expected: Value, found: Value, differences: &[&str]) {
        let texts: Vec<String> = subset(&expected, &found).iter().map(Difference::to_string).collect();
        assert_eq!(texts, differences, "{expected} in {found}");
    }

    #[test]
    fn an_object_needs_every_expected_member_and_may_have_more() {
        check(json!({}), json!({"a": 1}), &[]);
        check(json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": 2}, "d": 3}), &[]);
        check(json!({"a": 1, "b": 2}), json!({"b": 3}), &["a: expected 1, found nothing", "b: expected 2, found 3"]);
        check(json!({"a": null}), json!({}), &["a: expected null, found nothing"]);
        check(json!({"a": null}), json!({"a": null}), &[]);
    }

    #[test]
    fn an_array_is_compared_from_the_start() {
        check(json!([]), json!([1, 2]), &[]);
        check(json!([1]), json!([1, 2]), &[]);
        check(json!([2]), json!([1, 2]), &["[0]: expected 2, found 1"]);
        check(json!([1, 2, 3]), json!([1, 2]), &["[2]: expected 3, found nothing"]);
        check(
            json!({"objections": [{"severity": "low"}]}),
            json!({"objections": [{"severity": "high", "sender": "b"}]}),
            &[r#"objections[0].severity: expected "low", found "high""#],
        );
    }

    #[test]
    fn scalars_are_compared_exactly() {
        check(json!("a"), json!("A"), &[r#"the value: expected "a", found "A""#]);
        check(json!("1"), json!(1), &[r#"the value: expected "1", found 1"#]);
        check(json!(false), json!(null), &["the value: expected false, found null"]);
        check(json!(1), json!(1.0), &[]);
        check(json!(0.5), json!(0.25), &["the value: expected 0.5, found 0.25"]);
        let large = 9_007_199_254_740_993_u64;
        check(json!(large), json!(large - 1), &["the value: expected 9007199254740993, found 9007199254740992"]);
    }

    #[test]
    fn kinds_are_not_mixed_up() {
        check(json!({}), json!([]), &["the value: expected {}, found []"]);
        check(json!({"a": []}), json!({"a": {}}), &["a: expected [], found {}"]);
        check(json!({"a": {"b": 1}}), json!({"a": null}), &[r#"a: expected {"b":1}, found null"#]);
    }

    #[test]
    fn paths_quote_what_is_no_word() {
        check(
            json!({"votes": {"p1": {"agent://a": {"vote": "APPROVE"}}}}),
            json!({"votes": {"p1": {"agent://a": {"vote": "REJECT"}}}}),
            &[r#"votes.p1["agent://a"].vote: expected "APPROVE", found "REJECT""#],
        );
    }
}
