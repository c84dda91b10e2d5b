//! Where a server listens, what it keeps, and whom it lets in.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use macp_kernel::ProfileSetting;

use super::{Default, SECONDS, Setting, secret, set, setting};
use crate::settings::roles;
use crate::settings::value::Kind;

fn address(text: &str) -> Result<SocketAddr, String> {
    // The one name that means the same on every machine (RFC 6761); others would have to be looked up.
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok(),
        None => text.parse().ok(),
    };
    address.ok_or_else(|| format!("{text:?} is not an address and a port, such as 127.0.0.1:50051"))
}

#[rustfmt::skip]
pub(super) static SETTINGS: &[Setting] = &[
    setting(("listen", "listen", "MACP_BIND_ADDR"), Kind::Text, Default::Is("127.0.0.1:50051"),
        "Address, or localhost, and port to listen on; port 0 takes any free one",
        |draft, value| {
            draft.server.listen = address(value.text())?;
            Ok(())
        }),
    setting(("metrics_addr", "metrics-addr", "MACP_METRICS_ADDR"), Kind::Text, Default::Unset("none"),
        "Address and port that serve /metrics, /healthz and /readyz over plain HTTP, without a credential",
        |draft, value| {
            draft.server.metrics_listen = Some(address(value.text())?);
            Ok(())
        }),
    setting(("data", "data", "MACP_DATA_DIR"), Kind::Text, Default::Is("macp-data"),
        "Directory that keeps the histories; created if it is missing",
        set!(|draft, value| draft.data = PathBuf::from(value.text()))),
    setting(("memory", "memory", "MACP_MEMORY_ONLY"), Kind::Switch, Default::Is("false"),
        "Keep histories in memory only; nothing survives the process",
        set!(|draft, value| draft.memory = value.is_on())),
    setting(("profile", "profile", "MACP_PROFILE"),
        Kind::Word(&["auto", "classic", "standard"]), Default::Is("auto"),
        "Which rules sessions may choose: auto, classic or standard",
        set!(|draft, value| draft.server.engine.limits.profile = match value.text() {
            "classic" => ProfileSetting::Classic,
            "standard" => ProfileSetting::Standard,
            _ => ProfileSetting::Auto,
        })),
    setting(("allow_insecure", "allow-insecure", "MACP_ALLOW_INSECURE"), Kind::Switch, Default::Is("false"),
        "Listen beyond this machine although there is no TLS or no authentication",
        set!(|draft, value| draft.server.allow_insecure = value.is_on())),
    setting(("tls_cert_path", "tls-cert-path", "MACP_TLS_CERT_PATH"), Kind::Text, Default::Unset("no TLS"),
        "PEM file with the certificate of the server and those it was issued through; a change needs a restart",
        set!(|draft, value| draft.tls.certificate = Some(PathBuf::from(value.text())))),
    setting(("tls_key_path", "tls-key-path", "MACP_TLS_KEY_PATH"), Kind::Text, Default::Unset("no TLS"),
        "PEM file with the private key of that certificate; a change needs a restart",
        set!(|draft, value| draft.tls.key = Some(PathBuf::from(value.text())))),
    setting(("tls_client_ca_path", "tls-client-ca-path", "MACP_TLS_CLIENT_CA_PATH"),
        Kind::Text, Default::Unset("clients need no certificate"),
        "PEM file with the authorities that must have issued the certificates of clients; a change needs a restart",
        set!(|draft, value| draft.tls.client_authorities = Some(PathBuf::from(value.text())))),
    setting(("auth_tokens_file", "auth-tokens-file", "MACP_AUTH_TOKENS_FILE"), Kind::Text, Default::Unset("no tokens"),
        "JSON file with static tokens and whom they stand for; read again on SIGHUP",
        set!(|draft, value| draft.auth.tokens_file = Some(PathBuf::from(value.text())))),
    secret(("auth_tokens_json", "MACP_AUTH_TOKENS_JSON"), "no tokens",
        "The same as text; a file can be read again and is easier to protect",
        set!(|draft, value| draft.auth.tokens_json = Some(value.secret().clone()))),
    setting(("auth_issuer", "auth-issuer", "MACP_AUTH_ISSUER"), Kind::Text, Default::Unset("no JSON Web Tokens"),
        "The `iss` of the JSON Web Tokens to believe; needs keys",
        set!(|draft, value| draft.auth.issuer = Some(value.text().to_owned()))),
    setting(("auth_audience", "auth-audience", "MACP_AUTH_AUDIENCE"), Kind::Text, Default::Unset("`macp-runtime`"),
        "The `aud` that JSON Web Tokens must name",
        set!(|draft, value| draft.auth.audience = Some(value.text().to_owned()))),
    setting(("auth_jwks_url", "auth-jwks-url", "MACP_AUTH_JWKS_URL"), Kind::Secret, Default::Unset("none"),
        "Where the issuer publishes its keys (https, or http on this machine); fetched at start and again when due",
        set!(|draft, value| draft.auth.jwks_url = Some(value.secret().clone()))),
    setting(("auth_jwks_file", "auth-jwks-file", "MACP_AUTH_JWKS_FILE"), Kind::Text, Default::Unset("none"),
        "JSON Web Key Set file with the keys of the issuer; read again on SIGHUP",
        set!(|draft, value| draft.auth.jwks_file = Some(PathBuf::from(value.text())))),
    secret(("auth_jwks_json", "MACP_AUTH_JWKS_JSON"), "none",
        "The same as text",
        set!(|draft, value| draft.auth.jwks_json = Some(value.secret().clone()))),
    setting(("auth_jwks_ttl_secs", "auth-jwks-ttl-secs", "MACP_AUTH_JWKS_TTL_SECS"), SECONDS, Default::Unset("`300`"),
        "How long keys from a URL are used before they are fetched again, in seconds",
        set!(|draft, value| draft.auth.jwks_ttl = Some(Duration::from_secs(value.number())))),
    setting(("auth_jwt_algs", "auth-jwt-algs", "MACP_AUTH_JWT_ALGS"), Kind::Text,
        Default::Unset("`RS256,ES256,EdDSA`"),
        "Algorithms JSON Web Tokens may be signed with, separated by commas; HS256 only if named here",
        set!(|draft, value| draft.auth.algorithms = Some(value.text().to_owned()))),
    setting(("auth_roles_json", "auth-roles-json", "MACP_AUTH_ROLES_JSON"), Kind::Text, Default::Unset("none"),
        "What roles entitle to, as JSON such as `{\"operator\": {\"cancel\": true}}`; or `[roles.NAME]` in the file",
        |draft, value| {
            draft.auth.roles = roles::from_json(value.text())?;
            Ok(())
        }),
];
