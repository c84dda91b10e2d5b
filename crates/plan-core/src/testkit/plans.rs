//! Frozen plans, written short.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::journal::{REVISION, RunMode, RunStart};
use crate::plan::{FrozenPlan, JITTER, SPEC, TOKEN_ESTIMATOR};
use crate::rate_card::RateCard;

/// The card of [`super::Kit::standard`].
#[must_use]
pub fn rate_card() -> Value {
    json!({"id": "rc-kit", "currency": "USD", "skills": {
        "http_call@1.2.0": {"base": 0},
        "post_call@1.0.0": {"per_request": 1_000},
        "mail_send@1.0.0": {"base": 1_000_000},
        "json_transform@2.0.0": {"per_kib": 1_000},
        "llm_invoke@2.0.0": {"models": {"large": {"input": 300, "output": 1_500}, "stub": {"input": 0, "output": 0}}},
    }})
}

/// A step with three retries of 503, 500 and refusals by the limiter, and no jitter.
#[must_use]
pub fn step(step_id: &str, skill: &str, parameters: Value) -> Value {
    let version = match skill {
        "http_call" => "1.2.0",
        "llm_invoke" | "json_transform" => "2.0.0",
        _ => "1.0.0",
    };
    json!({
        "step_id": step_id, "skill_id": skill, "skill_version": version, "parameters": parameters,
        "retry_policy": {
            "max_retries": 3, "backoff_base_ms": 100, "backoff_multiplier": 2,
            "retryable_codes": ["ERR_HTTP_500", "ERR_HTTP_503", "ERR_LLM_API_ERROR", "ERR_RATE_LIMIT_INTERNAL"],
            "jitter_enabled": false, "jitter_max_ms": 0, "max_delay_ms": 60_000,
        },
        "on_error": "abort",
    })
}

/// A step that asks the `large` model; its bound is a quarter of the prompt's bytes and `max_tokens`.
#[must_use]
pub fn llm_step(step_id: &str, prompt: &str, max_tokens: u64) -> Value {
    step(step_id, "llm_invoke", json!({"model": "large", "prompt": prompt, "max_tokens": max_tokens}))
}

/// A plan under the kit's pins.
#[must_use]
pub fn plan(budget_cents: u64, steps: Vec<Value>) -> Value {
    let card = RateCard::from_value(rate_card()).expect("the kit's card is a rate card");
    let mut skills: Vec<&str> = steps.iter().filter_map(|step| step["skill_id"].as_str()).collect();
    skills.sort_unstable();
    skills.dedup();
    json!({
        "plan_id": "p-kit", "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent-kit", "goal": "be tested",
        "context": {
            "budget_cents": budget_cents, "allowed_skills": skills,
            "budget_policy": {
                "hard_limit": true, "per_step_max_cents": null, "alert_threshold_percent": 80,
                "admission": null, "policy_version": "1.0.0",
            },
        },
        "pins": {
            "spec": SPEC, "taxonomy_version": "1.1.0", "jitter": JITTER, "token_estimator": TOKEN_ESTIMATOR,
            "rate_card": {"id": "rc-kit", "hash": card.digest()},
        },
        "steps": steps,
    })
}

/// Reads a frozen plan, or says everything that is wrong with it.
#[must_use]
pub fn freeze(plan: Value) -> Arc<FrozenPlan> {
    Arc::new(FrozenPlan::from_value(plan).unwrap_or_else(|error| panic!("{error}")))
}

/// What a run of a plan is bound to.
#[must_use]
pub fn start(plan: &FrozenPlan, run_id: &str) -> RunStart {
    RunStart {
        revision: REVISION,
        run_id: run_id.to_owned(),
        plan_id: plan.plan.plan_id.clone(),
        plan_hash: plan.hash.clone(),
        pins: plan.plan.pins.clone(),
        mode: RunMode::Execute,
        epoch: 1,
        jitter_seed: run_id.to_owned(),
        namespace: "kit".to_owned(),
        executor: "testkit".to_owned(),
        original_run_id: None,
        parent_run_id: None,
        retry_from_step: None,
        session: None,
        deadline_ms: None,
        epoch_reason: None,
        started_by: String::new(),
    }
}
