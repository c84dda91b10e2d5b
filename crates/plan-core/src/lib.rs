//! Plans, decided: everything about executing a plan that is a pure function of the plan and of what was observed.
//!
//! ```text
//!  authored plan ──freeze──▶ FrozenPlan ──┐
//!                                         ├─ Machine ──▶ decisions ─┐
//!  the world, or a recording ──inputs─────┘                         ├──▶ journal
//!                              inputs ──────────────────────────────┘
//! ```
//!
//! No clock, no chance, no disk, no network, no floating point: live execution, recovery, replay and estimates ask the
//! same [`machine::Machine`] and so cannot disagree.

pub mod behavior;
pub mod budget;
pub mod cause;
pub mod check;
pub mod closing;
pub mod compare;
pub mod cost;
pub mod digest;
pub mod dry_run;
pub mod effect;
pub mod finding;
pub mod freeze;
pub mod journal;
pub mod limits;
pub mod lint;
pub mod machine;
pub mod plan;
pub mod rate_card;
pub mod reference;
pub mod replay;
pub mod retry;
pub mod skill;
pub mod taxonomy;
#[cfg(feature = "testkit")]
pub mod testkit;
