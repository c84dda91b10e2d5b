//! What two declarations of a skill promise differently.

use anyhow::Context;
use serde_json::{Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::text::{clean, count, cut};

/// Characters of a value in a line.
const VALUE_CHARACTERS_MAX: usize = 120;

/// A place where two declarations are not the same; what one of them lacks is null.
#[derive(Debug, PartialEq)]
struct Difference {
    /// A JSON pointer, such as `/retry/max_retries`.
    field: String,
    before: Value,
    after: Value,
}

/// A declaration as `macp --json plan skills ID` wrote it.
pub(super) fn read(path: &std::path::Path) -> anyhow::Result<Value> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no declaration of a skill", path.display()))
}

pub(super) fn show(before: &Value, after: &Value, output: &Output) -> anyhow::Result<Finding> {
    let mut found = Vec::new();
    differences(String::new(), before, after, &mut found);
    let is_same = found.is_empty();
    if output.is_json() {
        let found = found.iter().map(|it| json!({"field": it.field, "before": it.before, "after": it.after}));
        output.value(&json!({"same": is_same, "differences": found.collect::<Vec<_>>()}))?;
        return Ok(Finding::from_ok(is_same));
    }
    for Difference { field, before, after } in &found {
        let [before, after] = [before, after].map(|value| cut(&clean(&value.to_string()), VALUE_CHARACTERS_MAX));
        output.line(format!("{} {}: {before} became {after}", output.paint(Paint::Warn, "✗"), clean(field)))?;
    }
    let (paint, word) = if is_same { (Paint::Good, "SAME") } else { (Paint::Bad, "DIFFERENT") };
    let places = count(found.len() as u64, "difference", "differences");
    output.line(format!("{}: {places}", output.paint(paint, word)))?;
    Ok(Finding::from_ok(is_same))
}

/// Objects are compared member by member, everything else as a whole: a list that is longer is another list.
fn differences(field: String, before: &Value, after: &Value, found: &mut Vec<Difference>) {
    if let (Value::Object(one), Value::Object(other)) = (before, after) {
        let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
        for name in names {
            let (before, after) = (one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null));
            differences(format!("{field}/{name}"), before, after, found);
        }
    } else if before != after {
        found.push(Difference { field, before: before.clone(), after: after.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_that_differs_is_named() {
        let before = json!({"version": "1.2.0", "retry": {"max_retries": 3, "jitter": true}, "failure_modes": ["A"]});
        let after = json!({"version": "1.3.0", "retry": {"max_retries": 3}, "failure_modes": ["A", "B"], "new": 1});
        let mut found = Vec::new();
        differences(String::new(), &before, &after, &mut found);
        found.sort_by(|one, other| one.field.cmp(&other.field));
        let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["/failure_modes", "/new", "/retry/jitter", "/version"]);
        assert_eq!((&found[2].before, &found[2].after), (&json!(true), &Value::Null));
        found.clear();
        differences(String::new(), &before, &before, &mut found);
        assert_eq!(found, []);
    }
}
