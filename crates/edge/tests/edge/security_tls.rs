//! TLS, with certificates made for the purpose.

use std::net::SocketAddr;

use macp_edge::Tls;
use macp_rpc::runtime;
use macp_wire::v1::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

/// Who vouches for others.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority"))
    }

    fn issue(&self, purpose: ExtendedKeyUsagePurpose) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn trusted(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.0.pem()))
    }
}

/// A server with a certificate of the authority, which may ask clients for one of another.
async fn secured(authority: &Authority, clients: Option<&Authority>) -> (macp_edge::Server, SocketAddr) {
    let pair = authority.issue(ExtendedKeyUsagePurpose::ServerAuth);
    let settings = macp_edge::Settings {
        listen: (std::net::Ipv4Addr::LOCALHOST, 0).into(),
        auth: settled(team()),
        tls: Some(Tls {
            certificate: pair.certificate.into_bytes(),
            key: pair.key.into_bytes(),
            client_authorities: clients.map(|clients| clients.0.pem().into_bytes()),
        }),
        ..macp_edge::Settings::default()
    };
    let store = std::sync::Arc::new(macp_ledger::MemoryStore::new());
    let server = macp_edge::Server::start(settings, store).await.expect("the server starts");
    let address = server.local_addr();
    (server, address)
}

async fn connected(address: SocketAddr, tls: ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
    endpoint.tls_config(tls).expect("certificates").connect().await
}

/// One call from end to end.
async fn listed(channel: Channel) -> Result<ListSessionsResponse, tonic::Status> {
    let request = authorized(&token_of("alice"), ListSessionsRequest::default());
    body(runtime::Client::new(channel).list_sessions(request).await)
}

/// Whether a client gets through; with TLS 1.3 a refused one may learn so only at its first call.
async fn gets_through(address: SocketAddr, tls: ClientTlsConfig) -> bool {
    match connected(address, tls).await {
        Ok(channel) => listed(channel).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_server_with_a_certificate_is_reached_by_those_who_trust_its_authority() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (server, address) = secured(&authority, None).await;
    let channel = connected(address, authority.trusted()).await.expect("trusted");
    listed(channel.clone()).await.expect("an answer");
    let runtime = runtime::Client::new(channel.clone());
    let start = SendRequest { envelope: Some(std_start(&sid(1), DECISION, &start_payload())), signature: None };
    let answer = runtime.clone().send(authorized(&token_of("alice"), start)).await.expect("an Ack").into_inner();
    assert!(answer.ack.expect("an Ack").ok);
    let frames = tokio_stream::iter([subscribe(&sid(1), 0)]);
    let mut stream =
        body(runtime.clone().stream_session(authorized(&token_of("alice"), frames)).await).expect("a stream");
    assert_eq!(delivered(next(&mut stream).await).message_type, "SessionStart");
    // The certificate secures the way; who calls is still a matter of credentials.
    let anonymous = runtime.clone().list_sessions(ListSessionsRequest::default()).await;
    refused(anonymous, tonic::Code::Unauthenticated, "UNAUTHENTICATED");

    let error = connected(address, stranger.trusted()).await.expect_err("another authority");
    assert!(chain(&error).contains("invalid peer certificate"), "{}", chain(&error));
    let other_name = authority.trusted().domain_name("other.example");
    let error = connected(address, other_name).await.expect_err("another name");
    assert!(chain(&error).contains("certificate not valid for name"), "{}", chain(&error));
    drop((channel, runtime, stream));
    server.shut_down().await.expect("a clean shutdown");
}

#[tokio::test]
async fn a_server_that_asks_for_certificates_takes_those_of_its_authorities_only() {
    let (authority, clients, stranger) = (Authority::new(), Authority::new(), Authority::new());
    let (server, address) = secured(&authority, Some(&clients)).await;
    let with = |issuer: &Authority, purpose| {
        let pair = issuer.issue(purpose);
        authority.trusted().identity(Identity::from_pem(pair.certificate, pair.key))
    };
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    assert!(gets_through(address, with(&clients, ClientAuth)).await);
    assert!(!gets_through(address, authority.trusted()).await, "without a certificate");
    assert!(!gets_through(address, with(&stranger, ClientAuth)).await, "of another authority");
    assert!(!gets_through(address, with(&authority, ClientAuth)).await, "of the server's own authority");
    assert!(!gets_through(address, with(&clients, ServerAuth)).await, "made for servers");
    server.shut_down().await.expect("a clean shutdown");
}

/// A probe or a scraper that knows HTTP/1.1 alone says so in the handshake, or says nothing about it.
#[tokio::test]
async fn whoever_speaks_http_1_is_answered_over_tls_too() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    let authority = Authority::new();
    let (server, address) = secured(&authority, None).await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.0.pem().as_bytes()).expect("PEM")).expect("an authority");
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    for offered in [vec![], vec![b"http/1.1".to_vec()]] {
        let mut config = config.clone();
        config.alpn_protocols = offered;
        let connection = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut connection =
            TlsConnector::from(std::sync::Arc::new(config)).connect(name, connection).await.expect("a handshake");
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        connection.write_all(request).await.expect("written");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok"), "{answer}");
    }
    server.shut_down().await.expect("a clean shutdown");
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_does_not_hold_up_a_drain() {
    let (server, address) = secured(&Authority::new(), None).await;
    let _silent = tokio::net::TcpStream::connect(address).await.expect("a connection");
    // Shorter than the server waits for a handshake.
    let patience = std::time::Duration::from_secs(5);
    tokio::time::timeout(patience, server.shut_down()).await.expect("in time").expect("a clean shutdown");
}

#[tokio::test]
async fn a_client_in_clear_text_gets_nothing_from_a_server_with_tls_and_harms_nobody() {
    let authority = Authority::new();
    let (server, address) = secured(&authority, None).await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let failed = match endpoint.connect().await {
        Ok(channel) => listed(channel).await.is_err(),
        Err(_) => true,
    };
    assert!(failed);
    // Nonsense and silence instead of a handshake.
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut nonsense = tokio::net::TcpStream::connect(address).await.expect("a connection");
    nonsense.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, nonsense.read_to_end(&mut answer)).await.expect("an end in time").ok();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "an answer in clear text");
    let mut silent = tokio::net::TcpStream::connect(address).await.expect("a connection");
    listed(connected(address, authority.trusted()).await.expect("trusted")).await.expect("others are served");
    let hung_up = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut answer)).await;
    assert!(hung_up.is_ok(), "who says nothing is not waited for");
    server.shut_down().await.expect("a clean shutdown");
}

#[tokio::test]
async fn a_client_with_tls_is_told_by_its_library_that_the_server_has_none() {
    let edge = Edge::believing(team()).await;
    let error = connected(edge.address(), Authority::new().trusted()).await.expect_err("no TLS there");
    assert!(chain(&error).contains("InvalidContentType"), "{}", chain(&error));
    edge.list_as(&token_of("alice")).await.expect("others are served");
    edge.shut_down().await;
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
