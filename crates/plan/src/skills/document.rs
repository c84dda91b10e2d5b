//! Documents: the JSON values a journal can carry, which are those with a canonical form and a bounded depth.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_wire::canonical;
use serde_json::Value;

/// The deepest output. Readers of JSON stop at 128 levels, and a journal wraps an output in a few of its own.
pub(crate) const DEPTH_MAX: usize = 100;

/// Reads a text that came from outside, if it is a document.
pub(crate) fn read(text: &[u8]) -> Result<Value, Unfit> {
    settle(&canonical::parse(text).map_err(Unfit::Unreadable)?)
}

/// The value that a journal will give back for this one: `3.0` is written and read again as `3`, and what happens to an
/// output must not depend on whether it has been through the journal.
pub(crate) fn settle(value: &Value) -> Result<Value, Unfit> {
    let settled = canonical::parse(text(value)?.as_bytes()).map_err(Unfit::Unreadable)?;
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
    #[error("it is not JSON: {0}")]
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
