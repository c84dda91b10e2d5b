//! About how much memory JSON values take once they are read: up to a hundred times their texts, where they are made of
//! small objects. Bounds on texts alone bound nothing then, so whoever keeps values weighs them by these.
//!
//! The weights are part of what plans are decided by. They follow from a value alone and never from the machine.

use serde_json::Value;

/// A value, wherever it stands.
pub const VALUE_BYTES: usize = 32;
/// A node of the tree that holds an object's members. The first takes as much as a full one.
pub const NODE_BYTES: usize = 640;
/// How many members a node has when they come in order.
pub const NODE_MEMBERS: usize = 6;
/// What a text takes beside its bytes, unless it is empty.
const TEXT_BYTES: usize = 24;

/// What a text or a member's name takes.
#[must_use]
pub fn of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len().saturating_add(TEXT_BYTES) }
}

/// What holding so many members takes, beside their names and values.
#[must_use]
pub fn of_members(count: usize) -> usize {
    count.div_ceil(NODE_MEMBERS).saturating_mul(NODE_BYTES)
}

/// What a value takes with everything in it.
#[must_use]
pub fn of(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => of_text(text),
        Value::Array(elements) => elements.iter().map(of).sum(),
        Value::Object(members) => {
            of_members(members.len()) + members.iter().map(|(name, member)| of_text(name) + of(member)).sum::<usize>()
        }
    };
    VALUE_BYTES + inside
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn small_objects_weigh_more_than_their_texts() {
        assert_eq!(of(&json!(null)), 32);
        assert_eq!(of(&json!("")), 32);
        assert_eq!(of(&json!("four")), 32 + 4 + 24);
        assert_eq!(of(&json!({})), 32);
        assert_eq!(of(&json!({"": 0})), 32 + 640 + 32);
        assert_eq!(of(&json!([{"": 0}, 1])), 32 + (32 + 640 + 32) + 32);
        let seven: serde_json::Map<_, _> = (0..7).map(|at| (at.to_string(), json!(at))).collect();
        assert_eq!(of(&Value::Object(seven)), 32 + 2 * 640 + 7 * (32 + 25));
    }
}
