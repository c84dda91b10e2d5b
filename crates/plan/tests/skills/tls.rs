//! `http_call` over TLS: certificates that are believed, and everything that is not.

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::server::{Server, answer, read_request};
use crate::world::{PATIENT, call, expect_code, registry_with, settings};

/// Accepts with a certificate for `secure.example`; and the root to believe.
fn certified() -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["secure.example".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], private).unwrap();
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}

/// A server with that certificate; gives its port and the root to believe.
async fn secure_server() -> (u16, String, tokio::task::JoinHandle<()>) {
    let (acceptor, root) = certified();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Clients that do not believe the certificate go away in the middle of the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if read_request(&mut stream).await.is_some() {
                stream.write_all(&answer(200, &[], "private")).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    (port, root, task)
}

#[tokio::test]
async fn a_certificate_must_be_believed_and_for_the_host() {
    let (port, root, server) = secure_server().await;
    let mut settings = settings();
    settings.egress.allow_hosts = vec![format!("*.example:{port}")];
    let names = [("secure.example", "127.0.0.1"), ("other.example", "127.0.0.1")];
    let observe = async |settings: &macp_plan::skills::SkillSettings, host: &str| {
        let skill = registry_with(settings, &names).callable("http_call", "1.2.0").unwrap();
        let seen = call(&*skill, json!({"url": format!("https://{host}:{port}/")}), PATIENT).await;
        (skill, seen)
    };

    // Some other root is believed, but not this one.
    let (_, stranger, strangers) = secure_server().await;
    settings.trust.roots_pem = vec![stranger];
    let (skill, seen) = observe(&settings, "secure.example").await;
    assert_eq!(seen.cause, Cause::Tls, "{seen:?}");
    expect_code(&*skill, &seen, "ERR_SSL_ERROR");

    settings.trust.roots_pem = vec![root];
    let (skill, seen) = observe(&settings, "secure.example").await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    assert_eq!(seen.output.unwrap()["body"], "private");

    let (skill, seen) = observe(&settings, "other.example").await;
    assert_eq!(seen.cause, Cause::Tls, "{seen:?}");
    expect_code(&*skill, &seen, "ERR_SSL_ERROR");
    for task in [server, strangers] {
        task.abort();
    }
}

#[tokio::test]
async fn tls_to_a_port_that_speaks_plainly_is_a_failure_of_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        // Kept open until the client has read it.
        stream
    });
    let skill = crate::world::http(&settings());
    let seen = call(&*skill, json!({"url": format!("https://127.0.0.1:{port}/")}), PATIENT).await;
    assert_eq!(seen.cause, Cause::Tls, "{seen:?}");
    expect_code(&*skill, &seen, "ERR_SSL_ERROR");
    server.await.unwrap();
}

/// The request was heard and answered, so that what goes wrong then proves nothing about its effect.
#[tokio::test]
async fn tls_that_breaks_after_the_request_leaves_its_effect_open() {
    let (acceptor, root) = certified();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun").await.unwrap();
        stream.flush().await.unwrap();
        // A record that nobody could have sealed.
        let (plain, _) = stream.get_mut();
        plain.write_all(&[23, 3, 3, 0, 32]).await.unwrap();
        plain.write_all(&[0; 32]).await.unwrap();
        plain.flush().await.unwrap();
        stream
    });
    let mut settings = settings();
    settings.egress.allow_hosts = vec![format!("*.example:{port}")];
    settings.trust.roots_pem = vec![root];
    let skill = registry_with(&settings, &[("secure.example", "127.0.0.1")]).callable("http_call", "1.2.0").unwrap();
    let parameters = json!({"url": format!("https://secure.example:{port}/"), "method": "POST"});
    let seen = call(&*skill, parameters, PATIENT).await;
    assert!(!seen.cause.proves_no_effect() && !seen.cause.is_success(), "{seen:?}");
    expect_code(&*skill, &seen, "ERR_CONNECTION_REFUSED");
    server.await.unwrap();
}

#[test]
fn roots_that_are_none_are_refused() {
    let mut settings = settings();
    settings.trust.roots_pem = vec!["-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n".to_owned()];
    let told = macp_plan::registry::standard(&settings).expect_err("must be refused").to_string();
    assert!(told.contains("egress_ca_path"), "{told}");
}

/// The settings of most tests believe nobody; the server's plain port is unaffected.
#[tokio::test]
async fn plain_http_needs_no_roots() {
    let server = Server::answering(answer(200, &[], "")).await;
    let skill = crate::world::http(&settings());
    expect_code(&*skill, &call(&*skill, json!({"url": server.url("/")}), PATIENT).await, "OK_HTTP_CALL");
}
