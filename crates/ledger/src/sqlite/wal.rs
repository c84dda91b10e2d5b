//! Finds damage in a write-ahead log before SQLite opens it.
//!
//! SQLite ends a log at its first bad frame and ignores the rest: that is how it drops a transaction that a crash tore.
//! A flipped bit looks the same to it, and takes every later commit with it. The two differ. A transaction
//! begins only when the one before it is synced, so a crash leaves at most one commit behind the first bad frame.
//! Two of them, chained to each other, were acknowledged. One of them is found if the position file names it.
//!
//! ```text
//!  header │ frame 1 │ ... │ frame k │ bad │ frame k+2 ─ ... ─ commit ─ ... ─ commit │ frames of an older log, zeros
//!         └─ read by SQLite ────────┘      └─ a run: the header's salts, each checksum continues the one before it
//! ```
//!
//! Frames of an older log, which was checkpointed and overwritten from its beginning, have other salts.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Commits in one run behind a bad frame that a crash cannot explain.
const COMMITS_MIN: u64 = 2;
/// Read at once.
const BUFFER_BYTES: usize = 256 * 1_024;
/// Scans of a log that a running server changes meanwhile.
const SCANS_MAX: usize = 8;

pub(super) const HEADER_BYTES: usize = 32;
pub(super) const FRAME_HEADER_BYTES: usize = 24;
/// The page size of every database of ours, for a header that does not state one.
const PAGE_BYTES: u32 = 4_096;
const PAGE_BYTES_MIN: u32 = 512;
const PAGE_BYTES_MAX: u32 = 65_536;
/// The last bit is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;

/// The two numbers in which a log differs from the one before it in the same file.
pub(super) type Salts = [u8; 8];

/// The last commit in a log: which log, and the number of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogPosition {
    pub(super) salts: Salts,
    pub(super) frame: u32,
}

/// Where a log is damaged, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogDamage {
    /// The first frame that SQLite does not read; 0 is the header.
    pub(super) frame: u64,
    /// Where the frame begins in the file.
    pub(super) offset: u64,
    pub(super) evidence: Evidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Two commits, at least, follow the bad frame.
    CommitsBehind,
    /// The log must reach to this frame, but its last readable commit is an earlier one.
    EndsBefore { noted: u32, last: u64 },
}

