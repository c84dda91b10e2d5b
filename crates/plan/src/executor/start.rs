//! Starting a run: what may be started, under which name, and exactly once for one request.

use std::sync::Arc;

use macp_plan_core::digest::{self, Digest};
use macp_plan_core::journal::{Body, REVISION, RunMode, RunStart, SessionLink};
use macp_plan_core::machine::{Machine, Pinned};
use macp_plan_core::plan::FrozenPlan;
use serde_json::json;

use super::desk::{self, Place};
use super::spending::Full;
use super::{Executor, Shared, StartError, detached};
use crate::store::{JournalError, Registered, Run, RunId, StartRequest};

/// The build that executes; part of every journal.
const EXECUTOR: &str = concat!("macp-plan/", env!("CARGO_PKG_VERSION"));

/// What to start.
#[derive(Clone, Debug)]
pub struct Start {
    pub plan: FrozenPlan,
    pub mode: StartMode,
    /// Which deliberate execution of the plan this is, from 1. Another epoch repeats effects.
    pub epoch: u64,
    /// Why effects are to be repeated, for an epoch after the first.
    pub epoch_reason: Option<String>,
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
        Self {
            plan,
            mode: StartMode::Execute,
            epoch: 1,
            epoch_reason: None,
            by: by.to_owned(),
            request_id: None,
            session: None,
            deadline_ms: None,
        }
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
    /// rejected, with every finding. Where nothing more may be kept of its agent's runs, that would be more to keep: there
    /// is none, unless a session committed to the plan, which gives one run for a commitment and an epoch at most.
    pub async fn start(&self, start: Start) -> Result<Started, StartError> {
        self.start_as(RunId::new(self.shared.runs.now_ms()).into_string(), start).await
    }

    /// The name that the run of a start gets, to be known before there is a run.
    pub(crate) async fn name_for(&self, start: &Start) -> Result<String, StartError> {
        let named = self.shared.named_before(start).await?;
        Ok(named.unwrap_or_else(|| RunId::new(self.shared.runs.now_ms()).into_string()))
    }

    /// As [`Executor::start`], under a name that was chosen before.
    pub async fn start_as(&self, run_id: String, start: Start) -> Result<Started, StartError> {
        let shared = &self.shared;
        if shared.is_stopping() {
            return Err(StartError::Stopping);
        }
        let related = shared.related(&start).await?;
        let agent_id = &start.plan.plan.agent_id;
        if start.session.is_none()
            && let Some(Full { kept, kept_max }) = shared.used_up(agent_id).await?
        {
            let refused = StartError::NoRoom { agent_id: agent_id.clone(), kept, kept_max };
            return shared.known(run_id, &start).await?.ok_or(refused);
        }
        let run_id = shared.named(run_id, &start).await?;
        let Some(place) = shared.place(&run_id, &start.plan.plan.agent_id).await? else {
            return Ok(Started { run_id, existing: true });
        };
        // Whoever asked may not wait for the answer; a run that exists must be worked on all the same.
        detached(Arc::clone(shared).create(place, start, related)).await
    }
}

impl Shared {
    /// Creates a run and puts a task to work on it.
    async fn create(self: Arc<Self>, place: Place, start: Start, related: Option<Run>) -> Result<Started, StartError> {
        self.runs.plans().keep(start.plan.value.clone()).await?;
        let run_id = place.run_id().to_owned();
        let first = self.first(&run_id, &start, related.as_ref());
        let mut machine = Machine::new(Arc::new(start.plan), self.catalog(), Arc::new(Pinned), first.clone()).lean();
        let body = Body::RunStarted(Box::new(first));
        machine.apply(&body, None)?;
        match self.runs.create(vec![body]).await {
            Ok((journal, _)) => {
                self.begin(place, machine, journal);
                Ok(Started { run_id, existing: false })
            }
            Err(JournalError::Exists(run_id)) => Ok(Started { run_id, existing: true }),
            Err(error) => {
                // It may be there although the write failed, and then it is at work when it is asked for again.
                if let JournalError::Failed { .. } = error {
                    self.go_on_with(place);
                }
                Err(error.into())
            }
        }
    }

    /// The run that a start has led to before, if it has. Nothing is written to find out.
    async fn known(&self, run_id: String, start: &Start) -> Result<Option<Started>, StartError> {
        let run_id = self.named_before(start).await?.unwrap_or(run_id);
        let is_there = self.runs.summary(&run_id).await?.is_some();
        Ok(is_there.then_some(Started { run_id, existing: true }))
    }

