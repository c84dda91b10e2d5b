//! The message that ends a session, the same in every mode: who may send it and what it must say.

#[cfg(test)]
mod tests;

use macp_wire::v1::{CommitmentPayload, CommitmentRef, Envelope};

use super::{check_not_blank, decode};
use crate::Rejection;
use crate::commitment::is_canonical;
use crate::mode::View;
use crate::policy::evaluate;

/// Ends of actions that tell of a refusal.
const NEGATIVE: [&str; 3] = ["rejected", "failed", "declined"];

/// Ends of actions that tell of a success.
const POSITIVE: [&str; 4] = ["selected", "accepted", "completed", "approved"];

/// Whether the bound policy lets the sender commit.
pub(super) fn authorize(view: &View<'_>, envelope: &Envelope) -> Result<(), Rejection> {
    if evaluate::may_commit(view.policy, view.initiator, view.roster, &envelope.sender) {
        return Ok(());
    }
    Err(Rejection::forbidden(format!("the policy {:?} does not let {:?} commit", view.policy.id(), envelope.sender)))
}

/// Reads a Commitment and holds it to what the session is bound to. Fields this version does not know are let pass:
/// the resolution keeps them.
pub(super) fn read(view: &View<'_>, envelope: &Envelope) -> Result<CommitmentPayload, Rejection> {
    let payload: CommitmentPayload = decode(envelope)?;
    check_not_blank("commitment_id", &payload.commitment_id)?;
    check_not_blank("action", &payload.action)?;
    check_not_blank("authority_scope", &payload.authority_scope)?;
    check_not_blank("reason", &payload.reason)?;
    check_bound("mode_version", &payload.mode_version, view.mode_version)?;
    check_bound("configuration_version", &payload.configuration_version, view.configuration_version)?;
    // The policy may be left unsaid, the versions may not.
    if !payload.policy_version.is_empty() {
        check_bound("policy_version", &payload.policy_version, view.policy.id())?;
    }
    if let Some(reference) = &payload.supersedes {
        check_reference(reference)?;
    }
    check_direction(&payload)?;
    Ok(payload)
}

fn check_bound(field: &str, stated: &str, bound: &str) -> Result<(), Rejection> {
    if stated == bound {
        return Ok(());
    }
    Err(Rejection::invalid(format!("{field} of the Commitment is not {bound:?}, which the session is bound to")))
}

/// The shape alone: the superseded session may be of another runtime.
fn check_reference(reference: &CommitmentRef) -> Result<(), Rejection> {
    check_not_blank("supersedes.session_id", &reference.session_id)?;
    if is_canonical(&reference.commitment_hash) {
        return Ok(());
    }
    Err(Rejection::invalid("supersedes.commitment_hash must be `sha256:` and 64 lower-case hexadecimal digits"))
}

/// An action with a conventional ending agrees with the stated outcome; any other action may go either way.
fn check_direction(payload: &CommitmentPayload) -> Result<(), Rejection> {
    let ends_with = |endings: &[&str]| endings.iter().any(|ending| payload.action.ends_with(ending));
    let contradicts = if payload.outcome_positive { ends_with(&NEGATIVE) } else { ends_with(&POSITIVE) };
    if !contradicts {
        return Ok(());
    }
    let outcome = payload.outcome_positive;
    Err(Rejection::invalid(format!("the action of the Commitment contradicts outcome_positive = {outcome}")))
}
