//! How long the canonical text of a value is, piece by piece and without writing it: a text that would be too long is
//! never made.

use jmespath::Variable;
use macp_wire::canonical;
use serde_json::{Number, Value};

/// The length of null, a boolean or a number.
pub(super) fn scalar(value: &Variable) -> usize {
    match value {
        Variable::Bool(false) => 5,
        Variable::Number(number) => self::number(number),
        _ => 4,
    }
}

fn number(number: &Number) -> usize {
    match number.is_f64().then(|| canonical::to_string(&Value::Number(number.clone()))) {
        Some(Ok(text)) => text.len(),
        _ => number.to_string().len(),
    }
}

/// The length of a text in quotes.
pub(super) fn text(text: &str) -> usize {
    let escaped = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 2,
        0x00..0x20 => 6,
        _ => 1,
    });
    2 + escaped.sum::<usize>()
}

/// What an array's text has beside its elements: the brackets, and commas between them.
pub(super) fn brackets(elements: usize) -> usize {
    2 + elements.saturating_sub(1)
}

/// What an object's text has beside names and values: colons too.
pub(super) fn braces(members: usize) -> usize {
    brackets(members) + members
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn length(value: &Variable) -> usize {
        match value {
            Variable::String(text) => self::text(text),
            Variable::Array(elements) => {
                brackets(elements.len()) + elements.iter().map(|element| length(element)).sum::<usize>()
            }
            Variable::Object(members) => {
                braces(members.len()) + members.iter().map(|(name, member)| text(name) + length(member)).sum::<usize>()
            }
            scalar => self::scalar(scalar),
        }
    }

    #[test]
    fn lengths_are_those_of_the_canonical_text() {
        let every: String = (0..0x80_u8).map(char::from).chain("é€😀\u{7f}".chars()).collect();
        let values = [
            json!(null),
            json!([true, false, [], {}, ""]),
            json!([0, -1, 9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64]),
            json!([0.5, 3.0, -0.0, 1e21, 1e20, 1e-7, 333_333_333.333_333_3, f64::MAX, f64::MIN_POSITIVE]),
            json!({every.as_str(): every, "b": {"c": [1, {"d": "e"}]}}),
        ];
        for value in values {
            let expected = canonical::to_string(&value).unwrap().len();
            assert_eq!(length(&Variable::try_from(&value).unwrap()), expected, "{value}");
        }
    }
}
