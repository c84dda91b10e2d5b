//! HistoryService.

use std::sync::Arc;
use std::time::Duration;

use macp_ledger::SqliteStore;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::replay_session_response::Event;
use macp_wire::history::v1::*;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::common::*;

fn log(session_id: &str, after_sequence: u64, page_size: i32) -> GetSessionLogRequest {
    GetSessionLogRequest { session_id: session_id.into(), after_sequence, page_size }
}

/// A session that was resolved, with four entries.
async fn resolved(edge: &Edge, session_id: &str) {
    edge.accept(start(session_id)).await;
    edge.accept(proposal(session_id, "p")).await;
    edge.accept(vote(session_id, "v")).await;
    edge.accept(commitment(session_id, "c")).await;
}

async fn replay(edge: &Edge, request: ReplaySessionRequest) -> (Vec<ReplayStep>, ReplayReport) {
    let response = edge.history.clone().replay_session(request).await.expect("a replay");
    let mut events: Vec<_> = response.into_inner().map(|event| event.expect("an event").event).collect().await;
    let Some(Some(Event::Report(report))) = events.pop() else { panic!("the report comes last") };
    let steps = events.into_iter().map(|event| match event {
        Some(Event::Step(step)) => step,
        other => panic!("{other:?} is no step"),
    });
    (steps.collect(), report)
}

