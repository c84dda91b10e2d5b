//! A server that answers with exactly the bytes it is given, or misbehaves exactly as told, one connection at a time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens on one connection, after the request has been read.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, then the end of the stream.
    Bytes(Vec<u8>),
    /// These bytes, then nothing more, with the connection kept open.
    ThenHang(Vec<u8>),
    /// These bytes, then a reset.
    ThenReset(Vec<u8>),
    /// A head, then zeros for as long as they are taken.
    Endless(String),
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the request's body is JSON")
    }
}

/// Runs until dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// The first connection gets the first reply and so on; the last one is for all that follow.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let recorded = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.expect("a connection");
                let reply = replies[number.min(replies.len() - 1)].clone();
                open.push(serve(stream, reply, &recorded).await);
            }
        });
        Self { address, seen, task }
    }

    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        Self::start(vec![Reply::Bytes(bytes.into())]).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn only_request(&self) -> Seen {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "one dispatch is one request");
        requests.into_iter().next().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Gives back the connection if it is to stay open.
async fn serve(mut stream: TcpStream, reply: Reply, seen: &Mutex<Vec<Seen>>) -> Option<TcpStream> {
    let request = read_request(&mut stream).await?;
    seen.lock().unwrap().push(request);
    match reply {
        Reply::Bytes(bytes) => {
            stream.write_all(&bytes).await.ok()?;
            stream.shutdown().await.ok()?;
            None
        }
        Reply::ThenHang(bytes) => {
            stream.write_all(&bytes).await.ok()?;
            Some(stream)
        }
        Reply::ThenReset(bytes) => {
            stream.write_all(&bytes).await.ok()?;
            stream.set_zero_linger().expect("lingering can be switched off");
            None
        }
        Reply::Endless(head) => {
            stream.write_all(head.as_bytes()).await.ok()?;
            while stream.write_all(&[b'0'; 65536]).await.is_ok() {}
            None
        }
    }
}

pub(crate) async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).expect("a request's head is text");
            let seen = Seen { head, body: bytes[end + 4..].to_vec() };
            let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
            if seen.body.len() >= length {
                return Some(seen);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(many) => bytes.extend_from_slice(&buffer[..many]),
        }
    }
}

/// An answer with a status, headers and a body whose length is told.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{text}\r\n{body}").into_bytes()
}

pub(crate) fn json_answer(status: u16, body: &serde_json::Value) -> Vec<u8> {
    answer(status, &[("content-type", "application/json")], &body.to_string())
}
