//! Settings of the SQLite store. The defaults are what the guarantees rest on; the rest is for tests and measurements.

use std::time::Duration;

/// Pages in the write-ahead log at which it is copied into the database and started over: 16 MiB. More would write
/// the database less often; less keeps recovery after a crash, which reads the log once, below some 20 ms.
const CHECKPOINT_PAGES: u64 = 4_096;

/// Time without writes after which the log is emptied. Damage in an empty log loses no data; after a longer time, more
/// requests in a row share the cost of beginning a new log, which is a sync.
const EMPTY_AFTER: Duration = Duration::from_secs(1);

/// How a SQLite store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether a commit waits for the disk.
    pub synchronous: Synchronous,
    /// Pages in the write-ahead log at which a checkpoint is due.
    pub checkpoint_pages: u64,
    /// Time without writes after which the log is emptied.
    pub empty_after: Duration,
    /// Upper bound on a single record, below the one SQLite has (1,000,000,000 bytes).
    pub record_bytes_max: Option<i32>,
    /// Name of a registered SQLite file layer to use in place of the operating system's.
    pub vfs: Option<String>,
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// Every commit is synced: what `append` acknowledged survives a power failure.
    Full,
    /// Nothing is synced. Only for showing that a test can tell the difference.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            checkpoint_pages: CHECKPOINT_PAGES,
            empty_after: EMPTY_AFTER,
            record_bytes_max: None,
            vfs: None,
        }
    }
}
