//! A full database and records that are too big: clear failures, nothing half-written, recovery.

use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::Options;
use macp_ledger::{AppendError, Failure, FailureKind, Filter, History, PutMode, PutOutcome, SqliteStore, Store};
use tempfile::TempDir;

#[track_caller]
fn failure(result: &Result<(), AppendError>) -> &Failure {
    match result {
        Err(AppendError::Failed(failure)) => failure,
        other => panic!("expected a failure: {other:?}"),
    }
}

#[track_caller]
fn check_history(store: &SqliteStore, session: &Session) {
    let mut history = History::open(store, &session.id).unwrap().expect("the session exists");
    let mut count = 0;
    loop {
        let page = history.next_page().unwrap();
        if page.is_empty() {
            break;
        }
        count += page.len() as u64;
    }
    assert_eq!(count, session.sequence);
    assert_eq!(Some(history.head().hash), session.hash);
}

/// As many pages as the database has.
fn pages(store: &SqliteStore) -> u32 {
    // Through SQLite, not through the file: closing a descriptor of it would drop SQLite's locks.
    let connection = rusqlite::Connection::open(store.path()).unwrap();
    connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap()
}

#[test]
fn a_full_disk_fails_appends_until_there_is_room() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    let mut session = Session::new("s");
    assert!(store.append(&[session.append_sized(20, 1_000)])[0].is_ok());

    store.set_pages_max(Some(1)).unwrap();
    let batch: Vec<_> = (0..5).map(|n| Session::new(&format!("new {n}")).append_sized(3, 10_000)).collect();
    for _ in 0..3 {
        let results = store.append(&batch);
        for result in &results {
            assert_eq!(failure(result).kind(), FailureKind::DiskFull);
            assert_eq!(failure(result).code(), "LEDGER_DISK_FULL");
            assert!(failure(result).to_string().contains("free some space"), "{}", failure(result));
            assert!(std::error::Error::source(failure(result)).is_none(), "the cause says the same again");
            let place = directory.path().display().to_string();
            assert!(!failure(result).to_string().contains(&place), "a client would learn where the files are");
        }
        assert_eq!(store.probe().unwrap_err().kind(), FailureKind::DiskFull);
        check_history(&store, &session);
        assert_eq!(store.list(None, 10, Filter::All).unwrap().len(), 1, "half an append is visible");
    }

    store.set_pages_max(None).unwrap();
    store.probe().unwrap();
    assert!(store.append(&batch).iter().all(Result::is_ok));
    assert!(store.append(&[session.append(1)])[0].is_ok());
    check_history(&store, &session);
}

#[test]
fn an_append_with_no_room_fails_alone() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(directory.path()).unwrap();
    let mut session = Session::new("s");
    assert!(store.append(&[session.append(1)])[0].is_ok());
    store.set_pages_max(Some(pages(&store) + 20)).unwrap();

    let mut other = Session::new("t");
    let mut large = Session::new("large");
    let batch =
        [session.append(1), large.append_sized(1, 1 << 20), other.append(1), large.append(1), session.append(1)];
    let results = store.append(&batch);
    assert!(results[0].is_ok());
    assert_eq!(failure(&results[1]).kind(), FailureKind::DiskFull);
    assert!(results[2].is_ok());
    assert!(matches!(results[3], Err(AppendError::Conflict { expected: 1, found: 0 })), "it built on the lost one");
    assert!(results[4].is_ok());
    check_history(&store, &session);
    check_history(&store, &other);
    assert_eq!(store.head("large").unwrap(), None);
}

#[test]
fn a_record_beyond_the_bound_fails_alone() {
    let directory = TempDir::new().unwrap();
    let options = Options { record_bytes_max: Some(50_000), ..Options::default() };
    let store = SqliteStore::open_with(directory.path(), options).unwrap();
    let mut sessions: Vec<_> = (0..5).map(|n| Session::new(&format!("s{n}"))).collect();
    let batch: Vec<_> = sessions
        .iter_mut()
        .zip([100, 60_000, 200, 60_000, 60_000])
        .map(|(session, size)| session.append_sized(2, size))
        .collect();
    let results = store.append(&batch);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, false, false]);
    assert_eq!(failure(&results[1]).kind(), FailureKind::Invalid);
    check_history(&store, &sessions[0]);
    check_history(&store, &sessions[2]);
    assert_eq!(store.list(None, 10, Filter::All).unwrap().len(), 2);
}

#[test]
fn a_full_disk_fails_documents_until_there_is_room() {
    let directory = TempDir::new().unwrap();
    let options = Options { record_bytes_max: Some(500_000), ..Options::default() };
    let store = SqliteStore::open_with(directory.path(), options).unwrap();
    store.put_document("kind", "key", b"kept", PutMode::Replace).unwrap();

    store.set_pages_max(Some(1)).unwrap();
    let large = vec![1; 200_000];
    for mode in [PutMode::Replace, PutMode::IfAbsent] {
        let failure = store.put_document("kind", "large", &large, mode).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::DiskFull);
    }
    assert_eq!(store.document("kind", "key").unwrap().as_deref(), Some(&b"kept"[..]));
    assert_eq!(store.document("kind", "large").unwrap(), None);

    store.set_pages_max(None).unwrap();
    assert_eq!(store.put_document("kind", "large", &large, PutMode::IfAbsent).unwrap(), PutOutcome::Stored);
    let failure = store.put_document("kind", "larger", &vec![1; 600_000], PutMode::Replace).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Invalid, "beyond the bound of a single row");
    assert_eq!(store.document("kind", "large").unwrap().as_deref(), Some(&large[..]));
}
