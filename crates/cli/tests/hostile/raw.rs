//! A client of HTTP/2 that decides itself what it reads.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use tokio::net::TcpStream;

/// A call to make.
#[derive(Clone, Debug)]
pub struct Call {
    pub path: String,
    /// `None` for a request over plain HTTP.
    pub body: Option<Bytes>,
}

impl Call {
    pub fn get(path: &str) -> Call {
        Call { path: path.to_owned(), body: None }
    }

    pub fn grpc(path: &str, message: &impl Message) -> Call {
        let length = u32::try_from(message.encoded_len()).expect("a short message");
        let mut body = vec![0];
        body.extend(length.to_be_bytes());
        message.encode(&mut body).expect("a vector takes any message");
        Call { path: path.to_owned(), body: Some(body.into()) }
    }
}

/// One connection.
#[derive(Clone)]
pub struct Raw(SendRequest<Bytes>);

impl Raw {
    /// Lets the server send so many bytes of each reply.
    pub async fn connect(address: &str, window: u32) -> Raw {
        Raw::try_connect(address, window).await.expect("the server accepts connections")
    }

    /// As [`Raw::connect`]; `None` if the server refuses the connection.
    pub async fn try_connect(address: &str, window: u32) -> Option<Raw> {
        let stream = TcpStream::connect(address).await.ok()?;
        let mut builder = Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 24);
        let (client, connection) = builder.handshake::<_, Bytes>(stream).await.ok()?;
        tokio::spawn(connection);
        Some(Raw(client))
    }

    /// Makes a call. The reply is on its way as long as the result is kept.
    pub async fn call(&self, call: &Call, credential: Option<&str>) -> Option<(ResponseFuture, SendStream<Bytes>)> {
        let mut request = Request::builder().uri(format!("http://server{}", call.path));
        if let Some(credential) = credential {
            request = request.header("authorization", format!("Bearer {credential}"));
        }
        if call.body.is_some() {
            request = request.method("POST").header("content-type", "application/grpc").header("te", "trailers");
        }
        let request = request.body(()).expect("a request");
        // A server may close a connection that does not read, or take no more streams on it for now.
        let ready = tokio::time::timeout(Duration::from_millis(200), self.0.clone().ready()).await;
        let (response, mut body) = ready.ok()?.ok()?.send_request(request, call.body.is_none()).ok()?;
        if let Some(bytes) = &call.body {
            body.send_data(bytes.clone(), true).ok()?;
        }
        Some((response, body))
    }

    /// Makes a call and reads its reply to the end; `None` if it was not sent whole.
    pub async fn read(&self, call: &Call, credential: Option<&str>) -> Option<Vec<u8>> {
        let (response, _body) = self.call(call, credential).await?;
        read(response.await.ok()?.into_body()).await
    }
}

async fn read(mut body: RecvStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        bytes.extend_from_slice(&data);
    }
    Some(bytes)
}

/// The message of a unary reply.
pub fn message<M: Message + Default>(reply: &[u8]) -> M {
    M::decode(reply.get(5..).expect("a message")).expect("of this kind")
}
