//! The files of a trace: whole lines only, rotated by size, the oldest deleted.
//!
//! A server goes on with the trace that is there, so that starting it again and again costs no record. A write that
//! fails half way is taken back, so that a disk that was full for a while leaves a gap and not a torn line in the middle
//! of a file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::trace_line::{Kind, TraceLine};
use crate::trace_reader::rotated;

/// Bytes looked at at once in search of the end of the last whole line.
const BLOCK_BYTES: u64 = 64 * 1024;

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
    /// Goes on with the trace that is there, or begins one. Whatever is no trace is refused and left as it is.
    pub(crate) fn open(path: PathBuf, bytes_max: u64, files_max: usize) -> io::Result<TraceFiles> {
        let header = TraceLine::header().to_bytes()?.len() as u64;
        check_beside(&path, files_max)?;
        let (file, written) = match go_on(&path)? {
            Some(there) => there,
            None => (begin(&path, files_max)?, header),
        };
        let mut files = TraceFiles { path, bytes_max, files_max, file, header, written, torn: false };
        let start = TraceLine::Start {}.to_bytes()?;
        if files.is_full(0, start.len()) {
            files.rotate()?;
        }
        files.write(&start)?;
        Ok(files)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether there is room for a line in a file of its own.
    pub(crate) fn fits(&self, line: usize) -> bool {
        self.header + line as u64 <= self.bytes_max
    }

    /// Whether a line that fits belongs into a new file, after so many bytes that are still to be written into this one.
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
        self.file = begin(&self.path, self.files_max)?;
        self.written = self.header;
        self.torn = false;
        Ok(())
    }
}

/// The trace that is there, open behind its last whole line, and how long it is up to there. None if there is none.
fn go_on(path: &Path) -> io::Result<Option<(File, u64)>> {
    let mut file = match std::fs::metadata(path) {
        Ok(found) if found.is_file() => OpenOptions::new().read(true).write(true).open(path)?,
        // Whoever reads a pipe reads it from its beginning.
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    check(&file)?;
    lock(&file)?;
    let mut end = end_of_lines(&mut file)?;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    if end == 0 {
        // Not even its first line was whole.
        let header = TraceLine::header().to_bytes()?;
        file.write_all(&header)?;
        end = header.len() as u64;
    }
    Ok(Some((file, end)))
}

/// Two servers that write one trace would write over each other's lines.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let text = "another process records into it; name another file";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Rotating overwrites, renames and at last deletes what stands beside a trace, so that has to be ours as well.
fn check_beside(path: &Path, files_max: usize) -> io::Result<()> {
    is_ours(&begun(path))?;
    for number in 1.. {
        // Up to there each is renamed, whether or not there is one before it; behind it the first that is missing ends
        // the deleting.
        if !is_ours(&rotated(path, number))? && number >= files_max {
            break;
        }
    }
    Ok(())
}

/// False when there is no such file. One that is not ours is an error.
fn is_ours(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let beside =
        |error: io::Error| io::Error::new(error.kind(), format!("{} stands beside it: {error}", path.display()));
    check(&file).map(|()| true).map_err(beside)
}

/// Refuses what is neither a trace nor empty.
fn check(file: &File) -> io::Result<()> {
    let refused = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    match Kind::of(file)? {
        Kind::Foreign => refused("it holds something else than a trace; name another file, or move it away".to_owned()),
        Kind::OtherVersion(found) => {
            refused(format!("it is a trace of format {found}, which this program does not write; name another file"))
        }
        Kind::Empty | Kind::Trace => Ok(()),
    }
}

/// Where the last whole line ends.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_BYTES);
        file.seek(SeekFrom::Start(begin))?;
        block.clear();
        Read::take(&mut *file, end - begin).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Moves every file one place on; the oldest falls off, and so do those that were kept under a larger number.
fn shift(path: &Path, files_max: usize) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    for number in (1..files_max.saturating_sub(1)).rev() {
        if rotated(path, number).exists() {
            std::fs::rename(rotated(path, number), rotated(path, number + 1))?;
        }
    }
    if files_max > 1 {
        std::fs::rename(path, rotated(path, 1))?;
    }
    for number in files_max.. {
        match std::fs::remove_file(rotated(path, number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            removed => removed?,
        }
    }
    Ok(())
}

/// A new file with its header in the place of the one before it.
///
/// It is begun under another name: on a full disk not even a header can be written, and no file that is whole may fall
/// off for one that cannot be begun.
fn begin(path: &Path, files_max: usize) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // Whoever reads a pipe reads it under its name.
        return write_header(path);
    }
    let new = begun(path);
    let file = write_header(&new).and_then(|file| lock(&file).map(|()| file));
    if file.is_err() {
        // What is left of it takes room that is wanted; the next attempt would overwrite it.
        let _ = std::fs::remove_file(&new);
    }
    let file = file?;
    shift(path, files_max)?;
    std::fs::rename(&new, path)?;
    Ok(file)
}

