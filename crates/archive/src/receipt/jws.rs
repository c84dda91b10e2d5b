//! Detached compact JWS over the canonical text of a receipt: `header..signature`, the body left out.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use macp_wire::canonical;
use serde_json::Value;

use super::jwk::ALGORITHM;
use super::verify::{Attestation, AttestationOutcome};
use super::{PublicKeys, SigningKey};

/// Signs a body.
pub(super) fn sign(body: &str, key: &SigningKey) -> String {
    let kid = serde_json::to_string(key.kid()).expect("a text can always be written");
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{ALGORITHM}","kid":{kid}}}"#));
    let signature = key.sign(&signing_input(&header, body));
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature))
}

/// What a JWS shows about a body. A body that has no canonical text is `None`, and no signature fits it.
pub(super) fn check(jws: &str, body: Option<&str>, trusted: &PublicKeys) -> Attestation {
    let outcome = |kid: Option<&str>, outcome| Attestation { outcome, kid: kid.map(str::to_owned) };
    let Some((header_text, signature)) = split(jws) else {
        return outcome(None, AttestationOutcome::Invalid);
    };
    let header = URL_SAFE_NO_PAD.decode(header_text).ok().and_then(|header| canonical::parse(&header).ok());
    let Some(Value::Object(header)) = header else {
        return outcome(None, AttestationOutcome::Invalid);
    };
    let kid = header.get("kid").and_then(Value::as_str);
    // What `crit` names changes what is signed or how, and none of it is known here.
    if header.get("alg").and_then(Value::as_str) != Some(ALGORITHM) || header.contains_key("crit") {
        return outcome(kid, AttestationOutcome::Unsupported);
    }
    let Some(key) = kid.and_then(|kid| trusted.get(kid)) else {
        return outcome(kid, AttestationOutcome::UnknownKey);
    };
    let fits = match (<[u8; 64]>::try_from(signature), body) {
        (Ok(signature), Some(body)) => key.verifies(&signing_input(header_text, body), &signature),
        _ => false,
    };
    outcome(kid, if fits { AttestationOutcome::Valid } else { AttestationOutcome::Invalid })
}

/// The header, still encoded, and the signature.
fn split(jws: &str) -> Option<(&str, Vec<u8>)> {
    let (header, rest) = jws.split_once('.')?;
    // A dot in what is left would be no base64url.
    let signature = URL_SAFE_NO_PAD.decode(rest.strip_prefix('.')?).ok()?;
    Some((header, signature))
}

fn signing_input(header: &str, body: &str) -> Vec<u8> {
    [header, ".", &URL_SAFE_NO_PAD.encode(body)].concat().into_bytes()
}
