//! What a data directory may be, who may use it, and what happens if it is something else.

use std::path::Path;
use std::time::Duration;

use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{DATABASE_FILE, LOCK_FILE, Options, holder};
use macp_ledger::{AppendError, Failure, FailureKind, Filter, PutMode, SqliteStore, Store};
use rusqlite::Connection;
use tempfile::TempDir;

#[track_caller]
fn refused(directory: &Path) -> Failure {
    SqliteStore::open(directory).expect_err("the store should not open")
}

fn raw(directory: &Path) -> Connection {
    Connection::open(directory.join(DATABASE_FILE)).unwrap()
}

#[test]
fn a_missing_directory_is_made_and_everything_is_there_after_reopening() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("a/b");
    let mut session = Session::new("s");
    let mut ended = Session::new("t");
    {
        let store = SqliteStore::open(&directory).unwrap();
        let batch = [session.append(3), ended.append(1), ended.end()];
        assert!(store.append(&batch).iter().all(Result::is_ok));
    }
    assert!(!directory.join(format!("{DATABASE_FILE}-wal")).exists(), "a clean end leaves one file");
    let store = SqliteStore::open(&directory).unwrap();
    let heads = store.list(None, 10, Filter::All).unwrap();
    assert_eq!(heads.iter().map(|head| head.sequence).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(store.open_sessions().unwrap(), 1);
    assert!(store.append(&[session.append(1)])[0].is_ok(), "a reopened session goes on");
    assert_eq!(store.read("s", 0, 10, usize::MAX).unwrap().len(), 4);
}

#[test]
fn a_second_writer_is_told_who_holds_the_directory() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    let failure = refused(directory.path());
    assert_eq!(failure.kind(), FailureKind::Locked);
    let message = failure.to_string();
    assert!(message.contains(&directory.path().display().to_string()), "{message}");
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");

    drop(store);
    SqliteStore::open(directory.path()).expect("a lock ends with its owner");
}

/// Deleting the lock file does not unlock the directory, which is locked itself.
#[cfg(unix)]
#[test]
fn a_deleted_lock_file_does_not_let_a_second_writer_in() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    std::fs::remove_file(directory.path().join(LOCK_FILE)).unwrap();
    for _ in 0..2 {
        let failure = refused(directory.path());
        assert_eq!(failure.kind(), FailureKind::Locked);
        assert!(failure.to_string().contains("is in use by another process"), "{failure}");
        assert!(!directory.path().join(LOCK_FILE).exists(), "a refused start leaves nothing");
        assert_eq!(holder(directory.path()).unwrap().as_deref(), Some("another process"));
        let failure = SqliteStore::accept_loss(directory.path(), None, 0).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Locked);
    }

    // Other programs read, and so do ours.
    let mut session = Session::new("s");
    assert!(store.append(&[session.append(2)])[0].is_ok());
    let count: i64 = raw(directory.path()).query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    let backup = directory.path().join("backup.db");
    raw(directory.path()).execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    assert_eq!(SqliteStore::open_read_only(directory.path()).unwrap().head("s").unwrap().unwrap().sequence, 2);
    assert!(store.append(&[session.append(1)])[0].is_ok());
    drop(store);
    assert_eq!(holder(directory.path()).unwrap(), None);
    drop(SqliteStore::open(directory.path()).unwrap());
}

/// A version that locks the lock file alone is refused, and this one is refused while it runs.
#[test]
fn the_lock_file_is_locked_as_well() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    let file = || std::fs::File::options().read(true).write(true).open(directory.path().join(LOCK_FILE)).unwrap();
    assert!(file().try_lock().is_err());
    drop(store);
    let older = file();
    older.try_lock().unwrap();
    assert_eq!(refused(directory.path()).kind(), FailureKind::Locked);
    assert!(holder(directory.path()).unwrap().is_some());
}

