//! Hash vectors held against the kernel.

use std::collections::BTreeMap;

use macp_kernel::commitment::{self, Verdict};
use macp_wire::v1::CommitmentPayload;
use prost::Message as _;

use super::{HashCheck, HashVector};
use crate::payload::{self, COMMITMENT};
use crate::{Level, Report};

/// Runs every hash vector; they refer to each other, so they come together.
pub fn run_hash_vectors(vectors: &BTreeMap<String, HashVector>) -> Vec<Report> {
    let run = |(name, vector): (&String, &HashVector)| Report::of(name, Level::Core, check(vector, vectors));
    vectors.iter().map(run).collect()
}

fn check(vector: &HashVector, all: &BTreeMap<String, HashVector>) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut compare = |what: &str, expected: &str, found: &str| {
        if expected != found {
            reasons.push(format!("{what}: expected {expected}, found {found}"));
        }
    };
    compare("label", &vector.label, commitment::LABEL);
    match &vector.check {
        HashCheck::Compute { payload, canonical, preimage, hash, must_differ_from } => {
            // The vector writes every member out, so the convention about an absent outcome never comes in.
            let decoded = payload::encode(COMMITMENT, payload)
                .map_err(|error| error.to_string())
                .and_then(|bytes| CommitmentPayload::decode(bytes).map_err(|error| error.to_string()));
            let payload = match decoded {
                Ok(payload) => payload,
                Err(error) => return vec![format!("payload: {error}")],
            };
            compare("canonical JSON", &hex::encode(canonical), &hex::encode(commitment::canonical(&payload)));
            compare("preimage", &hex::encode(preimage), &hex::encode(commitment::preimage(&payload)));
            let found = commitment::hash(&payload);
            compare("hash", hash, &found);
            // Each compute vector is also its own verify vector: its hash holds for its bytes.
            compare("verification", "match", outcome(&payload.encode_to_vec(), hash));
            if let Some(other) = must_differ_from {
                match all.get(other).map(|other| &other.check) {
                    Some(HashCheck::Compute { hash: other_hash, .. }) if *other_hash != found => (),
                    Some(_) => reasons.push(format!("hash: it must differ from that of {other}")),
                    None => reasons.push(format!("there is no vector {other} to differ from")),
                }
            }
        }
        HashCheck::Verify { wire, claimed_hash, expected_outcome } => {
            compare("verification", expected_outcome, outcome(wire, claimed_hash));
        }
    }
    reasons
}

/// As the vectors spell it.
fn outcome(wire: &[u8], claim: &str) -> &'static str {
    match commitment::verify(wire, claim) {
        Verdict::Match => "match",
        Verdict::Mismatch => "mismatch",
        Verdict::CannotVerify(_) => "cannot_verify",
    }
}
