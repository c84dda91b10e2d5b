//! Receipt vectors held against our verifier.

use std::collections::BTreeMap;

use macp_archive::receipt::{self, PublicKey, PublicKeys};

use super::{ReceiptExpectation, ReceiptVector};
use crate::{Level, Report};

pub fn run_receipt_vectors(vectors: &BTreeMap<String, ReceiptVector>) -> Vec<Report> {
    let run = |(name, vector): (&String, &ReceiptVector)| Report::of(name, Level::Optional, check(vector));
    vectors.iter().map(run).collect()
}

fn check(vector: &ReceiptVector) -> Vec<String> {
    let keys = match trusted(vector) {
        Ok(keys) => keys,
        Err(error) => return vec![format!("trusted keys: {error}")],
    };
    let verification = receipt::verify(&vector.receipt.to_string(), &keys);
    let found = ReceiptExpectation {
        integrity: verification.integrity.map(|integrity| integrity.as_str().to_owned()),
        attestations: verification.attestations.iter().map(|shown| shown.outcome.as_str().to_owned()).collect(),
        verdict: verification.verdict.as_str().to_owned(),
    };
    if found == vector.expected {
        return Vec::new();
    }
    let problem = verification.problem.unwrap_or_default();
    vec![format!("expected {:?}, found {found:?} {problem}", vector.expected)]
}

fn trusted(vector: &ReceiptVector) -> Result<PublicKeys, Box<dyn std::error::Error>> {
    let keys = vector.trusted_keys.iter().map(|(kid, x)| PublicKey::from_x(kid, x));
    Ok(PublicKeys::new(keys.collect::<Result<Vec<_>, _>>()?)?)
}
