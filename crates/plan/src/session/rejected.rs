//! Commitments that name a plan which may not run (AOS-106): whoever may start it and asks for it is refused, and a
//! rejected run tells everybody else why.
//!
//! Such a run is not admitted, so that it never stands in the way of the run that carries the commitment out once it
//! may. And it is written once for a commitment, an epoch and the reasons: asking again leaves nothing more behind.

use macp_plan_core::journal::{Admission, AdmissionFinding};

use super::SessionRuns;
use super::binding::Bound;
use super::refusal::{Error, Refusal};
use super::start::{StartFromSession, commitment_of};
use crate::executor::{Start, StartMode};
use crate::store::{RunId, refused_binding};

impl SessionRuns {
    /// The answer to whoever asked for a plan that may not run, once it is put down.
    pub(super) async fn reject(&self, bound: Bound, request: &StartFromSession, refusals: Vec<Refusal>) -> Error {
        match self.write_rejected(bound, request, &refusals).await {
            Ok(Some(run_id)) => Error::Rejected { refusals, run_id },
            Ok(None) => Error::Refused(refusals),
            // Why it may not run is the answer all the same.
            Err(error) => {
                tracing::error!(session = request.session_id, %error, "a rejected run cannot be put down");
                Error::Refused(refusals)
            }
        }
    }

    /// Puts a rejected run down; none where a run carries the commitment out, or it is not this epoch's turn.
    async fn write_rejected(
        &self,
        bound: Bound,
        request: &StartFromSession,
        refusals: &[Refusal],
    ) -> Result<Option<String>, Error> {
        let commitment = commitment_of(&bound.link, request.epoch);
        // Also where that run is lost, and only the session knows of it.
        let is_carried_out = self.runs().admissions().run_of(commitment.clone()).await?.is_some()
            || self.executed(&commitment).await?.is_some();
        if is_carried_out {
            return Ok(None);
        }
        match self.check_earlier_epoch(&commitment).await {
            Ok(()) => {}
            Err(Error::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let reasons: Vec<&str> = refusals.iter().map(|refusal| refusal.reason.as_str()).collect();
        let run_id = RunId::new(u64::try_from(self.shared.engine.now_ms()).unwrap_or_default()).into_string();
        let run_id = self.runs().admissions().reject(commitment, &reasons, &run_id).await?;
        let start = Start {
            plan: bound.plan,
            mode: StartMode::Execute,
            epoch: request.epoch,
            epoch_reason: request.epoch_reason.clone(),
            by: request.by.clone(),
            request_id: None,
            session: Some(bound.link),
            deadline_ms: None,
        };
        let started = self.shared.executor.reject_as(run_id, start, admission(refusals)).await?;
        Ok(Some(started.run_id))
    }
}

fn admission(refusals: &[Refusal]) -> Admission {
    let findings = refusals.iter().map(|refusal| AdmissionFinding {
        code: refusal.code().to_owned(),
        reason: refusal.reason.as_str().to_owned(),
        step_id: None,
        explanation: refusal.message.clone(),
        available: Vec::new(),
    });
    let code = refusals.first().map(|refusal| refusal.code().to_owned());
    Admission { admitted: false, cause: None, code, findings: findings.collect(), limits: refused_binding() }
}