/// The name of the log of a database.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// The salts in the header of a log; none if it has no header.
pub(super) fn salts(log: &mut File) -> io::Result<Option<Salts>> {
    let mut header = [0; HEADER_BYTES];
    log.seek(SeekFrom::Start(0))?;
    match log.read_exact(&mut header) {
        Ok(()) => Ok(Some(word_pair(&header, 16))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks for damage that loses acknowledged commits. A log that does not exist, or is empty, has none.
///
/// A running server may write to the log meanwhile. Damage is what two scans of the same log find at the same place:
/// frames are written in order, so the second scan finds every frame whole that the first one met half written.
pub(super) fn inspect(log: &Path, noted: Option<LogPosition>) -> io::Result<Option<LogDamage>> {
    let mut seen = None;
    for _ in 0..SCANS_MAX {
        let file = match File::open(log) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some((header, damage)) = scan(file, noted)? else {
            return Ok(None);
        };
        if seen == Some((header, damage)) && read_header(log)? == Some(header) {
            return Ok(Some(damage));
        }
        seen = Some((header, damage));
    }
    // A log that never looks the same twice is being started over by a server that reads it differently.
    Ok(None)
}

fn read_header(log: &Path) -> io::Result<Option<[u8; HEADER_BYTES]>> {
    let mut header = [0; HEADER_BYTES];
    match File::open(log).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => Ok(Some(header)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One pass over the log: its header, and the damage if there is any.
fn scan(file: File, noted: Option<LogPosition>) -> io::Result<Option<([u8; HEADER_BYTES], LogDamage)>> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut bytes = [0; HEADER_BYTES];
    match reader.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    if let Some(header) = Header::parse(&bytes) {
        let found = Scan::of(&mut reader, header.format, Some(&header), noted)?.damage(noted);
        return Ok(found.map(|damage| (bytes, damage)));
    }
    // SQLite ignores a log with a bad header as a whole. Its format is one of a few.
    let stated = u32_at(&bytes, 8);
    for page_bytes in [PAGE_BYTES].into_iter().chain(is_page_size(stated).then_some(stated)) {
        for order in [Order::Little, Order::Big] {
            reader.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
            if let Some(damage) = Scan::of(&mut reader, Format { order, page_bytes }, None, noted)?.damage(noted) {
                return Ok(Some((bytes, damage)));
            }
        }
    }
    Ok(None)
}

/// The byte order in which checksums are computed: that of the machine which made the log.
#[derive(Clone, Copy, Debug)]
enum Order {
    Little,
    Big,
}

type Checksum = [u32; 2];

impl Order {
    fn checksum(self, start: Checksum, bytes: &[u8]) -> Checksum {
        let (pairs, rest) = bytes.as_chunks::<8>();
        debug_assert!(rest.is_empty(), "checksums are over whole pairs of words");
        let sum = |[mut s0, mut s1]: Checksum, word: fn([u8; 4]) -> u32| {
            for &[a, b, c, d, e, f, g, h] in pairs {
                s0 = s0.wrapping_add(word([a, b, c, d])).wrapping_add(s1);
                s1 = s1.wrapping_add(word([e, f, g, h])).wrapping_add(s0);
            }
            [s0, s1]
        };
        match self {
            Order::Little => sum(start, u32::from_le_bytes),
            Order::Big => sum(start, u32::from_be_bytes),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Format {
    order: Order,
    page_bytes: u32,
}

#[derive(Debug)]
struct Header {
    format: Format,
    salts: Salts,
    checksum: Checksum,
}

impl Header {
    /// None if SQLite would not read the log.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let (magic, page_bytes) = (u32_at(bytes, 0), u32_at(bytes, 8));
        if magic & !1 != MAGIC || !is_page_size(page_bytes) {
            return None;
        }
        let order = if magic & 1 == 0 { Order::Little } else { Order::Big };
        let checksum = [u32_at(bytes, 24), u32_at(bytes, 28)];
        let is_whole = order.checksum([0, 0], &bytes[..24]) == checksum;
        is_whole.then(|| Header { format: Format { order, page_bytes }, salts: word_pair(bytes, 16), checksum })
    }
}

/// The frame before the current one, as stored.
#[derive(Clone, Copy, Debug)]
struct Previous {
    salts: Salts,
    checksum: Checksum,
}

/// What one pass found.
#[derive(Debug)]
struct Scan {
    frame_bytes: u64,
    /// The salts of the log, if its header can be read.
    salts: Option<Salts>,
    /// The first frame that SQLite does not read; 0 if it reads none because of the header.
    first_bad: u64,
    /// The last commit that SQLite reads.
    last: u64,
    /// Commits behind the first bad frame, in the longest run.
    commits_behind: u64,
    /// Whether the noted frame is in the file as it was noted: a commit with these salts.
    has_noted: bool,
}

impl Scan {
    fn of(
        reader: &mut BufReader<File>,
        format: Format,
        header: Option<&Header>,
        noted: Option<LogPosition>,
    ) -> io::Result<Scan> {
        let frame_bytes = FRAME_HEADER_BYTES as u64 + u64::from(format.page_bytes);
        let salts = header.map(|header| header.salts);
        let mut found = Scan { frame_bytes, salts, first_bad: 0, last: 0, commits_behind: 0, has_noted: false };
        let mut frame = vec![0; usize::try_from(frame_bytes).expect("a frame is small")];
        let mut previous = header.map(|header| Previous { salts: header.salts, checksum: header.checksum });
        let mut is_read = header.is_some();
        let mut commits = 0;
        for number in 1_u64.. {
            if !read_whole(reader, &mut frame)? {
                if is_read {
                    found.first_bad = number;
                }
                break;
            }
            let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
            let (page_number, is_commit) = (u32_at(head, 0), u32_at(head, 4) != 0);
            let stored = Previous { salts: word_pair(head, 8), checksum: [u32_at(head, 16), u32_at(head, 20)] };
            // Zeros have a matching checksum; a page of a database is numbered from 1.
            let continues = page_number != 0
                && previous.is_some_and(|previous| {
                    let expected = salts.unwrap_or(previous.salts);
                    let start = previous.checksum;
                    stored.salts == expected
                        && format.order.checksum(format.order.checksum(start, &head[..8]), page) == stored.checksum
                });
            if is_read && !continues {
                is_read = false;
                found.first_bad = number;
            }
            if !is_read {
                commits = if continues { commits + u64::from(is_commit) } else { 0 };
                found.commits_behind = found.commits_behind.max(commits);
            } else if is_commit {
                found.last = number;
            }
            found.has_noted |=
                is_commit && noted.is_some_and(|noted| u64::from(noted.frame) == number && noted.salts == stored.salts);
            previous = Some(stored);
        }
        Ok(found)
    }

    fn damage(&self, noted: Option<LogPosition>) -> Option<LogDamage> {
        let (frame, last) = (self.first_bad, self.last);
        let offset = frame.checked_sub(1).map_or(0, |before| HEADER_BYTES as u64 + before * self.frame_bytes);
        let damage = |evidence| LogDamage { frame, offset, evidence };
        if self.commits_behind >= COMMITS_MIN {
            return Some(damage(Evidence::CommitsBehind));
        }
        let noted = noted?;
        let is_same_log = match self.salts {
            Some(salts) => salts == noted.salts,
            None => self.has_noted,
        };
        let is_short = is_same_log && last < u64::from(noted.frame);
        is_short.then(|| damage(Evidence::EndsBefore { noted: noted.frame, last }))
    }
}

/// Fills the buffer; false if the file ends before.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word_pair(bytes: &[u8], at: usize) -> Salts {
    bytes[at..at + 8].try_into().expect("eight bytes")
}
