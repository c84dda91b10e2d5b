//! A directory that lacks acknowledged data is refused untouched, until its loss is accepted.

use std::path::Path;

use macp_ledger::contract::random::{self, Random};
use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{AcceptedLoss, DATABASE_FILE, POSITION_FILE};
use macp_ledger::{Failure, PutMode, SqliteStore, Store};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::image::{FRAME_BYTES, HEADER_BYTES, Image, assert_loss, state};

const NOW_MS: i64 = 1_700_000_000_000;

/// A directory whose store held one session of three entries and a document, and was closed.
fn used() -> TempDir {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    store.append(&[Session::new("s").append(3)]).remove(0).unwrap();
    store.put_document("kind", "key", b"1", PutMode::Replace).unwrap();
    directory
}

fn copy(directory: &Path, names: &[&str]) -> TempDir {
    let copy = TempDir::new().unwrap();
    for name in names {
        std::fs::copy(directory.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// Refused for writing and reported to readers, with the same text.
#[track_caller]
fn refused(directory: &Path) -> Failure {
    let failure = SqliteStore::open(directory).expect_err("the store should not open");
    assert_loss(&failure);
    let reported = match SqliteStore::open_read_only(directory) {
        Ok(store) => store.loss().expect("the loss is reported").clone(),
        Err(failure) => failure,
    };
    assert_eq!(reported.to_string(), failure.to_string());
    assert!(failure.to_string().contains("macp accept-loss"), "{failure}");
    failure
}

#[track_caller]
fn accepted(directory: &Path) -> AcceptedLoss {
    let loss = SqliteStore::accept_loss(directory, None, NOW_MS).unwrap().expect("something is missing");
    assert_eq!(SqliteStore::accept_loss(directory, None, NOW_MS).unwrap(), None, "nothing is missing any more");
    let recorded: Vec<(i64, String)> = Connection::open(directory.join(DATABASE_FILE))
        .unwrap()
        .prepare("SELECT accepted_at_ms, description FROM losses")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(recorded.last(), Some(&(NOW_MS, loss.description.clone())));
    loss
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: &str| std::fs::read(directory.join(name)).unwrap_or_default();
    [DATABASE_FILE, "macp.db-wal", POSITION_FILE].map(|name| (name.to_owned(), read(name))).into()
}

#[test]
fn a_damaged_log_is_refused_untouched_and_copied_when_its_loss_is_accepted() {
    let image = Image::make(&mut Random::new(random::seed()), 20, 0);
    let (frames, directory) = (image.log().frames(), image.directory.path());
    image.flip(HEADER_BYTES + frames / 2 * FRAME_BYTES + 500, 3);
    let before = files(directory);
    let failure = refused(directory);
    let place = format!("at frame {} (byte {})", frames / 2 + 1, HEADER_BYTES + frames / 2 * FRAME_BYTES);
    assert!(failure.to_string().contains(&place), "{failure}");
    assert_eq!(files(directory), before);

    let loss = accepted(directory);
    assert!(loss.description.contains(&place), "{loss:?}");
    assert_eq!(std::fs::read(loss.log_copy.expect("there was a log")).unwrap(), before[1].1);
    let store = SqliteStore::open(directory).unwrap();
    let missing = image.missing(&state(&store));
    assert!((1..20).contains(&missing), "what was readable is there, {missing} commits are missing");
    store.append(&[Session::new("new").append(1)]).remove(0).unwrap();
}

/// What a checkpoint has copied is in the database, and the readable part of the log is older than that.
#[test]
fn a_damaged_log_that_was_checkpointed_loses_nothing_when_its_loss_is_accepted() {
    let image = Image::make(&mut Random::new(random::seed()), 20, 0);
    let directory = image.directory.path();
    let whole = std::fs::read(image.log_path()).unwrap();
    drop(SqliteStore::open(directory).unwrap());
    std::fs::write(image.log_path(), whole).unwrap();
    image.set_note(Some(0));
    image.flip(HEADER_BYTES + 3 * FRAME_BYTES + 500, 3);
    refused(directory);
    accepted(directory);
    assert_eq!(image.missing(&state(&SqliteStore::open(directory).unwrap())), 0);
}

#[test]
fn a_used_directory_without_its_database_is_refused() {
    for make_empty in [false, true] {
        let directory = used();
        let database = directory.path().join(DATABASE_FILE);
        std::fs::remove_file(&database).unwrap();
        if make_empty {
            std::fs::write(&database, "").unwrap();
        }
        let failure = refused(directory.path());
        let expected = if make_empty { "is empty, but this directory was used" } else { "is missing, but" };
        assert!(failure.to_string().contains(expected), "{failure}");
        assert_eq!(database.exists(), make_empty, "nothing is created");
        accepted(directory.path());
        assert!(state(&SqliteStore::open(directory.path()).unwrap()).is_empty());
    }
}

/// SQLite deletes the log of an empty database when it opens it.
#[test]
fn a_log_without_its_database_is_refused_untouched() {
    let image = Image::make(&mut Random::new(random::seed()), 5, 0);
    image.set_note(None);
    std::fs::write(image.directory.path().join(DATABASE_FILE), "").unwrap();
    let before = files(image.directory.path());
    let failure = refused(image.directory.path());
    assert!(failure.to_string().contains("is empty, but its write-ahead log is there"), "{failure}");
    assert_eq!(files(image.directory.path()), before);
    let loss = accepted(image.directory.path());
    assert_eq!(std::fs::read(loss.log_copy.expect("there was a log")).unwrap(), before[1].1);
}

#[test]
fn an_older_copy_of_the_database_is_refused_and_so_is_another_one() {
    let directory = used();
    let older = copy(directory.path(), &[DATABASE_FILE]);
    let restore = |from: &Path| std::fs::copy(from.join(DATABASE_FILE), directory.path().join(DATABASE_FILE)).unwrap();
    type Change = fn(&SqliteStore);
    let changes: [(Change, &str); 2] = [
        (|store| store.append(&[Session::new("t").append(1)]).remove(0).unwrap(), "acknowledged were entry 4"),
        (|store| assert!(store.delete_document("kind", "key").unwrap()), "document change 2"),
    ];
    for (change, expected) in changes {
        restore(older.path());
        std::fs::remove_file(directory.path().join(POSITION_FILE)).unwrap();
        change(&SqliteStore::open(directory.path()).unwrap());
        let newer = copy(directory.path(), &[DATABASE_FILE]);
        restore(older.path());
        let failure = refused(directory.path());
        assert!(failure.to_string().contains("ends at entry 3") && failure.to_string().contains(expected), "{failure}");
        accepted(directory.path());
        drop(SqliteStore::open(directory.path()).unwrap());

        // The database it was before does not have what is added from here on.
        restore(newer.path());
        assert!(refused(directory.path()).to_string().contains("this directory was used with the one of id"));
    }
    restore(used().path());
    assert!(refused(directory.path()).to_string().contains("has id"));
}

/// A backup goes into an empty directory; a copy of a whole directory is as good as the directory.
#[test]
fn a_restored_backup_opens() {
    let directory = used();
    for names in [&[DATABASE_FILE][..], &[DATABASE_FILE, POSITION_FILE]] {
        let restored = copy(directory.path(), names);
        assert_eq!(SqliteStore::open_read_only(restored.path()).unwrap().loss().map(ToString::to_string), None);
        let store = SqliteStore::open(restored.path()).unwrap();
        assert_eq!(store.head("s").unwrap().expect("the session is there").sequence, 3);
    }
}

#[test]
fn a_damaged_position_file_is_refused() {
    let directory = used();
    std::fs::write(directory.path().join(POSITION_FILE), "what is this").unwrap();
    assert!(refused(directory.path()).to_string().contains("position file"));
    accepted(directory.path());
    assert_eq!(state_len(directory.path()), 2);
}

fn state_len(directory: &Path) -> usize {
    let store = SqliteStore::open(directory).unwrap();
    let documents = store.documents("kind", None, 10).unwrap().len();
    documents + usize::from(store.head("s").unwrap().is_some())
}

/// A directory of before there were positions is taken as it is, and has one from then on.
#[test]
fn a_database_of_version_1_is_migrated() {
    let directory = used();
    let raw = Connection::open(directory.path().join(DATABASE_FILE)).unwrap();
    raw.execute_batch("DROP TABLE identity; DROP TABLE losses; PRAGMA user_version = 1").unwrap();
    drop(raw);
    std::fs::remove_file(directory.path().join(POSITION_FILE)).unwrap();
    let reader = SqliteStore::open_read_only(directory.path()).unwrap();
    assert_eq!(reader.head("s").unwrap().expect("the session is there").sequence, 3);
    drop(reader);
    let older = copy(directory.path(), &[DATABASE_FILE]);
    assert_eq!(state_len(directory.path()), 2);
    std::fs::copy(older.path().join(DATABASE_FILE), directory.path().join(DATABASE_FILE)).unwrap();
    assert!(refused(directory.path()).to_string().contains("is not the one this directory was used with"));
}

#[test]
fn damage_in_the_database_itself_is_not_accepted() {
    let image = Image::make(&mut Random::new(random::seed()), 12, 1);
    let database = image.directory.path().join(DATABASE_FILE);
    let mut bytes = std::fs::read(&database).unwrap();
    // The first page of every tree but the schema.
    bytes[4_096..10 * 4_096].fill(0xAA);
    std::fs::write(&database, bytes).unwrap();
    image.flip(3, 3);
    refused_for_writing(image.directory.path());
    let failure = SqliteStore::accept_loss(image.directory.path(), None, NOW_MS).unwrap_err();
    assert_eq!(failure.kind(), macp_ledger::FailureKind::Corrupt, "{failure}");
    refused_for_writing(image.directory.path());
}

#[track_caller]
fn refused_for_writing(directory: &Path) {
    assert_loss(&SqliteStore::open(directory).unwrap_err());
}
