//! Epochs of a commitment: each is a deliberate execution, whose effects have keys of their own. Nobody would recognise
//! what two of them bring about, so one follows the other, and never are two at work.

use macp_plan_core::journal::RunMode;

use super::refusal::{Error, Reason};
use super::start::{StartFromSession, commitment_of};
use super::{Bound, SessionRuns};
use crate::store::{Commitment, StoreError};

impl SessionRuns {
    /// The first epoch of a session's commitment that no run was admitted for.
    pub async fn next_epoch(&self, bound: &Bound) -> Result<u64, StoreError> {
        let mut epoch = 1;
        while self.runs().admissions().run_of(commitment_of(&bound.link, epoch)).await?.is_some() {
            epoch += 1;
        }
        Ok(epoch)
    }

    /// Epochs follow one another: none is skipped, and none begins while the one before it is at work.
    pub(super) async fn check_earlier_epoch(&self, commitment: &Commitment) -> Result<(), Error> {
        if commitment.epoch == 1 {
            return Ok(());
        }
        let epoch = commitment.epoch - 1;
        let earlier = Commitment { epoch, ..commitment.clone() };
        let Some(run_id) = self.started(&earlier).await? else {
            // A run that is lost for good must not keep the commitment from ever being carried out: that its effects may
            // be repeated is what the right and the reason for a further epoch are for.
            if self.is_lost(&earlier).await? {
                return Ok(());
            }
            let message = format!("epoch {epoch} has no run, so epoch {} cannot begin", commitment.epoch);
            return Err(Error::refused(Reason::EarlierEpochMissing, message));
        };
        let finished = self.runs().summary(&run_id).await?.is_some_and(|summary| summary.finished_at_ms.is_some());
        // Its effects have other keys, so that nobody would recognise those that both bring about.
        let at_work = self.at_work_for(&commitment.session_id, &commitment.commitment_hash).await?;
        let unfinished = at_work.into_iter().find(|run| run.mode == RunMode::Execute).map(|run| run.run_id);
        let Some(run_id) = unfinished.or((!finished).then_some(run_id)) else {
            return Ok(());
        };
        let message = format!("run {run_id:?} of an earlier epoch has not ended; cancel it, or wait for it");
        Err(Error::refused(Reason::EarlierEpochUnfinished, message))
    }

    /// Refuses to go on with an epoch behind which another has begun: that one repeats its effects, under other keys.
    pub(super) async fn check_later_epoch(&self, commitment: &Commitment) -> Result<(), Error> {
        let epoch = commitment.epoch.saturating_add(1);
        let later = Commitment { epoch, ..commitment.clone() };
        let Some(run_id) = self.runs().admissions().run_of(later).await? else {
            return Ok(());
        };
        let message = format!(
            "epoch {epoch} of the commitment has begun with run {run_id:?}, so nothing of epoch {} is tried again; go on \
             from that run",
            commitment.epoch
        );
        Err(Error::refused(Reason::LaterEpochBegun, message))
    }
}

/// Whether an epoch may be asked for like this.
pub(super) fn check(request: &StartFromSession) -> Result<(), Error> {
    let refused = |reason, message: &str| Err(Error::refused(reason, message));
    match request.epoch {
        0 => refused(Reason::EpochInvalid, "epochs are counted from 1"),
        1 => Ok(()),
        _ if !request.may_repeat => refused(
            Reason::EpochNotPermitted,
            "a further epoch repeats the plan's effects, and whoever asks has no right to begin one",
        ),
        _ if request.epoch_reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) => {
            refused(Reason::EpochReasonMissing, "a further epoch repeats the plan's effects; say why, with a reason")
        }
        _ => Ok(()),
    }
}
