//! A real issuer: keys of each kind, tokens signed with them by another library, and a server for its key set.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod server;

use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use macp_auth::{Authenticator, Identity, JwksSource, JwtSettings, Presented, Refusal, Resolution, Settings};
use serde_json::{Value, json};

pub const ISSUER: &str = "https://issuer.example/";

/// Making these takes a second, so every test of a file shares them.
pub static RSA: LazyLock<Signer> = LazyLock::new(|| Signer::rsa("rsa-1"));
pub static OTHER_RSA: LazyLock<Signer> = LazyLock::new(|| Signer::rsa("rsa-2"));
pub static EC: LazyLock<Signer> = LazyLock::new(|| Signer::ec("ec-1"));
pub static ED: LazyLock<Signer> = LazyLock::new(|| Signer::ed("ed-1"));

/// A key pair with its public part as a JWK.
pub struct Signer {
    pub algorithm: Algorithm,
    pub key: EncodingKey,
    pub jwk: Value,
}

impl Signer {
    pub fn rsa(kid: &str) -> Signer {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let public = pair.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        let jwk = json!({"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256",
            "n": encode(n.big_endian_without_leading_zero()), "e": encode(e.big_endian_without_leading_zero())});
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        // The key in its older form follows the 26 bytes that PKCS #8 puts around one of 2048 bits.
        let key = EncodingKey::from_rsa_der(&der.as_ref()[26..]);
        Signer { algorithm: Algorithm::RS256, key, jwk }
    }

    pub fn ec(kid: &str) -> Signer {
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref()).unwrap();
        let point = pair.public_key().as_ref();
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": kid,
            "x": encode(&point[1..33]), "y": encode(&point[33..])});
        Signer { algorithm: Algorithm::ES256, key: EncodingKey::from_ec_der(der.as_ref()), jwk }
    }

    pub fn ed(kid: &str) -> Signer {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encode(pair.public_key().as_ref())});
        Signer { algorithm: Algorithm::EdDSA, key: EncodingKey::from_ed_der(der.as_ref()), jwk }
    }

    pub fn shared(kid: &str, secret: &[u8]) -> Signer {
        let jwk = json!({"kty": "oct", "kid": kid, "k": encode(secret)});
        Signer { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(secret), jwk }
    }

    pub fn kid(&self) -> String {
        self.jwk["kid"].as_str().unwrap().to_owned()
    }

    pub fn without_kid(&self) -> Value {
        let mut jwk = self.jwk.clone();
        jwk.as_object_mut().unwrap().remove("kid");
        jwk
    }

    /// A token that names its key.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(Some(self.kid()), claims)
    }

    pub fn sign_with(&self, kid: Option<String>, claims: &Value) -> String {
        let header = Header { kid, ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }

    /// A token with any header whatever, properly signed.
    pub fn sign_raw(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }
}

pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Good claims, with some replaced; null removes one.
pub fn claims(changes: Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "aud": "macp-runtime", "sub": "alice", "exp": now() + 600});
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

pub fn jwks(keys: &[&Value]) -> String {
    json!({ "keys": keys }).to_string()
}

pub fn jwt(keys: JwksSource) -> JwtSettings {
    JwtSettings::new(ISSUER, keys)
}

/// An authenticator for JWT with these keys.
pub async fn authenticator(keys: &[&Value]) -> Authenticator {
    let jwt = jwt(JwksSource::Inline(jwks(keys).into()));
    Authenticator::start(Settings { jwt: Some(jwt), ..Settings::default() }).await.unwrap()
}

pub async fn accepted(authenticator: &Authenticator, token: &str) -> Identity {
    (*shared(authenticator, token).await).clone()
}

pub async fn shared(authenticator: &Authenticator, token: &str) -> Arc<Identity> {
    match authenticator.resolve(Presented::Bearer(token)).await {
        Resolution::Identity(identity) => identity,
        other => panic!("it must be taken: {other:?}"),
    }
}

pub async fn refused(authenticator: &Authenticator, token: &str) -> Refusal {
    match authenticator.resolve(Presented::Bearer(token)).await {
        Resolution::Refused(refusal) => refusal,
        other => panic!("it must be refused: {other:?}"),
    }
}
