//! What a run that tries again takes over from the run before it: the steps that are done, and their outputs.

use std::collections::BTreeMap;

use macp_plan_core::journal::{Body, DedupeVerdict, Reused, RunStart, StepFinished};
use macp_plan_core::plan::{FrozenPlan, StepStatus};

use super::Shared;
use crate::store::{Done, Outcome, Run, StoreError};

/// What is done, by step, with the run in which it was.
#[derive(Debug)]
pub(super) struct Reuse {
    done: BTreeMap<String, (String, Done)>,
}

impl Reuse {
    /// What the parent of a run has done of their plan, up to the step from which the run is to begin anew.
    pub(super) async fn of(shared: &Shared, start: &RunStart, plan: &FrozenPlan) -> Result<Self, StoreError> {
        let Some(parent) = &start.parent_run_id else {
            return Ok(Self { done: BTreeMap::new() });
        };
        let run = shared.runs.load(parent).await?.ok_or_else(|| StoreError::NoRun(parent.clone()))?;
        let mut done = done(&run);
        for settlement in shared.runs.settlements().of_run(parent).await? {
            if settlement.outcome == Outcome::Success {
                done.entry(settlement.step_id).or_insert((parent.clone(), Done::default()));
            }
        }
        if let Some(from) = &start.retry_from_step {
            let anew = plan.plan.steps.iter().skip_while(|step| step.step_id != *from);
            for step in anew {
                done.remove(&step.step_id);
            }
        }
        Ok(Self { done })
    }

    pub(super) fn done(&self, step_id: &str) -> Option<(String, Done)> {
        self.done.get(step_id).cloned()
    }
}

/// Steps that succeeded in a run, or were taken over by it themselves, and what they gave.
fn done(run: &Run) -> BTreeMap<String, (String, Done)> {
    let mut given: BTreeMap<&str, (String, Done)> = BTreeMap::new();
    let mut done = BTreeMap::new();
    for body in run.bodies() {
        match body {
            Body::AttemptObserved { step_id, output, .. } => {
                given.insert(step_id, (run.run_id.to_string(), Done { ended: None, output: output.clone() }));
            }
            Body::DedupeVerdict {
                step_id, verdict: DedupeVerdict::Duplicate, reused_run_id, reused, output, ..
            } => {
                let by = reused_run_id.clone().unwrap_or_else(|| run.run_id.to_string());
                given.insert(step_id, (by, Done { ended: reused.clone(), output: output.clone() }));
            }
            Body::StepFinished(StepFinished { step_id, status, code, .. }) => {
                let succeeded = matches!(status, StepStatus::Success | StepStatus::Partial);
                if !succeeded && *status != StepStatus::Skipped {
                    continue;
                }
                let Some((by, mut what)) = given.remove(step_id.as_str()) else { continue };
                if succeeded {
                    what.ended = Some(Reused { status: *status, code: code.clone() });
                }
                done.insert(step_id.clone(), (by, what));
            }
            _ => {}
        }
    }
    done
}
