//! A small HTTP server on loopback that plans call: it answers as it is told and remembers who asked for what.

// Each test program uses its part of this.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) key: Option<String>,
    pub(crate) body: String,
}

/// What to answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16, String),
    /// Nothing, until the target is told to let go; then this.
    Held(u16, String),
}

impl Answer {
    pub(crate) fn ok(body: &str) -> Answer {
        Answer::Status(200, body.to_owned())
    }

    pub(crate) fn status(status: u16) -> Answer {
        Answer::Status(status, String::new())
    }
}

type Script = dyn Fn(&Request, usize) -> Answer + Send + Sync;

/// Runs until the test ends.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    released: bool,
}

impl Target {
    /// The script sees a request and how many came before it.
    pub(crate) fn start(script: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { script: Box::new(script), state, changed: Condvar::new() });
        let target = Target { address, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        target
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// How often every key was seen.
    pub(crate) fn keys(&self) -> BTreeMap<String, usize> {
        let mut keys = BTreeMap::new();
        for key in self.requests().into_iter().filter_map(|request| request.key) {
            *keys.entry(key).or_default() += 1;
        }
        keys
    }

    /// Waits until so many requests have arrived.
    pub(crate) fn wait_for(&self, requests: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock().unwrap();
        while state.requests.len() < requests {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {requests} requests came", state.requests.len());
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Lets every answer go that is held, and holds none from now on.
    pub(crate) fn release(&self) {
        self.shared.state.lock().unwrap().released = true;
        self.shared.changed.notify_all();
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        let answer = {
            let mut state = shared.state.lock().unwrap();
            let answer = (shared.script)(&request, state.requests.len());
            state.requests.push(request);
            answer
        };
        shared.changed.notify_all();
        let (status, body) = match answer {
            Answer::Status(status, body) => (status, body),
            Answer::Held(status, body) => {
                let mut state = shared.state.lock().unwrap();
                while !state.released {
                    state = shared.changed.wait(state).unwrap();
                }
                (status, body)
            }
        };
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let text =
            format!("HTTP/1.1 {status} told\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        // Whoever asked may be dead by now; that is what some tests are about.
        if reader.get_mut().write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut key, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, key, body: String::from_utf8_lossy(&body).into_owned() })
}
