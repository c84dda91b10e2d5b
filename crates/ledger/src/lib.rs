//! Append-only, hash-chained histories and the stores that keep them.
//!
//! This room knows bytes, hashes and disks, and no protocol rule: what an entry means, and whether it may be
//! appended, was decided before it comes here. Everything is synchronous and blocking.
//!
//! ```text
//!  Entry ──seal──▶ Record ──append──▶ Store (memory | SQLite)
//!  Entry ◀─check── Record ◀──read──── Store
//! ```
//!
//! - [`chain`]: the one hash formula.
//! - [`record`]: how an entry becomes the bytes that are stored and hashed.
//! - [`checker`]: verifies records in order and names the first one that is wrong.
//! - [`store`]: what every store promises; [`memory`] and [`sqlite`] keep the promise.
//! - [`documents`]: small documents that belong to no session, kept beside the histories.
//! - [`history`]: reads one session page by page, checked. Loading, verifying and exporting all go through it.
//! - `contract` (feature `contract`): the tests every store must pass, and a store around another for tests.

pub mod chain;
pub mod checker;
#[cfg(feature = "contract")]
pub mod contract;
pub mod documents;
pub mod failure;
pub mod history;
pub mod memory;
pub mod record;
pub mod sqlite;
pub mod store;

pub use chain::Hash;
pub use checker::{Checker, Corruption, CorruptionKind};
pub use documents::{Document, PutMode, PutOutcome};
pub use failure::{Failure, FailureKind};
pub use history::{History, ReadError};
pub use memory::MemoryStore;
pub use record::{FrameError, Record};
pub use sqlite::SqliteStore;
pub use store::{Append, AppendError, Filter, Head, IndexUpdate, Store};
