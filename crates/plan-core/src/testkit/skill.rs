//! Skills that declare something and do nothing, and a catalog of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::plans::rate_card;
use crate::cost::{Usage, estimated_tokens};
use crate::digest::Digest;
use crate::effect::{Effect, Idempotency};
use crate::skill::{Catalog, CostModel, IdempotencyClass, PureSkill, Registration, SkillMetadata};

/// A skill without a call. Its parameters say what it would do: `host` is the target of its effect, `effects` their
/// number, `prompt` and `max_tokens` bound its usage, `model` prices it, and `refuse` makes the parameters invalid.
#[derive(Clone, Debug)]
pub struct ScriptedSkill {
    pub metadata: SkillMetadata,
    /// Type and class of its effects; none for a skill without.
    pub effect: Option<(String, Idempotency)>,
    pub success_code: &'static str,
}

impl ScriptedSkill {
    /// A skill with effects of one type and class.
    #[must_use]
    pub fn new(skill_id: &str, version: &str, effect: Option<(&str, Idempotency)>, success_code: &'static str) -> Self {
        let idempotency = match effect {
            None | Some((_, Idempotency::Natural)) => IdempotencyClass::Natural,
            Some((_, Idempotency::Keyed)) => IdempotencyClass::Keyed,
            Some((_, Idempotency::None)) => IdempotencyClass::None,
        };
        let failure_modes = ["ERR_HTTP_503", "ERR_HTTP_500", "ERR_HTTP_TIMEOUT", "ERR_DNS_FAILURE", "ERR_UNKNOWN"];
        let metadata = SkillMetadata {
            skill_id: skill_id.to_owned(),
            name: skill_id.to_owned(),
            version: version.to_owned(),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": {"timeout_ms": {"type": "integer"}}}),
            output_schema: json!({"type": "object"}),
            timeout_ms: 5_000,
            cost_estimate_cents: 0,
            retry: None,
            permissions: Vec::new(),
            side_effects: effect.iter().map(|(kind, _)| (*kind).to_owned()).collect(),
            deterministic: false,
            stable_fields: Vec::new(),
            nondeterminism: Some("scripted".to_owned()),
            failure_modes: failure_modes.map(str::to_owned).to_vec(),
            idempotency,
            cost_model: CostModel { rate_card_key: format!("{skill_id}@{version}") },
            constraints: Map::new(),
        };
        let effect = effect.map(|(kind, class)| (kind.to_owned(), class));
        Self { metadata, effect, success_code }
    }
}

impl PureSkill for ScriptedSkill {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        let Some((kind, idempotency)) = &self.effect else { return Vec::new() };
        let target = parameters.get("host").and_then(Value::as_str).unwrap_or("example.com");
        let count = parameters.get("effects").and_then(Value::as_u64).unwrap_or(1);
        (0..count)
            .map(|_| Effect { kind: kind.clone(), target: target.to_owned(), idempotency: *idempotency })
            .collect()
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        let prompt = match parameters.get("prompt") {
            Some(Value::String(text)) => estimated_tokens([text.as_str()]),
            Some(other) => estimated_tokens([other.to_string().as_str()]),
            None => 0,
        };
        let output_tokens = parameters.get("max_tokens").and_then(Value::as_u64).unwrap_or(0);
        Usage { requests: 1, bytes: 4_096, input_tokens: prompt, output_tokens }
    }

    fn model<'a>(&self, parameters: &'a Map<String, Value>) -> Option<&'a str> {
        parameters.get("model").and_then(Value::as_str)
    }

    fn success_code(&self) -> &'static str {
        self.success_code
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        if parameters.contains_key("refuse") { Err("`refuse` is not allowed".to_owned()) } else { Ok(()) }
    }
}

/// A catalog of registered skills and rate cards.
#[derive(Clone, Debug, Default)]
pub struct Kit {
    skills: BTreeMap<(String, String), Registration>,
    cards: BTreeMap<String, Value>,
}

impl Kit {
    /// Nothing registered.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// `http_call` (natural), `post_call` (keyed), `llm_invoke` (natural, priced by model), `mail_send` (none) and
    /// `json_transform` (without effects), with the kit's rate card.
    #[must_use]
    pub fn standard() -> Self {
        let http = ("http_request", Idempotency::Natural);
        let post = ("http_request", Idempotency::Keyed);
        let mail = ("email_queued", Idempotency::None);
        Self::empty()
            .with(ScriptedSkill::new("http_call", "1.2.0", Some(http), "OK_HTTP_CALL"))
            .with(ScriptedSkill::new("post_call", "1.0.0", Some(post), "OK"))
            .with(ScriptedSkill::new(
                "llm_invoke",
                "2.0.0",
                Some(("llm_request", Idempotency::Natural)),
                "OK_LLM_INVOKE",
            ))
            .with(ScriptedSkill::new("mail_send", "1.0.0", Some(mail), "OK"))
            .with(ScriptedSkill::new("json_transform", "2.0.0", None, "OK_JSON_TRANSFORM"))
            .with_card(rate_card())
    }

    #[must_use]
    pub fn with(mut self, skill: ScriptedSkill) -> Self {
        let key = (skill.metadata.skill_id.clone(), skill.metadata.version.clone());
        self.skills.insert(key, Registration { skill: Arc::new(skill), enabled: true, build: None });
        self
    }

    #[must_use]
    pub fn with_card(mut self, card: Value) -> Self {
        let id = card.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.cards.insert(id, card);
        self
    }

    #[must_use]
    pub fn without(mut self, skill_id: &str, version: &str) -> Self {
        self.skills.remove(&(skill_id.to_owned(), version.to_owned()));
        self
    }

    /// Changes a registration: whether it is enabled, and its build.
    #[must_use]
    pub fn registered(mut self, skill_id: &str, version: &str, enabled: bool, build: Option<Digest>) -> Self {
        if let Some(registration) = self.skills.get_mut(&(skill_id.to_owned(), version.to_owned())) {
            registration.enabled = enabled;
            registration.build = build;
        }
        self
    }

    #[must_use]
    pub fn shared(self) -> Arc<dyn Catalog> {
        Arc::new(self)
    }
}

impl Catalog for Kit {
    fn skill(&self, skill_id: &str, version: &str) -> Option<Registration> {
        self.skills.get(&(skill_id.to_owned(), version.to_owned())).cloned()
    }

    fn versions(&self, skill_id: &str) -> Vec<String> {
        self.skills.keys().filter(|(id, _)| id == skill_id).map(|(_, version)| version.clone()).collect()
    }

    fn rate_card(&self, id: &str) -> Option<Value> {
        self.cards.get(id).cloned()
    }
}
