//! Room in the write-ahead log, made before it is needed.
//!
//! To sync a file that has grown, the file system also writes down its new length: with ext4 that takes as long again as
//! the sync itself. A log that was started over is overwritten and does not grow, but a new one has 16 MiB to go until
//! then. So zeros are put behind its end, enough for some commits at once. To SQLite they are a frame with a wrong
//! checksum, like what is left of an older log, and such a frame is where a log ends.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// What is added at once, in bytes: about what small commits write between two looks at the log. A commit that syncs so
/// much more is still quicker than one that grows a file and has others waiting behind it.
const ADDED_BYTES: usize = 512 * 1_024;
static ADDED: [u8; ADDED_BYTES] = [0; ADDED_BYTES];

/// How a log of SQLite is laid out: a head, then frames of a page each.
const HEAD_BYTES: u64 = 32;
const FRAME_BYTES: u64 = 24 + 4_096;

/// Where a log is, and whether it is short of room.
#[derive(Debug)]
pub(super) struct Room {
    log: PathBuf,
    wanted: Option<u64>,
}

impl Room {
    pub(super) fn new(database: &Path) -> Self {
        let mut log = OsString::from(database);
        log.push("-wal");
        Room { log: log.into(), wanted: None }
    }

    /// The log has so many pages, and will have more.
    pub(super) fn want(&mut self, pages: u64) {
        // One that is empty may stay so: many a server is started and asked nothing.
        self.wanted = (pages > 0).then(|| HEAD_BYTES + pages * FRAME_BYTES);
    }

    /// Adds room if some is wanted and there is little. Only for whoever holds the database's write lock: the log must
    /// not grow in another way meanwhile.
    pub(super) fn make(&mut self) {
        if let Some(used) = self.wanted.take() {
            // A log without room is only slower; what is wrong with the disk, the commit that follows will tell.
            let _grows = make(&self.log, used);
        }
    }
}

fn make(log: &Path, used: u64) -> io::Result<()> {
    let mut log = OpenOptions::new().write(true).open(log)?;
    let length = log.metadata()?.len();
    let is_short = length < used + ADDED_BYTES as u64;
    // What ends before its own last page is not what it was taken for.
    if is_short && length >= used {
        log.seek(SeekFrom::Start(length))?;
        log.write_all(&ADDED)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::sample::Session;
    use crate::sqlite::Options;
    use crate::{History, SqliteStore, Store as _};

    /// A store whose log is not emptied, however slow the test is.
    fn open(directory: &Path) -> SqliteStore {
        let options = Options { empty_after: std::time::Duration::MAX, ..Options::default() };
        SqliteStore::open_with(directory, options).expect("opened")
    }

    fn length(directory: &Path) -> u64 {
        directory.join("macp.db-wal").metadata().expect("there is a log").len()
    }

    fn entries(store: &SqliteStore) -> usize {
        let mut history = History::open(store, "s").expect("readable").expect("there is one");
        std::iter::from_fn(|| history.next_page().map(|page| (!page.is_empty()).then_some(page.len())).transpose())
            .map(|page| page.expect("whole"))
            .sum()
    }

    /// A copy is what a crash leaves: nobody has closed it.
    fn copy(directory: &Path) -> tempfile::TempDir {
        let copied = tempfile::tempdir().expect("a directory");
        for name in ["macp.db", "macp.db-wal"] {
            std::fs::copy(directory.join(name), copied.path().join(name)).expect("copied");
        }
        copied
    }

    #[test]
    fn a_log_grows_in_steps_and_is_read_back_with_room_behind_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path());
        let mut session = Session::new("s");
        let mut lengths = Vec::new();
        for count in 1..=200 {
            assert!(store.append(&[session.append_sized(1, 100)])[0].is_ok());
            lengths.push(length(directory.path()));
            if count % 40 == 0 {
                let copied = copy(directory.path());
                let after_crash = SqliteStore::open(copied.path()).expect("recovered");
                assert_eq!(entries(&after_crash), count);
            }
        }
        lengths.dedup();
        assert!(lengths.len() < 40, "most commits write where there was room: {lengths:?}");
        assert!(lengths.last().is_some_and(|last| *last > ADDED_BYTES as u64), "{lengths:?}");
    }

    #[test]
    fn room_that_was_made_in_part_hurts_nobody() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path());
        let mut session = Session::new("s");
        for _ in 0..50 {
            assert!(store.append(&[session.append_sized(1, 100)])[0].is_ok());
        }
        for cut in [1, 4_095, 4_121, ADDED_BYTES as u64 / 2] {
            let copied = copy(directory.path());
            let log = OpenOptions::new().write(true).open(copied.path().join("macp.db-wal")).expect("opened");
            log.set_len(length(directory.path()) - cut).expect("cut");
            let store = SqliteStore::open(copied.path()).expect("recovered");
            assert_eq!(entries(&store), 50);
        }
    }

    #[test]
    fn a_log_that_is_shorter_than_its_pages_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        std::fs::write(&log, [1; 100]).expect("written");
        make(&log, 101).expect("nothing to do");
        assert_eq!(std::fs::read(&log).expect("read"), [1; 100]);
        make(&log, 100).expect("made");
        assert_eq!(std::fs::read(&log).expect("read").len(), 100 + ADDED_BYTES);
        make(&log, 100).expect("nothing to do");
        assert_eq!(std::fs::read(&log).expect("read").len(), 100 + ADDED_BYTES);
    }
}
