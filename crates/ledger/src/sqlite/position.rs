//! The position file: how far the database had come, stored outside of it.
//!
//! A database does not show that its end is missing, or that it is an older copy of itself. So after each commit its
//! position is written to a file of its own: which database it is, how many entries and document changes it holds, and
//! where its log ends. The write follows the sync of the commit and is not synced itself: after a power failure the
//! file may hold an older position, which is a weaker check and never a wrong one. After a crash of the process alone
//! it is exact.
//!
//! Two slots are written in turn, each in a disk sector of its own, so that a torn write leaves the other one whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use sha2::{Digest, Sha256};

use super::wal::{self, LogPosition};
use crate::failure::{Failure, FailureKind};

/// Name of the position file in the data directory.
pub const POSITION_FILE: &str = "macp.position";

const MAGIC: &[u8; 8] = b"MACPPOS1";
/// A disk writes a sector whole or not at all.
const SLOT_BYTES: usize = 512;
const SLOTS: usize = 2;
/// Magic, serial, database, entries, documents, salts, frame, checksum.
const USED_BYTES: usize = 8 + 8 + 16 + 8 + 8 + 8 + 4 + 8;
const SUM_BYTES: usize = 8;

/// Identifies a database; a copy that diverged after a loss was accepted has another id.
pub(super) type DatabaseId = [u8; 16];

/// How far a database has come. Every part only grows, as long as the database has this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) database: DatabaseId,
    /// The largest row number of an entry: rows are only ever added.
    pub(super) entries: u64,
    /// How often a document was stored, moved or removed.
    pub(super) documents: u64,
}

/// The content of the position file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) position: Position,
    /// None if the log was empty.
    pub(super) log: Option<LogPosition>,
}

impl Position {
    /// Reads the position of a database that has the tables for it.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Position> {
        let sql = "SELECT database, document_changes, (SELECT coalesce(max(rowid), 0) FROM entries) FROM identity";
        connection.query_row(sql, [], |row| {
            Ok(Position {
                database: row.get(0)?,
                documents: super::readers::unsigned(row, 1)?,
                entries: super::readers::unsigned(row, 2)?,
            })
        })
    }
}

/// Reads the position file of a directory; none if there is no such file.
pub(super) fn read(directory: &Path) -> Result<Option<Noted>, Failure> {
    let path = directory.join(POSITION_FILE);
    let mut bytes = Vec::with_capacity(SLOTS * SLOT_BYTES);
    let read = File::open(&path).and_then(|file| file.take((SLOTS * SLOT_BYTES) as u64).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Failure::from_io(format!("read {}", path.display()), source)),
    }
    match newest(&bytes) {
        Some((_, noted)) => Ok(Some(noted)),
        None => {
            let context = format!(
                "position file {} is damaged: it does not show whether acknowledged data is missing",
                path.display()
            );
            Err(Failure::new(FailureKind::Loss, context))
        }
    }
}

fn newest(bytes: &[u8]) -> Option<(u64, Noted)> {
    bytes.chunks(SLOT_BYTES).filter_map(decode).max_by_key(|(serial, _)| *serial)
}

fn encode(serial: u64, noted: &Noted) -> [u8; USED_BYTES] {
    let Noted { position, log } = noted;
    let log = log.unwrap_or(LogPosition { salts: [0; 8], frame: 0 });
    let mut bytes = [0; USED_BYTES];
    let mut rest = &mut bytes[..];
    for part in [
        &MAGIC[..],
        &serial.to_be_bytes(),
        &position.database,
        &position.entries.to_be_bytes(),
        &position.documents.to_be_bytes(),
        &log.salts,
        &log.frame.to_be_bytes(),
    ] {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
    let sum = checksum(&bytes[..USED_BYTES - SUM_BYTES]);
    bytes[USED_BYTES - SUM_BYTES..].copy_from_slice(&sum);
    bytes
}

fn decode(slot: &[u8]) -> Option<(u64, Noted)> {
    let slot: &[u8; USED_BYTES] = slot.first_chunk()?;
    let (content, sum) = slot.split_at(USED_BYTES - SUM_BYTES);
    if checksum(content) != *sum {
        return None;
    }
    let content = content.strip_prefix(&MAGIC[..])?;
    let (serial, content) = content.split_first_chunk()?;
    let (database, content) = content.split_first_chunk()?;
    let (entries, content) = content.split_first_chunk()?;
    let (documents, content) = content.split_first_chunk()?;
    let (salts, content) = content.split_first_chunk()?;
    let frame = u32::from_be_bytes(content.try_into().ok()?);
    let (entries, documents) = (u64::from_be_bytes(*entries), u64::from_be_bytes(*documents));
    let log = (frame > 0).then_some(LogPosition { salts: *salts, frame });
    let position = Position { database: *database, entries, documents };
    Some((u64::from_be_bytes(*serial), Noted { position, log }))
}

fn checksum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    *Sha256::digest(bytes).first_chunk().expect("a digest is longer")
}

