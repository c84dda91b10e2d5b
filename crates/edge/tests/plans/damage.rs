//! A record that was changed after it was written: never passed off as what happened, and never acted on.

use std::sync::Arc;

use macp_ledger::{Append, Head, IndexUpdate, MemoryStore, PutMode, Record, Store};
use macp_wire::plan::v1::*;
use serde_json::json;

use crate::common::*;
use crate::rights::{commit, end, freeze, guarded_on, listed, start};
use crate::sessions::of_session;

/// A copy of a store with one run, in which one entry is not what it was.
fn tampered(store: &dyn Store, run_id: &str, seq: usize) -> Arc<dyn Store> {
    let copy = MemoryStore::new();
    for plan in store.documents("aos.plan", None, 10).expect("readable") {
        copy.put_document("aos.plan", &plan.key, &plan.bytes, PutMode::IfAbsent).expect("writable");
    }
    let head = store.head(run_id).expect("readable").expect("a run");
    let mut records = store.read(run_id, 0, usize::MAX, usize::MAX).expect("readable");
    let text = String::from_utf8(records[seq].bytes.to_vec()).expect("text");
    records[seq].bytes = text.replacen("s1", "s2", 1).into_bytes().into();
    assert_ne!(records[seq].bytes, text.as_bytes(), "the entry names its step");
    append(&copy, head, records);
    Arc::new(copy)
}

/// A copy of a session, in which an entry cannot be read.
fn cut(store: &dyn Store, session_id: &str, entry: usize) -> Arc<dyn Store> {
    let head = store.head(session_id).expect("readable").expect("a session");
    let mut records = store.read(session_id, 0, usize::MAX, usize::MAX).expect("readable");
    records[entry].bytes = b"{".as_slice().into();
    let copy = MemoryStore::new();
    append(&copy, head, records);
    Arc::new(copy)
}

/// A copy of a session, in which neither its row nor its first entry can be read.
fn ruined(store: &dyn Store, session_id: &str) -> Arc<dyn Store> {
    let store = cut(store, session_id, 0);
    let head = store.head(session_id).expect("readable").expect("a session");
    let records = store.read(session_id, 0, usize::MAX, usize::MAX).expect("readable");
    let copy = MemoryStore::new();
    append(&copy, Head { summary: b"{".as_slice().into(), ..head }, records);
    Arc::new(copy)
}

fn append(copy: &MemoryStore, head: Head, records: Vec<Record>) {
    let Head { session_id, open, deadline_ms, state, summary, .. } = head;
    let index = IndexUpdate { open, deadline_ms, state, summary: Some(summary) };
    let append = Append { session_id, expected_sequence: 0, expected_hash: None, records, index };
    copy.append(&[append]).pop().expect("an answer").expect("stored");
}

/// Whose a run of a session is that cannot be read, nobody can tell; whoever lists runs sees all others.
#[tokio::test]
async fn a_session_that_cannot_be_read_hides_the_runs_of_no_other() {
    let (sessions, runs): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let target = crate::target::Target::start().await;
    let world = guarded_on(Arc::clone(&sessions), Arc::clone(&runs), target.clone(), |_| ()).await;
    let own = start(&world, "alice", of_plan(freeze(&world, &["/b"]).await)).await.expect("a run");
    end(&world, "alice", &own).await;
    commit(&world, "s", &["alice", "bob"]).await;
    let of_session = start(&world, "bob", of_session("s")).await.expect("a run");
    end(&world, "bob", &of_session).await;
    assert_eq!((listed(&world, "alice").await, listed(&world, "bob").await), (2, 1));
    world.shut_down().await;

    let world = guarded_on(ruined(&*sessions, "s"), runs, target, |_| ()).await;
    assert_eq!((listed(&world, "alice").await, listed(&world, "bob").await), (1, 1), "each its own");
    world.shut_down().await;
}

/// Who may see a run is told by the index of sessions; the session is not loaded for a list. Where anyone may read a
/// session, its first entry says so.
#[tokio::test]
async fn a_session_that_cannot_be_loaded_hides_none_of_its_runs() {
    for (participants, sees) in
        [(&["alice", "bob"] as &[_], [("alice", 1), ("carol", 0)]), (&[], [("alice", 1), ("carol", 1)])]
    {
        let (sessions, runs): (Arc<dyn Store>, Arc<dyn Store>) =
            (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
        let target = crate::target::Target::start().await;
        let world = guarded_on(Arc::clone(&sessions), Arc::clone(&runs), target.clone(), |_| ()).await;
        commit(&world, "s", participants).await;
        let run_id = start(&world, "bob", of_session("s")).await.expect("a run");
        end(&world, "bob", &run_id).await;
        world.shut_down().await;

        let world = guarded_on(cut(&*sessions, "s", 2), runs, target, |_| ()).await;
        for (sender, seen) in sees {
            assert_eq!(listed(&world, sender).await, seen, "{sender}, in a session of {participants:?}");
        }
        world.shut_down().await;
    }
}

#[tokio::test]
async fn aos_99_a_broken_chain_is_reported_and_nothing_is_called() {
    let (sessions, runs): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let target = crate::target::Target::start().await;
    let world = World::on(Arc::clone(&sessions), Arc::clone(&runs), target.clone(), |_| ()).await;
    let run_id = world.run_to_end(&["/a"]).await;
    world.shut_down().await;

    let damaged = tampered(&*runs, &run_id, 2);
    let world = World::on(sessions, damaged, target.clone(), |_| ()).await;
    for (mode, name) in [(ReplayMode::Mock, "mock_replay"), (ReplayMode::Full, "full_replay")] {
        let (_, report) =
            world.try_replay(ReplayRequest { mode: mode.into(), ..mock(&run_id) }).await.expect("a report");
        assert_eq!((&report["verdict"], &report["replay_mode"]), (&json!("not_comparable"), &json!(name)), "{report}");
        assert_eq!(report["pin_violations"][0]["kind"], "journal");
        assert!(report["pin_violations"][0].to_string().contains('2'), "the place is named: {report}");
    }
    assert_eq!(target.asked(), ["/a"]);
    let mut client = world.plans.clone();
    refused(client.get_run(GetRunRequest { run_id: run_id.clone() }).await, "INTERNAL_ERROR");
    let query = QueryRequest { run_id: run_id.clone(), question: Question::WhyStopped.into(), as_of_seq: None };
    refused(client.query(query).await, "INTERNAL_ERROR");
    refused(
        world.try_start(StartRunRequest { from_step_id: "s1".to_owned(), ..retry_of(&run_id) }).await,
        "INTERNAL_ERROR",
    );
    let mut export =
        client.export_run(ExportRunRequest { run_id: run_id.clone() }).await.expect("a stream").into_inner();
    let status = next(&mut export).await.expect("an end").expect_err("nothing is exported");
    assert_eq!(code(&status), "INTERNAL_ERROR");
    assert_eq!(target.asked(), ["/a"]);
    // Others are not affected.
    world.run_to_end(&["/b"]).await;
    world.shut_down().await;
}
