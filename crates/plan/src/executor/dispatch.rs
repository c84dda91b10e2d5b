//! One call of a skill: guarded by a timer of our own, a panic caught, its output checked.

use std::sync::Arc;
use std::time::Duration;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_wire::canonical;
use serde_json::{Map, Value};

use crate::registry::Registry;
use crate::secrets::Secrets;
use crate::skill::{Call, Observation};

/// How long after a skill's own timer ours goes off, so that one which keeps its time reports first.
const GUARD: Duration = Duration::from_secs(1);

/// What is to be called, and with what.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub(super) skill_id: String,
    pub(super) skill_version: String,
    pub(super) parameters: Arc<Map<String, Value>>,
    pub(super) timeout: Duration,
    pub(super) effect_keys: Vec<String>,
    pub(super) random_seed: u64,
}

/// Makes the call. It runs as a task of its own, so that a panic ends that task and nothing else.
pub(super) async fn call(dispatch: Dispatch, registry: &Registry, secrets: Arc<dyn Secrets>) -> Observation {
    let Dispatch { skill_id, skill_version, parameters, timeout, effect_keys, random_seed } = dispatch;
    let Some(skill) = registry.callable(&skill_id, &skill_version) else {
        return Observation::new(Cause::SkillNotFound, format!("{skill_id} {skill_version} is not registered"));
    };
    let mut task = tokio::spawn(async move {
        let call =
            Call { parameters: &parameters, timeout, effect_keys: &effect_keys, secrets: &*secrets, random_seed };
        skill.call(call).await
    });
    let observation = match tokio::time::timeout(timeout + GUARD, &mut task).await {
        Ok(Ok(observation)) => observation,
        Ok(Err(_panicked)) => Observation::new(Cause::Internal, format!("{skill_id} {skill_version} panicked")),
        Err(_elapsed) => {
            task.abort();
            let waited = timeout + GUARD;
            Observation::new(Cause::GuardTimeout, format!("{skill_id} did not answer within {waited:?}"))
        }
    };
    checked(observation, registry, &skill_id, &skill_version)
}

/// A success must have the shape the skill promises. What the journal cannot hold is cut to what it can.
fn checked(mut observation: Observation, registry: &Registry, skill_id: &str, skill_version: &str) -> Observation {
    observation.usage = observation.usage.map(held);
    observation.retry_after_ms = observation.retry_after_ms.map(|hint| hint.min(canonical::INTEGER_MAX));
    let success = match observation.cause {
        Cause::Success | Cause::Partial => true,
        Cause::HttpStatus { status } => (100..400).contains(&status),
        _ => false,
    };
    if success
        && let Some(output) = &observation.output
        && let Err(place) = registry.check_output(skill_id, skill_version, output)
    {
        observation.cause = Cause::OutputMismatch;
        observation.message = format!("the output of {skill_id} is not as it promises: {place}");
        observation.output = None;
    }
    observation
}

fn held(usage: Usage) -> Usage {
    let held = |count: u64| count.min(canonical::INTEGER_MAX);
    Usage {
        requests: held(usage.requests),
        bytes: held(usage.bytes),
        input_tokens: held(usage.input_tokens),
        output_tokens: held(usage.output_tokens),
    }
}
