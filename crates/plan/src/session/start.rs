//! Starting the plan a session committed to: verified, admitted once, and put down to be reported before it exists.

use std::sync::Arc;

use macp_kernel::TTL_MS_MAX;
use macp_plan_core::digest;
use macp_plan_core::dry_run::Estimate;
use macp_plan_core::journal::SessionLink;
use tokio::sync::MutexGuard;

use super::binding::{Bound, Judged};
use super::notes::{EpochNote, Report};
use super::refusal::{Error, Reason, Refusal};
use super::{START_LOCKS, SessionRuns, epochs};
use crate::executor::{Start, StartError, StartMode, Started, detached};
use crate::store::{Admission, Commitment, RunId, StoreError};

/// Steps that a refusal for taking too long names.
const STEPS_NAMED_MAX: usize = 3;

/// The right to start a run of a commitment beside the one that was admitted for it. Nothing takes the place of the
/// commitment while it is held.
#[derive(Debug)]
pub struct StartClaim<'s> {
    _turn: MutexGuard<'s, ()>,
    bound: Bound,
    ttl_ms: i64,
}

/// A request to run what a session committed to.
#[derive(Clone, Debug)]
pub struct StartFromSession {
    pub session_id: String,
    /// Which deliberate execution of the commitment this is, from 1.
    pub epoch: u64,
    /// Why effects are to be repeated; needed for every epoch after the first.
    pub epoch_reason: Option<String>,
    /// Whether whoever asks has the right to begin further epochs.
    pub may_repeat: bool,
    /// Who asks.
    pub by: String,
    pub request_id: Option<String>,
}

impl StartFromSession {
    /// The first execution.
    #[must_use]
    pub fn first(session_id: &str, by: &str) -> Self {
        Self {
            session_id: session_id.to_owned(),
            epoch: 1,
            epoch_reason: None,
            may_repeat: false,
            by: by.to_owned(),
            request_id: None,
        }
    }
}

impl SessionRuns {
    /// Starts the plan a session committed to. However often and from wherever it is asked for, and whatever crashes
    /// come in between, there is one run for a commitment and an epoch: the first request starts it, every other is
    /// told of it.
    ///
    /// A plan that was committed to and may not run is refused with every reason, and a run that is rejected tells so.
    /// One that fails the executor's own checks becomes a run that is rejected.
    pub async fn start_from_session(&self, request: StartFromSession) -> Result<Started, Error> {
        self.start(request, |_| true).await
    }

    /// The same; `tells` says for which refusals there is to be a rejected run.
    pub(super) async fn start(&self, request: StartFromSession, tells: fn(&Refusal) -> bool) -> Result<Started, Error> {
        epochs::check(&request)?;
        let judged = self.judge(&request.session_id).await?;
        // Whoever asked may not wait for the answer; a run that exists must be reported, and stopped if it is
        // superseded, all the same.
        let session_runs = self.clone();
        detached(async move { session_runs.start_judged(judged, request, tells).await }).await
    }

    async fn start_judged(
        &self,
        judged: Judged,
        request: StartFromSession,
        tells: fn(&Refusal) -> bool,
    ) -> Result<Started, Error> {
        let Judged { bound, mut refusals } = judged;
        let commitment = commitment_of(&bound.link, request.epoch);
        let _turn = self.turn(&commitment.session_id, &commitment.commitment_hash).await;
        if refusals.is_empty() {
            if let Some(run_id) = self.started(&commitment).await? {
                return Ok(Started { run_id, existing: true });
            }
            refusals = refusals_of(self.check_superseded(&bound.link).await)?;
        }
        let mut ttl_ms = 0;
        if refusals.is_empty() {
            self.check_executed(&commitment).await?;
            self.check_earlier_epoch(&commitment).await?;
            refusals = refusals_of(self.check_worst_case(&bound).map(|ms| ttl_ms = ms))?;
        }
        if refusals.iter().any(tells) {
            return Err(self.reject(bound, &request, refusals).await);
        }
        if !refusals.is_empty() {
            return Err(Error::Refused(refusals));
        }
        if let Some(reason) = request.epoch_reason.clone().filter(|_| request.epoch > 1) {
            let Commitment { session_id, commitment_hash, epoch } = commitment.clone();
            let (by, at_ms) = (request.by.clone(), self.shared.engine.now_ms());
            self.shared.notes.keep_epoch(EpochNote { session_id, commitment_hash, epoch, by, reason, at_ms }).await?;
        }
        let run_id = RunId::new(u64::try_from(self.shared.engine.now_ms()).unwrap_or_default()).into_string();
        let run_id = match self.runs().admissions().admit(commitment.clone(), &run_id).await? {
            Admission::Admitted => run_id,
            // An earlier process came this far. The run is created under the name it was given then.
            Admission::Already { run_id } => run_id,
        };
        self.keep_executed(commitment, &run_id).await?;
        let report = report(&run_id, &bound, &request, ttl_ms);
        self.launch(bound, report).await
    }

