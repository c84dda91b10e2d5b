//! Replays a recorded trace file: every input gets the same verdict again, the refused ones too.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use macp_kernel::trace::{Comparison, Event, Replayer, TracedVerdict};
use serde::{Deserialize, Serialize};

use crate::lines::{is_too_long, read_line};

/// Names the format in the first line.
const FORMAT: &str = "macp-trace/1";

/// Longest line: an event of the largest payload in hex and room to spare.
const LINE_BYTES_MAX: u64 = 320 * 1024 * 1024;

/// One line of a trace file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TraceLine {
    Format(String),
    Event(Box<Event>),
    /// Events that were dropped here.
    Lost {
        lost: u64,
    },
}

impl TraceLine {
    pub(crate) fn header() -> TraceLine {
        TraceLine::Format(FORMAT.to_owned())
    }
}

/// What replaying a trace showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceReport {
    pub events: u64,
    pub same: u64,
    /// Operational refusals, which are not compared.
    pub operational: u64,
    /// Events of sessions whose earlier events are not in the trace, which are not compared.
    pub incomplete: u64,
    pub different: u64,
    /// Events that were not recorded.
    pub lost: u64,
    /// The last line was cut off, as it happens when the writing process is killed; it is not counted.
    pub torn: bool,
}

/// An input that got another verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceDifference {
    /// In the file, from 1.
    pub line: u64,
    pub session_id: String,
    /// The session's last entry before the input; 0 when there was no session.
    pub after_sequence: u64,
    pub expected: TracedVerdict,
    pub found: TracedVerdict,
}

impl fmt::Display for TraceDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceDifference { line, session_id, after_sequence, expected, found } = self;
        write!(f, "line {line}, session {session_id}, ")?;
        match after_sequence {
            0 => f.write_str("before its first entry")?,
            entry => write!(f, "after entry {entry}")?,
        }
        write!(f, ": recorded {expected}; decided again {found}")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a trace: its first line does not say {FORMAT}")]
    Format { path: PathBuf },
    #[error("line {line} of the trace is unreadable: {reason}")]
    Line { line: u64, reason: String },
}

/// Whether a file is a trace, by its first line.
pub fn is_trace(path: &Path) -> io::Result<bool> {
    let mut first = Vec::new();
    io::Read::take(BufReader::new(File::open(path)?), 256).read_until(b'\n', &mut first)?;
    Ok(matches!(serde_json::from_slice(&first), Ok(TraceLine::Format(format)) if format == FORMAT))
}

/// Decides every event of a trace again and compares.
pub fn replay_trace(path: &Path, on_difference: &mut dyn FnMut(&TraceDifference)) -> Result<TraceReport, TraceError> {
    replay_trace_with(path, &mut |_| {}, on_difference)
}

/// As [`replay_trace`]; `progress` hears how many bytes of the file are done.
pub fn replay_trace_with(
    path: &Path,
    progress: &mut dyn FnMut(u64),
    on_difference: &mut dyn FnMut(&TraceDifference),
) -> Result<TraceReport, TraceError> {
    let io = |source| TraceError::Io { path: path.to_owned(), source };
    if !is_trace(path).map_err(io)? {
        return Err(TraceError::Format { path: path.to_owned() });
    }
    let mut report = TraceReport::default();
    let mut replayer = Replayer::default();
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    let mut bytes = 0;
    for number in 1.. {
        let bad = |reason: String| TraceError::Line { line: number, reason };
        let line = read_line(&mut reader, LINE_BYTES_MAX).map_err(|error| match is_too_long(&error) {
            true => bad(error.to_string()),
            false => io(error),
        })?;
        let Some(line) = line else {
            break;
        };
        bytes += line.bytes.len() as u64 + 1;
        progress(bytes);
        let event = match serde_json::from_slice(&line.bytes) {
            Ok(TraceLine::Event(event)) => event,
            Ok(TraceLine::Format(_)) => continue,
            Ok(TraceLine::Lost { lost }) => {
                report.lost += lost;
                continue;
            }
            Err(_) if !line.ended => {
                report.torn = true;
                break;
            }
            Err(error) => return Err(bad(error.to_string())),
        };
        report.events += 1;
        match replayer.feed(&event).map_err(bad)? {
            Comparison::Same => report.same += 1,
            Comparison::Operational => report.operational += 1,
            Comparison::Incomplete => report.incomplete += 1,
            Comparison::Different { expected, found } => {
                report.different += 1;
                let Event { session_id, after_sequence, .. } = *event;
                on_difference(&TraceDifference { line: number, session_id, after_sequence, expected, found });
            }
        }
    }
    Ok(report)
}
