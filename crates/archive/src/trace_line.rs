//! The lines of a trace, and what tells a trace from other files.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use macp_kernel::trace::Event;
use serde::{Deserialize, Serialize};

/// Names the format in the first line.
pub(crate) const FORMAT: &str = "macp-trace/1";

/// What the names of all versions of the format begin with.
const FORMAT_NAME: &str = "macp-trace/";

/// One line of a trace file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TraceLine {
    Format(String),
    /// A server began to record here. What happened before it was there, or what a crash kept from being written, is
    /// not in the trace.
    Start {},
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

    /// As it stands in the file.
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// What a file is, by its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Empty,
    Trace,
    /// A trace of a format that is not known here.
    OtherVersion(String),
    Foreign,
}

impl Kind {
    pub(crate) fn of(file: &File) -> io::Result<Kind> {
        let mut first = Vec::new();
        io::Read::take(BufReader::new(file), 256).read_until(b'\n', &mut first)?;
        Ok(match serde_json::from_slice(&first) {
            _ if first.is_empty() => Kind::Empty,
            Ok(TraceLine::Format(format)) if format == FORMAT => Kind::Trace,
            Ok(TraceLine::Format(format)) if format.starts_with(FORMAT_NAME) => Kind::OtherVersion(format),
            Ok(_) | Err(_) => Kind::Foreign,
        })
    }
}

/// Whether a file is a trace, of whatever version, by its first line.
pub fn is_trace(path: &Path) -> io::Result<bool> {
    Ok(matches!(Kind::of(&File::open(path)?)?, Kind::Trace | Kind::OtherVersion(_)))
}
