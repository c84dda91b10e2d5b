//! What the skills that come with the runtime declare about themselves.
//!
//! A declaration belongs to its version: whatever here changes what a plan means needs a new one.

use macp_plan_core::plan::{RetryPolicy, Thousandths};
use macp_plan_core::skill::{CostModel, IdempotencyClass, SkillMetadata};
use serde_json::{Map, Value, json};

use super::{http_call, json_transform, llm_invoke};
use crate::outbound::PERMISSION;

pub(super) fn http_call() -> SkillMetadata {
    SkillMetadata {
        skill_id: http_call::ID.to_owned(),
        name: "HTTP call".to_owned(),
        version: http_call::VERSION.to_owned(),
        description: "Sends one HTTP request and returns the answer. A status of 400 or more is a failure. Values of \
                      headers may name secrets, as in `Bearer secret://token`."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "required": ["url"],
            "additionalProperties": false,
            "properties": {
                "url": {"type": "string", "minLength": 1, "maxLength": 8192},
                "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]},
                "headers": {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 8192}},
                "body": {},
                "body_text": {"type": "string"},
                "timeout_ms": {"type": "integer", "minimum": 100, "maximum": 30000},
                "target_dedupes": {"type": "boolean"},
                "follow_redirects": {"type": "boolean"},
                "max_redirects": {"type": "integer", "minimum": 0, "maximum": 20},
                "expect_json": {"type": "boolean"}
            },
            "not": {"required": ["body", "body_text"]}
        }),
        output_schema: json!({
            "type": "object",
            "required": ["status_code"],
            "properties": {
                "status_code": {"type": "integer"},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {},
                "body_base64": {"type": "string"}
            }
        }),
        timeout_ms: 5000,
        cost_estimate_cents: 0,
        retry: Some(RetryPolicy {
            max_retries: 3,
            backoff_base_ms: 100,
            backoff_multiplier: Thousandths(2000),
            retryable_codes: codes(&["ERR_DNS_FAILURE", "ERR_HTTP_503", "ERR_HTTP_TIMEOUT"]),
            jitter_enabled: true,
            jitter_max_ms: 50,
            max_delay_ms: 60_000,
            aliases: Default::default(),
        }),
        permissions: vec![PERMISSION.to_owned()],
        side_effects: vec!["http_request".to_owned()],
        deterministic: false,
        stable_fields: Vec::new(),
        nondeterminism: Some("remote content and availability".to_owned()),
        failure_modes: codes(&[
            "ERR_CONNECTION_REFUSED",
            "ERR_DESERIALIZATION_FAILED",
            "ERR_DNS_FAILURE",
            "ERR_HTTP_400",
            "ERR_HTTP_401",
            "ERR_HTTP_403",
            "ERR_HTTP_404",
            "ERR_HTTP_429",
            "ERR_HTTP_4XX",
            "ERR_HTTP_500",
            "ERR_HTTP_502",
            "ERR_HTTP_503",
            "ERR_HTTP_504",
            "ERR_HTTP_5XX",
            "ERR_HTTP_TIMEOUT",
            "ERR_POLICY_VIOLATION",
            "ERR_SSL_ERROR",
            "ERR_UNKNOWN",
            "ERR_VALIDATION_FAILED",
        ]),
        idempotency: IdempotencyClass::PerCall,
        cost_model: cost_model(http_call::ID, http_call::VERSION),
        constraints: constraints(json!({
            "schemes": ["https", "http"],
            "redirects_default": 5,
            "answer_bytes_max": http_call::ANSWER_BYTES_MAX
        })),
    }
}

