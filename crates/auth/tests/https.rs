//! Keys over TLS with certificates checked: the way every issuer is reached in production.

mod support;

use std::process::Command;
use std::sync::Arc;

use macp_auth::{Authenticator, JwksSource, Settings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use support::{ED, accepted, claims, jwks, jwt, server};

/// What the second process is asked to do.
const URL: &str = "MACP_TEST_JWKS_URL";
const TOKEN: &str = "MACP_TEST_TOKEN";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::var(URL) {
        Ok(url) => runtime.block_on(use_issuer(url)),
        Err(_not_set) => {
            runtime.block_on(be_issuer());
            println!("keys over https: ok");
        }
    }
}

/// The second process: trusts what its environment says.
async fn use_issuer(url: String) {
    let settings = Settings { jwt: Some(jwt(JwksSource::url(url))), ..Settings::default() };
    match Authenticator::start(settings).await {
        Ok(authenticator) => {
            let token = std::env::var(TOKEN).unwrap();
            println!("accepted {}", accepted(&authenticator, &token).await.sender);
        }
        Err(error) => println!("refused {error}"),
    }
}

async fn be_issuer() {
    let (port, trusted, stranger) = serve().await;
    let directory = tempfile::tempdir().unwrap();
    let ask = async |roots: &str, host: &str| {
        let path = directory.path().join("roots.pem");
        std::fs::write(&path, roots).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env(URL, format!("https://{host}:{port}/jwks"))
            .env(TOKEN, ED.sign(&claims(json!({}))))
            .env("SSL_CERT_FILE", &path)
            .env_remove("SSL_CERT_DIR")
            .env("NO_PROXY", "*");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = ask(&trusted, "localhost").await;
    assert_eq!(text.trim(), "accepted alice");
    let text = ask(&stranger, "localhost").await;
    assert!(text.starts_with("refused cannot fetch") && text.contains("invalid peer certificate"), "{text}");
    // The certificate is for another name.
    let text = ask(&trusted, "127.0.0.1").await;
    assert!(text.starts_with("refused cannot fetch") && text.contains("not valid for name"), "{text}");
}

/// Serves the keys of the issuer; gives the port, the authority that vouches for it, and one that does not.
async fn serve() -> (u16, String, String) {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (trusted, stranger) = (authority(), authority());
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &trusted).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let body = jwks(&[&ED.jwk]);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate ends the handshake.
                if let Ok(stream) = acceptor.accept(stream).await {
                    server::respond(stream, &answer).await;
                }
            });
        }
    });
    (port, trusted.pem(), stranger.pem())
}
