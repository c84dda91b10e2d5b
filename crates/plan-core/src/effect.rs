//! Effects: what a dispatch does outside, how it is named, and how the outside recognises a repetition.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::digest::{self, Digest};

/// Whether repeating an effect does harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idempotency {
    /// Repeating is harmless.
    Natural,
    /// The target recognises the effect key.
    Keyed,
    /// Neither.
    None,
}

/// One effect of one dispatch, as the skill declares it from its parameters alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    #[serde(rename = "type")]
    pub kind: String,
    /// In the normal form of its kind; for HTTP the lower-case host, and the port if it is not the scheme's own.
    pub target: String,
    pub idempotency: Idempotency,
}

impl Effect {
    /// Whether one run has to claim the effect, so that no other brings it about as well.
    #[must_use]
    pub fn needs_claim(&self) -> bool {
        self.idempotency != Idempotency::Natural
    }

    /// Whether repeating it does harm, and nobody recognises a repetition.
    #[must_use]
    pub fn is_unrepeatable(&self) -> bool {
        self.idempotency == Idempotency::None
    }
}

/// The key under which an effect is known to its target and here. It holds no attempt: a retry must carry the same key.
///
/// `session_id` is empty for a run without a session; `effect_index` counts the effects of one dispatch from 0.
#[must_use]
pub fn effect_key(
    namespace: &str,
    session_id: &str,
    plan_id: &str,
    step_id: &str,
    epoch: u64,
    effect_index: u32,
) -> String {
    let text = |part: &str| macp_wire::canonical::to_string(&part.into()).expect("a text has a canonical form");
    let [namespace, session_id, plan_id, step_id] = [namespace, session_id, plan_id, step_id].map(text);
    let array = format!("[{namespace},{session_id},{plan_id},{step_id},{epoch},{effect_index}]");
    format!("aos1-{}", digest::hex_of(digest::EFFECT_KEY_LABEL, array.as_bytes()))
}

/// The digest of what is asked of a skill, references resolved.
pub fn request_digest(
    skill_id: &str,
    skill_version: &str,
    parameters: &Map<String, Value>,
) -> Result<Digest, macp_wire::canonical::Error> {
    let request = json!({"skill_id": skill_id, "skill_version": skill_version, "parameters": parameters});
    digest::of_value(digest::REQUEST_LABEL, &request)
}
