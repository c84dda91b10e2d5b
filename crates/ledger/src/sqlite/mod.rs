//! The durable store: one SQLite database in a data directory.
//!
//! ```text
//!  append, put_document ──▶ writer (one connection, one sync per batch) ──▶ macp.db-wal ──checkpoint thread──▶ macp.db
//!  head, read, list, due, document ──▶ readers (a few read-only connections)
//! ```
//!
//! A batch is stored when its commit has been synced, and never in part. One process owns a directory for writing;
//! any number may read beside it. Anyone can look inside with `sqlite3`.
//!
//! No other code in the process may open `macp.db` itself: closing any descriptor of the file would drop the locks
//! SQLite holds on it.

mod checkpoint;
mod connection;
mod error;
mod known;
mod lock;
mod options;
mod plan;
mod readers;
mod room;
mod schema;
mod strays;
mod writer;

use std::fs::{DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

pub use self::lock::LOCK_FILE;
pub use self::options::{Options, Synchronous};
pub use self::strays::Stray;

use self::checkpoint::Checkpointer;
use self::connection::Place;
use self::lock::DirectoryLock;
use self::readers::Readers;
use self::writer::Writer;
use crate::documents::{self, Document, PutMode, PutOutcome};
use crate::failure::{Failure, FailureKind};
use crate::record::Record;
use crate::store::{Append, AppendError, Filter, Head, Store};

/// Name of the database file in the data directory.
pub const DATABASE_FILE: &str = "macp.db";

/// Writes between two looks at the length of the log, at most: a write is mostly a few pages long, so that the log
/// outgrows its size by little. One that is to stay short is looked at more often.
const WRITES_PER_LOOK: u64 = 16;
const PAGES_PER_LOOK: u64 = 256;

/// Keeps histories and documents in a SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    readers: Readers,
    /// `None` when opened for reading only.
    writing: Option<Writing>,
    path: PathBuf,
}

/// What a writing store has beyond a reading one. Dropped in this order: the thread ends first, the lock goes last.
#[derive(Debug)]
struct Writing {
    checkpointer: Checkpointer,
    writer: Arc<Mutex<Writer>>,
    checkpoint_pages: u64,
    writes: AtomicU64,
    _lock: DirectoryLock,
}

impl SqliteStore {
    /// Opens the data directory for exclusive writing, creating it and the database if they are missing.
    ///
    /// The cost does not depend on how many sessions are stored.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Failure> {
        Self::open_with(directory, Options::default())
    }

    /// As [`SqliteStore::open`], with settings other than the default ones.
    pub fn open_with(directory: impl AsRef<Path>, options: Options) -> Result<Self, Failure> {
        let directory = directory.as_ref();
        create(directory)?;
        let lock = DirectoryLock::acquire(directory)?;
        let path = directory.join(DATABASE_FILE);
        let checkpoint_pages = options.checkpoint_pages;
        let place = Place { path: path.clone(), options, immutable: false };
        let writer = Arc::new(Mutex::new(Writer::open(place.clone())?));
        let checkpointer = Checkpointer::start(place.clone(), Arc::clone(&writer))?;
        let writing = Writing { checkpointer, writer, checkpoint_pages, writes: AtomicU64::new(0), _lock: lock };
        Ok(Self { readers: Readers::new(place), writing: Some(writing), path })
    }

    /// Opens an existing data directory for reading: takes no lock, writes no record, works beside a running server.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self, Failure> {
        let path = directory.as_ref().join(DATABASE_FILE);
        std::fs::metadata(&path)
            .map_err(|source| Failure::from_io(format!("open database {}", path.display()), source))?;
        let mut place = Place { path: path.clone(), options: Options::default(), immutable: false };
        let opened = verify(&place);
        if let Err(failure) = opened {
            // On a read-only medium SQLite cannot keep the file its connections share. If there is no log either, the
            // database is all there is, and can be read as it stands.
            if !matches!(failure.kind(), FailureKind::Io | FailureKind::ReadOnly) || log_exists(&path) {
                return Err(failure);
            }
            place.immutable = true;
            verify(&place)?;
        }
        Ok(Self { readers: Readers::new(place), writing: None, path })
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next history, in the order of the database's own keys, that no row of the session index leads to; the first
    /// one if `after` is none. Walks over every session, so it is not for hot paths.
    pub fn next_stray(&self, after: Option<i64>) -> Result<Option<Stray>, Failure> {
        self.readers.next_stray(after)
    }

    /// Bounds the database file to a number of pages (of 4 KiB); `None` lifts the bound. A bound below the current
    /// size means that the file does not grow any more.
    pub fn set_pages_max(&self, pages_max: Option<u32>) -> Result<(), Failure> {
        self.writing()?.writer().set_pages_max(pages_max)
    }

    fn writing(&self) -> Result<&Writing, Failure> {
        self.writing.as_ref().ok_or_else(|| {
            let context = format!("database {} is opened for reading only", self.path.display());
            Failure::new(FailureKind::ReadOnly, context)
        })
    }
}

