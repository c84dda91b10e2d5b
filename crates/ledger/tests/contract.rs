//! Both stores keep the contract.

use bytes::Bytes;
use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{Options, SqliteStore};
use macp_ledger::{
    Append, AppendError, Document, Failure, Filter, Head, MemoryStore, PutMode, PutOutcome, Record, Store, contract,
};
use tempfile::TempDir;

#[test]
fn memory_keeps_the_contract() {
    contract::run(|| Box::new(MemoryStore::new()));
}

#[test]
fn sqlite_keeps_the_contract() {
    contract::run(|| Box::new(Scratch::new(Options::default())));
}

#[test]
fn sqlite_keeps_the_contract_while_checkpoints_never_cease() {
    contract::run(|| Box::new(Scratch::new(Options { checkpoint_pages: 1, ..Options::default() })));
}

/// The contract leaves open whether a store keeps this order. Both do, so that not all ended sessions have to be read.
#[test]
fn both_stores_know_the_order_of_creation() {
    for store in [Box::new(MemoryStore::new()) as Box<dyn Store>, Box::new(Scratch::new(Options::default()))] {
        let mut sessions: Vec<_> = ["c", "a", "d", "b"].into_iter().map(Session::new).collect();
        for session in &mut sessions {
            store.append(&[session.append(1)]).remove(0).unwrap();
        }
        let mut found = Vec::new();
        for place in [1, 0, 3, 2] {
            store.append(&[sessions[place].end()]).remove(0).unwrap();
            found.push(store.ended_up_to().unwrap().map(|id| id.to_string()));
        }
        assert_eq!(found, [None, Some("a".to_owned()), Some("a".to_owned()), Some("b".to_owned())]);
        let created = store.created(Some("c"), 2).unwrap();
        assert_eq!(created.iter().map(|head| &*head.session_id).collect::<Vec<_>>(), ["a", "d"]);
    }
}

/// A store whose directory goes away with it.
#[derive(Debug)]
struct Scratch {
    store: SqliteStore,
    _directory: TempDir,
}

impl Scratch {
    fn new(options: Options) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let store = SqliteStore::open_with(directory.path(), options).expect("an empty store");
        Self { store, _directory: directory }
    }
}

impl Store for Scratch {
    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        self.store.append(batch)
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        self.store.head(session_id)
    }

    fn read(&self, session_id: &str, after: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        self.store.read(session_id, after, limit, bytes_max)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        self.store.list(after, limit, filter)
    }

    fn created(&self, after: Option<&str>, limit: usize) -> Result<Vec<Head>, Failure> {
        self.store.created(after, limit)
    }

    fn ended_up_to(&self) -> Result<Option<std::sync::Arc<str>>, Failure> {
        self.store.ended_up_to()
    }

    fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<std::sync::Arc<str>>, Failure> {
        self.store.due(now_ms, limit)
    }

    fn next_deadline(&self) -> Result<Option<i64>, Failure> {
        self.store.next_deadline()
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        self.store.open_sessions()
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        self.store.put_document(kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        self.store.delete_document(kind, key)
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        self.store.move_document(kind, key, new_key, bytes)
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        self.store.document(kind, key)
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        self.store.documents(kind, after_key, limit)
    }

    fn probe(&self) -> Result<(), Failure> {
        self.store.probe()
    }
}
