//! What accepted messages say about plans: the digest a Commitment names, and the plans that travel in history.
//!
//! Everything here was written by agents. It is read defensively and means nothing until its digest is the one that
//! was committed to.

use macp_kernel::commitment;
use macp_plan_core::digest::Digest;
use macp_plan_core::limits::PLAN_BYTES_MAX;
use macp_plan_core::plan::plan_hash;
use macp_wire::history::v1::{Binding, Profile};
use macp_wire::modes::decision::v1::ProposalPayload;
use macp_wire::v1::{CommitmentPayload, Envelope, SessionStartPayload};
use macp_wire::{canonical, classic, payload};
use prost::Message;
use serde_json::Value;

use super::refusal::{Reason, Refusal};

/// What a Commitment puts before the digest of a plan.
pub const PREFIX: &str = "aos-plan:";

/// The key under which a plan travels in a SessionStart.
pub const EXTENSION: &str = "aos.plan.v1";

/// The same prefix with the only kind of digest there is: what is looked for in free text.
const TOKEN: &str = "aos-plan:sha256:";

/// A Commitment as far as binding is concerned.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) payload: CommitmentPayload,
    /// What its outcome counts as; a classic one in JSON may leave it unsaid.
    pub(super) positive: bool,
    pub(super) hash: String,
}

/// Reads the payload of a Commitment the way its session's profile does.
pub(super) fn commitment(profile: Profile, bytes: &[u8]) -> Result<Committed, Refusal> {
    let unverifiable = |why: String| Refusal::new(Reason::CommitmentUnverifiable, why);
    if profile != Profile::Classic || bytes.first() != Some(&b'{') {
        let payload = commitment::decode(bytes).map_err(|error| unverifiable(error.to_string()))?;
        return Ok(Committed { positive: payload.outcome_positive, hash: commitment::hash(&payload), payload });
    }
    let payload: CommitmentPayload = payload::decode(bytes).map_err(|error| unverifiable(error.to_string()))?;
    let members = canonical::parse(bytes).map_err(|error| unverifiable(error.to_string()))?;
    let positive = members.get("outcome_positive").is_none() || payload.outcome_positive;
    Ok(Committed { positive, hash: commitment::hash(&payload), payload })
}

/// Whether a Commitment seems to name a plan, be it well or badly.
pub(super) fn names_a_plan(payload: &CommitmentPayload) -> bool {
    payload.commitment_id.starts_with(PREFIX) || payload.reason.contains(TOKEN)
}

/// Whether there is any need to read a session that this payload resolved. The profile is not known here, so that every
/// way to read it counts; what [`commitment`] cannot read in any profile concerns nobody.
pub(super) fn concerns_plans(bytes: &[u8]) -> bool {
    let concerns = |payload: CommitmentPayload| names_a_plan(&payload) || payload.supersedes.is_some();
    commitment::decode(bytes).is_ok_and(concerns)
        || (bytes.first() == Some(&b'{') && payload::decode(bytes).is_ok_and(concerns))
}

/// The one digest a Commitment names.
pub(super) fn named(payload: &CommitmentPayload) -> Result<Digest, Refusal> {
    let malformed = |field: &str| {
        let message =
            format!("{field} has `{PREFIX}` without a digest behind it; write `{TOKEN}` and 64 digits of 0-9a-f");
        Refusal::new(Reason::DigestMalformed, message)
    };
    let mut found: Option<Digest> = None;
    let mut name = |field: &str, text: &str| -> Result<(), Refusal> {
        let digest = Digest::try_from(text.to_owned()).map_err(|_not_a_digest| malformed(field))?;
        match &found {
            Some(earlier) if *earlier != digest => {
                let message = format!("the Commitment names two plans, {earlier} and {digest}; it must name one");
                Err(Refusal::new(Reason::SeveralPlansNamed, message))
            }
            _ => {
                found = Some(digest);
                Ok(())
            }
        }
    };
    if let Some(digest) = payload.commitment_id.strip_prefix(PREFIX) {
        name("commitment_id", digest)?;
    }
    for (at, _) in payload.reason.match_indices(TOKEN) {
        let digits = &payload.reason[at + TOKEN.len()..];
        let end = digits.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(digits.len());
        name("reason", &format!("sha256:{}", &digits[..end]))?;
    }
    found.ok_or_else(|| {
        let message =
            format!("the Commitment names no plan: neither is its commitment_id `{TOKEN}…`, nor is that in its reason");
        Refusal::new(Reason::NoPlanNamed, message)
    })
}

/// Something in history that may be the plan that was committed to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Candidate {
    /// The plan itself, whatever it is worth: only its digest has been looked at.
    Plan(Value),
    /// A word about where it is.
    Reference { uri: String },
}