/// Damage in an empty log loses no data.
#[test]
fn a_log_is_emptied_when_nothing_is_written_for_a_while() {
    let directory = TempDir::new().unwrap();
    let options = Options { empty_after: Duration::from_millis(1), ..Options::default() };
    let store = SqliteStore::open_with(directory.path(), options).unwrap();
    let mut session = Session::new("s");
    let log = directory.path().join(format!("{DATABASE_FILE}-wal"));
    let is_empty = || std::fs::metadata(&log).is_ok_and(|log| log.len() == 0);
    for sequence in 1..5 {
        assert!(store.append(&[session.append_sized(1, 10_000)])[0].is_ok());
        let emptied = (0..60_000).any(|_| is_empty() || (std::thread::sleep(Duration::from_millis(1)), false).1);
        assert!(emptied, "the log still has {} bytes", std::fs::metadata(&log).unwrap().len());
        assert_eq!(store.head("s").unwrap().unwrap().sequence, sequence);
    }

    // A reader in the middle of a read pins the log, and does not block writes.
    let reader = raw(directory.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM entries").unwrap();
    let read = || reader.query_row("SELECT count(*) FROM entries", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = read();
    for _ in 0..20 {
        assert!(store.append(&[session.append(1)])[0].is_ok());
        std::thread::yield_now();
    }
    assert_eq!(read(), before);
    assert_eq!(store.head("s").unwrap().unwrap().sequence, 24);
}

#[test]
fn a_lock_file_left_behind_is_no_lock() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join(LOCK_FILE), "12345678901\n").unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    let content = std::fs::read_to_string(directory.path().join(LOCK_FILE)).unwrap();
    assert_eq!(content.trim(), std::process::id().to_string());
    drop(store);
}

#[test]
fn a_path_below_a_file_is_refused_by_name() {
    let parent = TempDir::new().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    for directory in [file.clone(), file.join("data")] {
        let failure = refused(&directory);
        assert_eq!(failure.kind(), FailureKind::NotFound);
        assert!(failure.to_string().contains(&directory.display().to_string()), "{failure}");
    }
    assert!(refused(&file).to_string().contains("it is a file"));
}

#[test]
fn reading_goes_on_beside_a_writer_and_writes_nothing() {
    let directory = TempDir::new().unwrap();
    let writer = SqliteStore::open(directory.path()).unwrap();
    let reader = SqliteStore::open_read_only(directory.path()).unwrap();
    let mut session = Session::new("s");
    for round in 1..4 {
        assert!(writer.append(&[session.append(1)])[0].is_ok());
        assert_eq!(reader.head("s").unwrap().expect("the session exists").sequence, round);
    }
    let result = reader.append(&[session.append(1)]).remove(0);
    let Err(AppendError::Failed(failure)) = result else { panic!("written: {result:?}") };
    assert_eq!(failure.kind(), FailureKind::ReadOnly);
    assert_eq!(reader.probe().unwrap_err().kind(), FailureKind::ReadOnly);
    writer.put_document("kind", "key", b"bytes", PutMode::Replace).unwrap();
    assert_eq!(reader.document("kind", "key").unwrap().as_deref(), Some(&b"bytes"[..]));
    let put = reader.put_document("kind", "key", b"", PutMode::Replace);
    assert_eq!(put.unwrap_err().kind(), FailureKind::ReadOnly);
    assert_eq!(reader.delete_document("kind", "key").unwrap_err().kind(), FailureKind::ReadOnly);
    assert_eq!(reader.documents("kind", None, 10).unwrap().len(), 1);
    assert_eq!(reader.read("s", 0, 10, usize::MAX).unwrap().len(), 3);
}

#[test]
fn a_reader_does_not_make_a_store() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("data");
    let failure = SqliteStore::open_read_only(&directory).expect_err("nothing is there");
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert!(!directory.exists());

    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join(DATABASE_FILE), "").unwrap();
    let failure = SqliteStore::open_read_only(&directory).expect_err("an empty file is no store");
    assert_eq!(failure.kind(), FailureKind::NotFound);
}

