//! JSON Web Tokens of one issuer (STD-SEC-6).
//!
//! Everything is checked here and nothing is left to a default: the header's algorithm and type, the signature, and
//! each claim with its type. The signature comes before the claims, so only who holds a good token learns more about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;

use crate::SENDER_BYTES_MAX;
use crate::identity::{Identity, Modes};
use crate::json::{Members, Node, member};
use crate::key::Algorithm;
use crate::keyset::KeySet;
use crate::refusal::Refusal;
use crate::scopes::Scopes;
use crate::settings::RoleRights;

/// How far clocks of issuer and server may differ, in seconds.
const LEEWAY_SECONDS: u64 = 60;

/// Numbers of a claim up to here are exact.
const SECONDS_EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// What a token must fulfil.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) issuer: String,
    pub(crate) audience: String,
    pub(crate) algorithms: BTreeSet<Algorithm>,
    pub(crate) roles: BTreeMap<String, RoleRights>,
}

/// Why a token is not taken, and whether newer keys could change that.
pub(crate) struct Rejected {
    pub(crate) refusal: Refusal,
    pub(crate) kid_unknown: bool,
}

impl From<Refusal> for Rejected {
    fn from(refusal: Refusal) -> Self {
        Rejected { refusal, kid_unknown: false }
    }
}

/// A token taken apart.
struct Parts<'a> {
    algorithm: &'a str,
    kid: Option<&'a str>,
    signed: &'a [u8],
    payload: &'a str,
    signature: Vec<u8>,
}

impl Rules {
    /// Who a token belongs to, at a time in seconds since 1970.
    pub(crate) fn check(&self, set: &KeySet, token: &str, now: u64) -> Result<Arc<Identity>, Rejected> {
        let digest = Sha256::digest(token.as_bytes()).into();
        if let Some(identity) = set.verified.get(&digest, now) {
            return Ok(identity);
        }
        let header;
        let parts = {
            header = read_header(token)?;
            Parts::new(token, &header)?
        };
        self.verify(set, &parts)?;
        let claims = URL_SAFE_NO_PAD.decode(parts.payload).ok().and_then(|bytes| read_object(&bytes));
        let (identity, until) = self.identify(&claims.ok_or(Refusal::Malformed)?, now)?;
        let identity = Arc::new(identity);
        set.verified.put(digest, &identity, until);
        Ok(identity)
    }

    fn verify(&self, set: &KeySet, parts: &Parts<'_>) -> Result<(), Rejected> {
        let algorithm: Algorithm = parts.algorithm.parse().map_err(|_unknown| Refusal::Algorithm)?;
        if !self.algorithms.contains(&algorithm) {
            return Err(Refusal::Algorithm.into());
        }
        let candidates = set.candidates(algorithm, parts.kid);
        if candidates.keys.iter().any(|key| key.verify(parts.signed, &parts.signature)) {
            return Ok(());
        }
        let refusal = match candidates.keys.as_slice() {
            _ if candidates.kid_unknown => Refusal::Key,
            [] => Refusal::Algorithm,
            _ => Refusal::Signature,
        };
        Err(Rejected { refusal, kid_unknown: candidates.kid_unknown })
    }

