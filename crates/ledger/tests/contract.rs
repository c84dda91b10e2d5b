//! Both stores keep the contract.

use macp_ledger::contract::Around;
use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{Options, SqliteStore};
use macp_ledger::{MemoryStore, Store, contract};
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

impl Around for Scratch {
    fn inner(&self) -> &dyn Store {
        &self.store
    }
}
