//! Runs where callers are known: nobody reads or brings so much that others wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use macp_ledger::contract::Around;
use macp_ledger::{Failure, Head, MemoryStore, Store};
use macp_rpc::plan::Client;
use macp_wire::plan::v1::*;
use tonic::Request;
use tonic::transport::Endpoint;

use crate::common::*;
use crate::rights::{commit, end, freeze, guarded, guarded_on, guarded_with, listed, start, token};
use crate::sessions::of_session;
use crate::target::Target;

/// Runs that one caller may read at once, and lists.
const READ_SHARE: usize = 1;
const LIST_SHARE: usize = 2;

/// A client on a connection of its own, so that it shares no window with others.
async fn client(world: &World) -> Client<tonic::transport::Channel> {
    let address = format!("http://{}", world.server.local_addr());
    Client::new(Endpoint::from_shared(address).expect("an address").connect().await.expect("the server listens"))
}

#[tokio::test]
async fn one_caller_who_does_not_read_runs_leaves_places_to_others() {
    let world = guarded_with(|settings| settings.stalled_reader_timeout = Duration::from_secs(1_000)).await;
    // Longer than what is buffered on the way to a client.
    let run_id = start(&world, "alice", of_plan(freeze(&world, &["/large"]).await)).await.expect("started");
    end(&world, "alice", &run_id).await;
    let opened = Arc::new(AtomicUsize::new(0));
    let mut unread = Vec::new();
    for _ in 0..9 {
        let mut client = client(&world).await;
        let request = as_caller(&token("alice"), ExportRunRequest { run_id: run_id.clone() });
        let opened = Arc::clone(&opened);
        unread.push(tokio::spawn(async move {
            let export = client.export_run(request).await;
            opened.fetch_add(1, Ordering::SeqCst);
            // Held and not read.
            let _export = export;
            std::future::pending::<()>().await
        }));
    }
    while opened.load(Ordering::SeqCst) < READ_SHARE {
        tokio::task::yield_now().await;
    }
    let mut olga = client(&world).await;
    for _ in 0..5 {
        let request = as_caller(&token("olga"), GetRunRequest { run_id: run_id.clone() });
        let shown = tokio::time::timeout(PATIENCE, olga.get_run(request)).await.expect("olga does not wait");
        shown.expect("an observer sees it");
        let request = as_caller(&token("olga"), mock(&run_id));
        let mut replay = olga.replay(request).await.expect("a replay").into_inner();
        while let Some(event) = next(&mut replay).await {
            event.expect("progress and a report");
        }
    }
    assert_eq!(opened.load(Ordering::SeqCst), READ_SHARE, "the rest waits for its own");
    unread.iter().for_each(tokio::task::JoinHandle::abort);
    drop(olga);
    world.shut_down().await;
}

/// A store in which nobody learns whose the session `s` is while it is held.
#[derive(Debug, Default)]
struct Held {
    inner: MemoryStore,
    held: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Held {
    fn set(&self, held: bool) {
        *self.held.lock().expect("not poisoned") = held;
        self.changed.notify_all();
    }
}

impl Around for Held {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        let held = self.held.lock().expect("not poisoned");
        // The session in which the run is reported is nobody's concern here.
        if *held && session_id == "s" {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            drop(self.changed.wait_while(held, |held| *held).expect("not poisoned"));
        }
        self.inner.head(session_id)
    }
}

/// To list takes moments, and still only so many of one caller's lists are read at once.
#[tokio::test]
async fn one_caller_who_lists_runs_leaves_places_to_others() {
    let (sessions, runs) = (Arc::new(Held::default()), Arc::new(MemoryStore::new()));
    let store = Arc::clone(&sessions) as Arc<dyn Store>;
    let world = guarded_on(store, runs, Target::start().await, |_| ()).await;
    commit(&world, "s", &["alice", "bob"]).await;
    let run_id = start(&world, "bob", of_session("s")).await.expect("started");
    end(&world, "bob", &run_id).await;
    sessions.set(true);
    let mut lists = Vec::new();
    for _ in 0..9 {
        let mut client = client(&world).await;
        let request = as_caller(&token("alice"), ListRunsRequest::default());
        lists.push(tokio::spawn(async move { client.list_runs(request).await }));
    }
    while sessions.waiting.load(Ordering::SeqCst) < LIST_SHARE {
        tokio::task::yield_now().await;
    }
    // His own run is his to see, whatever becomes of its session; often enough for the others to have come to the door.
    for _ in 0..50 {
        let listing = tokio::time::timeout(PATIENCE, listed(&world, "bob"));
        assert_eq!(listing.await.expect("bob does not wait"), 1);
    }
    assert_eq!(sessions.waiting.load(Ordering::SeqCst), LIST_SHARE, "the rest waits for its own");
    sessions.set(false);
    for list in lists {
        assert_eq!(list.await.expect("no panic").expect("a page").into_inner().runs.len(), 1);
    }
    world.shut_down().await;
}

/// An import is held in memory while it comes, and only two can be: whoever sends slowly has one of them at most.
#[tokio::test]
async fn one_caller_who_sends_slowly_leaves_a_place_to_others() {
    let world = guarded().await;
    let by = |sender: &str, request: &mut tonic::metadata::MetadataMap| {
        request.insert("authorization", format!("Bearer {}", token(sender)).parse().expect("ASCII"));
    };
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut client = client(&world).await;
        let mut request = Request::new(tokio_stream::pending());
        by("admin", request.metadata_mut());
        slow.push(tokio::spawn(async move { client.import_run(request).await.map(drop) }));
    }
    let mut other = client(&world).await;
    // Often enough for the slow ones to have come to the door meanwhile.
    for _ in 0..50 {
        let mut request = Request::new(tokio_stream::iter([ImportRunRequest { chunk: "x".into() }]));
        by("admin-2", request.metadata_mut());
        let answered = tokio::time::timeout(PATIENCE, other.import_run(request)).await.expect("the other has a place");
        refused(answered, "INVALID_REQUEST");
    }
    assert!(slow.iter().all(|import| !import.is_finished()));
    slow.iter().for_each(tokio::task::JoinHandle::abort);
    drop(other);
    world.shut_down().await;
}
