//! Writes recorded traces to files: off the hot path, bounded, and never at the cost of the server.
//!
//! What waits to be written is bounded by count and by bytes, and files by size and number, so that a flood of bad
//! requests can fill neither the memory nor the disk. Events that find no room or cannot be written are counted, and
//! the gap is written down as such; so is an event that is larger than a file may be.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use macp_kernel::trace::{Event, TracedInput, TracedSignature};

use crate::trace_file::TraceFiles;
use crate::trace_line::TraceLine;

/// Events that may wait to be written.
const QUEUE_EVENTS_MAX: usize = 8_192;

/// Bytes of events that may wait to be written. A single event above it is taken when nothing else waits.
const QUEUE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What an event occupies beside its texts.
const EVENT_BYTES: usize = 512;

/// Bytes of lines after which they are written out.
const BUFFER_BYTES: usize = 64 * 1024;

/// How long a line may stay in the buffer.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// How long to be silent about further failures after one was told.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// The handle; recording never blocks.
#[derive(Debug)]
pub struct TraceWriter {
    queue: Mutex<Option<SyncSender<Queued>>>,
    counters: Arc<Counters>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An event that waits, and how many had found no room before it: the gap is told between what was there before and
/// what came after.
#[derive(Debug)]
struct Queued {
    refused: u64,
    event: Box<Event>,
}

/// What both sides of the queue count.
#[derive(Debug, Default)]
struct Counters {
    queued_bytes: AtomicU64,
    /// Events that found no room.
    refused: AtomicU64,
    /// Events that had room and could not be written.
    unwritten: AtomicU64,
}

impl Counters {
    /// Takes room in the queue, if there is some.
    fn reserve(&self, bytes: u64) -> bool {
        let room = |queued: u64| (queued == 0 || queued + bytes <= QUEUE_BYTES_MAX).then_some(queued + bytes);
        self.queued_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn release(&self, bytes: u64) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Released, so that whoever sees the count finds what was queued before as well.
    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Release);
    }

    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }
}

impl TraceWriter {
    /// Goes on with the trace at `path`, or begins one. A file that is no trace is refused and left as it is.
    pub fn create(path: &Path, bytes_per_file_max: u64, files_max: usize) -> io::Result<TraceWriter> {
        let files = TraceFiles::open(path.to_owned(), bytes_per_file_max, files_max)?;
        let (queue, events) = sync_channel(QUEUE_EVENTS_MAX);
        let counters = Arc::new(Counters::default());
        let pen = Pen::new(files, Arc::clone(&counters));
        let thread = std::thread::Builder::new().name("macp-trace".into()).spawn(move || pen.run(&events))?;
        Ok(TraceWriter { queue: Mutex::new(Some(queue)), counters, thread: Mutex::new(Some(thread)) })
    }

    pub fn record(&self, event: Event) {
        let bytes = size(&event);
        if !self.counters.reserve(bytes) {
            self.counters.refuse();
            return;
        }
        let event = Box::new(event);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = Queued { refused: self.counters.refused(), event };
        let taken = queue.as_ref().is_some_and(|queue| queue.try_send(queued).is_ok());
        if !taken {
            self.counters.release(bytes);
            self.counters.refuse();
        }
    }

