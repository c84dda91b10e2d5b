//! Plans, executed: the only room that calls out to the world on behalf of a plan.
//!
//! What to do next is always the decision core's business ([`macp_plan_core`]); this room asks it, does what it says,
//! and writes down what came of it.

pub mod egress;
pub mod executor;
pub mod export;
mod memory;
mod network;
pub mod outbound;
mod patience;
pub mod registry;
pub mod result;
pub mod schema;
pub mod secrets;
pub mod session;
mod shares;
pub mod skill;
pub mod skills;
pub mod store;
#[cfg(feature = "testkit")]
pub mod testkit;
