//! Reads the files of one trace in the order in which they were written.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use crate::lines::{is_too_long, read_line};
use crate::trace_line::{FORMAT, Kind, TraceLine};

/// Longest line: an event of the largest payload in hex and room to spare.
const LINE_BYTES_MAX: u64 = 320 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a trace: its first line does not say {FORMAT}", path.display())]
    Format { path: PathBuf },
    #[error("{} is a trace of format {found}, and this program reads {FORMAT}", path.display())]
    Version { path: PathBuf, found: String },
    #[error("line {line} of {} is unreadable: {reason}", path.display())]
    Line { path: PathBuf, line: u64, reason: String },
}

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePlace {
    pub path: PathBuf,
    /// In the file, from 1.
    pub line: u64,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    Line(TraceLine),
    /// The last line of a file was cut off, as it happens when the writing process is killed.
    Torn,
    End,
}

/// The files of one trace, oldest first.
#[derive(Debug)]
pub(crate) struct TraceReader {
    files: Vec<(PathBuf, File)>,
    current: usize,
    lines: Option<BufReader<File>>,
    place: TracePlace,
    /// Bytes of all lines read so far.
    bytes: u64,
}

impl TraceReader {
    /// Opens a trace by the name of its newest file: what was rotated away stands beside it and comes first.
    ///
    /// The newest is opened first, and a file that comes by twice counts once: so a server that rotates meanwhile can
    /// hide nothing from the middle.
    pub(crate) fn open(path: &Path) -> Result<TraceReader, TraceError> {
        let mut files: Vec<(PathBuf, File)> = Vec::new();
        for number in 0.. {
            let path = if number == 0 { path.to_owned() } else { rotated(path, number) };
            let io = |source| TraceError::Io { path: path.clone(), source };
            let file = match File::open(&path) {
                Err(error) if number > 0 && error.kind() == io::ErrorKind::NotFound => break,
                opened => opened.map_err(io)?,
            };
            match Kind::of(&file).map_err(io)? {
                Kind::Trace => {}
                Kind::OtherVersion(found) => return Err(TraceError::Version { path, found }),
                // A machine that went down may leave a file without its lines.
                Kind::Empty if number > 0 => continue,
                Kind::Empty | Kind::Foreign => return Err(TraceError::Format { path }),
            }
            let is_known = |(_, known): &(PathBuf, File)| is_same(known, &file);
            if !files.iter().any(is_known) {
                files.push((path, file));
            }
        }
        files.reverse();
        let place = TracePlace { path: PathBuf::new(), line: 0 };
        Ok(TraceReader { files, current: 0, lines: None, place, bytes: 0 })
    }

    pub(crate) fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Of the line that was read last.
    pub(crate) fn place(&self) -> &TracePlace {
        &self.place
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn next(&mut self) -> Result<Next, TraceError> {
        loop {
            let Some(lines) = &mut self.lines else {
                let Some((path, file)) = self.files.get(self.current) else {
                    return Ok(Next::End);
                };
                let io = |source| TraceError::Io { path: path.clone(), source };
                let mut file = file.try_clone().map_err(io)?;
                io::Seek::rewind(&mut file).map_err(io)?;
                self.lines = Some(BufReader::new(file));
                self.place = TracePlace { path: path.clone(), line: 0 };
                continue;
            };
            let read = read_line(lines, LINE_BYTES_MAX);
            self.place.line += 1;
            let Some(line) = read.map_err(|error| self.unread(error))? else {
                self.lines = None;
                self.current += 1;
                continue;
            };
            self.bytes += line.bytes.len() as u64 + u64::from(line.ended);
            return match serde_json::from_slice(&line.bytes) {
                Ok(line) => Ok(Next::Line(line)),
                Err(_) if !line.ended => Ok(Next::Torn),
                Err(error) => Err(self.bad(error.to_string())),
            };
        }
    }

    /// What the line that was read last says makes no sense.
    pub(crate) fn bad(&self, reason: String) -> TraceError {
        let TracePlace { path, line } = self.place.clone();
        TraceError::Line { path, line, reason }
    }

    /// A line beyond all measure is the file's fault, anything else the reading's.
    fn unread(&self, error: io::Error) -> TraceError {
        if is_too_long(&error) {
            return self.bad(error.to_string());
        }
        TraceError::Io { path: self.place.path.clone(), source: error }
    }
}

/// Bytes of all files of a trace together.
pub fn trace_bytes(path: &Path) -> io::Result<u64> {
    let mut bytes = std::fs::metadata(path)?.len();
    for number in 1.. {
        match std::fs::metadata(rotated(path, number)) {
            Ok(found) => bytes += found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// What a file is called after it was rotated away so many times.
pub(crate) fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[cfg(unix)]
fn is_same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

/// Files that are open cannot be renamed there, so that none can come by twice.
#[cfg(not(unix))]
fn is_same(_one: &File, _other: &File) -> bool {
    false
}
