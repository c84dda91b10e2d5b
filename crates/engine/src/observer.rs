//! What the engine tells those who count and record.

use std::fmt::Debug;
use std::time::Duration;

use macp_kernel::trace;

/// Called from the engine's threads and tasks; must be quick and must not block.
pub trait Observer: Send + Sync + Debug + 'static {
    /// One commit ended: how many sessions and entries it held, how long it took, whether all of it was stored.
    fn committed(&self, _appends: usize, _entries: usize, _took: Duration, _stored: bool) {}

    /// A verdict became final. Called only when tracing is on.
    fn traced(&self, _event: trace::Event) {}
}

/// Looks away.
#[derive(Debug)]
pub struct Silent;

impl Observer for Silent {}
