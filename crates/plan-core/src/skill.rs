//! What the decision core knows of a skill: its declaration, and what it answers from parameters alone. Calling it is not
//! among them.

use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cause::Cause;
use crate::cost::Usage;
use crate::effect::Effect;
use crate::plan::RetryPolicy;

/// What one version of a skill declares about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SkillMetadata {
    pub skill_id: String,
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub description: String,
    pub input_schema: Value,
    pub output_schema: Value,
    pub timeout_ms: u64,
    pub cost_estimate_cents: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    #[serde(default)]
    pub permissions: Vec<String>,
    #[serde(default)]
    pub side_effects: Vec<String>,
    pub deterministic: bool,
    #[serde(default)]
    pub stable_fields: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nondeterminism: Option<String>,
    pub failure_modes: Vec<String>,
    pub idempotency: IdempotencyClass,
    pub cost_model: CostModel,
    #[serde(default)]
    pub constraints: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyClass {
    Natural,
    Keyed,
    None,
    /// Depends on the parameters: `effects` answers.
    PerCall,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostModel {
    /// Under which key the rate card prices this version.
    pub rate_card_key: String,
}

/// The pure side of a skill version. `parameters` have been resolved and match the input schema.
pub trait PureSkill: Debug + Send + Sync {
    fn metadata(&self) -> &SkillMetadata;

    /// The effects of one dispatch, in order. When a plan is frozen this is asked of templates too: what a reference
    /// leaves open counts as the less harmless answer.
    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect>;

    /// The most one dispatch can use.
    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage;

    /// The model whose prices apply, for skills that are priced by model.
    fn model<'a>(&self, parameters: &'a Map<String, Value>) -> Option<&'a str> {
        let _ = parameters;
        None
    }

    /// A code for a cause where the shared mapping is not precise enough. Must be among `failure_modes`.
    fn classify(&self, cause: &Cause) -> Option<&'static str> {
        let _ = cause;
        None
    }

    /// The code of a success.
    fn success_code(&self) -> &'static str {
        "OK"
    }

    /// Checks resolved parameters against the input schema; the error names the first place that does not fit.
    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String>;

    /// The same for parameters that may hold references. A skill can be stricter than this default and check what is
    /// literal beside a reference; it must not refuse what some output could make right.
    fn check_template(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        if crate::reference::is_literal(parameters) { self.check_input(parameters) } else { Ok(()) }
    }
}

/// What a skill's registration says besides the skill itself.
#[derive(Clone, Debug)]
pub struct Registration {
    pub skill: Arc<dyn PureSkill>,
    pub enabled: bool,
    /// Digest of the skill's artefact or source.
    pub build: Option<crate::digest::Digest>,
}

/// What the executor has: skills by exact version, and rate cards by id. No version ever stands in for another.
pub trait Catalog: Debug + Send + Sync {
    fn skill(&self, skill_id: &str, version: &str) -> Option<Registration>;

    /// Every registered version of a skill, for messages.
    fn versions(&self, skill_id: &str) -> Vec<String>;

    /// A rate card as data.
    fn rate_card(&self, id: &str) -> Option<Value>;

    /// Whether the operator lets skills have a permission. Everything is granted unless the catalog says otherwise.
    fn grants(&self, permission: &str) -> bool {
        let _ = permission;
        true
    }
}

/// What a skill says of parameters; none if it panics over them. That is the skill's answer about one step, and never
/// more (AOS-79). The panic is reported where it happens, and what it left half done is thrown away.
pub fn guarded<T>(ask: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).ok()
}

/// Whether a call with these parameters has an effect that nobody recognises when it is repeated. A panic over them makes
/// nothing harmless.
pub fn is_unrepeatable(skill: &dyn PureSkill, parameters: &Map<String, Value>) -> bool {
    guarded(|| skill.effects(parameters)).is_none_or(|effects| effects.iter().any(Effect::is_unrepeatable))
}

/// Whether a call reaches anyone who could ask for a wait before the next one. Where nobody is, no wait is obeyed but
/// that of the policy, and a worst case counts no other.
pub(crate) fn has_target(metadata: &SkillMetadata, effects: &[Effect]) -> bool {
    !metadata.side_effects.is_empty() || !effects.is_empty()
}