/// What a file is called until it takes its place.
fn begun(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Payloads are nobody else's business, so only the owner reads the file.
fn write_header(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(&TraceLine::header().to_bytes()?)?;
    Ok(file)
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

    fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
        let read = |name: String| (name.clone(), std::fs::read(directory.join(name)).unwrap());
        names(directory).into_iter().map(read).collect()
    }

    #[test]
    fn a_file_that_cannot_be_begun_costs_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut files = TraceFiles::open(path.clone(), 1, 3).unwrap();
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

    #[test]
    fn starting_again_goes_on_behind_the_last_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        for (round, torn) in [&b""[..], b"{\"event\":", &[b'x'; 200_000]].into_iter().enumerate() {
            let mut files = TraceFiles::open(path.clone(), 1 << 20, 3).unwrap();
            files.write(format!("line {round}\n").as_bytes()).unwrap();
            drop(files);
            let mut left = OpenOptions::new().append(true).open(&path).unwrap();
            left.write_all(torn).unwrap();
        }
        let mut files = TraceFiles::open(path.clone(), 1 << 20, 3).unwrap();
        files.write(b"last\n").unwrap();
        assert_eq!(names(directory.path()), ["trace"]);
        let text = std::fs::read_to_string(&path).unwrap();
        let recorded: Vec<&str> = text.lines().skip(1).filter(|line| *line != "{\"start\":{}}").collect();
        assert_eq!(recorded, ["line 0", "line 1", "line 2", "last"]);
        assert_eq!(text.lines().count(), 1 + 4 + 4, "every start is told: {text}");
        assert_eq!(files.written, text.len() as u64);
    }

    #[test]
    fn what_is_no_trace_is_refused_and_left_as_it_is() {
        let foreign: [(&str, &str); 3] =
            [("trace", "a letter"), ("trace.2", "a letter\n"), ("trace", "{\"format\":\"macp-trace/2\"}\n")];
        for (name, text) in foreign {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("trace");
            let mut files = TraceFiles::open(path.clone(), 1 << 20, 4).unwrap();
            files.rotate().unwrap();
            files.rotate().unwrap();
            drop(files);
            std::fs::write(directory.path().join(name), text).unwrap();
            let before = contents(directory.path());
            let error = TraceFiles::open(path, 1 << 20, 4).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("name another file"), "{error}");
            assert_eq!(contents(directory.path()), before);
        }
    }

    #[test]
    fn what_rotating_would_overwrite_is_looked_at_wherever_it_stands() {
        for (name, is_refused) in
            [("trace.new", true), ("trace.2", true), ("trace.3", true), ("trace.4", true), ("trace.5", false)]
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("trace");
            std::fs::write(directory.path().join(name), "a letter\n").unwrap();
            let opened = TraceFiles::open(path, 1 << 20, 4);
            assert_eq!(opened.is_err(), is_refused, "{name}");
            match opened {
                Ok(mut files) => (0..5).for_each(|_| files.rotate().unwrap()),
                Err(error) => assert!(error.to_string().contains(&format!("{name} stands beside it")), "{error}"),
            }
            assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), b"a letter\n", "{name}");
        }
    }

    #[test]
    fn what_was_begun_when_the_server_died_is_begun_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        for left in [Vec::new(), TraceLine::header().to_bytes().unwrap()] {
            std::fs::write(directory.path().join("trace.new"), left).unwrap();
            TraceFiles::open(path.clone(), 1 << 20, 4).unwrap().rotate().unwrap();
            assert!(!directory.path().join("trace.new").exists());
        }
    }

    #[test]
    fn a_first_line_that_was_torn_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let header = TraceLine::header().to_bytes().unwrap();
        for left in [&b""[..], &header[..header.len() - 1]] {
            std::fs::write(&path, left).unwrap();
            for _ in 0..2 {
                let files = TraceFiles::open(path.clone(), 1 << 20, 4).unwrap();
                let text = std::fs::read(&path).unwrap();
                assert!(text.starts_with(&header));
                assert_eq!(files.written, text.len() as u64);
            }
        }
    }

    #[test]
    fn a_trace_has_one_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut files = TraceFiles::open(path.clone(), 1 << 20, 2).unwrap();
        assert_eq!(TraceFiles::open(path.clone(), 1 << 20, 2).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        files.rotate().unwrap();
        assert_eq!(TraceFiles::open(path.clone(), 1 << 20, 2).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(files);
        TraceFiles::open(path, 1 << 20, 2).unwrap();
    }

    #[test]
    fn a_lower_number_of_files_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let mut files = TraceFiles::open(path.clone(), 1 << 20, 6).unwrap();
        (0..5).for_each(|_| files.rotate().unwrap());
        drop(files);
        assert_eq!(names(directory.path()).len(), 6);
        TraceFiles::open(path, 1 << 20, 2).unwrap().rotate().unwrap();
        assert_eq!(names(directory.path()), ["trace", "trace.1"]);
    }
}
