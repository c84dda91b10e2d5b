//! The policies every runtime has. Nobody can register or unregister them.

use std::sync::{Arc, LazyLock};

use macp_wire::v1::PolicyDescriptor;

use super::Policy;
use crate::mode::DECISION;

/// What governs a session that names no policy.
pub const DEFAULT_ID: &str = "policy.default";

/// Ids that begin so are assigned by the standard.
pub const STANDARD_PREFIX: &str = "policy.std.";

static BUILTINS: LazyLock<[Arc<Policy>; 4]> = LazyLock::new(|| {
    [
        builtin(DEFAULT_ID, "*", "No rules beyond those of the mode; the initiator commits.", "{}"),
        builtin(
            "policy.std.majority",
            DECISION,
            "At least half of the decisive votes approve, and somebody voted.",
            r#"{"commitment":{"require_vote_quorum":true},"voting":{"algorithm":"majority","quorum":{"type":"count","value":1},"threshold":0.5}}"#,
        ),
        builtin(
            "policy.std.supermajority",
            DECISION,
            "At least two thirds of the decisive votes approve, and two participants voted.",
            r#"{"commitment":{"require_vote_quorum":true},"voting":{"algorithm":"supermajority","quorum":{"type":"count","value":2},"threshold":0.6666666666666666}}"#,
        ),
        builtin(
            "policy.std.unanimous",
            DECISION,
            "Every participant approves and nobody rejects.",
            r#"{"commitment":{"require_vote_quorum":true},"voting":{"algorithm":"unanimous","quorum":{"type":"count","value":1}}}"#,
        ),
    ]
});

fn builtin(policy_id: &str, mode: &str, description: &str, rules: &str) -> Arc<Policy> {
    let descriptor = PolicyDescriptor {
        policy_id: policy_id.into(),
        mode: mode.into(),
        description: description.into(),
        rules: rules.into(),
        schema_version: 1,
        registered_at_unix_ms: 0,
    };
    Arc::new(Policy::read(descriptor).expect("a built-in policy is well formed"))
}

/// What governs a session that names no policy: nothing.
pub fn default_policy() -> &'static Arc<Policy> {
    &BUILTINS[0]
}

/// The default policy, then those of the standard.
pub fn builtins() -> &'static [Arc<Policy>] {
    BUILTINS.as_slice()
}
