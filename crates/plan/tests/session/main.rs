//! Runs of sessions: what may run, that it runs once, and what its execution session says.

mod binding;
mod classic;
mod control;
mod decision;
mod execution;
mod faults;
mod older;
mod once;
mod rejected;
mod supersede;
mod watcher;
mod world;

/// A store that fails when told to, shared with the tests of the store of runs.
#[allow(dead_code, reason = "only some of its faults are of use here")]
#[path = "../store/wrapped.rs"]
mod wrapped;