#[tokio::test]
async fn ext_3_the_log_comes_as_typed_entries_page_by_page() {
    let edge = Edge::start().await;
    resolved(&edge, "s").await;
    let mut client = edge.history.clone();
    let whole = client.get_session_log(log("s", 0, 0)).await.expect("a log").into_inner();
    assert_eq!(whole.next_after_sequence, 0);
    let types: Vec<_> = whole
        .entries
        .iter()
        .map(|entry| match &entry.entry.as_ref().expect("an entry").input {
            Some(entry::Input::Envelope(envelope)) => envelope.message_type.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(types, ["SessionStart", "Proposal", "Vote", "Commitment"]);
    let first = whole.entries[0].entry.as_ref().expect("an entry");
    assert_eq!(first.binding.as_ref().expect("bound").mode, DECISION);
    let last = whole.entries[3].entry.as_ref().expect("an entry").terminal.as_ref().expect("the end");
    assert_eq!((last.state, &last.history_hash), (RESOLVED, &whole.entries[2].hash));

    let (mut paged, mut after) = (Vec::new(), 0);
    loop {
        let page = client.get_session_log(log("s", after, 3)).await.expect("a page").into_inner();
        paged.extend(page.entries);
        after = page.next_after_sequence;
        if after == 0 {
            break;
        }
        assert_eq!(after, 3);
    }
    assert_eq!(paged, whole.entries);
    for after in [4, 5, u64::MAX] {
        let page = client.get_session_log(log("s", after, 0)).await.expect("a page").into_inner();
        assert_eq!((page.entries.len(), page.next_after_sequence), (0, 0));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn ext_3_bookkeeping_is_part_of_the_log() {
    let edge = Edge::start().await;
    edge.accept(start("cancelled")).await;
    let cancel = macp_wire::v1::CancelSessionRequest { session_id: "cancelled".into(), reason: "why not".into() };
    edge.runtime.clone().cancel_session(cancel).await.expect("cancelled");
    edge.accept(start_with("expired", SessionStartPayload { ttl_ms: 1, ..Default::default() })).await;
    while edge.session("expired").await.expect("a session").state != EXPIRED {
        tokio::task::yield_now().await;
    }
    let mut client = edge.history.clone();
    let page = client.get_session_log(log("cancelled", 1, 0)).await.expect("a page").into_inner();
    let entry = page.entries[0].entry.clone().expect("an entry");
    assert_eq!(entry.ordinal, 0);
    assert!(matches!(entry.input, Some(entry::Input::SessionCancel(cancel)) if cancel.reason == "why not"));
    let page = client.get_session_log(log("expired", 1, 0)).await.expect("a page").into_inner();
    let entry = page.entries[0].entry.clone().expect("an entry");
    assert!(matches!(entry.input, Some(entry::Input::TtlExpired(_))));
    edge.shut_down().await;
}

#[tokio::test]
async fn ext_3_a_page_fits_into_a_message_however_large_its_entries() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    for index in 0..8 {
        let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{}"}}"#, "x".repeat(1_000_000));
        edge.accept(envelope("s", &format!("p{index}"), "Proposal", payload)).await;
    }
    let (mut pages, mut entries, mut after) = (0, 0, 0);
    loop {
        let page = edge.history.clone().get_session_log(log("s", after, 1000)).await.expect("a page").into_inner();
        (pages, entries, after) = (pages + 1, entries + page.entries.len(), page.next_after_sequence);
        if after == 0 {
            break;
        }
    }
    assert_eq!(entries, 9);
    assert!(pages >= 3, "{pages} pages hold 8 MB");
    edge.shut_down().await;
}

#[tokio::test]
async fn what_is_unknown_or_malformed_is_refused() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    let mut client = edge.history.clone();
    let status = client.get_session_log(log("s", 0, -1)).await.expect_err("a negative page");
    assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_REQUEST"));
    let session_id = || "unknown".to_owned();
    let statuses = [
        client.get_session_log(log("unknown", 0, 0)).await.map(drop).expect_err("unknown"),
        client.verify_session(VerifySessionRequest { session_id: session_id() }).await.map(drop).expect_err("unknown"),
        client
            .replay_session(ReplaySessionRequest { session_id: session_id(), ..Default::default() })
            .await
            .map(drop)
            .expect_err("unknown"),
        client.export_session(ExportSessionRequest { session_id: session_id() }).await.map(drop).expect_err("unknown"),
    ];
    for status in statuses {
        assert_eq!((status.code(), code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn a_session_replays_verifies_and_can_be_taken_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    resolved(&edge, "s").await;
    edge.accept(start("open")).await;
    edge.shut_down().await;

    // What is asked of a server that was started anew comes from the disk.
    let edge = Edge::on(store(), |_| ()).await;
    let (steps, report) = replay(&edge, ReplaySessionRequest { session_id: "s".into(), ..Default::default() }).await;
    let ids: Vec<_> = steps.iter().map(|step| step.message_id.as_str()).collect();
    assert_eq!(ids, ["s-start", "p", "v", "c"]);
    assert_eq!((steps[2].state, steps[3].state, steps[3].ordinal), (OPEN, RESOLVED, 4));
    assert_eq!(report.verdict(), ReplayVerdict::Match);
    assert_eq!((report.entries, report.state, report.what_if), (4, RESOLVED, false));
    assert_eq!(report.determinism_class, "semantic-deterministic");
    assert!(!report.resolution.is_empty());

    let verify = VerifySessionRequest { session_id: "s".into() };
    let verified = edge.history.clone().verify_session(verify).await.expect("verified").into_inner();
    assert!(verified.ok && verified.sealed, "{verified:?}");
    assert_eq!((verified.entries, verified.head_hash.len(), verified.bad_sequence), (4, 32, 0));
    let verify = VerifySessionRequest { session_id: "open".into() };
    let verified = edge.history.clone().verify_session(verify).await.expect("verified").into_inner();
    assert!(verified.ok && !verified.sealed, "{verified:?}");

    let export = ExportSessionRequest { session_id: "s".into() };
    let chunks = edge.history.clone().export_session(export).await.expect("an export").into_inner();
    let chunks: Vec<_> = chunks.map(|chunk| chunk.expect("a chunk").data).collect().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), chunks.concat()).expect("written");
    let mut source = macp_archive::Source::File(macp_archive::ExportFile::open(file.path()).expect("an export"));
    let verified = macp_archive::verify(&mut source, &macp_archive::Keys::none(), &mut |_| ()).expect("readable");
    assert!(verified.ok() && verified.sealed, "{verified:?}");
    assert_eq!(verified.entries, 4);
    edge.shut_down().await;
}

#[tokio::test]
async fn replay_3_other_versions_are_refused_unless_asked_for_as_a_what_if() {
    let edge = Edge::start().await;
    resolved(&edge, "s").await;
    let request = ReplaySessionRequest { session_id: "s".into(), policy_version: "other".into(), ..Default::default() };
    let (steps, report) = replay(&edge, request.clone()).await;
    assert_eq!((steps.len(), report.verdict()), (0, ReplayVerdict::Refused));
    assert!(report.message.contains("not historical reconstruction"), "{}", report.message);
    let (steps, report) = replay(&edge, ReplaySessionRequest { what_if: true, ..request }).await;
    assert_eq!(steps.len(), 4);
    assert!(report.what_if);
    edge.shut_down().await;
}

#[tokio::test]
async fn who_stops_reading_does_not_keep_others_from_their_histories() {
    let edge = Edge::with(|settings| settings.stalled_reader_timeout = Duration::from_millis(100)).await;
    edge.accept(start("s")).await;
    for index in 0..10 {
        let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{}"}}"#, "x".repeat(1_000_000));
        edge.accept(envelope("s", &format!("p{index}"), "Proposal", payload)).await;
    }
    // More than may be read at once, each on a connection of its own so that they share no window.
    let mut unread = Vec::new();
    for _ in 0..12 {
        let mut client = macp_rpc::history::Client::new(connect(edge.address()).await);
        let export = client.export_session(ExportSessionRequest { session_id: "s".into() });
        let export = tokio::time::timeout(PATIENCE, export).await.expect("a place becomes free in time");
        unread.push(export.expect("an export").into_inner());
    }
    let verify = edge.history.clone();
    let verify = async move { verify.clone().verify_session(VerifySessionRequest { session_id: "s".into() }).await };
    let verified = tokio::time::timeout(PATIENCE, verify).await.expect("a place becomes free in time");
    assert!(verified.expect("verified").into_inner().ok);

    // Thirteen had a place in turn and there are eight, so at least five were put out; who, the scheduler decides.
    let mut put_out = 0;
    for mut export in unread {
        loop {
            match tokio::time::timeout(PATIENCE, export.next()).await.expect("an end in time") {
                Some(Ok(_chunk)) => {}
                Some(Err(status)) => {
                    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "STREAM_LAGGED"));
                    put_out += 1;
                    break;
                }
                None => break,
            }
        }
    }
    assert!(put_out >= 5, "{put_out}");
    edge.shut_down().await;
}
