//! How much one sender may ask for: open sessions and messages per minute.

use std::sync::Arc;
use std::time::Duration;

use macp_ledger::SqliteStore;
use macp_wire::v1::*;
use serde_json::json;

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

fn limited(open_max: u64) -> macp_auth::Given {
    let bob = entry("bob", json!({}));
    tokens(&json!([entry("alice", json!({"max_open_sessions": open_max})), bob]))
}

fn begin(number: u32) -> Envelope {
    std_start(&sid(number), DECISION, &start_payload())
}

#[tokio::test]
async fn std_sec_11_so_many_sessions_are_open_and_no_more() {
    let edge = Edge::believing(limited(2)).await;
    let (alice, bob) = (token_of("alice"), token_of("bob"));
    edge.accept_as(&alice, begin(1)).await;
    edge.accept_as(&alice, begin(2)).await;
    edge.refuse_as(&alice, begin(3), "RATE_LIMITED").await;
    edge.accept_as(&bob, begin(3)).await;
    edge.refuse_as(&alice, Envelope { message_id: "again".into(), ..begin(4) }, "RATE_LIMITED").await;

    // What has ended or is suspended makes room.
    edge.cancel_as(&alice, &sid(1)).await.expect("her own");
    edge.accept_as(&alice, begin(4)).await;
    edge.refuse_as(&alice, begin(5), "RATE_LIMITED").await;
    edge.suspend_as(&alice, &sid(2)).await.expect("her own");
    edge.accept_as(&alice, begin(5)).await;
    edge.refuse_as(&alice, begin(6), "RATE_LIMITED").await;
    edge.accept_as(&bob, propose(&sid(4), "p")).await;
    edge.accept_as(&alice, commit(&sid(4), "c")).await;
    edge.accept_as(&alice, begin(6)).await;
    edge.refuse_as(&alice, begin(7), "RATE_LIMITED").await;
    edge.shut_down().await;
}

/// A start that is refused because its session is there already gives back nothing: the session goes on.
#[tokio::test]
async fn std_sec_11_a_refused_second_start_frees_no_place() {
    let edge = Edge::believing(limited(1)).await;
    let alice = token_of("alice");
    edge.accept_as(&alice, begin(1)).await;
    edge.refuse_as(&alice, Envelope { message_id: "again".into(), ..begin(1) }, "SESSION_ALREADY_EXISTS").await;
    edge.refuse_as(&alice, begin(2), "RATE_LIMITED").await;
    edge.duplicate_as(&alice, begin(1)).await;
    edge.refuse_as(&alice, begin(2), "RATE_LIMITED").await;
    // Refused for what it is: nothing of the sort is open afterwards.
    edge.cancel_as(&alice, &sid(1)).await.expect("her own");
    let nameless = SessionStartPayload { mode_version: String::new(), ..start_payload() };
    edge.refuse_as(&alice, std_start(&sid(3), DECISION, &nameless), "INVALID_ENVELOPE").await;
    edge.accept_as(&alice, begin(2)).await;
    edge.shut_down().await;
}