    /// Starts a run beside the one that was admitted for a commitment, if there is one: a retry, or a full replay. Whoever
    /// asked may not wait for the answer; a retry that exists is reported all the same, and nothing takes the place of
    /// its commitment before the run is there to be found.
    pub async fn start_beside(&self, link: Option<SessionLink>, start: Start) -> Result<Started, Error> {
        let session_runs = self.clone();
        detached(async move {
            let executor = &session_runs.shared.executor;
            let Some(link) = link else {
                return Ok(executor.start(start).await?);
            };
            let claim = session_runs.claim_start(&link).await?;
            match start.mode.clone() {
                StartMode::Retry { parent_run_id, .. } => session_runs.start_retry(&claim, &parent_run_id, start).await,
                StartMode::Execute | StartMode::FullReplay { .. } => Ok(executor.start(start).await?),
            }
        })
        .await
    }

    /// Has a run created that tries again what another left undone, and reported. The note comes first, as it does for
    /// every run of a session.
    async fn start_retry(&self, claim: &StartClaim<'_>, parent_run_id: &str, start: Start) -> Result<Started, Error> {
        let StartClaim { bound, ttl_ms, .. } = claim;
        let epoch = self.runs().summary(parent_run_id).await?.map_or(1, |parent| parent.epoch);
        let run_id = self.shared.executor.name_for(&start).await?;
        // Whoever asks for it again is told of it, whatever has come since.
        if self.runs().summary(&run_id).await?.is_none() {
            self.check_later_epoch(&commitment_of(&bound.link, epoch)).await?;
        }
        if !self.shared.settings.execution.enabled {
            return Ok(self.shared.executor.start(start).await?);
        }
        let request = StartFromSession { epoch, ..StartFromSession::first(&bound.link.session_id, "") };
        let report = Report { is_retry: true, ..report(&run_id, bound, &request, *ttl_ms) };
        self.shared.notes.keep_report(report.clone()).await?;
        match self.shared.executor.start_as(run_id, start).await {
            // To report again what was reported does nothing.
            Ok(started) => {
                self.report(report);
                Ok(started)
            }
            Err(error) => self.started_after_all(report, error).await,
        }
    }

    /// Has the run created under its name and reported. The note comes first, so that no run goes without a report.
    pub(super) async fn launch(&self, bound: Bound, report: Report) -> Result<Started, Error> {
        let run_id = report.run_id.clone();
        let link = bound.link.clone();
        self.check_lost(&run_id, report.epoch).await?;
        self.shared.notes.keep_report(report.clone()).await?;
        let start = Start {
            plan: bound.plan,
            mode: StartMode::Execute,
            epoch: report.epoch,
            epoch_reason: report.epoch_reason.clone(),
            by: report.by.clone(),
            request_id: report.request_id.clone(),
            session: Some(bound.link),
            deadline_ms: None,
        };
        match self.shared.executor.start_as(run_id.clone(), start).await {
            Ok(started) => {
                self.report(report);
                // A commitment that came between the check and the admission did not see this run; this run sees it.
                self.stop_if_superseded(&run_id, &link.session_id, &link.commitment_hash).await?;
                Ok(started)
            }
            Err(error) => self.started_after_all(report, error).await,
        }
    }

    /// What a start that failed came to.
    async fn started_after_all(&self, report: Report, error: StartError) -> Result<Started, Error> {
        let run_id = report.run_id.clone();
        match self.runs().summary(&run_id).await {
            // Whoever asked is told that nothing was started, so nothing may start later.
            Ok(None) => {
                self.shared.notes.drop_report(&run_id).await?;
                Err(error.into())
            }
            // It was written although that was said to have failed, and nobody is at work on it.
            Ok(Some(_)) => {
                tracing::warn!(run = run_id, %error, "the run is there nevertheless, and goes on");
                self.shared.executor.go_on_with(&run_id).await?;
                self.report(report);
                Ok(Started { run_id, existing: false })
            }
            // What is not known now is found out at the next start.
            Err(_unknown) => Err(error.into()),
        }
    }