/// What a message says about the plan with this digest.
pub(super) fn candidate(binding: &Binding, envelope: &Envelope, digest: &Digest) -> Option<Candidate> {
    let profile = binding.profile();
    match envelope.message_type.as_str() {
        macp_kernel::SESSION_START => match profile {
            Profile::Classic => {
                let start = classic::v1::SessionStartPayload::decode(envelope.payload.clone()).ok()?;
                let mut context = read(&start.context)?;
                matching(context.get_mut(EXTENSION)?.take(), digest)
            }
            Profile::Standard | Profile::Unspecified => {
                let start = SessionStartPayload::decode(envelope.payload.clone()).ok()?;
                matching(read(start.extensions.get(EXTENSION)?)?, digest)
            }
        },
        // Only Decision Mode has proposals with supporting data.
        "Proposal" if binding.mode == macp_kernel::mode::DECISION => {
            let proposal: ProposalPayload = match profile {
                Profile::Classic => payload::decode(&envelope.payload).ok()?,
                Profile::Standard | Profile::Unspecified => ProposalPayload::decode(envelope.payload.clone()).ok()?,
            };
            matching(read(&proposal.supporting_data)?, digest)
        }
        _ => None,
    }
}

/// A JSON object of at most the size of a plan, with room for the key it may be wrapped in.
fn read(bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() || bytes.len() > PLAN_BYTES_MAX + 1_024 {
        return None;
    }
    canonical::parse(bytes).ok().filter(Value::is_object)
}

fn matching(value: Value, digest: &Digest) -> Option<Candidate> {
    if let (Some(named), None) = (value.get("plan_hash").and_then(Value::as_str), value.get("steps")) {
        let uri = value.get("uri").and_then(Value::as_str).unwrap_or_default();
        return (named == digest.as_str()).then(|| Candidate::Reference { uri: uri.chars().take(256).collect() });
    }
    (plan_hash(&value).ok()? == *digest).then_some(Candidate::Plan(value))
}

#[cfg(test)]
mod tests {
    use macp_wire::v1::CommitmentRef;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn naming(commitment_id: &str, reason: &str) -> CommitmentPayload {
        let (commitment_id, reason) = (commitment_id.to_owned(), reason.to_owned());
        CommitmentPayload { commitment_id, reason, ..CommitmentPayload::default() }
    }

    #[test]
    fn tokens_stand_in_any_text() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for reason in [
            format!("aos-plan:{digest}"),
            format!("see (aos-plan:{digest}), please"),
            format!("\u{fc}ber aos-plan:{digest}\u{2026}"),
            format!("aos-plan:{digest}\naos-plan:{digest}"),
        ] {
            assert_eq!(named(&naming("c", &reason)).unwrap().as_str(), digest, "{reason}");
            assert!(names_a_plan(&naming("c", &reason)));
        }
        assert_eq!(named(&naming("c", &digest)).unwrap_err().reason, Reason::NoPlanNamed);
    }

    #[test]
    fn what_concerns_plans_is_seen_in_every_encoding() {
        let digest = "sha256:".to_owned() + &"1".repeat(64);
        let naming = naming(&format!("aos-plan:{digest}"), "");
        let superseding = CommitmentPayload { supersedes: Some(CommitmentRef::default()), ..Default::default() };
        for payload in [&naming, &superseding] {
            assert!(concerns_plans(&payload.encode_to_vec()), "{payload:?}");
        }
        assert!(concerns_plans(br#"{"commitment_id": "\u0061os-plan:sha256:11"}"#));
        assert!(!concerns_plans(br#"{"commitment_id": "c1", "reason": "aos-plan"}"#));
        assert!(!concerns_plans(&CommitmentPayload::default().encode_to_vec()));
        assert!(!concerns_plans(b"{ not json"));
    }

    #[test]
    fn references_are_told_from_plans() {
        let plan = json!({"plan_id": "p", "steps": []});
        let digest = plan_hash(&plan).unwrap();
        assert_eq!(matching(plan.clone(), &digest), Some(Candidate::Plan(plan)));
        let reference = json!({"plan_hash": digest, "uri": "https://plans.example/p"});
        let uri = "https://plans.example/p".to_owned();
        assert_eq!(matching(reference.clone(), &digest), Some(Candidate::Reference { uri }));
        let other = plan_hash(&reference).unwrap();
        assert_eq!(matching(reference, &other), None, "a reference is no plan, not even by its own digest");
    }

    proptest! {
        /// Whatever agents write, it is read or refused.
        #[test]
        fn nothing_panics(
            profile in prop::sample::select(vec![Profile::Classic, Profile::Standard]),
            kind in prop::sample::select(vec!["SessionStart", "Proposal", "Vote"]),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            text in "(aos-plan:(sha256:)?|[0-9a-f]{0,70}|\\PC){0,6}",
        ) {
            let committed = commitment(profile, &bytes);
            let concerns = |one: &CommitmentPayload| names_a_plan(one) || one.supersedes.is_some();
            prop_assert!(concerns_plans(&bytes) || !committed.is_ok_and(|one| concerns(&one.payload)));
            let _ = named(&naming(&text, &text));
            let _ = names_a_plan(&naming(&text, &text));
            let digest = digest_of(&bytes);
            let mode = macp_kernel::mode::DECISION.to_owned();
            let binding = Binding { profile: profile.into(), mode, ..Binding::default() };
            let payloads = [bytes, json!({"supporting_data": text, "context": text}).to_string().into_bytes()];
            for payload in payloads {
                let message_type = kind.to_owned();
                let envelope = Envelope { message_type, payload: payload.into(), ..Envelope::default() };
                let _ = candidate(&binding, &envelope, &digest);
            }
        }
    }

    fn digest_of(bytes: &[u8]) -> Digest {
        macp_plan_core::digest::of_bytes("test", bytes)
    }
}
