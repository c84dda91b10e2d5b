//! Which run carries out a commitment, written down where the session is: a store of runs that was lost does not know
//! what was done, and what was done must not be done again (AOS-110, AOS-114).

use std::sync::Arc;

use macp_ledger::Store;
use serde::{Deserialize, Serialize};

use super::refusal::{Error, Reason};
use super::reported::NotAReport;
use super::{SessionRuns, execution_session_id};
use crate::store::documents::{get, put_if_absent};
use crate::store::{Commitment, StoreError, blocking};

const EXECUTED: &str = "aos.executed";

#[derive(Debug, Serialize, Deserialize)]
struct Executed {
    #[serde(flatten)]
    commitment: Commitment,
    run_id: String,
}

impl SessionRuns {
    /// Refuses a commitment that a run carries out which the store of runs has never heard of.
    pub(super) async fn check_executed(&self, commitment: &Commitment) -> Result<(), Error> {
        if self.runs().admissions().run_of(commitment.clone()).await?.is_some() {
            return Ok(());
        }
        match self.executed(commitment).await? {
            None => Ok(()),
            Some(run_id) => Err(lost(&run_id, commitment.epoch)),
        }
    }

    /// Refuses to create a run that was there before: a session has its report, and the store of runs is older.
    pub(super) async fn check_lost(&self, run_id: &str, epoch: u64) -> Result<(), Error> {
        if self.is_reported(run_id).await? { Err(lost(run_id, epoch)) } else { Ok(()) }
    }

    /// Whether a commitment was carried out by a run that is gone.
    pub(super) async fn is_lost(&self, commitment: &Commitment) -> Result<bool, StoreError> {
        match self.runs().admissions().run_of(commitment.clone()).await? {
            None => Ok(self.executed(commitment).await?.is_some()),
            Some(run_id) => self.is_reported(&run_id).await,
        }
    }

    /// Whether a session reports a run, so that it was created. One that cannot be read may.
    async fn is_reported(&self, run_id: &str) -> Result<bool, StoreError> {
        let report = self.report_in(&execution_session_id(run_id)).await?;
        Ok(!matches!(report, Ok(None) | Err(NotAReport::OtherSession)))
    }

    /// The run that the session knows to carry out a commitment, whether the store of runs has it or not.
    pub(super) async fn executed(&self, commitment: &Commitment) -> Result<Option<String>, StoreError> {
        let key = commitment.key();
        let read = move |store: &dyn Store| get::<Executed>(store, EXECUTED, &key);
        Ok(blocking(self.sessions(), read).await?.map(|executed| executed.run_id))
    }

    /// Writes down that a run carries out a commitment, before it does.
    pub(super) async fn keep_executed(&self, commitment: Commitment, run_id: &str) -> Result<(), StoreError> {
        let (key, run_id) = (commitment.key(), run_id.to_owned());
        let executed = Executed { commitment, run_id };
        blocking(self.sessions(), move |store| put_if_absent(store, EXECUTED, &key, &executed).map(drop)).await
    }

    fn sessions(&self) -> &Arc<dyn Store> {
        self.shared.engine.store()
    }
}

fn lost(run_id: &str, epoch: u64) -> Error {
    let message = format!(
        "run {run_id:?} was admitted to carry this commitment out, and the store of runs does not have it; bring it back, \
         such as with `macp run export {run_id} --from-session` and `macp run import` from its execution session {:?}; \
         where that cannot be done, whoever may repeat effects can begin epoch {}",
        execution_session_id(run_id),
        epoch.saturating_add(1),
    );
    Error::refused(Reason::RunLost, message)
}
