//! Whom a client trusts, and who it says it is, on the level of the connection.

use std::fmt;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Certificates for `https://` addresses, as PEM texts. The default trusts what the operating system trusts.
#[derive(Clone, Default)]
pub struct Tls {
    /// Trust servers with a certificate of these authorities, and no others.
    pub authorities: Option<Vec<u8>>,
    /// What to show to a server that asks who connects.
    pub certificate: Option<ClientCertificate>,
}

/// A certificate with its key, as PEM texts.
#[derive(Clone)]
pub struct ClientCertificate {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("authorities", &self.authorities.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

/// What to do about a server that answers a handshake with something else.
pub(crate) fn advice(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // Not worth a dependency on the library whose name for it this is.
        if error.to_string().contains("InvalidContentType") {
            return ": the server does not speak TLS; use http://";
        }
        cause = error.source();
    }
    ""
}

impl Tls {
    /// Whether anything is asked for that a connection without TLS could not give.
    pub(crate) fn is_given(&self) -> bool {
        self.authorities.is_some() || self.certificate.is_some()
    }

    pub(crate) fn config(&self) -> ClientTlsConfig {
        let config = match &self.authorities {
            Some(authorities) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        match &self.certificate {
            Some(own) => config.identity(Identity::from_pem(&own.certificate, &own.key)),
            None => config,
        }
    }
}
