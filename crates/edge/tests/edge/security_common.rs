//! Credentials to try doors with: an issuer of JSON Web Tokens, and lists of static tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use macp_auth::{Given, Settings};
use macp_wire::v1::{ListSessionsRequest, ListSessionsResponse};
use serde_json::{Value, json};
use tonic::Status;

use crate::common::*;

pub(crate) const ISSUER: &str = "https://issuer.example";

/// An Ed25519 key of an issuer: the number is its seed, over and over.
#[derive(Clone, Copy)]
pub(crate) struct IssuerKey {
    pub(crate) kid: &'static str,
    pub(crate) number: u8,
}

pub(crate) const KEY: IssuerKey = IssuerKey { kid: "k1", number: 1 };

impl IssuerKey {
    fn key(self) -> SigningKey {
        SigningKey::from_bytes(&[self.number; 32])
    }

    pub(crate) fn public(self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key().verifying_key().as_bytes());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x, "alg": "EdDSA", "use": "sig"})
    }

    /// A token with the given header and claims, signed whatever they say.
    pub(crate) fn sign(self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let input = format!("{}.{}", part(header), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key().sign(input.as_bytes()).to_bytes());
        format!("{input}.{signature}")
    }

    /// A proper token for a sender, with these claims on top.
    pub(crate) fn token(self, sender: &str, more: Value) -> String {
        self.sign(&json!({"alg": "EdDSA", "kid": self.kid}), &claims(sender, more))
    }
}

pub(crate) fn claims(sender: &str, more: Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "aud": "macp-runtime", "sub": sender, "exp": now_ms() / 1000 + 600});
    for (name, value) in more.as_object().expect("claims are an object") {
        claims[name] = value.clone();
    }
    claims
}

pub(crate) fn jwks(keys: &[IssuerKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()}).to_string()
}

/// Believes the issuer's tokens.
pub(crate) fn issuer() -> Given {
    Given { issuer: Some(ISSUER.into()), jwks_json: Some(jwks(&[KEY]).into()), ..Given::default() }
}

/// Believes these static tokens.
pub(crate) fn tokens(entries: &Value) -> Given {
    Given { tokens_json: Some(entries.to_string().into()), ..Given::default() }
}

pub(crate) fn settled(given: Given) -> Settings {
    given.settings().expect("settings that hold")
}

/// The token of a sender in [`team`].
pub(crate) fn token_of(sender: &str) -> String {
    format!("token-of-{sender}-0123456789")
}

/// An entry of a list of tokens, with these members on top.
pub(crate) fn entry(sender: &str, more: Value) -> Value {
    let mut entry = json!({"token": token_of(sender), "sender": sender});
    for (name, value) in more.as_object().expect("an entry is an object") {
        entry[name] = value.clone();
    }
    entry
}

/// Alice and bob, who work together, carol who does not, an observer, and an administrator.
pub(crate) fn team() -> Given {
    tokens(&json!([
        entry("alice", json!({})),
        entry("bob", json!({})),
        entry("carol", json!({})),
        entry("olga", json!({"is_observer": true})),
        entry("admin", json!({"can_manage_mode_registry": true})),
    ]))
}

impl Edge {
    /// A server that authenticates.
    pub(crate) async fn believing(given: Given) -> Edge {
        Edge::with(|settings| settings.auth = settled(given)).await
    }

    /// Lists sessions: a call that needs a credential and nothing else.
    pub(crate) async fn list_as(&self, credential: &str) -> Result<ListSessionsResponse, Status> {
        let request = authorized(credential, ListSessionsRequest::default());
        Ok(self.runtime.clone().list_sessions(request).await?.into_inner())
    }
}
