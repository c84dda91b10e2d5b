//! What nobody uses leaves memory, and what is used stays within the bound once it can.

use crate::node::Node;
use crate::plan::Plan;
use crate::properties::{Property, Violation};

/// Nothing is under way, so nothing excuses a shard over its bound.
pub(crate) fn check_surplus(nodes: &[Node], plan: &Plan) -> Result<(), Violation> {
    nodes.iter().enumerate().try_for_each(|(index, node)| {
        Property::Bounded.holds(node.shard.resident() <= plan.resident_max, || {
            format!("shard {index} holds {} sessions, {} are allowed", node.shard.resident(), plan.resident_max)
        })
    })
}

/// Nobody has touched anything for longer than the idle time.
pub(crate) fn check_idle(nodes: &[Node]) -> Result<(), Violation> {
    nodes.iter().enumerate().try_for_each(|(index, node)| {
        Property::Bounded.holds(node.shard.resident() == 0, || {
            format!("shard {index} still holds {} idle sessions", node.shard.resident())
        })
    })
}
