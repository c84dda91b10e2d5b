//! What a start may refer to: the run it tries again, or the one it replays.

use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::skill::{Catalog, is_unrepeatable};

use super::{Shared, Start, StartError, StartMode, control};
use crate::store::{Run, Status, StoreError};

impl Shared {
    /// The run a start refers to, if it does, once it is clear that it may.
    pub(super) async fn related(&self, start: &Start) -> Result<Option<Run>, StartError> {
        let run_id = match &start.mode {
            StartMode::Execute => return Ok(None),
            StartMode::Retry { parent_run_id, .. } => parent_run_id,
            StartMode::FullReplay { original_run_id, .. } => original_run_id,
        };
        let run = self.runs.load(run_id).await?.ok_or_else(|| StartError::NoRun(run_id.clone()))?;
        let Some(finish) = run.finish() else {
            return Err(StartError::NotFinished(run_id.clone()));
        };
        let recorded = &run.start().plan_hash;
        if *recorded != start.plan.hash {
            let (recorded, given) = (recorded.to_string(), start.plan.hash.to_string());
            return Err(StartError::OtherPlan { run_id: run_id.clone(), recorded, given });
        }
        if let Some(why) = self.held_before(run_id).await? {
            return Err(StartError::Held { run_id: run_id.clone(), why });
        }
        if run.is_refused_binding() {
            let session_id = run.start().session.as_ref().map(|link| link.session_id.clone()).unwrap_or_default();
            return Err(StartError::NeverAdmitted { run_id: run_id.clone(), session_id });
        }
        if let Some(original) = run.start().original_run_id.clone() {
            return Err(StartError::ReplayOfReplay { run_id: run_id.clone(), original_run_id: original });
        }
        match &start.mode {
            StartMode::Execute => {}
            StartMode::Retry { from_step, .. } => {
                if let Some(step) = from_step.as_ref().filter(|step| !has_step(&start.plan, step)) {
                    return Err(StartError::NoStep(step.clone()));
                }
                if Status::from(finish.status) == Status::Succeeded && from_step.is_none() {
                    return Err(StartError::Succeeded { run_id: run_id.clone() });
                }
                self.check_settled(&run).await?;
            }
            StartMode::FullReplay { allow_steps, .. } => {
                if let Some(step) = allow_steps.iter().find(|step| !has_step(&start.plan, step)) {
                    return Err(StartError::NoStep(step.clone()));
                }
                let steps = unrepeatable(&start.plan, &*self.registry);
                let steps: Vec<_> = steps.into_iter().filter(|step| !allow_steps.contains(step)).collect();
                if !steps.is_empty() {
                    return Err(StartError::Unrepeatable { steps });
                }
            }
        }
        Ok(Some(run))
    }

    async fn held_before(&self, run_id: &str) -> Result<Option<String>, StoreError> {
        let run_id = run_id.to_owned();
        self.runs.blocking(move |store| control::held(store, &run_id)).await
    }

    /// Nobody may try an effect again while it is in doubt.
    async fn check_settled(&self, run: &Run) -> Result<(), StartError> {
        for step_id in run.in_doubt() {
            if self.runs.settlements().get(&run.run_id, step_id).await?.is_none() {
                return Err(StartError::InDoubt { run_id: run.run_id.to_string(), step_id: step_id.to_owned() });
            }
        }
        Ok(())
    }
}

fn has_step(plan: &FrozenPlan, step_id: &str) -> bool {
    plan.plan.steps.iter().any(|step| step.step_id == step_id)
}

/// Steps with an effect that nobody recognises as a repetition. They are asked of the templates: a reference never makes
/// one harmless.
fn unrepeatable(plan: &FrozenPlan, catalog: &dyn Catalog) -> Vec<String> {
    let steps = plan.plan.steps.iter().filter(|step| {
        let registration = catalog.skill(&step.skill_id, &step.skill_version);
        registration.is_some_and(|registration| is_unrepeatable(&*registration.skill, &step.parameters))
    });
    steps.map(|step| step.step_id.clone()).collect()
}