    /// The name that was chosen for the run of a start when it was asked for before, if it was.
    async fn named_before(&self, start: &Start) -> Result<Option<String>, StartError> {
        let Some(request) = asked(start) else { return Ok(None) };
        let request_id = request.request_id.clone();
        match self.runs.requests().find(request).await? {
            Registered::New => Ok(None),
            Registered::Same { run_id } => Ok(Some(run_id)),
            Registered::Differs { run_id } => Err(StartError::RequestReused { request_id, run_id }),
        }
    }

    /// The name of the run that answers a start: that of the first time it was asked for.
    async fn named(&self, run_id: String, start: &Start) -> Result<String, StartError> {
        let Some(request) = asked(start) else { return Ok(run_id) };
        let request_id = request.request_id.clone();
        match self.runs.requests().register(request, &run_id).await? {
            Registered::New => Ok(run_id),
            // It may not exist yet: whoever chose the name may have been stopped before creating the run.
            Registered::Same { run_id } => Ok(run_id),
            Registered::Differs { run_id } => Err(StartError::RequestReused { request_id, run_id }),
        }
    }

    /// A place for a run that is to be created; none if it has been.
    async fn place(&self, run_id: &str, agent_id: &str) -> Result<Option<Place>, StartError> {
        let limit = self.settings.runs_live_max;
        let mut changes = self.desk.changes();
        loop {
            if self.runs.summary(run_id).await?.is_some() {
                return Ok(None);
            }
            match self.desk.enter(run_id, agent_id, limit) {
                Ok(Some(place)) => return Ok(Some(place)),
                Err(desk::Full) => return Err(StartError::Overloaded { limit }),
                // Someone else is about to create it: soon it is there, or the place is free again. The sender of
                // changes lives as long as the desk.
                Ok(None) => {
                    let _ = changes.changed().await;
                }
            }
        }
    }

    /// Everything the run is bound to. A retry keeps the epoch and the session of its parent, since its effects are
    /// the same effects; a replay keeps what its waits are computed from as well, and the rules it is decided by.
    pub(super) fn first(&self, run_id: &str, start: &Start, related: Option<&Run>) -> RunStart {
        let mut first = RunStart {
            epoch: start.epoch,
            epoch_reason: start.epoch_reason.clone().filter(|_| start.epoch > 1),
            session: start.session.clone(),
            deadline_ms: start.deadline_ms,
            started_by: start.by.clone(),
            ..self.bare(run_id, &start.plan, RunMode::Execute)
        };
        if start.session.is_some() {
            // The session stands in every key, and two sessions have nothing in common.
            first.namespace.clone_from(&self.settings.namespace);
        }
        if let Some(run) = related {
            let earlier = run.start();
            first.epoch = earlier.epoch;
            first.epoch_reason.clone_from(&earlier.epoch_reason);
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
                // By other rules it would differ without anything having changed.
                first.revision = original.start().revision;
            }
            _ => {}
        }
        first
    }

    /// What a run of a plan is bound to if nothing else is asked for.
    pub(super) fn bare(&self, run_id: &str, plan: &FrozenPlan, mode: RunMode) -> RunStart {
        RunStart {
            revision: REVISION,
            run_id: run_id.to_owned(),
            plan_id: plan.plan.plan_id.clone(),
            plan_hash: plan.hash.clone(),
            pins: plan.plan.pins.clone(),
            mode,
            epoch: 1,
            jitter_seed: run_id.to_owned(),
            namespace: self.namespace_of(&plan.plan.agent_id),
            executor: EXECUTOR.to_owned(),
            original_run_id: None,
            parent_run_id: None,
            retry_from_step: None,
            session: None,
            deadline_ms: None,
            epoch_reason: None,
            started_by: String::new(),
        }
    }

    /// Where the effects of an agent's own runs are named. Plans are named by who writes them, so two agents may well
    /// have chosen the same name, and neither may use up or change the effects of the other. The journal keeps it, so
    /// that a run has the same keys for ever.
    fn namespace_of(&self, agent_id: &str) -> String {
        format!("{}/{agent_id}", self.settings.namespace)
    }
}

/// The request that a start answers, if it has a name.
fn asked(start: &Start) -> Option<StartRequest> {
    let request_id = start.request_id.clone()?;
    Some(StartRequest { sender: start.by.clone(), request_id, digest: request(start) })
}

/// What makes two requests the same.
fn request(start: &Start) -> Digest {
    let mode = match &start.mode {
        StartMode::Execute => json!("execute"),
        StartMode::Retry { parent_run_id, from_step } => json!({ "retry": parent_run_id, "from": from_step }),
        StartMode::FullReplay { original_run_id, allow_steps } => {
            json!({ "replay": original_run_id, "allow": allow_steps })
        }
    };
    let session = start.session.as_ref().map(|link| (&link.session_id, &link.commitment_hash));
    let request = json!([start.plan.hash, mode, start.epoch, session, start.deadline_ms]);
    digest::of_bytes("aos-start/1", request.to_string().as_bytes())
}
