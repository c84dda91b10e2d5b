//! Deterministic simulation of engine and ledger with injected faults.
//!
//! A seeded scheduler drives several shards of the engine, a writer, loaders, a sweeper and clients over a simulated
//! disk and a virtual clock. Appends, commits, syncs and reads fail, the clock jumps, memory is scarce, answers are
//! slow, and the process crashes at any point and comes back with nothing but what was synced. An oracle listens
//! everywhere and asks the [`Property`] list at every step; at the end faults stop and the system must heal. The same
//! seed is the same run, to the last event.
//!
//! The shards, the loader's `load`, the kernel and the ledger's checker are the real ones. The threads around them are
//! not: what they do is played here, step by step, so that it can be interrupted anywhere.
//!
//! # Running
//!
//! `cargo test -p macp-sim` runs a few hundred seeds; `MACP_SIM_SEEDS=5000` in the environment makes it more. Long
//! runs, best in release:
//!
//! ```text
//! cargo run --release -p macp-sim -- --seeds 100000 --start 0 --steps 2000
//! ```
//!
//! A nightly run takes a `--start` of its own, for example the date, so that it never repeats itself. A failing seed is
//! printed with the command that runs it again and echoes every event.
//!
//! # Does it find anything?
//!
//! `--bug NAME` plants a mistake into the surroundings of the engine (see [`Bug`]); the tests show for each of them
//! that some property notices within a few seeds, and that the same seeds pass without it.

mod ask;
mod bug;
mod client;
mod disk;
mod healing;
mod node;
mod oracle;
mod plan;
mod properties;
mod random;
mod runner;
mod transcript;
mod truth;
mod workload;
mod world;
mod writer;

pub use bug::{Bug, UnknownBug};
pub use disk::Disk;
pub use properties::{Property, Violation};
pub use runner::{Failure, STEPS_DEFAULT, Settings, Summary, run};
