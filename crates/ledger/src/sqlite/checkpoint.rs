//! Copies the write-ahead log into the database, off the writer's path.
//!
//! SQLite would by default do this inside every thousandth-page commit, and that commit would wait for all of it.
//! Here a thread does it when the log has reached its size. The first pass runs beside the writer and does nearly all
//! the work; the second holds the writer back for the few pages written meanwhile, because only a log that is copied
//! to its end can be started over. So the log stays bounded under constant load, and the stall is two syncs long.
//!
//! After a time without writes, and at the end, the log is emptied: records in the database cannot be lost with the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::connection::{BUSY_TIMEOUT, Place};
use super::writer::Writer;
use crate::failure::{Failure, FailureKind};

/// The thread and the means to wake it; ends when dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    last: Arc<Mutex<Option<Failure>>>,
}

#[derive(Debug)]
struct Worker {
    place: Place,
    connection: Option<Connection>,
    writer: Arc<Mutex<Writer>>,
    /// Counts writes.
    writes: Arc<AtomicU64>,
    /// Writes up to the last look.
    seen: u64,
    /// Writes up to the last time the log was empty; none before the first time.
    emptied: Option<u64>,
}

impl Checkpointer {
    pub(super) fn start(place: Place, writer: Arc<Mutex<Writer>>, writes: Arc<AtomicU64>) -> Result<Self, Failure> {
        let connection = Some(place.open_checkpointer()?);
        let mut worker = Worker { place, connection, writer, writes, seen: 0, emptied: None };
        let last = Arc::new(Mutex::new(None));
        let (wake, woken) = sync_channel(1);
        let outcome = Arc::clone(&last);
        let thread = std::thread::Builder::new()
            .name(String::from("macp-checkpoint"))
            .spawn(move || worker.run(&woken, &outcome))
            .map_err(|source| Failure::from_io("start the checkpoint thread", source))?;
        Ok(Self { wake: Some(wake), thread: Some(thread), last })
    }

    /// Asks for a checkpoint; one that is already asked for serves this request too.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake
            && let Err(TrySendError::Disconnected(())) = wake.try_send(())
        {
            // Appends go on without the thread, but the log grows: probes have to tell.
            set(&self.last, Some(Failure::new(FailureKind::Other, "the checkpoint thread has panicked")));
        }
    }

    /// Whether the last checkpoint failed.
    pub(super) fn has_failed(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes note of a checkpoint that was made elsewhere.
    pub(super) fn recovered(&self) {
        set(&self.last, None);
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed, and dropping must not panic on top of it.
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn run(&mut self, woken: &Receiver<()>, outcome: &Mutex<Option<Failure>>) {
        loop {
            let done = match woken.recv_timeout(self.place.options.empty_after) {
                Ok(()) => self.checkpoint(Pass::Copy),
                Err(RecvTimeoutError::Timeout) if self.is_idle() => self.checkpoint(Pass::Empty),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            set(outcome, done.err());
        }
        // The store is closing, so a failure cannot be reported. A log that still exists is read at the next start.
        let _ended = self.checkpoint(Pass::Empty);
    }

    /// Whether the log is in use, and there were no writes since the last look.
    fn is_idle(&mut self) -> bool {
        let writes = self.writes.load(Ordering::Relaxed);
        let before = std::mem::replace(&mut self.seen, writes);
        writes == before && self.emptied != Some(writes)
    }

    fn checkpoint(&mut self, last: Pass) -> Result<(), Failure> {
        let result = self.checkpoint_twice(last);
        if result.is_err() {
            self.connection = None;
        }
        result
    }

    fn checkpoint_twice(&mut self, last: Pass) -> Result<(), Failure> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.place.open_checkpointer()?,
        };
        let connection = self.connection.insert(connection);
        pass(connection, &self.place)?;
        // Only held to keep the writer from adding pages; the writer itself is not touched.
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match last {
            Pass::Copy => pass(connection, &self.place),
            Pass::Empty => {
                let writes = self.writes.load(Ordering::Relaxed);
                if empty(connection, &self.place)? {
                    self.emptied = Some(writes);
                }
                Ok(())
            }
        }
    }
}

/// What the second pass does.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Copy,
    Empty,
}

/// Copies the rest and cuts the log to nothing; false if a reader still needs the log. Never waits for a reader.
fn empty(connection: &Connection, place: &Place) -> Result<bool, Failure> {
    let emptied = connection.busy_timeout(Duration::ZERO).and_then(|()| {
        let is_busy = connection
            .prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, bool>(0)));
        connection.busy_timeout(BUSY_TIMEOUT).and(is_busy)
    });
    emptied.map(|is_busy| !is_busy).map_err(|source| place.failed_in_use("checkpoint database", source))
}

/// Copies what no reader needs to find in the log any more. Never waits for a reader.
pub(super) fn pass(connection: &Connection, place: &Place) -> Result<(), Failure> {
    connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
        .and_then(|mut statement| statement.query_row([], |_| Ok(())))
        .map_err(|source| place.failed_in_use("checkpoint database", source))
}

fn set(outcome: &Mutex<Option<Failure>>, failure: Option<Failure>) {
    *outcome.lock().unwrap_or_else(PoisonError::into_inner) = failure;
}
