//! Claiming the effect of a step before its first attempt, and taking over what another run has done.

use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, DedupeVerdict, Reused, RunMode, RunStart};
use macp_plan_core::plan::StepStatus;
use tokio::time::Instant;

use super::{Drive, Driven};
use crate::executor::reuse::{DoneStep, Reuse};
use crate::result::IN_DOUBT_BY;
use crate::store::{Claim, ClaimRequest, Done, JournalError, Scope, Status, StoreError};

/// The answer to a claim, as the journal tells it.
struct Verdict {
    verdict: DedupeVerdict,
    reused_run_id: Option<String>,
    done: Done,
    /// A claim was asked for, and not only whether there is anything to do.
    claims: bool,
}

impl Verdict {
    fn new() -> Self {
        Self { verdict: DedupeVerdict::New, reused_run_id: None, done: Done::default(), claims: false }
    }

    fn duplicate(run_id: String, done: Done) -> Self {
        Self { verdict: DedupeVerdict::Duplicate, reused_run_id: Some(run_id), done, ..Self::new() }
    }

    fn conflict() -> Self {
        Self { verdict: DedupeVerdict::Conflict, ..Self::new() }
    }
}

/// Among whose claims those of a run count. A full replay calls out although its original has done so (AOS-89).
pub(in crate::executor) fn scope(start: &RunStart) -> Scope {
    match start.mode {
        RunMode::FullReplay => Scope::Run,
        RunMode::Execute | RunMode::DryRun | RunMode::MockReplay => Scope::All,
    }
}

impl Drive<'_> {
    /// Answers whether the effect of a step is free, unless that cannot be known yet. Without an answer nothing is
    /// dispatched (AOS-78).
    pub(super) async fn dedupe(
        &mut self,
        step_id: String,
        effect_key: String,
        request_digest: Option<Digest>,
    ) -> Driven<()> {
        let request_digest =
            request_digest.ok_or_else(|| JournalError::Invalid("a claim without a request".to_owned()))?;
        let run_id = self.journal.run_id().to_owned();
        let scope = scope(self.machine.start());
        let request = ClaimRequest { effect_key, request_digest, run_id, step_id, scope };
        match self.ask(&request).await {
            Ok(Some(verdict)) => self.answer(request, verdict).await,
            Ok(None) => {
                // The holder may be of the same agent and need this place; the dispatch takes one again.
                self.permit = None;
                self.flush().await?;
                let until = Instant::now() + self.patience.next();
                self.rest(Some(until)).await;
                Ok(())
            }
            Err(error) => {
                self.trouble(&error, "claim an effect").await;
                Ok(())
            }
        }
    }

    /// The verdict on a claim; none while another run is at work on the effect.
    async fn ask(&mut self, request: &ClaimRequest) -> Result<Option<Verdict>, StoreError> {
        let reuse = self.reuse().await?;
        if let Some(step) = reuse.step(&request.step_id) {
            return Ok(Some(Verdict::duplicate(step.run_id.clone(), step.done.clone())));
        }
        let before = reuse.effects(&request.step_id).cloned();
        // A run that tries again is asked about every step. What can be repeated is not claimed: a later run that
        // tries again is to do it anew.
        if !self.machine.needs_claim() {
            return Ok(Some(Verdict::new()));
        }
        if let Some(DoneStep { run_id, request_digest, done }) = before {
            let verdict = if request_digest.is_none_or(|digest| digest == request.request_digest) {
                Verdict::duplicate(run_id, done)
            } else {
                self.claimed_otherwise(&run_id)
            };
            return Ok(Some(Verdict { claims: true, ..verdict }));
        }
        let claims = self.shared.runs.claims();
        let mut claim = claims.claim(request.clone()).await?;
        if let Claim::Unfinished { run_id } = &claim {
            let holder = self.shared.runs.summary(run_id).await?;
            if holder.is_some_and(|holder| holder.status == Status::Running) {
                return Ok(None);
            }
            // It may have ended just now, and then its journal tells how.
            claim = claims.claim(request.clone()).await?;
        }
        let verdict = match claim {
            Claim::New | Claim::Held => {
                self.claim = Some(request.clone());
                Verdict::new()
            }
            Claim::Duplicate { run_id, done } => Verdict::duplicate(run_id, done),
            Claim::Conflict { run_id } => self.claimed_otherwise(&run_id),
            Claim::Unfinished { run_id } => {
                let step_id = &request.step_id;
                self.told.details.insert(IN_DOUBT_BY.to_owned(), run_id.as_str().into());
                self.told.say(format!(
                    "whether run {run_id} brought this effect about is in doubt; say what became of it, with \
                     `macp run resolve {run_id} --step {step_id} --as success|failure --note TEXT`"
                ));
                Verdict::conflict()
            }
        };
        Ok(Some(Verdict { claims: true, ..verdict }))
    }

    fn claimed_otherwise(&mut self, run_id: &str) -> Verdict {
        self.told.say(format!("run {run_id} claimed this effect for another request"));
        Verdict::conflict()
    }

    async fn reuse(&mut self) -> Result<&Reuse, StoreError> {
        let found = match self.reuse.take() {
            Some(found) => found,
            None => Reuse::of(self.shared, self.machine.start(), self.machine.plan()).await?,
        };
        Ok(self.reuse.insert(found))
    }

    async fn answer(&mut self, request: ClaimRequest, verdict: Verdict) -> Driven<()> {
        let ClaimRequest { step_id, effect_key, scope, .. } = request;
        let Verdict { verdict, reused_run_id, done: Done { ended, output }, claims } = verdict;
        // Where only an operator said that it was done, it succeeded as its skill does.
        let succeeded = || Some(Reused { status: StepStatus::Success, code: self.machine.success_code()?.to_owned() });
        let reused = if verdict == DedupeVerdict::Duplicate { ended.or_else(succeeded) } else { None };
        let body = Body::DedupeVerdict { step_id, effect_key, verdict, reused_run_id, reused, output };
        let apart = match self.machine.wants_output(&body).cloned() {
            None => None,
            Some(digest) => match self.shared.runs.bodies().measured(digest.clone()).await {
                Ok(Some(size)) => Some(size),
                Ok(None) => {
                    let (what, reason) = ("output", "it is not there".to_owned());
                    return Err(StoreError::Damaged { what, key: digest.to_string(), reason }.into());
                }
                Err(error) => {
                    self.trouble(&error, "read an output").await;
                    return Ok(());
                }
            },
        };
        self.patience.reset();
        // What a replay claims for itself alone says nothing of how effects are shared (AOS-90).
        if claims && scope == Scope::All {
            self.shared.observer.deduplicated(verdict);
        }
        self.note_with(body, apart)
    }
}