    /// Events that were not written.
    pub fn dropped(&self) -> u64 {
        self.counters.refused() + self.counters.unwritten()
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

/// What an event occupies in the queue.
fn size(event: &Event) -> u64 {
    let input = match &event.input {
        TracedInput::Envelope { envelope, signature, registered } => {
            let signature = match signature {
                TracedSignature::Absent => 0,
                TracedSignature::Valid(text) | TracedSignature::Unregistered(text) | TracedSignature::Invalid(text) => {
                    text.len()
                }
            };
            let registered = [&registered.policy, &registered.extension].into_iter().flatten().map(String::len);
            envelope.len() + signature + registered.sum::<usize>()
        }
        TracedInput::Cancel { reason } | TracedInput::Suspend { reason } | TracedInput::Resume { reason } => {
            reason.len()
        }
        TracedInput::Touch => 0,
    };
    (EVENT_BYTES + event.session_id.len() + input) as u64
}

/// The writing side.
#[derive(Debug)]
struct Pen {
    files: TraceFiles,
    counters: Arc<Counters>,
    /// Whole lines that are not in the file yet, and how many of them are events.
    buffer: Vec<u8>,
    buffered: u64,
    buffered_since: Instant,
    /// Events that found no room up to here. More may have since, behind events that still wait.
    refused: u64,
    /// Lost events the file tells of, and those it will once the buffer is written.
    told: u64,
    telling: u64,
    complaints: Complaints,
    complaints_of_size: Complaints,
}

impl Pen {
    fn new(files: TraceFiles, counters: Arc<Counters>) -> Pen {
        Pen {
            files,
            counters,
            buffer: Vec::new(),
            buffered: 0,
            buffered_since: Instant::now(),
            refused: 0,
            told: 0,
            telling: 0,
            complaints: Complaints::default(),
            complaints_of_size: Complaints::default(),
        }
    }

    fn run(mut self, events: &Receiver<Queued>) {
        loop {
            // Asked before the queue is: when that turns out empty, everything from before these has been written.
            let refused = self.counters.refused();
            match events.recv_timeout(FLUSH_AFTER) {
                Ok(Queued { refused, event }) => {
                    let bytes = size(&event);
                    if self.tell_gap(refused) {
                        self.put(&TraceLine::Event(event), 1);
                    } else {
                        // What comes after a gap is told after the gap, or not at all.
                        self.lose(1);
                    }
                    self.counters.release(bytes);
                    if self.buffer.len() >= BUFFER_BYTES || self.buffered_since.elapsed() >= FLUSH_AFTER {
                        self.flush();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.tell_gap(refused);
                    self.flush();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.tell_gap(self.counters.refused());
        self.flush();
    }

    /// Tells of the events that found no room up to here, and of all that could not be written. False when there is a
    /// gap that cannot be told yet.
    fn tell_gap(&mut self, refused: u64) -> bool {
        self.refused = self.refused.max(refused);
        let lost = self.refused + self.counters.unwritten();
        if lost == self.telling {
            return true;
        }
        let is_told = self.put(&TraceLine::Lost { lost: lost - self.telling }, 0);
        if is_told {
            self.telling = lost;
        }
        is_told
    }

    fn lose(&self, events: u64) {
        self.counters.unwritten.fetch_add(events, Ordering::Relaxed);
    }

    /// Puts a line into the buffer, and the file before it aside if it is full. False when the line is lost.
    fn put(&mut self, line: &TraceLine, events: u64) -> bool {
        let mut bytes = match line.to_bytes() {
            Ok(bytes) => bytes,
            Err(error) => {
                self.failed(&error, events);
                return false;
            }
        };
        if !self.files.fits(bytes.len()) {
            self.left_out(bytes.len(), events);
            return false;
        }
        if self.files.is_full(self.buffer.len(), bytes.len()) {
            if !self.flush() {
                self.lose(events);
                return false;
            }
            if let Err(error) = self.files.rotate() {
                self.failed(&error, events);
                return false;
            }
        }
        if self.buffer.is_empty() {
            self.buffered_since = Instant::now();
        }
        self.buffer.append(&mut bytes);
        self.buffered += events;
        true
    }

    /// False when what was in the buffer is lost.
    fn flush(&mut self) -> bool {
        if self.buffer.is_empty() {
            return true;
        }
        let written = self.files.write(&self.buffer);
        self.buffer.clear();
        let events = std::mem::take(&mut self.buffered);
        match &written {
            Ok(()) => self.told = self.telling,
            Err(error) => {
                // Gaps that only the lost lines told of are told again.
                self.telling = self.told;
                self.failed(error, events);
            }
        }
        written.is_ok()
    }

    /// An event that no file may hold: the bound on the disk is worth more than the event.
    fn left_out(&mut self, bytes: usize, events: u64) {
        self.lose(events);
        if let Some(silent) = self.complaints_of_size.due(Instant::now()) {
            let (path, audit_max_bytes) = (self.files.path().display(), self.files.bytes_max());
            tracing::warn!(
                %path, bytes, audit_max_bytes, not_logged = silent,
                "an event is larger than a file of the trace may be and is left out; raise audit_max_bytes to record it"
            );
        }
    }

    /// Counts what was lost, and complains.
    fn failed(&mut self, error: &io::Error, events: u64) {
        self.lose(events);
        if let Some(silent) = self.complaints.due(Instant::now()) {
            let path = self.files.path().display();
            let dropped = self.counters.refused() + self.counters.unwritten();
            tracing::error!(%error, %path, dropped, failures_not_logged = silent, "trace cannot be written");
        }
    }
}

/// Keeps what goes on failing from filling the log as well.
#[derive(Debug, Default)]
struct Complaints {
    last: Option<Instant>,
    silent: u64,
}

impl Complaints {
    /// Whether to complain now, and how many failures went untold since the last time.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < COMPLAIN_EVERY) {
            self.silent += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use macp_kernel::trace::TracedVerdict;
    use macp_kernel::{Caller, Command, Input, Limits};

    use super::*;

    #[test]
    fn a_failing_disk_is_told_at_once_and_then_once_a_minute() {
        let mut complaints = Complaints::default();
        let begin = Instant::now();
        let told: Vec<_> = (0..200)
            .filter_map(|second| complaints.due(begin + Duration::from_secs(second)).map(|n| (second, n)))
            .collect();
        assert_eq!(told, [(0, 0), (60, 59), (120, 59), (180, 59)]);
    }

    fn event(number: i64) -> Box<Event> {
        let command = Command { caller: Caller::anonymous(), input: Input::Touch };
        Box::new(Event::new(number, "s", 0, &command, &Limits::default(), TracedVerdict::Unchanged))
    }

    #[test]
    fn a_gap_is_told_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let counters = Arc::new(Counters::default());
        let (queue, events) = sync_channel(8);
        for (number, refused) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
            let event = event(number);
            assert!(counters.reserve(size(&event)));
            queue.send(Queued { refused, event }).unwrap();
        }
        drop(queue);
        (0..3).for_each(|_| counters.refuse());
        Pen::new(TraceFiles::open(path.clone(), 1 << 20, 1).unwrap(), counters).run(&events);

        let text = std::fs::read_to_string(path).unwrap();
        let told = text.lines().skip(2).map(|line| match serde_json::from_str(line).unwrap() {
            TraceLine::Event(event) => format!("event {}", event.at_ms),
            TraceLine::Lost { lost } => format!("{lost} lost"),
            other => panic!("{other:?}"),
        });
        let expected = ["event 0", "event 1", "2 lost", "event 2", "event 3", "1 lost"];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_queue_is_bounded_in_bytes_and_takes_a_huge_event_alone() {
        let counters = Counters::default();
        assert!(counters.reserve(QUEUE_BYTES_MAX * 4));
        assert!(!counters.reserve(1));
        counters.release(QUEUE_BYTES_MAX * 4);
        assert!(counters.reserve(1) && counters.reserve(QUEUE_BYTES_MAX - 1));
        assert!(!counters.reserve(1));
    }
}
