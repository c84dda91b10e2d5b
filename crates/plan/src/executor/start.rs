//! Starting a run: what may be started, under which name, and exactly once for one request.

use std::sync::Arc;

use macp_plan_core::digest::{self, Digest};
use macp_plan_core::effect::Idempotency;
use macp_plan_core::journal::{Body, RunMode, RunStart, SessionLink};
use macp_plan_core::machine::{Machine, Pinned};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::skill::Catalog;
use serde_json::json;

use super::{Executor, Shared, StartError};
use crate::store::{JournalError, Outcome, Registered, Run, RunId, StartRequest, Status};

/// The build that executes; part of every journal.
const EXECUTOR: &str = concat!("macp-plan/", env!("CARGO_PKG_VERSION"));

/// What to start.
#[derive(Clone, Debug)]
pub struct Start {
    pub plan: FrozenPlan,
    pub mode: StartMode,
    /// Which deliberate execution of the plan this is, from 1. Another epoch repeats effects.
    pub epoch: u64,
    /// Who asked.
    pub by: String,
    /// The same id from the same caller means the same start.
    pub request_id: Option<String>,
    pub session: Option<SessionLink>,
    /// After which no further attempt begins.
    pub deadline_ms: Option<u64>,
}

impl Start {
    /// A plain first execution of a plan.
    #[must_use]
    pub fn execute(plan: FrozenPlan, by: &str) -> Self {
        let by = by.to_owned();
        Self { plan, mode: StartMode::Execute, epoch: 1, by, request_id: None, session: None, deadline_ms: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartMode {
    Execute,
    /// Tries again what another run left undone. Its finished steps are taken over, up to `from_step` if given.
    Retry {
        parent_run_id: String,
        from_step: Option<String>,
    },
    /// Executes against the live world again, to compare. Steps whose effects nothing recognises as repetitions must
    /// be named.
    FullReplay {
        original_run_id: String,
        allow_steps: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub run_id: String,
    /// The request had been made before, and this is what it started.
    pub existing: bool,
}

impl Executor {
    /// Starts a run; it is durable and at work when this returns. A plan that cannot run here becomes a run that is
    /// rejected, with every finding.
    pub async fn start(&self, start: Start) -> Result<Started, StartError> {
        self.start_as(RunId::new(self.shared.runs.now_ms()).into_string(), start).await
    }

    /// As [`Executor::start`], under a name that was chosen before.
    pub async fn start_as(&self, run_id: String, start: Start) -> Result<Started, StartError> {
        let shared = &self.shared;
        if *shared.stopping.borrow() {
            return Err(StartError::Stopping);
        }
        let limit = shared.settings.runs_live_max;
        if shared.live().len() >= limit {
            return Err(StartError::Overloaded { limit });
        }
        let related = shared.related(&start).await?;
        let run_id = match &start.request_id {
            None => run_id,
            Some(request_id) => {
                let request =
                    StartRequest { sender: start.by.clone(), request_id: request_id.clone(), digest: request(&start) };
                match shared.runs.requests().register(request, &run_id).await? {
                    Registered::New => run_id,
                    Registered::Same { run_id } if shared.runs.summary(&run_id).await?.is_some() => {
                        return Ok(Started { run_id, existing: true });
                    }
                    // The process ended between the two: the name is taken, and the run is still to be created.
                    Registered::Same { run_id } => run_id,
                    Registered::Differs { run_id } => {
                        return Err(StartError::RequestReused { request_id: request_id.clone(), run_id });
                    }
                }
            }
        };
        shared.runs.plans().keep(start.plan.value.clone()).await?;
        let first = shared.first(&run_id, &start, related.as_ref());
        let plan = Arc::new(start.plan);
        let mut machine = Machine::new(plan, shared.catalog(), Arc::new(Pinned), first.clone());
        let body = Body::RunStarted(Box::new(first));
        machine.apply(&body, None)?;
        match shared.runs.create(vec![body]).await {
            Ok((journal, _)) => {
                shared.begin(machine, journal);
                Ok(Started { run_id, existing: false })
            }
            Err(JournalError::Exists(run_id)) => Ok(Started { run_id, existing: true }),
            Err(error) => Err(error.into()),
        }
    }
}

impl Shared {
    /// The run a start refers to, if it does, once it is clear that it may.
    async fn related(&self, start: &Start) -> Result<Option<Run>, StartError> {
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
        if let Some(original) = run.start().original_run_id.clone() {
            return Err(StartError::ReplayOfReplay { run_id: run_id.clone(), original_run_id: original });
        }
        match &start.mode {
            StartMode::Execute => {}
            StartMode::Retry { from_step, .. } => {
                if let Some(step) = from_step
                    && !start.plan.plan.steps.iter().any(|known| known.step_id == *step)
                {
                    return Err(StartError::NoStep(step.clone()));
                }
                if Status::from(finish.status) == Status::Succeeded && from_step.is_none() {
                    return Err(StartError::Succeeded { run_id: run_id.clone() });
                }
                self.check_settled(&run).await?;
            }
            StartMode::FullReplay { allow_steps, .. } => {
                let steps = unrepeatable(&start.plan, &*self.registry);
                let steps: Vec<_> = steps.into_iter().filter(|step| !allow_steps.contains(step)).collect();
                if !steps.is_empty() {
                    return Err(StartError::Unrepeatable { steps });
                }
            }
        }
        Ok(Some(run))
    }

    /// Nobody may try an effect again while it is in doubt.
    async fn check_settled(&self, run: &Run) -> Result<(), StartError> {
        let Some(stop) = run.finish().and_then(|finish| finish.stop.as_ref()) else {
            return Ok(());
        };
        let in_doubt = run.finish().is_some_and(|finish| Status::from(finish.status) == Status::InDoubt);
        let Some(step_id) = stop.step_id.clone().filter(|_| in_doubt) else {
            return Ok(());
        };
        match self.runs.settlements().get(&run.run_id, &step_id).await?.map(|settlement| settlement.outcome) {
            Some(Outcome::Success | Outcome::Failure) => Ok(()),
            None => Err(StartError::InDoubt { run_id: run.run_id.to_string(), step_id }),
        }
    }

    /// Everything the run is bound to. A retry keeps the epoch and the session of its parent, since its effects are
    /// the same effects; a replay keeps what its waits are computed from as well.
    fn first(&self, run_id: &str, start: &Start, related: Option<&Run>) -> RunStart {
        let plan = &start.plan.plan;
        let mut first = RunStart {
            run_id: run_id.to_owned(),
            plan_id: plan.plan_id.clone(),
            plan_hash: start.plan.hash.clone(),
            pins: plan.pins.clone(),
            mode: RunMode::Execute,
            epoch: start.epoch,
            jitter_seed: run_id.to_owned(),
            namespace: self.settings.namespace.clone(),
            executor: EXECUTOR.to_owned(),
            original_run_id: None,
            parent_run_id: None,
            retry_from_step: None,
            session: start.session.clone(),
            deadline_ms: start.deadline_ms,
            started_by: start.by.clone(),
        };
        if let Some(run) = related {
            let earlier = run.start();
            first.epoch = earlier.epoch;
            first.namespace.clone_from(&earlier.namespace);
            first.session.clone_from(&earlier.session);
        }
        match (&start.mode, related) {
            (StartMode::Retry { parent_run_id, from_step }, _) => {
                first.parent_run_id = Some(parent_run_id.clone());
                first.retry_from_step.clone_from(from_step);
            }
            (StartMode::FullReplay { original_run_id, .. }, Some(original)) => {
                first.mode = RunMode::FullReplay;
                first.original_run_id = Some(original_run_id.clone());
                first.jitter_seed.clone_from(&original.start().jitter_seed);
            }
            _ => {}
        }
        first
    }
}

/// Steps with an effect that nothing recognises as a repetition. Effects are asked of the templates: a reference never
/// makes one harmless.
fn unrepeatable(plan: &FrozenPlan, catalog: &dyn Catalog) -> Vec<String> {
    let steps = plan.plan.steps.iter().filter(|step| {
        catalog.skill(&step.skill_id, &step.skill_version).is_some_and(|registration| {
            let effects = registration.skill.effects(&step.parameters);
            effects.iter().any(|effect| effect.idempotency == Idempotency::None)
        })
    });
    steps.map(|step| step.step_id.clone()).collect()
}

/// What makes two requests the same.
fn request(start: &Start) -> Digest {
    let mode = match &start.mode {
        StartMode::Execute => json!("execute"),
        StartMode::Retry { parent_run_id, from_step } => json!({ "retry": parent_run_id, "from": from_step }),
        StartMode::FullReplay { original_run_id, .. } => json!({ "replay": original_run_id }),
    };
    let session = start.session.as_ref().map(|link| (&link.session_id, &link.commitment_hash));
    let request = json!([start.plan.hash, mode, start.epoch, session, start.deadline_ms]);
    digest::of_bytes("aos-start/1", request.to_string().as_bytes())
}
