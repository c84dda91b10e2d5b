//! Conformance fixtures and vectors: scripts of sessions with the verdicts a runtime must reach, and a runner for them.
//!
//! ```text
//!  directory ──▶ Set ──▶ Fixture ──▶ run(fixture, driver) ──▶ Report
//!                  │                        │
//!                  │                        ├── KernelDriver   in process: clock, mode state, replay
//!                  │                        └── GrpcDriver     a running server: what its RPCs show
//!                  └──▶ HashVector · ReceiptVector ──▶ Report
//! ```
//!
//! The fixtures themselves are public data and not part of this repository: [`published`] finds them in the package
//! they are published with, and any other directory of the same layout will do. No rule of the protocol lives here;
//! what is expected stands in the fixtures alone.

mod driver;
mod fixture;
mod grpc;
mod in_process;
mod level;
mod matching;
mod payload;
pub mod published;
mod read;
mod report;
mod runner;
mod set;
mod vectors;

pub use driver::{Clock, Driver, SessionRef, Submission, Trouble, Verdict};
pub use fixture::{Expectation, ExpectedEntry, FinalState, Fixture, Message, Overrides};
pub use grpc::GrpcDriver;
pub use in_process::KernelDriver;
pub use level::Level;
pub use matching::{Difference, subset};
pub use payload::{PayloadError, decode, encode, type_of};
pub use read::ReadError;
pub use report::{Outcome, Report, Summary, Tally};
pub use runner::run;
pub use set::{Counts, LoadError, Set};
pub use vectors::{HashCheck, HashVector, ReceiptExpectation, ReceiptVector, run_hash_vectors, run_receipt_vectors};
