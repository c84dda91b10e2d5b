//! A question of the decision core, with everything needed to answer it while the core itself goes on being used.

use std::time::Duration;

use macp_plan_core::digest::Digest;
use macp_plan_core::machine::{Machine, Question};
use sha2::{Digest as _, Sha256};

use crate::executor::dispatch::Dispatch;
use crate::executor::secrecy;

#[derive(Debug)]
pub(super) enum Asked {
    Admission,
    Limiter { step_id: String, attempt: u32, wait: Duration },
    Dedupe { step_id: String, effect_key: String, request_digest: Option<Digest> },
    Outputs,
    Dispatch { step_id: String, attempt: u32, dispatch: Dispatch },
}

impl Asked {
    pub(super) fn of(question: Question<'_>, machine: &Machine) -> Self {
        match question {
            Question::Admission => Self::Admission,
            Question::Limiter { step, attempt, wait_ms } => {
                Self::Limiter { step_id: step.step_id.clone(), attempt, wait: Duration::from_millis(wait_ms) }
            }
            Question::Dedupe { step, effect_key, request_digest, .. } => Self::Dedupe {
                step_id: step.step_id.clone(),
                effect_key: effect_key.to_owned(),
                request_digest: request_digest.cloned(),
            },
            Question::Outputs => Self::Outputs,
            Question::Dispatch { step, attempt, parameters, timeout_ms, effect_keys, .. } => Self::Dispatch {
                step_id: step.step_id.clone(),
                attempt,
                dispatch: Dispatch {
                    agent_id: machine.plan().plan.agent_id.as_str().into(),
                    skill_id: step.skill_id.clone(),
                    skill_version: step.skill_version.clone(),
                    parameters: parameters.clone(),
                    timeout: Duration::from_millis(timeout_ms),
                    effect_keys: effect_keys.to_vec(),
                    secrets_named: secrecy::named(&step.parameters),
                    random_seed: seed(&machine.start().jitter_seed, &step.step_id),
                },
            },
        }
    }
}

/// The same for every attempt of a step, and for every replay of its run.
fn seed(jitter_seed: &str, step_id: &str) -> u64 {
    let hash = Sha256::digest(format!("{jitter_seed}/{step_id}"));
    hash.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}
