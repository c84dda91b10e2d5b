//! The hash of a commitment: one name for one decision, the same in every implementation.
//!
//! ```text
//!  payload ──projection──▶ JSON ──canonical──▶ label ":" text ──SHA-256──▶ sha256:…
//! ```
//!
//! The hash covers the nine fields the label stands for and nothing else. So a claim about bytes is verified over the
//! bytes: a payload with a field beyond those nine says more than its hash, and is never hashed by leaving that out.

use std::fmt;

use macp_wire::canonical;
use macp_wire::v1::CommitmentPayload;
use prost::Message;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Names the fields and the way they are hashed; another set of fields would need another label.
pub const LABEL: &str = "macp-commitment-hash/1";

const PREFIX: &str = "sha256:";
const DIGITS: usize = 64;

/// Field numbers of `CommitmentPayload` under this label, and of the reference in its field 9.
const FIELDS_MAX: u64 = 9;
const SUPERSEDES: u64 = 9;
const SUPERSEDES_FIELDS_MAX: u64 = 2;

/// What verifying a claimed hash over bytes shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Match,
    Mismatch,
    /// The bytes have no hash under this label.
    CannotVerify(Unhashable),
}

/// Why the bytes of a payload have no hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unhashable {
    #[error("the commitment's bytes end in the middle of a field")]
    Truncated,
    #[error("the commitment's bytes hold a number that is too long")]
    Varint,
    #[error("the commitment has a field {0}, which {LABEL} does not cover")]
    UnknownField(u64),
    #[error("the commitment's supersedes has a field {0}, which {LABEL} does not cover")]
    UnknownSupersedesField(u64),
    #[error("the commitment's field {field} has wire type {wire_type}, which no field of it can have")]
    WireType { field: u64, wire_type: u8 },
    #[error("the commitment's bytes cannot be decoded")]
    Undecodable(#[from] prost::DecodeError),
}

impl Verdict {
    /// As test vectors and tools name it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Verdict::Match => "match",
            Verdict::Mismatch => "mismatch",
            Verdict::CannotVerify(_) => "cannot_verify",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The fields as a JSON object: always the eight plain ones, `supersedes` only if it is there.
#[must_use]
pub fn projection(payload: &CommitmentPayload) -> Value {
    let mut object = json!({
        "action": payload.action,
        "authority_scope": payload.authority_scope,
        "commitment_id": payload.commitment_id,
        "configuration_version": payload.configuration_version,
        "mode_version": payload.mode_version,
        "outcome_positive": payload.outcome_positive,
        "policy_version": payload.policy_version,
        "reason": payload.reason,
    });
    if let Some(supersedes) = &payload.supersedes {
        object["supersedes"] = json!({
            "commitment_hash": supersedes.commitment_hash,
            "session_id": supersedes.session_id,
        });
    }
    object
}

/// The canonical JSON text of the projection.
#[must_use]
pub fn canonical(payload: &CommitmentPayload) -> String {
    canonical::to_string(&projection(payload)).expect("strings and truth values always have a canonical form")
}

/// What is hashed.
#[must_use]
pub fn preimage(payload: &CommitmentPayload) -> Vec<u8> {
    [LABEL, ":", &canonical(payload)].concat().into_bytes()
}

/// The commitment hash. Any payload has one, a senseless one too.
#[must_use]
pub fn hash(payload: &CommitmentPayload) -> String {
    format!("{PREFIX}{}", hex::encode(Sha256::digest(preimage(payload))))
}

/// Whether a claimed hash is written the only way a hash is written.
#[must_use]
pub fn is_canonical(claim: &str) -> bool {
    claim.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The payload in protobuf bytes, if its hash covers all they say.
pub fn decode(bytes: &[u8]) -> Result<CommitmentPayload, Unhashable> {
    scan(bytes, |field, body| match (field, body) {
        (SUPERSEDES, Some(body)) => scan(body, |field, _| match field {
            1..=SUPERSEDES_FIELDS_MAX => Ok(()),
            _ => Err(Unhashable::UnknownSupersedesField(field)),
        }),
        // A wire type that is not the field's own is left to the decoder.
        (1..=FIELDS_MAX, _) => Ok(()),
        _ => Err(Unhashable::UnknownField(field)),
    })?;
    Ok(CommitmentPayload::decode(bytes)?)
}

/// Verifies a claimed hash over the bytes of a payload.
#[must_use]
pub fn verify(bytes: &[u8], claim: &str) -> Verdict {
    match decode(bytes) {
        Err(unhashable) => Verdict::CannotVerify(unhashable),
        // What is computed is canonical, so a claim that is equal to it is canonical too.
        Ok(payload) if hash(&payload) == claim => Verdict::Match,
        Ok(_) => Verdict::Mismatch,
    }
}

/// Goes through the fields of a message, handing each number to `visit`, with the content if that is delimited.
fn scan<'a>(
    mut rest: &'a [u8],
    mut visit: impl FnMut(u64, Option<&'a [u8]>) -> Result<(), Unhashable>,
) -> Result<(), Unhashable> {
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let field = key >> 3;
        let wire_type = (key & 7) as u8;
        let mut body = None;
        match wire_type {
            0 => drop(varint(&mut rest)?),
            1 => drop(take(&mut rest, 8)?),
            2 => {
                let length = varint(&mut rest)?;
                body = Some(take(&mut rest, length)?);
            }
            5 => drop(take(&mut rest, 4)?),
            // An unknown field is the more telling of two mistakes.
            _ => {
                visit(field, None)?;
                return Err(Unhashable::WireType { field, wire_type });
            }
        }
        visit(field, body)?;
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], Unhashable> {
    let length = usize::try_from(length).map_err(|_| Unhashable::Truncated)?;
    let (taken, left) = rest.split_at_checked(length).ok_or(Unhashable::Truncated)?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Unhashable> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, left) = rest.split_first().ok_or(Unhashable::Truncated)?;
        *rest = left;
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            return Err(Unhashable::Varint);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Unhashable::Varint)
}

#[cfg(test)]
mod tests;
