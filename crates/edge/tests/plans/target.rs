//! The world outside: an HTTP server that answers as told, and remembers what it was asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, watch};

#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    world: Arc<World>,
}

struct World {
    /// Statuses to answer with, in order; then 200.
    script: Mutex<VecDeque<u16>>,
    /// Paths asked for, in order.
    asked: watch::Sender<Vec<String>>,
    /// Requests for `/gate` wait for one of these.
    gate: Semaphore,
}

impl Target {
    pub(crate) async fn start() -> Target {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let world = Arc::new(World {
            script: Mutex::default(),
            asked: watch::Sender::new(Vec::new()),
            gate: Semaphore::new(0),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&world));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Target { address, world }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers with these statuses first.
    pub(crate) fn script(&self, statuses: &[u16]) {
        self.world.script.lock().unwrap_or_else(PoisonError::into_inner).extend(statuses);
    }

    /// Lets one request for `/gate` be answered, now or when it comes.
    pub(crate) fn open_gate(&self) {
        self.world.gate.add_permits(1);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.world.asked.borrow().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn wait_for(&self, requests: usize) {
        let mut asked = self.world.asked.subscribe();
        let coming = asked.wait_for(|asked| asked.len() >= requests);
        tokio::time::timeout(crate::common::PATIENCE, coming).await.expect("requests in time").expect("a sender");
    }
}

async fn answer(State(world): State<Arc<World>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    world.asked.send_modify(|asked| asked.push(path.clone()));
    if path == "/gate" {
        world.gate.acquire().await.expect("never closed").forget();
    }
    let scripted = world.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let status = StatusCode::from_u16(scripted.unwrap_or(200)).expect("a status");
    let body = match path.as_str() {
        "/large" => format!(r#"{{"fine":"{}"}}"#, "x".repeat(9_000_000)),
        _ => r#"{"fine":true}"#.to_owned(),
    };
    (status, [("content-type", "application/json")], body).into_response()
}
