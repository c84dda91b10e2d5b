//! The rules, one test per requirement: `wire_6_lengths` shows WIRE-6, and so on. Files are named after the family of
//! requirements they show.

mod admission;
mod clock;
mod decision;
mod lifecycle;
mod multi_round;
mod policy;
mod policy_evaluation;
mod policy_properties;
mod profile;
mod replay;
mod signature;
mod standard_core;
mod standard_modes;
mod trace;
mod wire;
mod world;
