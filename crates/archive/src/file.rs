//! Reads an export back, as distrustful as if a stranger had sent it.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_ledger::chain::HISTORY_LABEL;
use macp_ledger::{Checker, Corruption, Hash, Record};
use macp_wire::history::v1::Entry;

use crate::export::{FORMAT, FORMAT_NAME, Header, Line};
use crate::lines::{is_too_long, read_line};

/// Entries handed out at once.
const PAGE_ENTRIES: usize = 1_024;

/// Bytes of lines after which a page is handed out, so that a page costs little whatever the file holds.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Longest header: it holds one session id and a hash.
const HEADER_BYTES_MAX: u64 = 64 * 1024;

/// Longest line: a record of the largest payload in base64 and room to spare.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Why an export cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} is not an export of a session: its first line is no {FORMAT} header")]
    Format { path: PathBuf },
    #[error("the header of the export is damaged or of an unknown version: {reason}")]
    Header { reason: String },
    #[error("entry {sequence} of the export is unreadable: {reason}")]
    Line { sequence: u64, reason: String },
    #[error(transparent)]
    Corruption(#[from] Corruption),
    #[error("the export ends after entry {found}, its header promises {promised}")]
    Truncated { found: u64, promised: u64 },
    #[error("the export goes on after entry {promised}, the last its header promises")]
    Surplus { promised: u64 },
    #[error("the export's last hash is {found}, its header promises {promised}")]
    Head { found: String, promised: String },
}

impl FileError {
    /// The entry that is bad, where one can be named.
    pub fn bad_sequence(&self) -> Option<u64> {
        match self {
            FileError::Io { .. } | FileError::Format { .. } => None,
            FileError::Line { sequence, .. } => Some(*sequence),
            FileError::Corruption(corruption) => Some(corruption.sequence),
            FileError::Truncated { found, .. } => Some(found + 1),
            FileError::Surplus { promised } => Some(promised + 1),
            FileError::Header { .. } | FileError::Head { .. } => Some(0),
        }
    }
}

/// An export being read.
#[derive(Debug)]
pub struct ExportFile {
    path: PathBuf,
    lines: BufReader<File>,
    header: Header,
    checker: Checker,
}

impl ExportFile {
    pub fn open(path: &Path) -> Result<ExportFile, FileError> {
        let io = |source| FileError::Io { path: path.to_owned(), source };
        let mut lines = BufReader::new(File::open(path).map_err(io)?);
        let first = match read_line(&mut lines, HEADER_BYTES_MAX) {
            Ok(first) => first.map(|line| line.bytes).unwrap_or_default(),
            Err(error) if is_too_long(&error) => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        let header = parse_header(&first).map_err(|reason| match names_an_export(&first) {
            true => FileError::Header { reason },
            false => FileError::Format { path: path.to_owned() },
        })?;
        Ok(ExportFile { path: path.to_owned(), lines, header, checker: Checker::new() })
    }

    pub fn session_id(&self) -> &str {
        &self.header.session_id
    }

    pub fn entries(&self) -> u64 {
        self.header.entries
    }

    /// The next checked records, empty at the end; the end is reached only if the header agrees.
    pub(crate) fn next_page(&mut self) -> Result<Vec<(Record, Entry)>, FileError> {
        let mut page = Vec::new();
        let mut bytes = 0;
        while page.len() < PAGE_ENTRIES && bytes < PAGE_BYTES {
            let line = read_line(&mut self.lines, LINE_BYTES_MAX).map_err(|error| self.unread(error))?;
            let Some(line) = line.map(|line| line.bytes) else {
                if page.is_empty() {
                    self.check_end()?;
                }
                break;
            };
            if self.checker.sequence() == self.header.entries {
                return Err(FileError::Surplus { promised: self.header.entries });
            }
            bytes += line.len();
            let record = self.parse(&line)?;
            let entry = self.checker.check(&record)?;
            page.push((record, entry));
        }
        Ok(page)
    }

    fn parse(&self, line: &[u8]) -> Result<Record, FileError> {
        let bad = |reason: String| FileError::Line { sequence: self.checker.sequence() + 1, reason };
        let line: Line = serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
        let hash: Hash = line.hash.parse().map_err(|_| bad("its hash is no hash".to_owned()))?;
        // One spelling only, so that no byte of the file can change unnoticed.
        if hash.to_string() != line.hash {
            return Err(bad("its hash is not in lowercase".to_owned()));
        }
        let bytes = STANDARD.decode(&line.record).map_err(|error| bad(error.to_string()))?;
        Ok(Record { sequence: line.sequence, bytes: bytes.into(), hash })
    }

    /// A line beyond all measure is the file's fault, anything else the reading's.
    fn unread(&self, error: std::io::Error) -> FileError {
        if is_too_long(&error) {
            return FileError::Line { sequence: self.checker.sequence() + 1, reason: error.to_string() };
        }
        FileError::Io { path: self.path.clone(), source: error }
    }

    fn check_end(&self) -> Result<(), FileError> {
        let found = self.checker.sequence();
        if found < self.header.entries {
            return Err(FileError::Truncated { found, promised: self.header.entries });
        }
        let head = self.checker.head().map(|head| head.to_string()).unwrap_or_default();
        if head != self.header.head {
            return Err(FileError::Head { found: head, promised: self.header.head.clone() });
        }
        Ok(())
    }
}

fn parse_header(line: &[u8]) -> Result<Header, String> {
    let header: Header = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if header.format != FORMAT {
        return Err(format!("its format is {:?}, not {FORMAT:?}", header.format));
    }
    if header.chain != HISTORY_LABEL {
        return Err(format!("its chain is {:?}, not {HISTORY_LABEL:?}", header.chain));
    }
    Ok(header)
}

/// Whether a first line that is no good header was one: either name is enough, since damage rarely hits both.
fn names_an_export(line: &[u8]) -> bool {
    let has = |name: &str| line.windows(name.len()).any(|window| window == name.as_bytes());
    has(FORMAT_NAME) || has(HISTORY_LABEL)
}