impl Writing {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(|poisoned| {
            // A panic in the middle of a write: the database is as it was before, what is in memory may not be.
            self.writer.clear_poison();
            let mut writer = poisoned.into_inner();
            writer.reset();
            writer
        })
    }

    /// Writes, and sees to it that the log has room until it has grown long enough to be emptied.
    fn write<T>(&self, write: impl FnOnce(&mut Writer) -> T) -> T {
        let mut writer = self.writer();
        let result = write(&mut writer);
        // To ask for the length of the log costs as much as to write a record.
        let writes = self.writes.fetch_add(1, Ordering::Relaxed);
        if !writes.is_multiple_of((self.checkpoint_pages / PAGES_PER_LOOK).clamp(1, WRITES_PER_LOOK)) {
            return result;
        }
        // If even the size of the log cannot be learned, a checkpoint will show why.
        match writer.log_pages() {
            Ok(pages) if pages < self.checkpoint_pages => writer.want_room(pages),
            _ => self.checkpointer.wake(),
        }
        result
    }
}

impl Store for SqliteStore {
    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        match self.writing() {
            Ok(writing) => writing.write(|writer| writer.append(batch)),
            Err(failure) => vec![Err(failure.into()); batch.len()],
        }
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        self.readers.head(session_id)
    }

    fn read(
        &self,
        session_id: &str,
        after_sequence: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, Failure> {
        self.readers.read(session_id, after_sequence, limit, bytes_max)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        self.readers.list(after, limit, filter)
    }

    fn created(&self, after: Option<&str>, limit: usize) -> Result<Vec<Head>, Failure> {
        self.readers.created(after, limit)
    }

    fn ended_up_to(&self) -> Result<Option<Arc<str>>, Failure> {
        self.readers.ended_up_to()
    }

    fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<Arc<str>>, Failure> {
        self.readers.due(now_ms, limit)
    }

    fn next_deadline(&self) -> Result<Option<i64>, Failure> {
        self.readers.next_deadline()
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        self.readers.open_sessions()
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        documents::validate(kind, key)?;
        self.writing()?.write(|writer| writer.put_document(kind, key, bytes, mode))
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        self.writing()?.write(|writer| writer.delete_document(kind, key))
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        documents::validate(kind, new_key)?;
        self.writing()?.write(|writer| writer.move_document(kind, key, new_key, bytes))
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        self.readers.document(kind, key)
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        self.readers.documents(kind, after_key, limit)
    }

    fn probe(&self) -> Result<(), Failure> {
        let writing = self.writing()?;
        let mut writer = writing.writer();
        writer.probe()?;
        if writing.checkpointer.has_failed() {
            // Appends may go on for a while with a log that cannot be emptied; whoever asks should hear of it.
            writer.checkpoint()?;
            writing.checkpointer.recovered();
        }
        Ok(())
    }
}

fn create(directory: &Path) -> Result<(), Failure> {
    let failed = |source| Failure::from_io(format!("create data directory {}", directory.display()), source);
    if directory.is_dir() {
        return sync_name_of(directory).map_err(failed);
    }
    if directory.exists() {
        let context = format!("open data directory {}: it is a file", directory.display());
        return Err(Failure::new(FailureKind::NotFound, context));
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        // Histories are nobody else's business.
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    let parents = parents_of_missing(directory);
    builder.create(directory).map_err(failed)?;
    // The name of a new directory is durable once its parent is synced. SQLite does the same for the files inside.
    for parent in parents {
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    }
    Ok(())
}

/// Whoever made the directory may not have synced its name. A parent that must not be looked into was made by somebody
/// else for us to find, and is theirs to look after.
fn sync_name_of(directory: &Path) -> io::Result<()> {
    let path = directory.canonicalize()?;
    match path.parent().map(File::open) {
        Some(Ok(parent)) => match parent.sync_all() {
            // A file system that cannot sync directories at all keeps names in its own way.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        },
        Some(Err(error)) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Some(Err(_)) | None => Ok(()),
    }
}

/// Every directory that gets a new name when this one is created, the outermost last.
fn parents_of_missing(directory: &Path) -> Vec<PathBuf> {
    let missing = directory.ancestors().take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists());
    // The parent of a relative path of one name is where we are.
    let here = |parent: &Path| if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() };
    missing.filter_map(Path::parent).map(here).collect()
}

fn verify(place: &Place) -> Result<(), Failure> {
    let connection = place.open_reader()?;
    schema::verify(&connection, &place.path)
}

fn log_exists(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    Path::new(&log).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_that_gets_a_new_name_is_known() {
        let root = tempfile::tempdir().unwrap();
        let path = |names: &str| root.path().join(names);
        assert_eq!(
            parents_of_missing(&path("a/b/c")),
            [path("a/b"), path("a"), path("")].map(|path| path.components().collect::<PathBuf>())
        );
        create(&path("a/b")).unwrap();
        assert_eq!(parents_of_missing(&path("a/b/c")), [path("a/b")]);
        assert!(parents_of_missing(&path("a/b")).is_empty());
        assert_eq!(parents_of_missing(Path::new("surely/nowhere")), [Path::new("surely"), Path::new(".")]);
    }
}
