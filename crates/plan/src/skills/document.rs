//! Documents: the JSON values a journal can carry, which are those with a canonical form and a bounded depth.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_wire::canonical::{self, Bounds};
use macp_wire::memory;
use serde_json::{Number, Value};

/// The deepest output. Readers of JSON stop at 128 levels, and a journal wraps an output in a few of its own.
pub(crate) const DEPTH_MAX: usize = 100;

/// What an answer may take once it is read, by the weights of [`macp_wire::memory`]. The largest answer fits where it is
/// made of objects of some three hundred bytes or of numbers of four; what does not fit is kept as the text it is.
const ANSWER_MEMORY_MAX: usize = 96 * 1024 * 1024;

/// The longest text that is read without being measured: what its arrays take too much while they grow is little.
const UNMEASURED_BYTES_MAX: usize = 16 * 1024;

/// Reads a text that came from outside, if it is a document.
pub(crate) fn read(text: &[u8]) -> Result<Value, Unfit> {
    settle(parse(text)?)
}

/// Reads a text that came from outside as the value it is, which need not be a document.
pub(crate) fn parse(text: &[u8]) -> Result<Value, Unfit> {
    let bounds = Bounds { depth_max: usize::MAX, memory_max: ANSWER_MEMORY_MAX };
    if text.len() <= UNMEASURED_BYTES_MAX {
        return canonical::parse_bounded(text, bounds).map_err(Unfit::Unreadable);
    }
    // What weighs too much is refused before any of it is built.
    let measured = canonical::measure(text, ANSWER_MEMORY_MAX).map_err(Unfit::Unreadable)?;
    canonical::parse_measured(text, bounds, &measured).map_err(Unfit::Unreadable)
}

/// Returns the most that reading a text and writing it as a document takes, in bytes of memory, without the text itself.
pub(crate) fn reading_bytes(text: &[u8]) -> usize {
    match canonical::measure(text, ANSWER_MEMORY_MAX) {
        // Where a name comes twice, it is kept as a text, in which every character may have to be escaped.
        Ok(measured) => value_bytes(measured.memory, measured.text_max).max(text.len().saturating_mul(3)),
        Err(_unreadable) => text_bytes(text),
    }
}

/// The same for a body that is put into a document as text.
pub(crate) fn text_bytes(body: &[u8]) -> usize {
    // A copy, and its canonical text, in which a control character is written as six.
    body.len().saturating_mul(7)
}

/// The same for a value of this size, with the value.
pub(crate) fn value_bytes(memory: usize, text: usize) -> usize {
    // An eighth more: weights leave out what allocators round up.
    memory.saturating_add(memory / 8).saturating_add(text)
}

/// The same for a value that exists already.
pub(crate) fn bytes_of(value: &Value) -> usize {
    value_bytes(memory::of(value), canonical::length(value).unwrap_or_default())
}

/// The value that a journal will give back for this one: `3.0` is written and read again as `3`, and what happens to an
/// output must not depend on whether it has been through the journal. Changed in place, so that there are never two of
/// them.
pub(crate) fn settle(mut value: Value) -> Result<Value, Unfit> {
    settle_within(&mut value, DEPTH_MAX)?;
    Ok(value)
}

/// Gives every number the form in which it is read back. Nothing else has more than one.
fn settle_within(value: &mut Value, levels: usize) -> Result<(), Unfit> {
    match value {
        Value::Number(number) => {
            if number.is_f64() {
                let text = canonical::to_string(&Value::Number(number.clone()))?;
                *number = text.parse::<Number>().map_err(Unfit::Unreadable)?;
            }
            Ok(canonical::check_number(number)?)
        }
        Value::Array(elements) => {
            let levels = levels.checked_sub(1).ok_or(Unfit::TooDeep)?;
            elements.iter_mut().try_for_each(|element| settle_within(element, levels))
        }
        Value::Object(members) => {
            let levels = levels.checked_sub(1).ok_or(Unfit::TooDeep)?;
            members.values_mut().try_for_each(|member| settle_within(member, levels))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// Puts a body that is no document into an output: as text, else as base64.
pub(crate) fn put_text(output: &mut Value, body: &[u8]) {
    match std::str::from_utf8(body) {
        Ok(text) => output["body"] = Value::from(text),
        Err(_not_text) => {
            output["body"] = Value::Null;
            output["body_base64"] = Value::from(STANDARD.encode(body));
        }
    }
}

/// The length of a document's canonical text.
pub(crate) fn size(value: &Value) -> Result<usize, Unfit> {
    if is_deeper(value, DEPTH_MAX) {
        return Err(Unfit::TooDeep);
    }
    Ok(canonical::length(value)?)
}

/// Why a value is not a document. No text quotes the value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("it cannot be read as JSON: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error("it is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error(transparent)]
    NotCanonical(#[from] canonical::Error),
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(elements) => levels == 0 || elements.iter().any(|element| is_deeper(element, levels - 1)),
        Value::Object(members) => levels == 0 || members.values().any(|member| is_deeper(member, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_value_is_the_one_read_back_from_its_text() {
        let texts = ["[3.0,-0.0,1e20,1e21,0.1,1e-7,123456789012.5,-4.0e2]", r#"{"a":[{"b":2.50}],"c":"3.0"}"#, "5e0"];
        for text in texts {
            let value = canonical::parse(text.as_bytes()).unwrap();
            let read_back = canonical::parse(canonical::to_string(&value).unwrap().as_bytes()).unwrap();
            assert_eq!(settle(value).unwrap(), read_back, "{text}");
        }
        let beyond = canonical::parse(b"[1e17]").unwrap();
        assert!(matches!(settle(beyond), Err(Unfit::NotCanonical(_))), "it is written as an integer beyond the range");
    }

    /// Small objects take a hundred times their text: a text that fits may give a value that does not.
    #[test]
    fn an_answer_that_would_take_too_much_memory_is_no_document() {
        let list = |element: &str, count: usize| format!("[{}]", vec![element; count].join(",")).into_bytes();
        let told = read(&list(r#"{"":0}"#, 150_000)).expect_err("a hundred MiB").to_string();
        assert!(told.contains("bytes of memory"), "{told}");
        assert!(read(&list(r#"{"":0}"#, 140_000)).is_ok());
        assert!(read(&list("12345678", 1_000_000)).is_ok());
    }
}
