//! Judges receipts, whoever issued them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_kernel::commitment;
use macp_wire::canonical;
use macp_wire::v1::{CommitmentPayload, CommitmentRef};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{FORMAT, PublicKeys, jws, member};

/// What a receipt is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The receipt is whole, and a trusted key says so.
    Attested,
    /// The commitment and its hash belong together; who issued the receipt is not shown.
    IntegrityOnly,
    /// The commitment and its hash do not belong together, or that cannot be told.
    Unverified,
    /// It is no receipt of a format known here; nothing else was looked at.
    Refused,
}

/// Whether a receipt's commitment is the one that was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    Match,
    Mismatch,
    CannotVerify,
}

/// What one attestation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttestationOutcome {
    /// A trusted key signed this receipt.
    Valid,
    /// It is malformed, or the signature is not one over this receipt.
    Invalid,
    /// No trusted key has the id it names.
    UnknownKey,
    /// Of a kind or an algorithm that is not known here.
    Unsupported,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attestation {
    pub outcome: AttestationOutcome,
    /// The key it names, trusted or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
}

/// What verifying a receipt showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub verdict: Verdict,
    /// None of a refused receipt.
    pub integrity: Option<Integrity>,
    /// In the order of the receipt; none unless the integrity matches.
    pub attestations: Vec<Attestation>,
    /// What is wrong with a receipt that is refused or unverified, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Verdict {
    /// As test vectors and tools name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Attested => "attested",
            Verdict::IntegrityOnly => "integrity_only",
            Verdict::Unverified => "unverified",
            Verdict::Refused => "refused",
        }
    }
}

impl Integrity {
    /// As test vectors and tools name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Integrity::Match => "match",
            Integrity::Mismatch => "mismatch",
            Integrity::CannotVerify => "cannot_verify",
        }
    }
}

impl AttestationOutcome {
    /// As test vectors and tools name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            AttestationOutcome::Valid => "valid",
            AttestationOutcome::Invalid => "invalid",
            AttestationOutcome::UnknownKey => "unknown_key",
            AttestationOutcome::Unsupported => "unsupported",
        }
    }
}

/// Verifies the text of a receipt against the keys that are trusted.
#[must_use]
pub fn verify(receipt: &str, trusted: &PublicKeys) -> Verification {
    let stopped = |verdict, integrity, problem| Verification {
        verdict,
        integrity,
        attestations: Vec::new(),
        problem: Some(problem),
    };
    let mut receipt = match read(receipt) {
        Ok(receipt) => receipt,
        Err(problem) => return stopped(Verdict::Refused, None, problem),
    };
    if let Err((integrity, problem)) = check_integrity(&receipt) {
        return stopped(Verdict::Unverified, Some(integrity), problem);
    }
    let attestations = check_attestations(receipt.remove(member::ATTESTATIONS), receipt, trusted);
    let is_attested = attestations.iter().any(|attestation| attestation.outcome == AttestationOutcome::Valid);
    let verdict = if is_attested { Verdict::Attested } else { Verdict::IntegrityOnly };
    Verification { verdict, integrity: Some(Integrity::Match), attestations, problem: None }
}

fn read(text: &str) -> Result<Map<String, Value>, String> {
    let receipt = match canonical::parse(text.as_bytes()) {
        Ok(Value::Object(receipt)) => receipt,
        Ok(_) => return Err("a receipt is a JSON object".to_owned()),
        Err(error) => return Err(format!("the receipt is no JSON text: {error}")),
    };
    match receipt.get(member::FORMAT) {
        Some(Value::String(format)) if format == FORMAT => Ok(receipt),
        Some(Value::String(format)) => Err(format!("the format {format:?} is not known, only {FORMAT} is")),
        _ => Err(format!("the receipt does not say that its format is {FORMAT}")),
    }
}