/// Writes the position file of the database that this process writes.
#[derive(Debug)]
pub(super) struct PositionFile {
    file: File,
    serial: u64,
    log: PathBuf,
    /// The log, opened to read its salts; none until it is needed, and after it may have been replaced.
    open_log: Option<File>,
}

impl PositionFile {
    /// Creates the file with the position of an opened database, in place of one it was compared with. Synced, once per
    /// start.
    pub(super) fn open(
        directory: &Path,
        database: &Path,
        position: Position,
        log: Option<LogPosition>,
    ) -> Result<Self, Failure> {
        let path = directory.join(POSITION_FILE);
        Self::open_at(&path, database, &Noted { position, log })
            .map_err(|source| Failure::from_io(format!("write {}", path.display()), source))
    }

    fn open_at(path: &Path, database: &Path, noted: &Noted) -> io::Result<Self> {
        let fresh = path.with_extension("position.new");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&fresh)?;
        for serial in 1..=SLOTS as u64 {
            let mut slot = [0; SLOT_BYTES];
            slot[..USED_BYTES].copy_from_slice(&encode(serial, noted));
            file.write_all(&slot)?;
        }
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        #[cfg(unix)]
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(Self { file, serial: SLOTS as u64, log: wal::path_of(database), open_log: None })
    }

    /// Writes the position after a commit; `frame` is its frame in the log, none if the log was emptied.
    pub(super) fn write(&mut self, position: Position, frame: Option<u32>) -> io::Result<()> {
        let log = match frame {
            Some(frame) => self.salts()?.map(|salts| LogPosition { salts, frame }),
            None => None,
        };
        // The slot with the older position.
        let slot = self.serial % SLOTS as u64;
        self.serial += 1;
        self.file.seek(SeekFrom::Start(slot * SLOT_BYTES as u64))?;
        self.file.write_all(&encode(self.serial, &Noted { position, log }))
    }

    /// Has the log looked up by its name again: after all connections were closed it may be another file.
    pub(super) fn forget_log(&mut self) {
        self.open_log = None;
    }

    fn salts(&mut self) -> io::Result<Option<wal::Salts>> {
        if self.open_log.is_none() {
            self.open_log = match File::open(&self.log) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        wal::salts(self.open_log.as_mut().expect("opened above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(entries: u64) -> Position {
        Position { database: [7; 16], entries, documents: 3 }
    }

    #[test]
    fn the_newest_whole_slot_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("macp.db");
        assert_eq!(read(directory.path()).unwrap(), None);
        let mut file = PositionFile::open(directory.path(), &database, position(1), None).unwrap();
        assert_eq!(read(directory.path()).unwrap(), Some(Noted { position: position(1), log: None }));
        std::fs::write(wal::path_of(&database), [9; 40]).unwrap();
        for entries in 2..6 {
            file.write(position(entries), Some(10)).unwrap();
            let log = Some(LogPosition { salts: [9; 8], frame: 10 });
            assert_eq!(read(directory.path()).unwrap(), Some(Noted { position: position(entries), log }));
        }

        let path = directory.path().join(POSITION_FILE);
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), SLOTS * SLOT_BYTES);
        // A torn or damaged slot leaves the other one, which is one commit older.
        for at in 0..USED_BYTES {
            for (slot, found) in [(0, 5), (1, 4)] {
                let mut damaged = whole.clone();
                damaged[slot * SLOT_BYTES + at] ^= 1 << (at % 8);
                std::fs::write(&path, damaged).unwrap();
                let noted = read(directory.path()).unwrap().expect("one slot is whole");
                assert_eq!(noted.position.entries, found, "byte {at} of slot {slot}");
            }
        }
        for damaged in [Vec::new(), vec![0; SLOTS * SLOT_BYTES], whole[..USED_BYTES - 1].to_vec()] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(read(directory.path()).unwrap_err().kind(), FailureKind::Loss);
        }
    }
}
