//! The policies standard sessions are bound to: valid ones that bite, registered before anything starts.

use std::sync::{Arc, LazyLock};

use macp_kernel::policy::{Policy, validate};
use macp_wire::v1::PolicyDescriptor;

use crate::random::Random;

/// Mode, and rules for it.
const RULES: &[(&str, &str)] = &[
    ("*", r#"{"commitment":{"authority":"any_participant"}}"#),
    (
        "macp.mode.decision.v1",
        r#"{"voting":{"algorithm":"weighted","weights":{"agent-0":2,"agent-1":1}},"commitment":{"authority":"designated_role","designated_roles":["agent-0","agent-1"]}}"#,
    ),
    (
        "macp.mode.decision.v1",
        r#"{"objection_handling":{"critical_severity_vetoes":true,"critical_objection_action":"finalize_decline"},"evaluation":{"minimum_confidence":0.4}}"#,
    ),
    (
        "macp.mode.proposal.v1",
        r#"{"acceptance":{"criterion":"counterparty"},"counter_proposal":{"max_rounds":1},"rejection":{"terminal_on_any_reject":true}}"#,
    ),
    (
        "macp.mode.task.v1",
        r#"{"assignment":{"allow_reassignment_on_reject":true},"completion":{"require_output":true}}"#,
    ),
    ("macp.mode.quorum.v1", r#"{"threshold":{"type":"percentage","value":60}}"#),
    // Silence is consent: at once, after a moment, and after about as long as the shortest sessions live.
    ("macp.mode.handoff.v1", r#"{"acceptance":{"implicit_accept_timeout_ms":1}}"#),
    ("macp.mode.handoff.v1", r#"{"acceptance":{"implicit_accept_timeout_ms":60}}"#),
    ("macp.mode.handoff.v1", r#"{"acceptance":{"implicit_accept_timeout_ms":900}}"#),
    (
        "macp.mode.handoff.v1",
        r#"{"acceptance":{"implicit_accept_timeout_ms":250},"commitment":{"authority":"any_participant"}}"#,
    ),
];

static REGISTERED: LazyLock<Vec<Arc<Policy>>> = LazyLock::new(|| {
    let read = |(at, (mode, rules)): (usize, &(&str, &str))| {
        let descriptor = PolicyDescriptor {
            policy_id: format!("policy.sim.{at}"),
            mode: (*mode).to_owned(),
            rules: (*rules).to_owned(),
            schema_version: 1,
            ..PolicyDescriptor::default()
        };
        Arc::new(validate(&descriptor).expect("the policies of the simulation are valid"))
    };
    RULES.iter().enumerate().map(read).collect()
});

/// A policy a start of the mode may name, and what a registry holds of it; built-in ones need no registry.
pub(super) fn draw(mode: &str, random: &mut Random) -> (String, Option<Arc<Policy>>) {
    let built_in = match mode {
        "macp.mode.decision.v1" => &["", "policy.std.majority", "policy.std.unanimous"][..],
        // The one mode with something to wait for mostly does.
        "macp.mode.handoff.v1" if random.chance(800) => &[],
        _ => &["", "policy.default"],
    };
    if !built_in.is_empty() && random.chance(500) {
        return ((*random.pick(built_in)).to_owned(), None);
    }
    let of_mode: Vec<&Arc<Policy>> = REGISTERED.iter().filter(|policy| policy.descriptor.mode == mode).collect();
    let general: Vec<&Arc<Policy>> = REGISTERED.iter().filter(|policy| policy.descriptor.mode == "*").collect();
    let policies = if of_mode.is_empty() || random.chance(100) { general } else { of_mode };
    let policy = Arc::clone(*random.pick(&policies));
    (policy.id().to_owned(), Some(policy))
}
