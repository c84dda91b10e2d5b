//! Vectors: bytes with the hash, and receipts with the verdict, that every implementation must reach.

mod hash;
mod receipt;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

pub use hash::run_hash_vectors;
pub use receipt::run_receipt_vectors;

use crate::read::{Object, ReadError};

/// One case of the commitment hash (STD-HASH-1 to STD-HASH-8).
#[derive(Clone, Debug, PartialEq)]
pub struct HashVector {
    pub name: String,
    pub description: String,
    /// Names the algorithm.
    pub label: String,
    pub check: HashCheck,
}

#[derive(Clone, Debug, PartialEq)]
pub enum HashCheck {
    /// From a payload to its hash, step by step.
    Compute {
        payload: Map<String, Value>,
        canonical: Bytes,
        preimage: Bytes,
        hash: String,
        /// Another vector, whose hash is not this one's.
        must_differ_from: Option<String>,
    },
    /// A claim about bytes.
    Verify { wire: Bytes, claimed_hash: String, expected_outcome: String },
}

/// One case of receipt verification (STD-RCPT-6).
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiptVector {
    pub name: String,
    pub description: String,
    pub receipt: Value,
    /// Public keys by their id, as base64url without padding.
    pub trusted_keys: BTreeMap<String, String>,
    pub expected: ReceiptExpectation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptExpectation {
    /// None when the receipt is refused before anything is compared.
    pub integrity: Option<String>,
    pub attestations: Vec<String>,
    pub verdict: String,
}

impl HashVector {
    pub fn parse(text: &str) -> Result<HashVector, ReadError> {
        let mut object = Object::parse(text)?;
        let vector = HashVector {
            name: object.required("name")?,
            description: object.optional("description")?.unwrap_or_default(),
            label: object.required("label")?,
            check: hash_check(&mut object)?,
        };
        object.end()?;
        Ok(vector)
    }
}

/// The kind shows in what is given; what belongs to the other kind is left over and refused.
fn hash_check(object: &mut Object) -> Result<HashCheck, ReadError> {
    match object.free("payload")? {
        Some(payload) => Ok(HashCheck::Compute {
            payload,
            canonical: bytes(object, "jcs_utf8_hex")?,
            preimage: bytes(object, "preimage_utf8_hex")?,
            hash: object.required("hash")?,
            must_differ_from: object.optional("must_differ_from")?,
        }),
        None => Ok(HashCheck::Verify {
            wire: bytes(object, "wire_hex")?,
            claimed_hash: object.required("claimed_hash")?,
            expected_outcome: object.required("expected_outcome")?,
        }),
    }
}

fn bytes(object: &mut Object, name: &str) -> Result<Bytes, ReadError> {
    let text: String = object.required(name)?;
    hex::decode(&text).map(Bytes::from).map_err(|error| object.invalid(name, error.to_string()))
}

impl ReceiptVector {
    pub fn parse(text: &str) -> Result<ReceiptVector, ReadError> {
        let mut object = Object::parse(text)?;
        let mut expected =
            object.object("expected")?.ok_or_else(|| ReadError::Missing { place: "expected".to_owned() })?;
        let expectation = ReceiptExpectation {
            integrity: expected.required("integrity")?,
            attestations: expected.required("attestations")?,
            verdict: expected.required("verdict")?,
        };
        expected.end()?;
        let vector = ReceiptVector {
            name: object.required("name")?,
            description: object.optional("description")?.unwrap_or_default(),
            // As it is: a receipt is signed over every member it has.
            receipt: object.required("receipt")?,
            trusted_keys: object.required("trusted_keys")?,
            expected: expectation,
        };
        object.end()?;
        Ok(vector)
    }
}
