//! Plans and entries to write, as small as the store lets them be: what they decide does not matter here.

use std::sync::Arc;

use macp_ledger::{MemoryStore, SqliteStore, Store};
use macp_plan::store::{Journal, RunId, RunStore};
use macp_plan_core::cause::Cause;
use macp_plan_core::digest::{self, BEHAVIOR_LABEL, Digest, REQUEST_LABEL};
use macp_plan_core::journal::{
    Body, BudgetTotals, Output, REVISION, RunFinished, RunMode, RunStart, RunStatus, SessionLink, StepFinished, Stop,
    StopReason,
};
use macp_plan_core::plan::StepStatus;
use serde_json::{Map, Value, json};

/// Some time in 2026, in milliseconds.
pub(crate) const NOON_MS: u64 = 1_790_000_000_000;

pub(crate) fn memory() -> RunStore {
    RunStore::open(Arc::new(MemoryStore::new())).unwrap()
}

pub(crate) fn sqlite(directory: &tempfile::TempDir) -> RunStore {
    RunStore::open(Arc::new(SqliteStore::open(directory.path()).unwrap()) as Arc<dyn Store>).unwrap()
}

pub(crate) fn plan(plan_id: &str) -> Value {
    json!({
        "plan_id": plan_id, "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent-1", "goal": "g\u{fc}ltig",
        "steps": [{"step_id": "s1"}, {"step_id": "s2"}],
    })
}

pub(crate) fn start(run_id: &str, plan_hash: &Digest) -> RunStart {
    let pins = json!({
        "spec": "aos/1", "taxonomy_version": "1.1.0", "jitter": "sha256-be64-mod100/1",
        "token_estimator": "bytes4-ceil/1", "rate_card": {"id": "rc", "hash": plan_hash},
    });
    RunStart {
        revision: REVISION,
        run_id: run_id.to_owned(),
        plan_id: "p1".to_owned(),
        plan_hash: plan_hash.clone(),
        pins: serde_json::from_value(pins).unwrap(),
        mode: RunMode::Execute,
        epoch: 1,
        jitter_seed: run_id.to_owned(),
        namespace: "acme".to_owned(),
        executor: "test".to_owned(),
        original_run_id: None,
        parent_run_id: None,
        retry_from_step: None,
        session: None,
        deadline_ms: None,
        epoch_reason: None,
        started_by: String::new(),
    }
}

pub(crate) fn session(session_id: &str) -> SessionLink {
    SessionLink {
        session_id: session_id.to_owned(),
        commitment_hash: "c0ffee".to_owned(),
        position: 4,
        mode_version: "1".to_owned(),
        configuration_version: "1".to_owned(),
        policy_version: "1".to_owned(),
    }
}

pub(crate) fn started(start: RunStart) -> Vec<Body> {
    vec![Body::RunStarted(Box::new(start))]
}

/// Keeps the plan and creates a run of it.
pub(crate) async fn create(store: &RunStore, run_id: &str) -> Journal {
    create_with(store, run_id, |_| {}).await
}

pub(crate) async fn create_with(store: &RunStore, run_id: &str, change: impl FnOnce(&mut RunStart)) -> Journal {
    let plan_hash = store.plans().keep(plan("p1")).await.unwrap();
    let mut start = start(run_id, &plan_hash);
    change(&mut start);
    store.create(started(start)).await.unwrap().0
}

/// A run that starts at the given second.
pub(crate) fn run_id(second: u64) -> String {
    RunId::new(NOON_MS + 1_000 * second).into_string()
}

pub(crate) fn step_started(step_id: &str) -> Body {
    Body::StepStarted { step_id: step_id.to_owned(), index: 0, request_digest: Some(request_digest(step_id)) }
}

pub(crate) fn intent(step_id: &str) -> Body {
    Body::EffectIntent {
        step_id: step_id.to_owned(),
        attempt: 0,
        effect_type: "http_request".to_owned(),
        target: "example.com".to_owned(),
        effect_key: effect_key(step_id),
    }
}

pub(crate) fn observed(step_id: &str, output: Output) -> Body {
    let (usage, retry_after_ms) = (None, None);
    Body::AttemptObserved {
        step_id: step_id.to_owned(),
        attempt: 0,
        cause: Cause::Success,
        usage,
        retry_after_ms,
        output,
    }
}

pub(crate) fn step_finished(step_id: &str, status: StepStatus) -> Body {
    Body::StepFinished(StepFinished {
        step_id: step_id.to_owned(),
        status,
        code: if status == StepStatus::Failure { "ERR_HTTP_503" } else { "OK" }.to_owned(),
        retryable: false,
        cost_microcents: 250,
        cost_cents: 1,
        skill_id: "http_call".to_owned(),
        skill_version: "1.2.0".to_owned(),
        backend_retries: 1,
        total_attempts: 2,
        attempt_codes: vec!["ERR_HTTP_503".to_owned(), "OK".to_owned()],
        side_effects: vec![("http_request".to_owned(), "example.com".to_owned())],
        details: Map::new(),
    })
}

pub(crate) fn run_finished(status: RunStatus) -> Body {
    let stop = (status == RunStatus::InDoubt).then(|| Stop {
        reason: StopReason::InDoubt,
        step_id: Some("s1".to_owned()),
        code: "ERR_EFFECT_IN_DOUBT".to_owned(),
    });
    Body::RunFinished(RunFinished {
        status,
        final_code: if status == RunStatus::Succeeded { "OK" } else { "ERR_HTTP_503" }.to_owned(),
        stop,
        not_reached: Vec::new(),
        retry_count: 2,
        total_cost_microcents: 500,
        total_cost_cents: 1,
        budget: BudgetTotals { budget: 1_000_000, spent: 500, remaining: 999_500, overrun: 0 },
        behavior_digest: digest::of_bytes(BEHAVIOR_LABEL, b""),
    })
}

/// A run with one step, from its first entry to its last.
pub(crate) async fn finished_run(store: &RunStore, run_id: &str, output: Output) {
    let mut journal = create(store, run_id).await;
    let bodies = vec![step_started("s1"), intent("s1"), observed("s1", output)];
    journal.append(bodies).await.unwrap();
    let bodies = vec![step_finished("s1", StepStatus::Success), run_finished(RunStatus::Succeeded)];
    journal.append(bodies).await.unwrap();
}

pub(crate) fn request_digest(text: &str) -> Digest {
    digest::of_bytes(REQUEST_LABEL, text.as_bytes())
}

pub(crate) fn effect_key(step_id: &str) -> String {
    format!("aos1-{}", digest::hex_of("test", step_id.as_bytes()))
}
