//! What an operator can set about the engine.

use macp_kernel::Limits;

/// Settings of an engine; every bound has a default that suits one small machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Independent ordering loops. Sessions are spread over them by their id.
    pub shards: usize,
    /// Requests inside the engine at once; more are refused as overload.
    pub requests_in_flight_max: usize,
    /// Bytes of envelopes inside the engine at once; more are refused as overload.
    pub bytes_in_flight_max: u64,
    /// Sessions kept in memory at once, over all shards.
    pub resident_sessions_max: usize,
    /// What they may take of memory together, in bytes, roughly; each shard may keep as much as the longest session has,
    /// whatever this says.
    pub resident_bytes_max: u64,
    /// How long an open session nobody touches stays in memory.
    pub idle_ms_max: i64,
    /// Envelopes a subscriber may fall behind before it is dropped; 8 MiB of them at most.
    pub subscriber_buffer: usize,
    /// Lifecycle events and signals a watcher may fall behind before it is dropped; 8 MiB of them at most.
    pub watcher_buffer: usize,
    pub limits: Limits,
    /// Record a trace event for every verdict, for [`crate::Observer::traced`].
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            shards: std::thread::available_parallelism().map_or(1, usize::from),
            requests_in_flight_max: 16_384,
            bytes_in_flight_max: 256 * 1024 * 1024,
            resident_sessions_max: 100_000,
            resident_bytes_max: 1024 * 1024 * 1024,
            idle_ms_max: 300_000,
            subscriber_buffer: 256,
            watcher_buffer: 1024,
            limits: Limits::default(),
            trace: false,
        }
    }
}
