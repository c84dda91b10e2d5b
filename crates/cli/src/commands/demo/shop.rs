//! The world of the demo: a small HTTP server on loopback that is unwell at first and recognises keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Bytes of a request that are read at most; the demo's own are a hundredth of that.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Serves until dropped.
#[derive(Debug)]
pub(super) struct Shop {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    checks: u32,
    /// How often every key was sent.
    effects: BTreeMap<String, u32>,
}

impl Shop {
    pub(super) async fn open() -> anyhow::Result<Shop> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.context("cannot open the shop")?;
        let address = listener.local_addr()?;
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            // A connection that cannot be accepted is one customer less.
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&shared);
                tokio::spawn(async move { serve(stream, &seen).await });
            }
        });
        Ok(Shop { address, seen, task })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often every key was sent.
    pub(super) fn effects(&self) -> BTreeMap<String, u32> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).effects.clone()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests until the other side has enough.
async fn serve(stream: TcpStream, seen: &Mutex<Seen>) {
    let mut stream = BufReader::new(stream);
    while let Some((path, key)) = read(&mut stream).await {
        let (status, body) = answer(&path, key, &mut seen.lock().unwrap_or_else(PoisonError::into_inner));
        let length = body.len();
        let text =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(path: &str, key: Option<String>, seen: &mut Seen) -> (&'static str, &'static str) {
    if let Some(key) = key {
        *seen.effects.entry(key).or_default() += 1;
    }
    match path {
        "/health" => {
            seen.checks += 1;
            // Unwell at the first look.
            match seen.checks {
                1 => ("503 Service Unavailable", "{}"),
                _ => ("200 OK", r#"{"host":"shop-3"}"#),
            }
        }
        "/canary" => ("200 OK", r#"{"id":"canary-7"}"#),
        "/news" => ("200 OK", "{}"),
        _ => ("404 Not Found", "{}"),
    }
}

/// The path of the next request, and its key if it has one.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, Option<String>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
    let path = line.split_whitespace().nth(1)?.to_owned();
    let (mut key, mut length) = (None, 0_usize);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((path, key))
}
