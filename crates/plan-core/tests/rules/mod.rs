//! A small catalog for the tests of the rules: pure skills that declare what the shipped ones declare, and two cards.
#![allow(dead_code, reason = "every test file uses another part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::digest::{self, Digest};
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::finding::Finding;
use macp_plan_core::plan::{RetryPolicy, Thousandths};
use macp_plan_core::rate_card;
use macp_plan_core::skill::{Catalog, CostModel, IdempotencyClass, PureSkill, Registration, SkillMetadata};
use serde_json::{Map, Value, json};

/// The frozen plan of the published vectors.
pub const PLAN: &str = include_str!("plan.json");

pub const PLAN_HASH: &str = "sha256:0184e44e7f70fbe0c253cac03c2d90d1a6e74bf0296c853b48efc5f6615f49bb";

pub fn published_card() -> Value {
    json!({"currency": "USD", "id": "rc-2026-03", "skills": {
        "http_call@1.2.0": {"base": 0},
        "llm_invoke@2.0.0": {"models": {"claude-sonnet-4-20250514": {"input": 300, "output": 1500}}},
    }})
}

pub fn policy() -> RetryPolicy {
    RetryPolicy {
        max_retries: 3,
        backoff_base_ms: 100,
        backoff_multiplier: Thousandths(2000),
        retryable_codes: vec!["ERR_HTTP_503".to_owned(), "ERR_HTTP_TIMEOUT".to_owned()],
        jitter_enabled: false,
        jitter_max_ms: 0,
        max_delay_ms: 60_000,
        aliases: BTreeMap::new(),
    }
}

#[derive(Clone, Debug)]
pub struct Declared {
    pub metadata: SkillMetadata,
    pub success: &'static str,
    /// Answers `classify` where the shared mapping is to be overruled.
    pub precise: Option<(Cause, &'static str)>,
    /// Bytes one call may use.
    pub bytes: u64,
    /// The class its effects have in fact, where that is not the one it declares.
    pub in_fact: Option<Idempotency>,
}

impl Declared {
    pub fn new(skill_id: &str, version: &str, idempotency: IdempotencyClass, failure_modes: &[&str]) -> Self {
        let metadata = SkillMetadata {
            skill_id: skill_id.to_owned(),
            name: skill_id.to_owned(),
            version: version.to_owned(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
            output_schema: json!({"type": "object"}),
            timeout_ms: 5000,
            cost_estimate_cents: 0,
            retry: None,
            permissions: Vec::new(),
            side_effects: Vec::new(),
            deterministic: false,
            stable_fields: Vec::new(),
            nondeterminism: Some("remote content".to_owned()),
            failure_modes: failure_modes.iter().map(|code| (*code).to_owned()).collect(),
            idempotency,
            cost_model: CostModel { rate_card_key: format!("{skill_id}@{version}") },
            constraints: Map::new(),
        };
        Self { metadata, success: "OK", precise: None, bytes: 0, in_fact: None }
    }
}

impl PureSkill for Declared {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        let method = parameters.get("method").and_then(Value::as_str).unwrap_or("GET");
        let dedupes = parameters.get("target_dedupes").and_then(Value::as_bool).unwrap_or(false);
        let idempotency = match self.metadata.idempotency {
            _ if self.in_fact.is_some() => self.in_fact.unwrap_or(Idempotency::None),
            IdempotencyClass::Natural => return Vec::new(),
            IdempotencyClass::Keyed => Idempotency::Keyed,
            IdempotencyClass::None => Idempotency::None,
            IdempotencyClass::PerCall => match method {
                "GET" | "HEAD" => Idempotency::Natural,
                _ if dedupes => Idempotency::Keyed,
                _ => Idempotency::None,
            },
        };
        vec![Effect { kind: "http_request".to_owned(), target: "example.com".to_owned(), idempotency }]
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        let number = |name| parameters.get(name).and_then(Value::as_u64).unwrap_or(0);
        Usage {
            requests: 1,
            bytes: self.bytes,
            input_tokens: number("input_tokens"),
            output_tokens: number("max_tokens"),
        }
    }

