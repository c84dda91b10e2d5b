//! The JSON of rules.

use macp_wire::canonical;
use serde_json::Value;

use super::RULES_DEPTH_MAX;

/// Strictly: two members of one name would let two readers of the same rules see two policies.
pub(super) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    canonical::parse_within(text.as_bytes(), RULES_DEPTH_MAX)
}

/// The kind of a value, for error texts. Values themselves are never quoted.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
