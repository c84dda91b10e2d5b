//! Races, rates and overload.

use std::sync::{Arc, Condvar, Mutex};

use macp_ledger::contract::Around;
use macp_ledger::{Append, AppendError, Failure, FailureKind, Filter, Head, MemoryStore, PutMode, PutOutcome, Store};
use macp_wire::v1::{CancelSessionRequest, GetSessionRequest, ListSessionsRequest, SendRequest, WatchSessionsRequest};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::common::*;
use crate::standard_common::refused;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_2_of_a_hundred_concurrent_commitments_one_wins() {
    let edge = Edge::start().await;
    edge.accept(start("s")).await;
    edge.accept(proposal("s", "p")).await;
    edge.accept(vote("s", "v")).await;
    let mut racers = Vec::new();
    for index in 0..100 {
        // Connections of their own for some, so that the race is not settled by one connection's order.
        let client = match index % 10 {
            0 => macp_rpc::runtime::Client::new(connect(edge.address()).await),
            _ => edge.runtime.clone(),
        };
        racers.push(tokio::spawn(async move { send(&client, commitment("s", &format!("c{index}"))).await }));
    }
    let mut winners = Vec::new();
    for racer in racers {
        let ack = racer.await.expect("an Ack");
        assert_eq!(ack.session_state, RESOLVED, "whoever is answered hears of the end");
        match ack.error {
            None => winners.push(ack.message_id),
            Some(error) => assert_eq!(error.code, "SESSION_NOT_OPEN"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn rate_limits_are_per_sender_and_kind() {
    let edge = Edge::with(|settings| {
        settings.start_limit_per_minute = Some(2);
        settings.message_limit_per_minute = Some(3);
    })
    .await;
    edge.accept(start("a")).await;
    edge.accept(start("b")).await;
    let ack = edge.refuse(start("c"), "RATE_LIMITED").await;
    let error = ack.error.expect("an error");
    let details: serde_json::Value = serde_json::from_slice(&error.details).expect("JSON");
    let retry_after = details["retry_after_ms"].as_u64().expect("a hint");
    assert!((1..=61_000).contains(&retry_after), "{details}");
    assert!(error.message.contains("retry"), "{}", error.message);

    for id in ["p1", "p2", "p3"] {
        edge.accept(proposal("a", id)).await;
    }
    assert_eq!(edge.refuse(proposal("a", "p4"), "RATE_LIMITED").await.session_state, OPEN);
    assert_eq!(edge.refuse(proposal("nowhere", "p4"), "RATE_LIMITED").await.session_state, UNSPECIFIED);
    edge.refuse(envelope("", "sig", "Signal", ""), "RATE_LIMITED").await;
    assert!(edge.send_as("bob", macp_wire::v1::Envelope { sender: String::new(), ..proposal("a", "p5") }).await.ok);
    edge.shut_down().await;
}

/// A share is taken in step 5 of admission: whoever is refused before it uses up nobody's.
#[tokio::test]
async fn what_is_refused_before_the_rate_is_looked_at_takes_no_share() {
    use macp_wire::v1::Envelope;
    let edge = Edge::with(|settings| settings.start_limit_per_minute = Some(1)).await;
    for _ in 0..3 {
        edge.refuse(Envelope { macp_version: "0.9".into(), ..start("s") }, "UNSUPPORTED_PROTOCOL_VERSION").await;
        edge.refuse(Envelope { message_id: String::new(), ..start("s") }, "INVALID_ENVELOPE").await;
        edge.refuse(Envelope { sender: "x".repeat(257), ..start("s") }, "INVALID_ENVELOPE").await;
        let ack = edge.send_as("mallory", start("s")).await;
        assert_eq!(ack.error.expect("mallory is not alice").code, "UNAUTHENTICATED");
    }
    edge.accept(start("s")).await;
    edge.refuse(start("t"), "RATE_LIMITED").await;
    edge.shut_down().await;
}

/// Keeps every write, and every count, waiting until it is told to go on, and fails them while it is told to.
#[derive(Debug, Default)]
struct Held {
    inner: MemoryStore,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: bool,
    /// Keeps those waiting as well who ask for the head of a session.
    heads_held: bool,
    full: bool,
    waiting: usize,
    /// Most heads a single list asked for.
    listed_max: usize,
    /// How often the open sessions were counted.
    counted: usize,
}

impl Held {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("not poisoned"));
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().expect("not poisoned").waiting
    }
}

impl Around for Held {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        let mut state = self.state.lock().expect("not poisoned");
        state.waiting += 1;
        let mut state = self.changed.wait_while(state, |state| state.held).expect("not poisoned");
        state.waiting -= 1;
        if state.full {
            let failure = || Failure::new(FailureKind::DiskFull, "appending");
            return batch.iter().map(|_| Err(AppendError::Failed(failure()))).collect();
        }
        drop(state);
        self.inner.append(batch)
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        let state = self.state.lock().expect("not poisoned");
        drop(self.changed.wait_while(state, |state| state.heads_held).expect("not poisoned"));
        self.inner.head(session_id)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        self.set(|state| state.listed_max = state.listed_max.max(limit));
        self.inner.list(after, limit, filter)
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        self.set(|state| state.counted += 1);
        let state = self.state.lock().expect("not poisoned");
        let is_full = self.changed.wait_while(state, |state| state.held).expect("not poisoned").full;
        match is_full {
            true => Err(Failure::new(FailureKind::Io, "counting")),
            false => self.inner.open_sessions(),
        }
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        if self.state.lock().expect("not poisoned").full {
            return Err(Failure::new(FailureKind::DiskFull, "writing a document"));
        }
        self.inner.put_document(kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        if self.state.lock().expect("not poisoned").full {
            return Err(Failure::new(FailureKind::DiskFull, "writing a document"));
        }
        self.inner.delete_document(kind, key)
    }

    fn probe(&self) -> Result<(), Failure> {
        match self.state.lock().expect("not poisoned").full {
            true => Err(Failure::new(FailureKind::DiskFull, "probing")),
            false => Ok(()),
        }
    }
}

/// The message may stand or not; whoever sends it once more learns which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_too_long_ends_and_what_it_set_going_goes_on() {
    let store = Arc::new(Held::default());
    let edge = Edge::on(Arc::clone(&store) as Arc<dyn Store>, |settings| {
        settings.request_timeout = std::time::Duration::from_millis(100);
    })
    .await;
    store.set(|state| state.held = true);
    let late = edge.runtime.clone().send(SendRequest { envelope: Some(start("s")), signature: None }).await;
    refused(late, Code::DeadlineExceeded, "INTERNAL_ERROR");
    let late = edge.runtime.clone().get_session(GetSessionRequest { session_id: "s".to_owned() }).await;
    refused(late, Code::DeadlineExceeded, "INTERNAL_ERROR");
    // Who scrapes does not look at a status of gRPC.
    let (head, body) = crate::http::get(edge.address(), "/metrics").await;
    assert!(head.starts_with("http/1.1 504") && !head.contains("grpc-status"), "{head}");
    assert_eq!(body, r#"{"error":"the answer took too long"}"#);
    store.set(|state| state.held = false);
    let ack = edge.send(start("s")).await;
    assert!(ack.ok && ack.duplicate, "{ack:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_4_overload_is_refused_with_a_hint_and_loses_nothing() {
    let store = Arc::new(Held::default());
    let held: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let edge = Edge::on(held, |settings| settings.engine.requests_in_flight_max = 2).await;
    edge.accept(start("kept")).await;
    store.set(|state| state.held = true);
    let waiting: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|id| {
            let client = edge.runtime.clone();
            tokio::spawn(async move { send(&client, start(id)).await })
        })
        .collect();
    // Both are inside once a third is refused; until then a third would wait with them.
    while store.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let refused = loop {
        let request = SendRequest { envelope: Some(proposal("nowhere", "p")), signature: None };
        let ack = edge.runtime.clone().send(request).await.expect("an Ack").into_inner().ack.expect("an Ack");
        let error = ack.error.expect("refused");
        if error.code != "SESSION_NOT_FOUND" {
            break error;
        }
    };
    assert_eq!(refused.code, "RATE_LIMITED");
    assert_eq!(refused.details.as_ref(), br#"{"retry_after_ms":100}"#);
    assert!(refused.message.contains("overloaded") && refused.message.contains("100 ms"), "{}", refused.message);
    let status = edge.runtime.clone().get_session(GetSessionRequest::default()).await.expect_err("refused");
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "RATE_LIMITED"));
    // What is refused unasked is told all the same how its session stands.
    let request = CancelSessionRequest { session_id: "kept".into(), reason: String::new() };
    let ack = edge.runtime.clone().cancel_session(request).await.expect("an Ack").into_inner().ack.expect("an Ack");
    assert_eq!((ack.error.expect("refused").code.as_str(), ack.session_state), ("RATE_LIMITED", OPEN));
    assert_eq!(edge.refuse(proposal("kept", "p"), "RATE_LIMITED").await.session_state, OPEN);

    store.set(|state| state.held = false);
    for ack in waiting {
        assert!(ack.await.expect("an Ack").ok, "what was let in is answered");
    }
    edge.accept(start("c")).await;
    edge.shut_down().await;
}

/// To hear late that there is too much to do is worse than not to hear of the session.
#[tokio::test]
async fn wire_3_a_refusal_does_not_wait_for_a_store_that_does_not_answer() {
    let store = Arc::new(Held::default());
    let held: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let edge = Edge::on(held, |settings| {
        settings.message_limit_per_minute = Some(1);
        settings.state_patience = std::time::Duration::from_millis(1);
    })
    .await;
    edge.accept(start("s")).await;
    edge.accept(proposal("s", "p")).await;
    store.set(|state| state.heads_held = true);
    assert_eq!(edge.refuse(proposal("s", "q"), "RATE_LIMITED").await.session_state, UNSPECIFIED);
    store.set(|state| state.heads_held = false);
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_4_a_failed_write_is_an_internal_error_in_the_ack_and_readiness_tells_of_it() {
    let store = Arc::new(Held::default());
    let held: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let edge = Edge::on(held, |_| ()).await;
    edge.accept(start("s")).await;
    let watched = HealthClient::new(edge.channel.clone()).watch(HealthCheckRequest::default()).await;
    let mut health = watched.expect("a watch").into_inner();
    assert_eq!(next(&mut health).await.status(), ServingStatus::Serving);
    store.set(|state| state.full = true);
    let ack = edge.refuse(proposal("s", "p"), "INTERNAL_ERROR").await;
    assert_eq!(ack.session_state, OPEN);
    assert!(ack.error.expect("an error").message.contains("disk is full"));
    let ack = edge.refuse(start("t"), "INTERNAL_ERROR").await;
    assert_eq!(ack.session_state, UNSPECIFIED, "what was not stored is no session");
    let (head, body) = crate::http::get(edge.address(), "/readyz").await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert!(serde_json::from_str::<serde_json::Value>(&body).expect("JSON")["error"].is_string());
    let (head, body) = crate::http::get(edge.address(), "/metrics").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.contains("macp_commit_failures_total 2"), "{body}");
    assert!(!body.contains("macp_sessions_open"), "what the store cannot say is left out");
    assert_eq!(edge.session("s").await.expect("reads go on").state, OPEN);
    assert_eq!(next(&mut health).await.status(), ServingStatus::NotServing);

    store.set(|state| state.full = false);
    edge.accept(proposal("s", "p")).await;
    assert_eq!(next(&mut health).await.status(), ServingStatus::Serving);
    let (head, _) = crate::http::get(edge.address(), "/readyz").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    edge.shut_down().await;
}

/// Anyone may scrape, so a scrape must cost little.
#[tokio::test]
async fn a_flood_of_scrapes_does_not_count_the_sessions_again_and_again() {
    const SCRAPES: usize = 50;
    let store = Arc::new(Held::default());
    let held: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let edge = Edge::on(held, |_| ()).await;
    edge.accept(start("s")).await;
    for _ in 0..SCRAPES {
        let (_, body) = crate::http::get(edge.address(), "/metrics").await;
        assert!(body.contains("macp_sessions_open 1"), "{body}");
    }
    let counted = store.state.lock().expect("not poisoned").counted;
    assert!(counted < SCRAPES / 2, "{counted} times");
    edge.shut_down().await;
}

/// The index rows of a thousand sessions may take a quarter of a gigabyte.
#[tokio::test]
async fn sessions_are_listed_without_reading_a_whole_page_at_once() {
    let store = Arc::new(Held::default());
    let held: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let edge = Edge::on(held, |_| ()).await;
    let names: Vec<_> = (0..70).map(|index| format!("s{index:03}")).collect();
    for name in &names {
        edge.accept(start(name)).await;
    }
    for page_size in [1000, 70, 69, 33, 32, 31, 1] {
        let (mut listed, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListSessionsRequest { page_size, page_token };
            let page = edge.runtime.clone().list_sessions(request).await.expect("a page").into_inner();
            listed.extend(page.sessions.into_iter().map(|session| session.session_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
            assert_eq!(listed.len() % usize::try_from(page_size).expect("positive"), 0, "a page is full");
        }
        assert_eq!(listed, names, "{page_size} on a page");
    }
    let mut watch = edge.runtime.clone().watch_sessions(WatchSessionsRequest {}).await.expect("a watch").into_inner();
    for name in &names {
        let event = next(&mut watch).await.event.expect("an event");
        assert_eq!(&event.session.expect("a session").session_id, name);
    }
    let listed_max = store.state.lock().expect("not poisoned").listed_max;
    assert!((1..=32).contains(&listed_max), "{listed_max} at once");
    edge.shut_down().await;
}
