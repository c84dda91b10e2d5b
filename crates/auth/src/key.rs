//! Keys that tokens are signed with, each for one algorithm only.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::json::{Node, member};

/// RSA keys outside these sizes are too weak or too slow.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A shared secret is at least as long as the digest it keys (RFC 7518, section 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// How a token may be signed. There is no `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    RS256,
    ES256,
    /// Over Ed25519.
    EdDSA,
    /// A shared secret; only by explicit choice, since whoever can check such tokens can also make them.
    HS256,
}

/// A name that is no accepted algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an accepted algorithm; there are RS256, ES256, EdDSA and, with care, HS256")]
pub struct UnknownAlgorithm(String);

impl Algorithm {
    /// What is accepted unless the operator says otherwise.
    pub const DEFAULT: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        match name {
            "RS256" => Ok(Algorithm::RS256),
            "ES256" => Ok(Algorithm::ES256),
            // RFC 9864 gives the one curve of it that is accepted here a name of its own.
            "EdDSA" | "Ed25519" => Ok(Algorithm::EdDSA),
            "HS256" => Ok(Algorithm::HS256),
            _ => Err(UnknownAlgorithm(name.to_owned())),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A key that was checked when it was read. Because it fixes its algorithm, no token can have a public key used as a
/// shared secret.
pub(crate) struct Key {
    pub(crate) kid: Option<String>,
    pub(crate) algorithm: Algorithm,
    material: Material,
}

enum Material {
    Public(ParsedPublicKey),
    Shared(Box<hmac::Key>),
}

impl Key {
    /// Reads a member of a key set, or says why it cannot be used. The reason repeats nothing of the key.
    pub(crate) fn read(node: &Node) -> Result<Key, &'static str> {
        let members = node.object().ok_or("it is not an object")?;
        let text = |name: &str| member(members, name).and_then(Node::text);
        if member(members, "use").is_some_and(|purpose| purpose.text() != Some("sig")) {
            return Err("it is not meant for signatures (use)");
        }
        if let Some(operations) = member(members, "key_ops")
            && !operations.texts().is_some_and(|mut texts| texts.any(|operation| operation == "verify"))
        {
            return Err("it is not meant for verifying (key_ops)");
        }
        let bytes = |name| text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let (algorithm, material) = match (text("kty"), text("crv")) {
            (Some("oct"), _) => (Algorithm::HS256, shared(&bytes("k").ok_or("k must be unpadded base64url")?)?),
            (Some("RSA" | "EC" | "OKP"), _) if member(members, "d").is_some() => {
                return Err("it holds a private part (d), which no server should have; give the public part only");
            }
            (Some("RSA"), _) => {
                let (n, e) = bytes("n").zip(bytes("e")).ok_or("n and e must be unpadded base64url")?;
                (Algorithm::RS256, rsa(&n, &e)?)
            }
            (Some("EC"), Some("P-256")) => {
                let (x, y) = bytes("x").zip(bytes("y")).ok_or("x and y must be unpadded base64url")?;
                (Algorithm::ES256, p256(&x, &y)?)
            }
            (Some("OKP"), Some("Ed25519")) => {
                (Algorithm::EdDSA, ed25519(&bytes("x").ok_or("x must be unpadded base64url")?)?)
            }
            (Some("EC" | "OKP"), _) => return Err("its curve (crv) is none of P-256 and Ed25519"),
            _ => return Err("its type (kty) is none of RSA, EC, OKP and oct"),
        };
        if let Some(stated) = member(members, "alg")
            && stated.text().and_then(|name| name.parse().ok()) != Some(algorithm)
        {
            return Err("it is meant for an algorithm (alg) that is not accepted or does not fit its type");
        }
        let kid = match member(members, "kid") {
            None => None,
            Some(kid) => Some(kid.text().ok_or("its id (kid) is not a string")?.to_owned()),
        };
        Ok(Key { kid, algorithm, material })
    }

    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Public(key) => key.verify_sig(message, signature).is_ok(),
            Material::Shared(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

fn rsa(n: &[u8], e: &[u8]) -> Result<Material, &'static str> {
    let significant = n.iter().position(|byte| *byte != 0).map_or(&[][..], |first| &n[first..]);
    let bits = significant.first().map_or(0, |first| significant.len() * 8 - first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err("an RSA key must have 2048 to 8192 bits");
    }
    RsaPublicKeyComponents { n: significant, e }
        .to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256)
        .map(Material::Public)
        .map_err(|_rejected| "its numbers are no RSA key")
}

fn p256(x: &[u8], y: &[u8]) -> Result<Material, &'static str> {
    if x.len() != 32 || y.len() != 32 {
        return Err("x and y of a P-256 key have 32 bytes each");
    }
    let point = [&[4], x, y].concat();
    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .map(Material::Public)
        .map_err(|_rejected| "its coordinates are no point of P-256")
}

fn ed25519(x: &[u8]) -> Result<Material, &'static str> {
    if x.len() != 32 {
        return Err("x of an Ed25519 key has 32 bytes");
    }
    ParsedPublicKey::new(&ED25519, x).map(Material::Public).map_err(|_rejected| "its x is no Ed25519 key")
}

fn shared(secret: &[u8]) -> Result<Material, &'static str> {
    if secret.len() < SECRET_BYTES_MIN {
        return Err("a shared secret for HS256 must have at least 32 bytes");
    }
    Ok(Material::Shared(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret))))
}