/// Any other integrity than a match, and why.
fn check_integrity(receipt: &Map<String, Value>) -> Result<(), (Integrity, String)> {
    let cannot = |problem: String| (Integrity::CannotVerify, problem);
    let mismatch = |problem: &str| Err((Integrity::Mismatch, problem.to_owned()));
    let payload = read_commitment(receipt).map_err(cannot)?;
    let hash = commitment::hash(&payload);
    if receipt.get(member::COMMITMENT_HASH).and_then(Value::as_str) != Some(&hash) {
        return mismatch("the commitment has another hash than commitment_hash");
    }
    let Some(wire) = receipt.get(member::COMMITMENT_WIRE) else {
        return Ok(());
    };
    let wire = wire.as_str().and_then(|wire| STANDARD.decode(wire).ok());
    let wire = wire.ok_or_else(|| cannot("commitment_wire_b64 is not base64".to_owned()))?;
    let decoded = commitment::decode(&wire).map_err(|error| cannot(format!("commitment_wire_b64: {error}")))?;
    // Equal payloads have equal hashes, so this is the whole comparison.
    if decoded != payload {
        return mismatch("commitment_wire_b64 holds another commitment");
    }
    Ok(())
}

/// The commitment of a receipt. What is left out has its default; what is not known cannot have been hashed.
fn read_commitment(receipt: &Map<String, Value>) -> Result<CommitmentPayload, String> {
    let Some(Value::Object(members)) = receipt.get(member::COMMITMENT) else {
        return Err("the receipt has no commitment that is an object".to_owned());
    };
    let mut payload = CommitmentPayload::default();
    for (name, value) in members {
        let member = format!("commitment.{name}");
        match name.as_str() {
            "action" => payload.action = text(&member, value)?,
            "authority_scope" => payload.authority_scope = text(&member, value)?,
            "commitment_id" => payload.commitment_id = text(&member, value)?,
            "configuration_version" => payload.configuration_version = text(&member, value)?,
            "mode_version" => payload.mode_version = text(&member, value)?,
            "policy_version" => payload.policy_version = text(&member, value)?,
            "reason" => payload.reason = text(&member, value)?,
            "outcome_positive" => {
                payload.outcome_positive = value.as_bool().ok_or(format!("{member} must be true or false"))?;
            }
            "supersedes" => payload.supersedes = Some(read_reference(&member, value)?),
            _ => return Err(format!("{member} is not covered by the hash")),
        }
    }
    Ok(payload)
}

fn read_reference(path: &str, value: &Value) -> Result<CommitmentRef, String> {
    let members = value.as_object().ok_or(format!("{path} must be an object"))?;
    let mut reference = CommitmentRef::default();
    for (name, value) in members {
        let member = format!("{path}.{name}");
        match name.as_str() {
            "commitment_hash" => reference.commitment_hash = text(&member, value)?,
            "session_id" => reference.session_id = text(&member, value)?,
            _ => return Err(format!("{member} is not covered by the hash")),
        }
    }
    Ok(reference)
}

fn text(member: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or(format!("{member} must be a text"))
}

/// One outcome per attestation, over the receipt without them.
fn check_attestations(attestations: Option<Value>, body: Map<String, Value>, trusted: &PublicKeys) -> Vec<Attestation> {
    let Some(Value::Array(attestations)) = attestations else {
        return Vec::new();
    };
    // A body without a canonical text has nothing a signature could be over.
    let body = canonical::to_string(&Value::Object(body)).ok();
    let check = |attestation: &Value| {
        let member = |name: &str| attestation.get(name).and_then(Value::as_str);
        match (member("type"), member("jws")) {
            (Some("jws"), Some(jws)) => jws::check(jws, body.as_deref(), trusted),
            (Some("jws"), None) => Attestation { outcome: AttestationOutcome::Invalid, kid: None },
            _ => Attestation { outcome: AttestationOutcome::Unsupported, kid: None },
        }
    };
    attestations.iter().map(check).collect()
}
