//! Runs where callers are known: nobody reads or brings so much that others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use macp_rpc::plan::Client;
use macp_wire::plan::v1::*;
use tonic::Request;
use tonic::transport::Endpoint;

use crate::common::*;
use crate::rights::{end, freeze, guarded, guarded_with, start, token};

/// Part of what may be read at once: what one caller gets.
const SHARE: usize = 2;

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
    while opened.load(Ordering::SeqCst) < SHARE {
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
    assert_eq!(opened.load(Ordering::SeqCst), SHARE, "the rest waits for its own");
    unread.iter().for_each(tokio::task::JoinHandle::abort);
    drop(olga);
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
