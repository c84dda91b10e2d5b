//! Writes receipts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_kernel::commitment::{self, Unhashable};
use macp_wire::canonical;
use serde_json::{Map, Value, json};

use super::{FORMAT, SigningKey, jws, member, timestamp};

/// What receipts call this program, beside the revision of its rules.
pub const IMPLEMENTATION: &str = "macp-runtime";

/// The modes whose resolution is a commitment under the rules that receipts speak of.
const MODES: [&str; 5] = [
    "macp.mode.decision.v1",
    "macp.mode.proposal.v1",
    "macp.mode.task.v1",
    "macp.mode.handoff.v1",
    "macp.mode.quorum.v1",
];

/// A session that resolved, and who says so when.
#[derive(Clone, Copy, Debug)]
pub struct ReceiptRequest<'a> {
    pub session_id: &'a str,
    /// Full name of the mode.
    pub mode: &'a str,
    /// The bytes the session resolved to.
    pub resolution: &'a [u8],
    /// Of the rules the session was decided by, such as [`macp_kernel::SEMANTICS_REVISION`].
    pub semantics_revision: u32,
    /// Names the deployment: stable, and no other has it.
    pub runtime_id: &'a str,
    /// The time of first issue, not that of the commitment.
    pub issued_at_ms: i64,
}

/// Why there is no receipt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    #[error("sessions in mode {mode:?} have no receipt: only those of the five standard modes do")]
    Mode { mode: String },
    #[error("the session's resolution has no commitment hash: {0}")]
    Resolution(#[from] Unhashable),
    #[error("a receipt names the runtime that issued it: configure a runtime id")]
    RuntimeId,
    #[error("the time {issued_at_ms} ms cannot be written in a receipt: check the clock")]
    IssuedAt { issued_at_ms: i64 },
}

impl IssueError {
    /// Whether the session is at fault, and for good; otherwise it is this server.
    #[must_use]
    pub const fn is_for_good(&self) -> bool {
        matches!(self, IssueError::Mode { .. } | IssueError::Resolution(_))
    }
}

/// The text of a receipt in canonical JSON, signed if there is a key.
///
/// Signatures are deterministic, but the time is part of the text: whoever issues a receipt keeps it, and hands out
/// the same bytes from then on.
pub fn issue(request: &ReceiptRequest<'_>, key: Option<&SigningKey>) -> Result<String, IssueError> {
    Ok(attest(body(request)?, key))
}

/// Everything but the attestations.
pub(super) fn body(request: &ReceiptRequest<'_>) -> Result<Map<String, Value>, IssueError> {
    if !MODES.contains(&request.mode) {
        return Err(IssueError::Mode { mode: request.mode.to_owned() });
    }
    if request.runtime_id.is_empty() {
        return Err(IssueError::RuntimeId);
    }
    let issued_at =
        timestamp::rfc3339(request.issued_at_ms).ok_or(IssueError::IssuedAt { issued_at_ms: request.issued_at_ms })?;
    let payload = commitment::decode(request.resolution)?;
    let members = [
        (member::FORMAT, json!(FORMAT)),
        ("session_id", json!(request.session_id)),
        ("mode", json!(request.mode)),
        (member::COMMITMENT, commitment::projection(&payload)),
        (member::COMMITMENT_HASH, json!(commitment::hash(&payload))),
        (member::COMMITMENT_WIRE, json!(STANDARD.encode(request.resolution))),
        ("semantics_rev", json!({ "implementation": IMPLEMENTATION, "rev": request.semantics_revision })),
        ("issuer", json!(format!("runtime:{}", request.runtime_id))),
        ("issued_at", json!(issued_at)),
    ];
    Ok(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Completes a body with what attests it.
pub(super) fn attest(body: Map<String, Value>, key: Option<&SigningKey>) -> String {
    let mut receipt = Value::Object(body);
    let signed = key.map(|key| json!({ "type": "jws", "jws": jws::sign(&written(&receipt), key) }));
    receipt[member::ATTESTATIONS] = signed.into_iter().collect();
    written(&receipt)
}

fn written(receipt: &Value) -> String {
    canonical::to_string(receipt).expect("texts and a 32-bit number always have a canonical form")
}
