//! What a server must not offer to other machines unless its operator said so (STD-SEC-8).

use std::net::SocketAddr;

/// A server about to start, as far as its safety goes.
#[derive(Clone, Copy, Debug)]
pub struct Exposure {
    pub listen: SocketAddr,
    pub tls: bool,
    /// Whether authentication is configured.
    pub authentication: bool,
    /// The operator's explicit word that it may be unsafe.
    pub allow_insecure: bool,
}

/// Why a server must not start like this, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    #[error(
        "{0} can be reached from other machines, and neither TLS nor authentication is configured: whoever connects \
         could act as anyone. Configure both (MACP_TLS_CERT_PATH and MACP_TLS_KEY_PATH; MACP_AUTH_TOKENS_FILE or \
         MACP_AUTH_ISSUER), listen on a loopback address such as 127.0.0.1, or allow it explicitly with \
         --allow-insecure (MACP_ALLOW_INSECURE=1)"
    )]
    Open(SocketAddr),
    #[error(
        "{0} can be reached from other machines without TLS: credentials would travel in clear text and could be \
         stolen. Configure TLS (MACP_TLS_CERT_PATH and MACP_TLS_KEY_PATH), listen on a loopback address such as \
         127.0.0.1 behind a proxy that ends TLS, or allow it explicitly with --allow-insecure (MACP_ALLOW_INSECURE=1)"
    )]
    ClearText(SocketAddr),
    #[error(
        "{0} can be reached from other machines, and no authentication is configured: whoever connects could act as \
         anyone. Configure tokens (MACP_AUTH_TOKENS_FILE) or an issuer (MACP_AUTH_ISSUER), listen on a loopback \
         address such as 127.0.0.1, or allow it explicitly with --allow-insecure (MACP_ALLOW_INSECURE=1)"
    )]
    Anyone(SocketAddr),
}

impl Exposure {
    /// Refuses what other machines could misuse. A loopback address is local development, whatever else is missing.
    pub fn check(&self) -> Result<(), Unsafe> {
        if self.allow_insecure || self.listen.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        match (self.tls, self.authentication) {
            (true, true) => Ok(()),
            (false, true) => Err(Unsafe::ClearText(self.listen)),
            (true, false) => Err(Unsafe::Anyone(self.listen)),
            (false, false) => Err(Unsafe::Open(self.listen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_safe_or_explicitly_allowed_starts_std_sec_8() {
        for listen in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let listen: SocketAddr = listen.parse().unwrap();
            for bits in 0..8 {
                let [tls, authentication, allow_insecure] = [1, 2, 4].map(|bit| bits & bit != 0);
                let exposure = Exposure { listen, tls, authentication, allow_insecure };
                let expected = match (exposure.tls, exposure.authentication) {
                    _ if allow_insecure || listen.ip().to_canonical().is_loopback() => Ok(()),
                    (true, true) => Ok(()),
                    (false, true) => Err(Unsafe::ClearText(listen)),
                    (true, false) => Err(Unsafe::Anyone(listen)),
                    (false, false) => Err(Unsafe::Open(listen)),
                };
                assert_eq!(exposure.check(), expected, "{exposure:?}");
            }
        }
    }
}