/// Many starts of one session at once, of which one wins: its place is taken afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn std_sec_11_starts_of_one_session_at_once_leave_one_place_taken() {
    let edge = Edge::believing(limited(1)).await;
    let alice = token_of("alice");
    let starts = (0..16).map(|number| {
        let (runtime, alice) = (edge.runtime.clone(), alice.clone());
        tokio::spawn(async move {
            let envelope = Envelope { message_id: format!("start-{number}"), ..begin(1) };
            let request = SendRequest { envelope: Some(envelope), signature: None };
            let answer = runtime.clone().send(authorized(&alice, request)).await.expect("an Ack");
            answer.into_inner().ack.expect("an Ack").ok
        })
    });
    let mut accepted = 0;
    for start in starts.collect::<Vec<_>>() {
        accepted += u32::from(start.await.expect("no panic"));
    }
    assert_eq!(accepted, 1);
    edge.refuse_as(&alice, begin(2), "RATE_LIMITED").await;
    edge.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn std_sec_11_starts_at_once_do_not_both_find_the_last_place() {
    let edge = Edge::believing(limited(3)).await;
    for round in 0..5 {
        let starts = (0..12).map(|number| {
            let (runtime, alice) = (edge.runtime.clone(), token_of("alice"));
            tokio::spawn(async move {
                let request = SendRequest { envelope: Some(begin(round * 100 + number)), signature: None };
                let answer = runtime.clone().send(authorized(&alice, request)).await.expect("an Ack");
                answer.into_inner().ack.expect("an Ack")
            })
        });
        let mut started = Vec::new();
        for start in starts.collect::<Vec<_>>() {
            let ack = start.await.expect("no panic");
            match ack.ok {
                true => started.push(ack.session_id),
                false => assert_eq!(ack_code(&ack), "RATE_LIMITED", "{ack:?}"),
            }
        }
        assert_eq!(started.len(), 3, "round {round}");
        for session_id in started {
            edge.cancel_as(&token_of("alice"), &session_id).await.expect("her own");
        }
    }
    edge.shut_down().await;
}

/// A pause moves the deadline: a session that goes on after it is open, however long ago its first deadline was.
#[tokio::test]
async fn std_sec_11_a_resumed_session_counts_beyond_its_first_deadline() {
    let edge = Edge::believing(limited(1)).await;
    let alice = token_of("alice");
    let brief = SessionStartPayload { ttl_ms: 1_500, ..start_payload() };
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &brief)).await;
    edge.suspend_as(&alice, &sid(1)).await.expect("her own");
    tokio::time::sleep(Duration::from_millis(1_800)).await;
    let ack = edge.resume_as(&alice, &sid(1)).await.expect("her own");
    assert_eq!(ack.session_state, OPEN, "{ack:?}");
    edge.refuse_as(&alice, begin(2), "RATE_LIMITED").await;
    edge.shut_down().await;
}

/// What time has ended makes room without anyone touching it, and a restart forgets nothing.
#[tokio::test]
async fn std_sec_11_deadlines_make_room_and_restarts_do_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let alice = token_of("alice");
    let edge = Edge::on(store(), |settings| settings.auth = settled(limited(2))).await;
    let brief = SessionStartPayload { ttl_ms: 1_000, ..start_payload() };
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &brief)).await;
    edge.accept_as(&alice, begin(2)).await;
    edge.refuse_as(&alice, begin(3), "RATE_LIMITED").await;
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    edge.accept_as(&alice, begin(3)).await;
    edge.shut_down().await;

    let edge = Edge::on(store(), |settings| settings.auth = settled(limited(2))).await;
    edge.refuse_as(&alice, begin(4), "RATE_LIMITED").await;
    edge.cancel_as(&alice, &sid(3)).await.expect("her own");
    edge.accept_as(&alice, begin(4)).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_sec_12_a_server_that_authenticates_limits_rates_unless_told_otherwise() {
    let edge = Edge::believing(team()).await;
    let (alice, bob) = (token_of("alice"), token_of("bob"));
    for number in 0..60 {
        edge.accept_as(&alice, begin(number)).await;
    }
    edge.refuse_as(&alice, begin(60), "RATE_LIMITED").await;
    edge.accept_as(&bob, propose(&sid(0), "p")).await;
    edge.accept_as(&bob, begin(60)).await;
    // Another bucket, in which a duplicate counts as well.
    for _ in 1..600 {
        edge.duplicate_as(&bob, propose(&sid(0), "p")).await;
    }
    edge.refuse_as(&bob, propose(&sid(0), "q"), "RATE_LIMITED").await;
    edge.shut_down().await;

    let unlimited = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.start_limit_per_minute = Some(0);
    })
    .await;
    for number in 0..70 {
        unlimited.accept_as(&alice, begin(number)).await;
    }
    unlimited.shut_down().await;

    let local = Edge::start().await;
    for number in 0..70 {
        local.accept_as("alice", begin(number)).await;
    }
    local.shut_down().await;
}
