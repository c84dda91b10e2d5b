//! An HTTP server on a loopback port that answers each request with whatever is set at the moment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

pub struct Server {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    answer: Mutex<String>,
    requests: AtomicUsize,
}

impl Server {
    pub async fn start(body: &str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        server.serve(body);
        let shared = Arc::clone(&server.shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/jwks", self.port)
    }

    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Answers with a document from the next request on.
    pub fn serve(&self, body: &str) {
        self.answer(
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
            body,
        );
    }

    pub fn fail(&self) {
        self.answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n".to_owned(), "");
    }

    pub fn redirect(&self, target: &str) {
        self.answer(format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n"), "");
    }

    fn answer(&self, head: String, body: &str) {
        *self.shared.answer.lock().unwrap() = format!("{head}Connection: close\r\n\r\n{body}");
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    let text = shared.answer.lock().unwrap().clone();
    respond(stream, &text).await;
}

/// Reads a request to its end and writes an answer.
pub async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}
