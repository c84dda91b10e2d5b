//! What a run that tries again takes over from the run before it: the outputs of steps that are done.

use std::collections::BTreeMap;

use macp_plan_core::journal::{Body, DedupeVerdict, Output, RunStart};
use macp_plan_core::plan::{FrozenPlan, StepStatus};

use super::Shared;
use crate::store::{Outcome, Run, StoreError};

/// Outputs by step, with the run in which the step was done.
#[derive(Debug)]
pub(super) struct Reuse {
    outputs: BTreeMap<String, (String, Output)>,
}

impl Reuse {
    /// What the parent of a run has done of their plan, up to the step from which the run is to begin anew.
    pub(super) async fn of(shared: &Shared, start: &RunStart, plan: &FrozenPlan) -> Result<Self, StoreError> {
        let Some(parent) = &start.parent_run_id else {
            return Ok(Self { outputs: BTreeMap::new() });
        };
        let run = shared.runs.load(parent).await?.ok_or_else(|| StoreError::NoRun(parent.clone()))?;
        let mut outputs = done(&run);
        for settlement in shared.runs.settlements().of_run(parent).await? {
            if settlement.outcome == Outcome::Success {
                outputs.entry(settlement.step_id).or_insert((parent.clone(), Output::default()));
            }
        }
        if let Some(from) = &start.retry_from_step {
            let anew = plan.plan.steps.iter().skip_while(|step| step.step_id != *from);
            for step in anew {
                outputs.remove(&step.step_id);
            }
        }
        Ok(Self { outputs })
    }

    pub(super) fn output(&self, step_id: &str) -> Option<(String, Output)> {
        self.outputs.get(step_id).cloned()
    }
}

/// Steps that succeeded in a run, or were taken over by it themselves, and what they gave.
fn done(run: &Run) -> BTreeMap<String, (String, Output)> {
    let mut given: BTreeMap<&str, (String, Output)> = BTreeMap::new();
    let mut done = BTreeMap::new();
    for body in run.bodies() {
        match body {
            Body::AttemptObserved { step_id, output, .. } => {
                given.insert(step_id, (run.run_id.to_string(), output.clone()));
            }
            Body::DedupeVerdict { step_id, verdict: DedupeVerdict::Duplicate, reused_run_id, output, .. } => {
                let by = reused_run_id.clone().unwrap_or_else(|| run.run_id.to_string());
                given.insert(step_id, (by, output.clone()));
            }
            Body::StepFinished(finished) => {
                let taken_over = finished.status == StepStatus::Skipped && given.contains_key(&*finished.step_id);
                let succeeded = matches!(finished.status, StepStatus::Success | StepStatus::Partial);
                if (succeeded || taken_over)
                    && let Some(output) = given.remove(&*finished.step_id)
                {
                    done.insert(finished.step_id.clone(), output);
                }
            }
            _ => {}
        }
    }
    done
}
