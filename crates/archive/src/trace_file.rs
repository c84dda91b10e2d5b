//! The files of a trace: whole lines only, rotated by size, the oldest deleted.
//!
//! A write that fails half way is taken back, so that a disk that was full for a while leaves a gap and not a torn
//! line in the middle of a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::trace_replay::TraceLine;

/// The file being written and its predecessors, `path.1` being the newest of them.
#[derive(Debug)]
pub(crate) struct TraceFiles {
    path: PathBuf,
    bytes_max: u64,
    files_max: usize,
    file: File,
    /// Bytes of the first line.
    header: u64,
    /// Bytes of whole lines in the file, the first included.
    written: u64,
    /// A failed write may have left a part of a line behind.
    torn: bool,
}

impl TraceFiles {
    /// Starts a new file; what was there is rotated away.
    pub(crate) fn create(path: PathBuf, bytes_max: u64, files_max: usize) -> io::Result<TraceFiles> {
        shift(&path, files_max)?;
        let (file, header) = begin(&path)?;
        Ok(TraceFiles { path, bytes_max, files_max, file, header, written: header, torn: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a line belongs into a new file, after so many bytes that are still to be written into this one. Every
    /// file takes at least one line.
    pub(crate) fn is_full(&self, pending: usize, line: usize) -> bool {
        let before = self.written + pending as u64;
        before > self.header && before + line as u64 > self.bytes_max
    }

    /// Writes whole lines, or nothing that stays.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.mend()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // A file that cannot be mended either is mended before the next write.
            self.torn = self.mend().is_err();
            return Err(error);
        }
        self.written += lines.len() as u64;
        Ok(())
    }

    /// Cuts off what a failed write left behind.
    fn mend(&mut self) -> io::Result<()> {
        self.file.set_len(self.written)?;
        self.file.seek(SeekFrom::Start(self.written))?;
        self.torn = false;
        Ok(())
    }

    pub(crate) fn rotate(&mut self) -> io::Result<()> {
        shift(&self.path, self.files_max)?;
        (self.file, self.header) = begin(&self.path)?;
        self.written = self.header;
        self.torn = false;
        Ok(())
    }
}

/// Moves every file one place on; the oldest falls off.
fn shift(path: &Path, files_max: usize) -> io::Result<()> {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if !path.exists() {
        return Ok(());
    }
    for number in (1..files_max.saturating_sub(1)).rev() {
        if numbered(number).exists() {
            std::fs::rename(numbered(number), numbered(number + 1))?;
        }
    }
    if files_max > 1 {
        std::fs::rename(path, numbered(1))?;
    }
    Ok(())
}

/// A new file with its header, and how long that is. Payloads are nobody else's business, so only the owner reads it.
fn begin(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut header = serde_json::to_vec(&TraceLine::header())?;
    header.push(b'\n');
    file.write_all(&header)?;
    Ok((file, header.len() as u64))
}
