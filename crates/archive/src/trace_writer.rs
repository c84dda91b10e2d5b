//! Writes recorded traces to files: off the hot path, bounded, and never at the cost of the server.
//!
//! A full file is rotated away and the oldest is deleted, so that a flood of bad requests cannot fill the disk. When
//! the writer cannot keep up, events are dropped and the gap is written down as such.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use macp_kernel::trace::Event;

use crate::trace_replay::TraceLine;

/// Events that may wait to be written.
const QUEUE: usize = 8_192;

/// How long a written event may stay in a buffer while nothing follows.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// The handle; recording never blocks.
#[derive(Debug)]
pub struct TraceWriter {
    queue: Mutex<Option<SyncSender<Box<Event>>>>,
    dropped: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TraceWriter {
    /// Starts a new file at `path`; what was there is rotated away.
    pub fn create(path: &Path, bytes_per_file_max: u64, files_max: usize) -> io::Result<TraceWriter> {
        let mut files = Files { path: path.to_owned(), bytes_max: bytes_per_file_max, files_max, written: 0 };
        let file = files.rotate()?;
        let (queue, events) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&dropped);
        let thread =
            std::thread::Builder::new().name("macp-trace".into()).spawn(move || run(files, file, &events, &lost))?;
        Ok(TraceWriter { queue: Mutex::new(Some(queue)), dropped, thread: Mutex::new(Some(thread)) })
    }

    pub fn record(&self, event: Event) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match queue.as_ref().map(|queue| queue.try_send(Box::new(event))) {
            Some(Ok(())) => false,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => true,
        };
        if refused {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that were not written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is queued and stops. Blocks.
    pub fn finish(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the trace writer panicked");
        }
    }
}

fn run(mut files: Files, mut file: BufWriter<File>, events: &Receiver<Box<Event>>, dropped: &AtomicU64) {
    use std::sync::mpsc::RecvTimeoutError;
    let mut told = 0;
    loop {
        let event = match events.recv_timeout(FLUSH_AFTER) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let lost = dropped.load(Ordering::Relaxed);
        let gap = (lost > told).then(|| TraceLine::Lost { lost: lost - told });
        told = lost;
        let lines = gap.into_iter().chain(event.map(TraceLine::Event));
        let mut wrote = false;
        for line in lines {
            wrote = true;
            if let Err(error) = files.write(&mut file, &line) {
                tracing::error!(%error, path = %files.path.display(), "trace cannot be written");
                dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !wrote && let Err(error) = file.flush() {
            tracing::error!(%error, path = %files.path.display(), "trace cannot be written");
        }
    }
    if let Err(error) = file.flush() {
        tracing::error!(%error, path = %files.path.display(), "trace cannot be written");
    }
}

/// The file being written and its predecessors, `path.1` being the newest of them.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    bytes_max: u64,
    files_max: usize,
    written: u64,
}

impl Files {
    fn write(&mut self, file: &mut BufWriter<File>, line: &TraceLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        if self.written > 0 && self.written + bytes.len() as u64 > self.bytes_max {
            file.flush()?;
            *file = self.rotate()?;
        }
        file.write_all(&bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Moves every file one place on, lets the oldest fall off, and begins a new one with its header.
    fn rotate(&mut self) -> io::Result<BufWriter<File>> {
        let numbered = |number: usize| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.path.exists() {
            for number in (1..self.files_max.saturating_sub(1)).rev() {
                if numbered(number).exists() {
                    std::fs::rename(numbered(number), numbered(number + 1))?;
                }
            }
            if self.files_max > 1 {
                std::fs::rename(&self.path, numbered(1))?;
            }
        }
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(&self.path)?;
        let mut file = BufWriter::new(file);
        let mut header = serde_json::to_vec(&TraceLine::header())?;
        header.push(b'\n');
        file.write_all(&header)?;
        self.written = header.len() as u64;
        Ok(file)
    }
}
