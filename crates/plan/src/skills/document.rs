//! Documents: the JSON values a journal can carry, which are those with a canonical form and a bounded depth.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_wire::canonical::{self, Bounds};
use serde_json::Value;

/// The deepest output. Readers of JSON stop at 128 levels, and a journal wraps an output in a few of its own.
pub(crate) const DEPTH_MAX: usize = 100;

/// What an answer may take once it is read, by the weights of [`macp_wire::memory`]. The largest answer fits where it is
/// made of objects of some three hundred bytes or of numbers of four; what does not fit is kept as the text it is.
const ANSWER_MEMORY_MAX: usize = 96 * 1024 * 1024;

/// Reads a text that came from outside, if it is a document.
pub(crate) fn read(text: &[u8]) -> Result<Value, Unfit> {
    settle(parse(text)?)
}

/// Reads a text that came from outside as the value it is, which need not be a document.
pub(crate) fn parse(text: &[u8]) -> Result<Value, Unfit> {
    let bounds = Bounds { depth_max: usize::MAX, memory_max: ANSWER_MEMORY_MAX };
    canonical::parse_bounded(text, bounds).map_err(Unfit::Unreadable)
}

/// The value that a journal will give back for this one: `3.0` is written and read again as `3`, and what happens to an
/// output must not depend on whether it has been through the journal. Takes the value itself, so that there are never
/// two of them.
pub(crate) fn settle(value: Value) -> Result<Value, Unfit> {
    let text = text(&value)?;
    drop(value);
    let settled = canonical::parse(text.as_bytes()).map_err(Unfit::Unreadable)?;
    canonical::check(&settled)?;
    Ok(settled)
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
    Ok(text(value)?.len())
}

fn text(value: &Value) -> Result<String, Unfit> {
    if is_deeper(value, DEPTH_MAX) {
        return Err(Unfit::TooDeep);
    }
    Ok(canonical::to_string(value)?)
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
