//! The files of a trace: whole lines only, rotated by size, the oldest deleted.
//!
//! A write that fails half way is taken back, so that a disk that was full for a while leaves a gap and not a torn
//! line in the middle of a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::trace_line::TraceLine;

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
        let (file, header) = begin(&path, files_max)?;
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
        (self.file, self.header) = begin(&self.path, self.files_max)?;
        self.written = self.header;
        self.torn = false;
        Ok(())
    }
}

/// Moves every file one place on; the oldest falls off.
fn shift(path: &Path, files_max: usize) -> io::Result<()> {
    let numbered = |number: usize| beside(path, &number.to_string());
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

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

/// A new file with its header in the place of the one before it, and how long the header is.
///
/// It is begun under another name: on a full disk not even a header can be written, and no file that is whole may fall
/// off for one that cannot be begun.
fn begin(path: &Path, files_max: usize) -> io::Result<(File, u64)> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // Whoever reads a pipe reads it under its name.
        return write_header(path);
    }
    let new = beside(path, "new");
    let begun = write_header(&new);
    if begun.is_err() {
        // What is left of it takes room that is wanted; the next attempt would overwrite it.
        let _ = std::fs::remove_file(&new);
    }
    let begun = begun?;
    shift(path, files_max)?;
    std::fs::rename(&new, path)?;
    Ok(begun)
}

/// Payloads are nobody else's business, so only the owner reads the file.
fn write_header(path: &Path) -> io::Result<(File, u64)> {
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_cannot_be_begun_costs_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut files = TraceFiles::create(path.clone(), 1, 3).unwrap();
        for line in ["first\n", "second\n", "third\n"] {
            files.write(line.as_bytes()).unwrap();
            files.rotate().unwrap();
        }
        files.write(b"fourth\n").unwrap();
        let contents =
            || ["trace", "trace.1", "trace.2"].map(|name| std::fs::read(directory.path().join(name)).unwrap());
        let before = contents();

        // Writing to this device fails as on a full disk.
        std::os::unix::fs::symlink("/dev/full", directory.path().join("trace.new")).unwrap();
        for _ in 0..5 {
            assert!(files.rotate().is_err());
            std::os::unix::fs::symlink("/dev/full", directory.path().join("trace.new")).unwrap();
        }
        assert_eq!(contents(), before);
        std::fs::remove_file(directory.path().join("trace.new")).unwrap();
        files.write(b"fifth\n").unwrap();
        files.rotate().unwrap();
        assert_eq!(names(directory.path()), ["trace", "trace.1", "trace.2"]);
        assert!(std::fs::read(directory.path().join("trace.1")).unwrap().ends_with(b"fourth\nfifth\n"));
    }
}