#[test]
fn a_newer_schema_is_refused_untouched() {
    let directory = TempDir::new().unwrap();
    drop(SqliteStore::open(directory.path()).unwrap());
    raw(directory.path()).pragma_update(None, "user_version", 3).unwrap();
    let before = std::fs::read(directory.path().join(DATABASE_FILE)).unwrap();
    for failure in [refused(directory.path()), SqliteStore::open_read_only(directory.path()).unwrap_err()] {
        assert_eq!(failure.kind(), FailureKind::SchemaVersion { found: 3, supported: 2 });
        assert!(failure.to_string().contains("schema version 3"), "{failure}");
        assert!(failure.to_string().contains("newer"), "{failure}");
    }
    assert_eq!(std::fs::read(directory.path().join(DATABASE_FILE)).unwrap(), before);
}

/// No version of ours ever left a database of version 0 behind.
#[test]
fn a_schema_of_no_version_is_refused_untouched() {
    for version in [0, -1] {
        let directory = TempDir::new().unwrap();
        drop(SqliteStore::open(directory.path()).unwrap());
        raw(directory.path()).pragma_update(None, "user_version", version).unwrap();
        let before = std::fs::read(directory.path().join(DATABASE_FILE)).unwrap();
        for failure in [refused(directory.path()), SqliteStore::open_read_only(directory.path()).unwrap_err()] {
            assert_eq!(failure.kind(), FailureKind::SchemaVersion { found: version, supported: 2 });
            assert!(failure.to_string().contains("too old to migrate"), "{failure}");
        }
        assert_eq!(std::fs::read(directory.path().join(DATABASE_FILE)).unwrap(), before);
    }
}

/// Version 1 grew before it was released: a database may have the number and not the tables.
#[test]
fn a_schema_that_lacks_a_table_is_refused_untouched() {
    for table in ["sessions", "summaries", "entries", "documents", "probe", "identity", "losses"] {
        let directory = TempDir::new().unwrap();
        drop(SqliteStore::open(directory.path()).unwrap());
        raw(directory.path()).execute_batch(&format!("DROP TABLE {table}")).unwrap();
        let before = std::fs::read(directory.path().join(DATABASE_FILE)).unwrap();
        for failure in [refused(directory.path()), SqliteStore::open_read_only(directory.path()).unwrap_err()] {
            assert_eq!(failure.kind(), FailureKind::SchemaVersion { found: 2, supported: 2 });
            assert!(failure.to_string().contains(&format!("no table {table:?}")), "{failure}");
            assert!(failure.to_string().contains("before the first release"), "{failure}");
        }
        assert_eq!(std::fs::read(directory.path().join(DATABASE_FILE)).unwrap(), before);
    }
}

#[test]
fn a_database_of_another_application_is_refused_untouched() {
    let setups: [fn(&Connection); 2] = [
        |connection| connection.execute_batch("CREATE TABLE theirs (x)").unwrap(),
        |connection| connection.pragma_update(None, "application_id", 7).unwrap(),
    ];
    for setup in setups {
        let directory = TempDir::new().unwrap();
        setup(&raw(directory.path()));
        let before = std::fs::read(directory.path().join(DATABASE_FILE)).unwrap();
        let failure = refused(directory.path());
        assert_eq!(failure.kind(), FailureKind::Foreign);
        assert_eq!(std::fs::read(directory.path().join(DATABASE_FILE)).unwrap(), before);
    }
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join(DATABASE_FILE), "a letter to a friend".repeat(100)).unwrap();
    assert_eq!(refused(directory.path()).kind(), FailureKind::Foreign);
}

#[test]
fn an_empty_file_is_made_a_store() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join(DATABASE_FILE), "").unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    assert!(store.append(&[Session::new("s").append(1)])[0].is_ok());
}
