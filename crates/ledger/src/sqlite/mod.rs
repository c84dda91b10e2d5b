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
//! Before a directory is opened, it is checked that nothing acknowledged is missing from it ([`loss`]).
//!
//! No other code in the process may open `macp.db` itself: closing any descriptor of the file would drop the locks
//! SQLite holds on it.

mod acceptance;
mod checkpoint;
mod connection;
mod error;
mod known;
mod lock;
mod loss;
mod options;
mod plan;
mod position;
mod readers;
mod room;
mod schema;
mod strays;
mod wal;
mod writer;

use std::fs::{DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

pub use self::acceptance::AcceptedLoss;
pub use self::lock::{LOCK_FILE, holder};
pub use self::options::{Options, Synchronous};
pub use self::position::POSITION_FILE;
pub use self::strays::Stray;

use self::checkpoint::Checkpointer;
use self::connection::Place;
use self::lock::DirectoryLock;
use self::position::Noted;
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
    /// What acknowledged data is missing; only a store for reading opens then.
    loss: Option<Failure>,
    path: PathBuf,
}

/// What a writing store has beyond a reading one. Dropped in this order: the thread ends first, the lock goes last.
#[derive(Debug)]
struct Writing {
    checkpointer: Checkpointer,
    writer: Arc<Mutex<Writer>>,
    checkpoint_pages: u64,
    writes: Arc<AtomicU64>,
    _lock: DirectoryLock,
}

impl SqliteStore {
    /// Opens the data directory for exclusive writing, creating it and the database if they are missing.
    ///
    /// The cost does not depend on how many sessions are stored. A directory that lacks acknowledged data is refused
    /// with [`FailureKind::Loss`], until the loss is accepted ([`SqliteStore::accept_loss`]).
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
        let noted = position::read(directory)?;
        loss::check_files(&path, noted.as_ref())?;
        check_position(&place, noted.as_ref())?;
        let writer = Arc::new(Mutex::new(Writer::open(place.clone(), noted.and_then(|noted| noted.log))?));
        let writes = Arc::new(AtomicU64::new(0));
        let checkpointer = Checkpointer::start(place.clone(), Arc::clone(&writer), Arc::clone(&writes))?;
        let writing = Writing { checkpointer, writer, checkpoint_pages, writes, _lock: lock };
        Ok(Self { readers: Readers::new(place), writing: Some(writing), loss: None, path })
    }

    /// Opens an existing data directory for reading: takes no lock, writes no record, works beside a running server.
    ///
    /// A database that lacks acknowledged data can be read; [`SqliteStore::loss`] reports what is missing.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self, Failure> {
        let directory = directory.as_ref();
        let path = directory.join(DATABASE_FILE);
        // In this order: a server that writes meanwhile is ahead of what was read before.
        let (noted, unreadable) = or_loss(position::read(directory))?;
        let (_, damage) = or_loss(loss::check_files(&path, noted.flatten().as_ref()))?;
        let damage = match damage {
            Some(damage) if loss::size(&path)?.unwrap_or(0) == 0 => return Err(damage),
            damage => damage,
        };
        std::fs::metadata(&path)
            .map_err(|source| Failure::from_io(format!("open database {}", path.display()), source))?;
        let loss = unreadable.or(damage);
        // A log that is cut short shows a state that is not worth comparing.
        let noted = noted.flatten().filter(|_| loss.is_none());
        let mut place = Place { path: path.clone(), options: Options::default(), immutable: false };
        let mut verified = verify(&place, noted.as_ref());
        // On a read-only medium SQLite cannot keep the file its connections share. If there is no log either, the
        // database is all there is, and can be read as it stands.
        let is_read_only = |failure: &Failure| matches!(failure.kind(), FailureKind::Io | FailureKind::ReadOnly);
        if verified.as_ref().is_err_and(is_read_only) && loss::size(&wal::path_of(&path))?.unwrap_or(0) == 0 {
            place.immutable = true;
            verified = verify(&place, noted.as_ref());
        }
        let loss = match (verified, loss) {
            (Ok(behind), loss) => loss.or(behind),
            // Without its log a database may be no database.
            (Err(_), Some(loss)) => return Err(loss),
            (Err(failure), None) => return Err(failure),
        };
        Ok(Self { readers: Readers::new(place), writing: None, loss, path })
    }

    /// What acknowledged data is missing from a store that was opened for reading.
    #[must_use]
    pub fn loss(&self) -> Option<&Failure> {
        self.loss.as_ref()
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
        // To query the length of the log costs as much as to write a record.
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

/// Accepts the schema; returns what is missing.
fn verify(place: &Place, noted: Option<&Noted>) -> Result<Option<Failure>, Failure> {
    let connection = place.open_reader()?;
    let version = schema::accept(&connection, &place.path)?;
    let (_, loss) = or_loss(loss::check_position(&connection, version, &place.path, noted))?;
    match version {
        0 => Err(loss.unwrap_or_else(|| schema::empty(&place.path))),
        _ => Ok(loss),
    }
}

/// Compares the database with the position file, over a connection that cannot write: closing the last connection that
/// can would change the files.
fn check_position(place: &Place, noted: Option<&Noted>) -> Result<(), Failure> {
    if noted.is_none() {
        return Ok(());
    }
    let connection = place.open_reader()?;
    let version = schema::accept(&connection, &place.path)?;
    loss::check_position(&connection, version, &place.path, noted)
}

/// Separates missing data, which a reader reports, from a failure to look for it.
fn or_loss<T>(checked: Result<T, Failure>) -> Result<(Option<T>, Option<Failure>), Failure> {
    match checked {
        Ok(value) => Ok((Some(value), None)),
        Err(failure) if failure.kind() == FailureKind::Loss => Ok((None, Some(failure))),
        Err(failure) => Err(failure),
    }
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
