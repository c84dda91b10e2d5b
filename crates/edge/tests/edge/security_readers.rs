//! Histories where callers are known: nobody reads so much that others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use macp_wire::history::v1::*;
use macp_wire::v1::Envelope;
use tonic::{Code, Status};

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

/// Part of what may be read at once: what one caller gets.
const SHARE: usize = 1;

async fn verify(edge: &Edge, identity: &str, session_id: &str) -> Result<VerifySessionResponse, Status> {
    let request = authorized(identity, VerifySessionRequest { session_id: session_id.into() });
    body(edge.history.clone().verify_session(request).await)
}

#[tokio::test]
async fn std_sec_12_histories_are_read_out_of_the_callers_share() {
    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.message_limit_per_minute = Some(4);
    })
    .await;
    let (alice, bob) = (token_of("alice"), token_of("bob"));
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    let id = || sid(1);
    let log = authorized(&alice, GetSessionLogRequest { session_id: id(), ..Default::default() });
    edge.history.clone().get_session_log(log).await.expect("a log");
    let replay = authorized(&alice, ReplaySessionRequest { session_id: id(), ..Default::default() });
    edge.history.clone().replay_session(replay).await.expect("a replay");
    let export = authorized(&alice, ExportSessionRequest { session_id: id() });
    edge.history.clone().export_session(export).await.expect("an export");
    verify(&edge, &alice, &sid(1)).await.expect("verified");
    refused(verify(&edge, &alice, &sid(1)).await, Code::ResourceExhausted, "RATE_LIMITED");
    verify(&edge, &bob, &sid(1)).await.expect("bob has a share of his own");
    edge.shut_down().await;
}

#[tokio::test]
async fn one_caller_who_does_not_read_leaves_places_to_others() {
    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.stalled_reader_timeout = Duration::from_secs(1_000);
    })
    .await;
    let (alice, bob) = (token_of("alice"), token_of("bob"));
    // Open to all, and longer than what is buffered on the way to a client.
    edge.accept_as(&alice, Envelope { sender: String::new(), ..start("s") }).await;
    for index in 0..10 {
        let payload = format!(r#"{{"proposal_id":"p","supporting_data":"{}"}}"#, "x".repeat(1_000_000));
        let proposal = envelope("s", &format!("p{index}"), "Proposal", payload);
        edge.accept_as(&alice, Envelope { sender: String::new(), ..proposal }).await;
    }
    let opened = Arc::new(AtomicUsize::new(0));
    let mut unread = Vec::new();
    for _ in 0..9 {
        // Each on a connection of its own, so that they share no window.
        let mut client = macp_rpc::history::Client::new(connect(edge.address()).await);
        let (request, opened) = (authorized(&alice, ExportSessionRequest { session_id: "s".into() }), opened.clone());
        unread.push(tokio::spawn(async move {
            let export = client.export_session(request).await;
            opened.fetch_add(1, Ordering::SeqCst);
            // Held and not read.
            let _export = export;
            std::future::pending::<()>().await
        }));
    }
    while opened.load(Ordering::SeqCst) < SHARE {
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        let verified = tokio::time::timeout(PATIENCE, verify(&edge, &bob, "s")).await.expect("bob does not wait");
        assert!(verified.expect("verified").ok);
    }
    assert_eq!(opened.load(Ordering::SeqCst), SHARE, "the rest waits for its own");
    edge.list_as(&alice).await.expect("listing takes another place");
    for reader in unread {
        reader.abort();
    }
    edge.shut_down().await;
}
