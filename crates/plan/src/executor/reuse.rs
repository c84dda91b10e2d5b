//! What a run that tries again finds done by the runs before it: steps to take over, and effects never to repeat.

use std::collections::{BTreeMap, BTreeSet};

use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, DedupeVerdict, Reused, RunStart, StepFinished};
use macp_plan_core::plan::{FrozenPlan, StepStatus};

use super::Shared;
use crate::store::{Done, Outcome, Run, StoreError};

/// What is done, by step.
#[derive(Debug, Default)]
pub(super) struct Reuse {
    /// Of the run that is tried again, up to the step from which everything is to be done anew.
    steps: BTreeMap<String, DoneStep>,
    /// Of all runs before it. Claims say the same of effects, but do not come along with a journal that was imported, or
    /// taken from its session.
    all: BTreeMap<String, DoneStep>,
}

/// A step that is done.
#[derive(Clone, Debug)]
pub(super) struct DoneStep {
    /// The run that did it.
    pub(super) run_id: String,
    /// What was asked for.
    pub(super) request_digest: Option<Digest>,
    pub(super) done: Done,
}

impl Reuse {
    /// What the runs before a run have done of their plan.
    pub(super) async fn of(shared: &Shared, start: &RunStart, plan: &FrozenPlan) -> Result<Self, StoreError> {
        let Some(parent) = &start.parent_run_id else {
            return Ok(Self::default());
        };
        let run = shared.runs.load(parent).await?.ok_or_else(|| StoreError::NoRun(parent.clone()))?;
        let mut steps = done_or_settled(shared, &run).await?;
        let mut all = steps.clone();
        // What was imported may say anything of what came before it.
        let mut seen = BTreeSet::from([parent.clone()]);
        let mut earlier = run.start().parent_run_id.clone();
        while let Some(run_id) = earlier.take().filter(|run_id| seen.insert(run_id.clone())) {
            let Some(run) = shared.runs.load(&run_id).await? else { break };
            for (step_id, step) in done_or_settled(shared, &run).await? {
                all.entry(step_id).or_insert(step);
            }
            earlier.clone_from(&run.start().parent_run_id);
        }
        if let Some(from) = &start.retry_from_step {
            for step in plan.plan.steps.iter().skip_while(|step| step.step_id != *from) {
                steps.remove(&step.step_id);
            }
        }
        Ok(Self { steps, all })
    }

    /// A step to take over as it is.
    pub(super) fn step(&self, step_id: &str) -> Option<&DoneStep> {
        self.steps.get(step_id)
    }

    /// A step whose effects took place in whichever run.
    pub(super) fn effects(&self, step_id: &str) -> Option<&DoneStep> {
        self.all.get(step_id)
    }
}

/// Steps that a run did, or that an operator says it did.
async fn done_or_settled(shared: &Shared, run: &Run) -> Result<BTreeMap<String, DoneStep>, StoreError> {
    let requests = requests(run);
    let mut done = done(run, &requests);
    for settlement in shared.runs.settlements().of_run(&run.run_id).await? {
        if settlement.outcome == Outcome::Success {
            let request_digest = requests.get(settlement.step_id.as_str()).copied().cloned();
            let step = DoneStep { run_id: run.run_id.to_string(), request_digest, done: Done::default() };
            done.entry(settlement.step_id).or_insert(step);
        }
    }
    Ok(done)
}

/// Steps that succeeded in a run, or were taken over by it themselves, and what they gave.
fn done(run: &Run, requests: &BTreeMap<&str, &Digest>) -> BTreeMap<String, DoneStep> {
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
                let Some((run_id, mut what)) = given.remove(step_id.as_str()) else { continue };
                if succeeded {
                    what.ended = Some(Reused { status: *status, code: code.clone() });
                }
                let request_digest = requests.get(step_id.as_str()).copied().cloned();
                done.insert(step_id.clone(), DoneStep { run_id, request_digest, done: what });
            }
            _ => {}
        }
    }
    done
}

/// What the steps of a run asked for.
fn requests(run: &Run) -> BTreeMap<&str, &Digest> {
    let requested = |body| match body {
        &Body::StepStarted { ref step_id, request_digest: Some(ref digest), .. } => Some((step_id.as_str(), digest)),
        _ => None,
    };
    run.bodies().filter_map(requested).collect()
}