    /// The identity in the claims of a token with a good signature, and the second from which it is no longer good.
    fn identify(&self, claims: &[(String, Node)], now: u64) -> Result<(Identity, u64), Refusal> {
        let issuer = member(claims, "iss").and_then(Node::text).ok_or(Refusal::Claims)?;
        if issuer != self.issuer {
            return Err(Refusal::Issuer);
        }
        if !audience(claims)?.contains(&self.audience.as_str()) {
            return Err(Refusal::Audience);
        }
        let until = seconds(claims, "exp")?.ok_or(Refusal::Claims)?.saturating_add(LEEWAY_SECONDS);
        if now >= until {
            return Err(Refusal::Expired);
        }
        if seconds(claims, "nbf")?.is_some_and(|from| from > now.saturating_add(LEEWAY_SECONDS)) {
            return Err(Refusal::NotYetValid);
        }
        let sender = member(claims, "sub").and_then(Node::text).unwrap_or_default();
        if sender.is_empty() || sender.len() > SENDER_BYTES_MAX {
            return Err(Refusal::Subject);
        }
        let mut scopes = match member(claims, "macp_scopes") {
            None => Scopes::default(),
            // A member that is not known could be a restriction, so it is refused as it is in a file.
            Some(node) => {
                Scopes::read(node.object().ok_or(Refusal::Scopes)?, &[]).map_err(|_problem| Refusal::Scopes)?
            }
        };
        scopes.roles.extend(issuer_roles(claims));
        // Absent is every mode, an empty list is none, unlike in a list of tokens (STD-SEC-5, STD-SEC-6).
        let modes = scopes.allowed_modes.take().map_or(Modes::All, Modes::Only);
        Ok((scopes.identity(sender, modes, &self.roles), until))
    }
}

/// The header of a token as an object.
fn read_header(token: &str) -> Result<Members, Refusal> {
    let (header, _) = token.split_once('.').ok_or(Refusal::Malformed)?;
    let header = URL_SAFE_NO_PAD.decode(header).map_err(|_not_base64| Refusal::Malformed)?;
    read_object(&header).ok_or(Refusal::Malformed)
}

impl<'a> Parts<'a> {
    fn new(token: &'a str, header: &'a Members) -> Result<Parts<'a>, Refusal> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Refusal::Malformed)?;
        let (_, payload) =
            signed.split_once('.').filter(|(_, payload)| !payload.contains('.')).ok_or(Refusal::Malformed)?;
        let text = |name| member(header, name).map(|node| node.text().ok_or(Refusal::Malformed)).transpose();
        // Whatever must be understood for this token to mean what it says, is not.
        if member(header, "crit").is_some() {
            return Err(Refusal::Malformed);
        }
        // Tokens of other kinds by the same issuer, such as those that announce a logout, say so here.
        let kind = text("typ")?.map(str::to_ascii_lowercase);
        if !matches!(kind.as_deref(), None | Some("jwt" | "at+jwt" | "application/jwt" | "application/at+jwt")) {
            return Err(Refusal::Malformed);
        }
        Ok(Parts {
            algorithm: text("alg")?.ok_or(Refusal::Malformed)?,
            kid: text("kid")?,
            signed: signed.as_bytes(),
            payload,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_not_base64| Refusal::Malformed)?,
        })
    }
}

fn read_object(bytes: &[u8]) -> Option<Members> {
    match Node::parse(std::str::from_utf8(bytes).ok()?).ok()? {
        Node::Object(members) => Some(members),
        _ => None,
    }
}

fn audience(claims: &[(String, Node)]) -> Result<Vec<&str>, Refusal> {
    let node = member(claims, "aud").ok_or(Refusal::Claims)?;
    match node.text() {
        Some(one) => Ok(vec![one]),
        None => Ok(node.texts().ok_or(Refusal::Claims)?.collect()),
    }
}

/// A time in seconds since 1970. One of another type is no time at all and makes the token unusable.
fn seconds(claims: &[(String, Node)], name: &str) -> Result<Option<u64>, Refusal> {
    match member(claims, name) {
        None => Ok(None),
        Some(Node::Unsigned(seconds)) => Ok(Some(*seconds)),
        Some(Node::Number(seconds)) if (0.0..SECONDS_EXACT_MAX).contains(seconds) => Ok(Some(*seconds as u64)),
        Some(_) => Err(Refusal::Claims),
    }
}

/// Roles the issuer states for all its services: a list of strings or one string. The claim is not ours, so another
/// shape is not an error; it just gives no role.
fn issuer_roles(claims: &[(String, Node)]) -> Vec<SmolStr> {
    let Some(node) = member(claims, "roles") else {
        return Vec::new();
    };
    match node.text() {
        Some(one) => vec![one.into()],
        None => node.texts().map(|texts| texts.map(SmolStr::from).collect()).unwrap_or_default(),
    }
}
