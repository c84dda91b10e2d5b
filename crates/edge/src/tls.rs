//! TLS: who the server is, and who clients have to be.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::settings::Tls;

/// How long a client may take for the handshake: one that says nothing must not hold its connection for ever.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// What is spoken over TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why certificates or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the {what} cannot be read as PEM")]
    Pem { what: &'static str, source: pem::Error },
    #[error("there is no {what} in its file")]
    Empty { what: &'static str },
    #[error("the authorities of clients cannot be used")]
    Authorities(#[from] VerifierBuilderError),
    #[error("the certificate of an authority of clients cannot be used")]
    Authority(#[source] rustls::Error),
    #[error("the certificate and the key cannot be used together")]
    Identity(#[source] rustls::Error),
    #[error("no version of TLS can be spoken")]
    Versions(#[source] rustls::Error),
}

/// Turns connections into private ones.
#[derive(Clone)]
pub(crate) struct Handshake(TlsAcceptor);

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

impl Handshake {
    pub(crate) fn new(tls: &Tls) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Versions)?;
        let builder = match &tls.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates("certificate of an authority", authorities)? {
                    roots.add(authority).map_err(TlsError::Authority)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key =
            PrivateKeyDer::from_pem_slice(&tls.key).map_err(|source| TlsError::Pem { what: "private key", source })?;
        let chain = certificates("certificate", &tls.certificate)?;
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Identity)?;
        config.alpn_protocols = PROTOCOLS.map(Vec::from).into();
        Ok(Handshake(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn shake<C: AsyncRead + AsyncWrite + Unpin>(&self, connection: C) -> io::Result<TlsStream<C>> {
        let timed_out = |_elapsed| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(HANDSHAKE_PATIENCE, self.0.accept(connection)).await.map_err(timed_out)?
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { what, source })?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { what });
    }
    Ok(certificates)
}
