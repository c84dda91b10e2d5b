//! Progress and those who watch it, where callers are known.

use macp_edge::AuditSettings;
use macp_wire::v1::*;
use serde_json::json;
use tonic::Streaming;

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

fn progress(session_id: &str, message_id: &str) -> Envelope {
    let payload = ProgressPayload { progress_token: "t".into(), progress: 0.5, ..Default::default() };
    message(session_id, DECISION, message_id, "Progress", &payload)
}

/// A Progress about nothing: everybody who watches sees it.
fn ambient(message_id: &str) -> Envelope {
    Envelope { mode: String::new(), ..progress("", message_id) }
}

async fn watch(edge: &Edge, identity: &str) -> Streaming<WatchSignalsResponse> {
    body(edge.runtime.clone().watch_signals(authorized(identity, WatchSignalsRequest {})).await).expect("a watch")
}

async fn seen(watch: &mut Streaming<WatchSignalsResponse>) -> String {
    let response = next(watch).await;
    assert!(response.sender_authenticated);
    response.envelope.expect("an envelope").message_id
}

/// Whoever is refused for who they are learns nothing about sessions, not even whether there is one.
#[tokio::test]
async fn std_core_33_a_progress_from_nobody_is_refused_before_any_session_is_asked() {
    let edge = Edge::believing(team()).await;
    edge.accept_as(&token_of("alice"), std_start(&sid(1), DECISION, &start_payload())).await;
    for session_id in [sid(1), sid(2)] {
        let about = progress(&session_id, "p");
        edge.refuse_as("a-token-nobody-has", about.clone(), "UNAUTHENTICATED").await;
        edge.refuse(Envelope { sender: "alice".into(), ..about.clone() }, "UNAUTHENTICATED").await;
        let bad = ill_authorized(SendRequest { envelope: Some(about.clone()), signature: None });
        let ack = body(edge.runtime.clone().send(bad).await).expect("an Ack").ack.expect("an Ack");
        assert_eq!(ack_code(&ack), "UNAUTHENTICATED");
        edge.refuse_as(&token_of("carol"), Envelope { sender: "alice".into(), ..about.clone() }, "UNAUTHENTICATED")
            .await;

        // What is wrong with the envelope itself comes before the session as well.
        let carol = token_of("carol");
        edge.refuse_as(&carol, Envelope { macp_version: "9".into(), ..about.clone() }, "UNSUPPORTED_PROTOCOL_VERSION")
            .await;
        edge.refuse_as(&carol, Envelope { payload: vec![0xff].into(), ..about }, "INVALID_ENVELOPE").await;
    }
    edge.shut_down().await;
}

/// A scope and a share are the credential's; they too are asked before the session.
#[tokio::test]
async fn std_sec_10_and_12_scope_and_rate_of_a_progress_come_before_its_session() {
    let narrow = entry("carol", json!({"allowed_modes": ["macp.mode.task.v1"]}));
    let edge = Edge::with(|settings| {
        settings.auth = settled(tokens(&json!([entry("alice", json!({})), narrow])));
        settings.message_limit_per_minute = Some(1);
    })
    .await;
    edge.refuse_as(&token_of("carol"), progress(&sid(9), "p"), "FORBIDDEN").await;
    edge.refuse_as(&token_of("alice"), progress(&sid(9), "p"), "SESSION_NOT_FOUND").await;
    edge.refuse_as(&token_of("alice"), progress(&sid(9), "q"), "RATE_LIMITED").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_sec_13_an_observer_and_a_stranger_send_no_progress() {
    let edge = Edge::believing(team()).await;
    let [alice, bob, carol, olga] = ["alice", "bob", "carol", "olga"].map(token_of);
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    edge.refuse_as(&carol, progress(&sid(1), "p1"), "FORBIDDEN").await;
    edge.refuse_as(&olga, progress(&sid(1), "p2"), "FORBIDDEN").await;
    edge.refuse_as(&bob, progress(&sid(2), "p3"), "SESSION_NOT_FOUND").await;
    edge.accept_as(&alice, progress(&sid(1), "p4")).await;
    edge.accept_as(&bob, progress(&sid(1), "p5")).await;
    edge.accept_as(&olga, ambient("p6")).await;

    // Anyone may take part in a classic session that lists nobody.
    edge.accept_as(&alice, Envelope { sender: String::new(), ..start("open") }).await;
    edge.accept_as(&carol, Envelope { mode: "decision".into(), ..progress("open", "p7") }).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_15_progress_about_a_session_is_seen_by_those_who_may_read_it() {
    let edge = Edge::believing(team()).await;
    let [alice, bob, carol, olga] = ["alice", "bob", "carol", "olga"].map(token_of);
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    let mut watches = Vec::new();
    for identity in [&alice, &bob, &olga, &carol] {
        watches.push(watch(&edge, identity).await);
    }
    edge.accept_as(&bob, progress(&sid(1), "about")).await;
    edge.accept_as(&carol, ambient("for all")).await;
    let stranger = watches.pop();
    for mut insider in watches {
        assert_eq!(seen(&mut insider).await, "about");
        assert_eq!(seen(&mut insider).await, "for all");
    }
    assert_eq!(seen(&mut stranger.expect("four watch")).await, "for all", "and nothing before it");
    edge.shut_down().await;
}

/// Refusals of the door are in the trace like all others.
#[tokio::test]
async fn replay_2_a_progress_that_was_refused_for_its_sender_is_traced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.audit = Some(AuditSettings::new(&path));
    })
    .await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(token_of);
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    edge.accept_as(&bob, progress(&sid(1), "p")).await;
    edge.refuse_as(&carol, progress(&sid(1), "q"), "FORBIDDEN").await;
    edge.refuse_as(&bob, progress(&sid(2), "r"), "SESSION_NOT_FOUND").await;
    edge.shut_down().await;
    let report = macp_archive::replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!((report.events, report.operational, report.different), (4, 2, 0), "{report:?}");
}

/// An engine that is busy is no reason to end a watch: only lag and a shutdown are.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn std_rpc_16_a_busy_engine_ends_no_watch() {
    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.message_limit_per_minute = Some(0);
        settings.engine.requests_in_flight_max = 1;
    })
    .await;
    let [alice, bob] = ["alice", "bob"].map(token_of);
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    let mut watches = Vec::new();
    for _ in 0..12 {
        watches.push(watch(&edge, &alice).await);
    }
    let signals: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    for message_id in &signals {
        // The sender's own look at the session may still be under way as far as the engine knows.
        while !edge.send_as(&bob, progress(&sid(1), message_id)).await.ok {}
    }
    for mut watch in watches {
        for message_id in &signals {
            assert_eq!(seen(&mut watch).await, *message_id);
        }
    }
    edge.shut_down().await;
}
