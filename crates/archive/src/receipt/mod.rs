//! Decision receipts: what a session decided, as a document that can be checked without the server that issued it.
//!
//! ```text
//!  resolution ──issue──▶ receipt (canonical JSON, signed if there is a key) ──verify──▶ verdict
//!                            SigningKey ─┘                     PublicKeys ─┘
//! ```
//!
//! A receipt carries the commitment, its hash and the bytes it was hashed from, so that its integrity needs no key.
//! Who issued it shows in the attestations: detached signatures over everything else in the document.

mod issue;
mod jwk;
mod jws;
mod public_keys;
mod signing_key;
mod timestamp;
mod verify;

#[cfg(test)]
mod tests;

pub use issue::{IMPLEMENTATION, IssueError, ReceiptRequest, issue};
pub use jwk::{JwkError, KID_BYTES_MAX};
pub use public_keys::{PublicKey, PublicKeys, PublicKeysError};
pub use signing_key::{SigningKey, SigningKeyError};
pub use verify::{Attestation, AttestationOutcome, Integrity, Verdict, Verification, verify};

/// The only format this program writes and reads.
pub const FORMAT: &str = "macp-receipt/1";

/// Members of a receipt that more than one part of this module looks at.
mod member {
    pub(super) const ATTESTATIONS: &str = "attestations";
    pub(super) const COMMITMENT: &str = "commitment";
    pub(super) const COMMITMENT_HASH: &str = "commitment_hash";
    pub(super) const COMMITMENT_WIRE: &str = "commitment_wire_b64";
    pub(super) const FORMAT: &str = "receipt_format";
}
