//! Bounds what is inside the engine, in requests and in bytes.
//!
//! Every queue behind the gate holds nothing but what came through it, so bounding the gate bounds them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::Error;

#[derive(Debug)]
pub(crate) struct Gate {
    requests: AtomicUsize,
    bytes: AtomicU64,
    requests_max: usize,
    bytes_max: u64,
    closed: AtomicBool,
}

/// Leave to be inside; gives its place back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    bytes: u64,
}

impl Gate {
    pub(crate) fn new(requests_max: usize, bytes_max: u64) -> Arc<Self> {
        Arc::new(Gate {
            requests: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            requests_max,
            bytes_max,
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn enter(self: &Arc<Self>, bytes: u64) -> Result<Permit, Error> {
        if self.is_closed() {
            return Err(Error::ShuttingDown);
        }
        let requests = self.requests.fetch_add(1, Ordering::AcqRel);
        let inside = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let permit = Permit { gate: Arc::clone(self), bytes };
        // A single request larger than the bound would never get in; alone, it may.
        let fits = inside == 0 || inside.saturating_add(bytes) <= self.bytes_max;
        if requests >= self.requests_max || !fits {
            return Err(Error::Overloaded);
        }
        Ok(permit)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.requests.fetch_sub(1, Ordering::AcqRel);
        self.gate.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