pub(super) fn llm_invoke() -> SkillMetadata {
    SkillMetadata {
        skill_id: llm_invoke::ID.to_owned(),
        name: "LLM invocation".to_owned(),
        version: llm_invoke::VERSION.to_owned(),
        description: "Asks a language model of a configured provider for one answer.".to_owned(),
        input_schema: json!({
            "type": "object",
            "required": ["model"],
            "additionalProperties": false,
            "properties": {
                "model": {"type": "string", "minLength": 1, "maxLength": 256},
                "provider": {"type": "string", "minLength": 1, "maxLength": 128},
                "prompt": {"type": "string"},
                "messages": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1024,
                    "items": {
                        "type": "object",
                        "required": ["role", "content"],
                        "additionalProperties": false,
                        "properties": {
                            "role": {"enum": ["system", "user", "assistant"]},
                            "content": {"type": "string"}
                        }
                    }
                },
                "system": {"type": "string"},
                "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2},
                "timeout_ms": {"type": "integer", "minimum": 100, "maximum": 600_000}
            },
            "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]
        }),
        output_schema: json!({
            "type": "object",
            "required": ["text", "model"],
            "properties": {
                "text": {"type": "string"},
                "model": {"type": "string"},
                "finish_reason": {"type": ["string", "null"]},
                "usage": {
                    "type": ["object", "null"],
                    "properties": {
                        "input_tokens": {"type": "integer", "minimum": 0},
                        "output_tokens": {"type": "integer", "minimum": 0}
                    }
                }
            }
        }),
        timeout_ms: 60_000,
        cost_estimate_cents: 0,
        retry: Some(RetryPolicy {
            max_retries: 3,
            backoff_base_ms: 1000,
            backoff_multiplier: Thousandths(2000),
            retryable_codes: codes(&[
                "ERR_CONNECTION_REFUSED",
                "ERR_DNS_FAILURE",
                "ERR_HTTP_TIMEOUT",
                "ERR_LLM_API_ERROR",
                "ERR_LLM_RATE_LIMIT",
            ]),
            jitter_enabled: false,
            jitter_max_ms: 0,
            max_delay_ms: 30_000,
            aliases: Default::default(),
        }),
        permissions: vec![PERMISSION.to_owned()],
        side_effects: vec!["llm_request".to_owned()],
        deterministic: false,
        stable_fields: Vec::new(),
        nondeterminism: Some("the text a model writes, its length, and the provider's availability".to_owned()),
        failure_modes: codes(&[
            "ERR_CONNECTION_REFUSED",
            "ERR_DNS_FAILURE",
            "ERR_HTTP_401",
            "ERR_HTTP_403",
            "ERR_HTTP_4XX",
            "ERR_HTTP_TIMEOUT",
            "ERR_LLM_API_ERROR",
            "ERR_LLM_CONTENT_FILTER",
            "ERR_LLM_CONTEXT_LENGTH",
            "ERR_LLM_INVALID_RESPONSE",
            "ERR_LLM_RATE_LIMIT",
            "ERR_POLICY_VIOLATION",
            "ERR_QUOTA_EXCEEDED",
            "ERR_SSL_ERROR",
            "ERR_UNKNOWN",
            "ERR_VALIDATION_FAILED",
        ]),
        idempotency: IdempotencyClass::Natural,
        cost_model: cost_model(llm_invoke::ID, llm_invoke::VERSION),
        constraints: constraints(json!({"max_tokens_default": llm_invoke::MAX_TOKENS_DEFAULT})),
    }
}

pub(super) fn json_transform() -> SkillMetadata {
    SkillMetadata {
        skill_id: json_transform::ID.to_owned(),
        name: "JSON transformation".to_owned(),
        version: json_transform::VERSION.to_owned(),
        description:
            "Evaluates a JMESPath expression over `input`. With `bindings`, the expression sees an object that \
                      holds `input` and every binding by its name."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "required": ["input", "expression"],
            "additionalProperties": false,
            "properties": {
                "input": {},
                "expression": {"type": "string", "minLength": 1, "maxLength": json_transform::EXPRESSION_BYTES_MAX},
                "bindings": {"type": "object", "maxProperties": 64, "propertyNames": {"not": {"const": "input"}}}
            }
        }),
        output_schema: json!({"type": "object", "required": ["result"]}),
        timeout_ms: 5000,
        cost_estimate_cents: 0,
        retry: None,
        permissions: Vec::new(),
        side_effects: Vec::new(),
        deterministic: true,
        stable_fields: vec!["result".to_owned()],
        nondeterminism: None,
        failure_modes: codes(&["ERR_INTERNAL", "ERR_TIMEOUT", "ERR_VALIDATION_FAILED"]),
        idempotency: IdempotencyClass::Natural,
        cost_model: cost_model(json_transform::ID, json_transform::VERSION),
        constraints: constraints(json!({
            "language": "JMESPath",
            "input_bytes_max": json_transform::INPUT_BYTES_MAX,
            "expression_bytes_max": json_transform::EXPRESSION_BYTES_MAX
        })),
    }
}

fn codes(codes: &[&str]) -> Vec<String> {
    codes.iter().map(|code| (*code).to_owned()).collect()
}

fn cost_model(skill_id: &str, version: &str) -> CostModel {
    CostModel { rate_card_key: format!("{skill_id}@{version}") }
}

fn constraints(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