    /// Waits until nobody else starts a run of a commitment or takes its place.
    pub(super) async fn turn(&self, session_id: &str, commitment_hash: &str) -> MutexGuard<'_, ()> {
        self.shared.starts[lock_of(session_id, commitment_hash)].lock().await
    }

    /// The right to start a run of a commitment that nothing has taken the place of, on another way than
    /// [`SessionRuns::start_from_session`], such as a retry or a full replay. What the session committed to must still be
    /// allowed, and fit into a session that reports it. Nothing takes its place while this is held, which is to be until
    /// the run is there.
    pub async fn claim_start(&self, link: &SessionLink) -> Result<StartClaim<'_>, Error> {
        let _turn = self.turn(&link.session_id, &link.commitment_hash).await;
        self.check_superseded(link).await?;
        let bound = self.bind(&link.session_id).await?;
        if bound.link.commitment_hash != link.commitment_hash {
            let message = format!(
                "session {:?} committed to {} here, and the run carries out {}: it comes from elsewhere",
                link.session_id, bound.link.commitment_hash, link.commitment_hash
            );
            return Err(Error::refused(Reason::CommitmentOther, message));
        }
        let ttl_ms = match self.shared.settings.execution.enabled {
            true => self.check_worst_case(&bound)?,
            false => 0,
        };
        Ok(StartClaim { _turn, bound, ttl_ms })
    }

    /// The run that was created for a commitment, if it was.
    pub(super) async fn started(&self, commitment: &Commitment) -> Result<Option<String>, StoreError> {
        let Some(run_id) = self.runs().admissions().run_of(commitment.clone()).await? else {
            return Ok(None);
        };
        Ok(self.runs().summary(&run_id).await?.map(|_| run_id))
    }

    /// Refuses a commitment that another has taken the place of.
    pub async fn check_superseded(&self, link: &SessionLink) -> Result<(), Error> {
        match self.shared.notes.superseded(&link.session_id, &link.commitment_hash).await? {
            None => Ok(()),
            Some(by) => {
                let message = format!(
                    "the commitment is superseded by {} of session {:?}, so its plan must not start",
                    by.commitment_hash, by.session_id
                );
                Err(Error::refused(Reason::Superseded, message))
            }
        }
    }

    /// How long the execution session may live: what the plan can take, and a margin. A plan that can take longer than
    /// any session may live is refused.
    fn check_worst_case(&self, bound: &Bound) -> Result<i64, Error> {
        let estimate =
            self.shared.executor.dry_run(&Arc::new(bound.plan.clone())).map_err(|error| {
                Error::refused(Reason::PlanInvalid, format!("the plan cannot be estimated: {error}"))
            })?;
        let longest_ms = u64::try_from(TTL_MS_MAX).unwrap_or_default();
        if estimate.duration_ms_max > longest_ms {
            return Err(Error::Refused(vec![too_long(&estimate, longest_ms)]));
        }
        let ttl_ms = estimate.duration_ms_max.saturating_add(self.shared.settings.execution.ttl_margin_ms);
        Ok(i64::try_from(ttl_ms.clamp(1, longest_ms)).unwrap_or(TTL_MS_MAX))
    }
}

fn too_long(estimate: &Estimate, longest_ms: u64) -> Refusal {
    let mut steps: Vec<_> = estimate.steps.iter().collect();
    steps.sort_by_key(|step| std::cmp::Reverse(step.duration_ms_max));
    let longest =
        steps.iter().take(STEPS_NAMED_MAX).map(|step| format!("{} {} s", step.step_id, step.duration_ms_max / 1_000));
    let message = format!(
        "the plan can take {} s, and no session lives longer than {} s; lower max_retries, max_delay_ms or timeout_ms \
         of its longest steps ({}), or run the plan without a session",
        estimate.duration_ms_max.div_ceil(1_000),
        longest_ms / 1_000,
        longest.collect::<Vec<_>>().join(", ")
    );
    Refusal::new(Reason::WorstCaseTooLong, message)
}

/// What a check refuses; any other error stays one.
fn refusals_of(checked: Result<(), Error>) -> Result<Vec<Refusal>, Error> {
    match checked {
        Ok(()) => Ok(Vec::new()),
        Err(Error::Refused(refusals)) => Ok(refusals),
        Err(error) => Err(error),
    }
}

pub(super) fn commitment_of(link: &SessionLink, epoch: u64) -> Commitment {
    Commitment { session_id: link.session_id.clone(), commitment_hash: link.commitment_hash.clone(), epoch }
}

/// Where a commitment waits for its turn.
fn lock_of(session_id: &str, commitment_hash: &str) -> usize {
    let name = format!("{session_id}/{commitment_hash}");
    let hex = digest::hex_of("aos-start-lock/1", name.as_bytes());
    usize::from_str_radix(&hex[..4], 16).unwrap_or_default() % START_LOCKS
}

fn report(run_id: &str, bound: &Bound, request: &StartFromSession, ttl_ms: i64) -> Report {
    Report {
        run_id: run_id.to_owned(),
        session_id: bound.link.session_id.clone(),
        commitment_hash: bound.link.commitment_hash.clone(),
        epoch: request.epoch,
        plan_id: bound.plan.plan.plan_id.clone(),
        plan_hash: bound.plan.hash.clone(),
        coordinator: bound.coordinator.clone(),
        participants: bound.participants.clone(),
        authority_scope: bound.commitment.authority_scope.clone(),
        by: request.by.clone(),
        request_id: request.request_id.clone(),
        epoch_reason: request.epoch_reason.clone().filter(|_| request.epoch > 1),
        ttl_ms,
        is_retry: false,
    }
}
