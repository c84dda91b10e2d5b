//! Whatever arrives, the server stays up and answers the next request.

use bytes::{Buf, BufMut};
use macp_wire::v1::SendRequest;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

use crate::common::*;

/// Sends and receives messages as the bytes they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}

async fn call(edge: &Edge, path: &'static str, body: Vec<u8>) -> Result<(), Status> {
    let mut grpc = Grpc::new(edge.channel.clone());
    grpc.ready().await.expect("a connection");
    grpc.unary(Request::new(body), PathAndQuery::from_static(path), Raw).await.map(drop)
}

/// A small generator; its seed is printed so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let seed = std::env::var("EDGE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::try_from(now_ms()).expect("after 1970"));
        println!("EDGE_SEED={seed}");
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length_max: u64) -> Vec<u8> {
        let length = self.next() % (length_max + 1);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

const METHODS: [&str; 12] = [
    "/macp.v1.MACPRuntimeService/Initialize",
    "/macp.v1.MACPRuntimeService/Send",
    "/macp.v1.MACPRuntimeService/GetSession",
    "/macp.v1.MACPRuntimeService/CancelSession",
    "/macp.v1.MACPRuntimeService/ListSessions",
    "/macp.v1.MACPRuntimeService/GetManifest",
    "/macp.v1.MACPRuntimeService/SuspendSession",
    "/macp.v1.MACPRuntimeService/RegisterPolicy",
    "/macp.history.v1.HistoryService/GetSessionLog",
    "/macp.history.v1.HistoryService/VerifySession",
    "/macp.v1.MACPRuntimeService/NoSuchCall",
    "/no.such.Service/Call",
];

#[tokio::test]
async fn arbitrary_request_bodies_never_bring_the_server_down() {
    let edge = Edge::start().await;
    let mut random = Random::new();
    let valid = SendRequest { envelope: Some(start("s")), signature: None }.encode_to_vec();
    for round in 0..600 {
        let body = match round % 3 {
            0 => random.bytes(64),
            1 => valid[..usize::try_from(random.next()).unwrap_or(0) % valid.len()].to_vec(),
            _ => {
                let mut body = valid.clone();
                let at = usize::try_from(random.next() % body.len() as u64).expect("small");
                body[at] = random.next().to_le_bytes()[0];
                body
            }
        };
        let method = METHODS[usize::try_from(random.next() % METHODS.len() as u64).expect("small")];
        if let Err(status) = call(&edge, method, body.clone()).await {
            assert!(
                matches!(
                    status.code(),
                    Code::InvalidArgument
                        | Code::NotFound
                        | Code::Unimplemented
                        | Code::PermissionDenied
                        | Code::Unauthenticated
                ),
                "{method} {body:?}: {status:?}"
            );
        }
    }
    edge.accept(start("still-here")).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn a_request_that_cannot_be_decoded_is_the_clients_fault() {
    let edge = Edge::start().await;
    let valid = SendRequest { envelope: Some(start("s")), signature: None }.encode_to_vec();
    let truncated = valid[..valid.len() - 3].to_vec();
    let bad_utf8 = vec![0x0a, 0x04, 0x0a, 0x02, 0xff, 0xfe];
    for body in [truncated, bad_utf8] {
        let status = call(&edge, "/macp.v1.MACPRuntimeService/Send", body).await.expect_err("undecodable");
        assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_REQUEST"));
    }
    let status = edge.session("s").await.expect_err("it left no trace");
    assert_eq!(status.code(), Code::NotFound);
    edge.shut_down().await;
}

#[tokio::test]
async fn garbage_on_the_socket_never_brings_the_server_down() {
    let edge = Edge::start().await;
    let mut random = Random::new();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for round in 0..150 {
        let mut connection = TcpStream::connect(edge.address()).await.expect("the server listens");
        let mut bytes = match round % 5 {
            0 => Vec::new(),
            1 => preface.clone(),
            2 => [preface.clone(), vec![0, 0, 0, 4, 0, 0, 0, 0, 0]].concat(),
            3 => b"GET /healthz HTTP/1.1\r\n".to_vec(),
            _ => b"POST /macp.v1.MACPRuntimeService/Send HTTP/1.1\r\ncontent-type: application/grpc\r\n\r\n".to_vec(),
        };
        bytes.extend(random.bytes(300));
        // The server may hang up in the middle; that is its right.
        let _hung_up = connection.write_all(&bytes).await;
        let _hung_up = connection.shutdown().await;
        let mut answer = Vec::new();
        let reading = connection.read_to_end(&mut answer);
        let _reset = tokio::time::timeout(PATIENCE, reading).await.expect("the server lets go of the connection");
    }
    edge.accept(start("still-here")).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn a_truncated_frame_on_a_stream_ends_that_stream_alone() {
    let edge = Edge::start().await;
    let mut grpc = Grpc::new(edge.channel.clone());
    grpc.ready().await.expect("a connection");
    let path = PathAndQuery::from_static("/macp.v1.MACPRuntimeService/StreamSession");
    let frames = tokio_stream::iter([frame(start("s")).encode_to_vec(), vec![0x0a, 0x7f, 0x01]]);
    let response = grpc.streaming(Request::new(frames), path, Raw).await.expect("a stream");
    let mut answers = response.into_inner();
    assert!(!next(&mut answers).await.is_empty(), "what came before is answered");
    let status = end(&mut answers).await.expect("a status");
    assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "INVALID_ENVELOPE"));
    edge.accept(proposal("s", "p")).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn huge_and_strange_fields_get_coded_errors() {
    let edge = Edge::start().await;
    let long = "x".repeat(257);
    edge.refuse(start(&long), "INVALID_ENVELOPE").await;
    edge.refuse(macp_wire::v1::Envelope { message_id: long.clone(), ..start("s") }, "INVALID_ENVELOPE").await;
    edge.refuse(macp_wire::v1::Envelope { sender: long.clone(), ..start("s") }, "INVALID_ENVELOPE").await;
    edge.refuse(macp_wire::v1::Envelope { mode: long.clone(), ..start("s") }, "INVALID_ENVELOPE").await;
    edge.refuse(macp_wire::v1::Envelope { message_type: long, ..start("s") }, "INVALID_ENVELOPE").await;
    edge.refuse(macp_wire::v1::Envelope { payload: vec![0xff; 9].into(), ..start("s") }, "INVALID_ENVELOPE").await;
    edge.accept(start("\u{1f980}\n\0")).await;
    assert_eq!(edge.session("\u{1f980}\n\0").await.expect("a session").state, OPEN);
    let status = edge.session("\u{1f980}\n\r\0nope").await.expect_err("unknown");
    assert_eq!((status.code(), code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"));
    edge.shut_down().await;
}