    fn model<'a>(&self, parameters: &'a Map<String, Value>) -> Option<&'a str> {
        if self.metadata.skill_id == "llm_invoke" { parameters.get("model").and_then(Value::as_str) } else { None }
    }

    fn classify(&self, cause: &Cause) -> Option<&'static str> {
        self.precise.as_ref().filter(|(known, _)| known == cause).map(|(_, code)| *code)
    }

    fn success_code(&self) -> &'static str {
        self.success
    }

    /// Knows one rule: `url` is a text.
    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        match parameters.get("url") {
            Some(Value::String(_)) | None => Ok(()),
            Some(_) => Err("url must be a text".to_owned()),
        }
    }
}

pub fn http_call() -> Declared {
    let modes = [
        "ERR_CONNECTION_REFUSED",
        "ERR_DNS_FAILURE",
        "ERR_HTTP_429",
        "ERR_HTTP_4XX",
        "ERR_HTTP_503",
        "ERR_HTTP_5XX",
        "ERR_HTTP_TIMEOUT",
        "ERR_SSL_ERROR",
    ];
    Declared { success: "OK_HTTP_CALL", ..Declared::new("http_call", "1.2.0", IdempotencyClass::PerCall, &modes) }
}

pub fn llm_invoke() -> Declared {
    let modes = ["ERR_LLM_API_ERROR", "ERR_LLM_RATE_LIMIT", "ERR_LLM_INVALID_RESPONSE", "ERR_HTTP_TIMEOUT"];
    Declared { success: "OK_LLM_INVOKE", ..Declared::new("llm_invoke", "2.0.0", IdempotencyClass::Natural, &modes) }
}

pub fn json_transform() -> Declared {
    let modes = ["ERR_VALIDATION_FAILED"];
    let declared = Declared::new("json_transform", "2.0.0", IdempotencyClass::Natural, &modes);
    Declared { success: "OK_JSON_TRANSFORM", ..declared }
}

#[derive(Clone, Debug, Default)]
pub struct Shelf {
    pub skills: BTreeMap<(String, String), Registration>,
    pub cards: BTreeMap<String, Value>,
    pub withheld: BTreeSet<String>,
}

impl Shelf {
    pub fn add(&mut self, skill: Declared) {
        let key = (skill.metadata.skill_id.clone(), skill.metadata.version.clone());
        self.skills.insert(key, Registration { skill: Arc::new(skill), enabled: true, build: None });
    }

    pub fn registration(&mut self, skill_id: &str, version: &str) -> &mut Registration {
        self.skills.get_mut(&(skill_id.to_owned(), version.to_owned())).expect("a skill on the shelf")
    }
}

impl Catalog for Shelf {
    fn skill(&self, skill_id: &str, version: &str) -> Option<Registration> {
        self.skills.get(&(skill_id.to_owned(), version.to_owned())).cloned()
    }

    fn versions(&self, skill_id: &str) -> Vec<String> {
        self.skills.keys().filter(|(id, _)| id == skill_id).map(|(_, version)| version.clone()).collect()
    }

    fn rate_card(&self, id: &str) -> Option<Value> {
        self.cards.get(id).cloned()
    }

    fn grants(&self, permission: &str) -> bool {
        !self.withheld.contains(permission)
    }
}

/// The shipped skills and both cards.
pub fn shelf() -> Shelf {
    let mut shelf = Shelf::default();
    for skill in [http_call(), llm_invoke(), json_transform()] {
        shelf.add(skill);
    }
    for card in [rate_card::builtin().value().clone(), published_card()] {
        shelf.cards.insert(card["id"].as_str().expect("an id").to_owned(), card);
    }
    shelf
}

pub fn build(name: &str) -> Digest {
    digest::of_bytes("test-build", name.as_bytes())
}

/// The reasons of the errors, in order.
pub fn reasons(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().filter(|finding| finding.is_error()).map(|finding| finding.reason).collect()
}

pub fn warnings(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().filter(|finding| !finding.is_error()).map(|finding| finding.reason).collect()
}
