//! Brings an export into a store: finished runs only, so that no run ever has two writers.

use std::sync::Arc;

use macp_ledger::{Append, AppendError, Store};
use macp_plan_core::journal::RunMode;

use super::ExportedRun;
use crate::store::sealed::{self, Sealed};
use crate::store::{Commitment, JournalError, Run, RunStore, StoreError, Summary, Weight, bodies, check_run_id, plans};

/// What an import did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    New {
        run_id: Arc<str>,
        entries: u64,
    },
    /// The very same journal is there already.
    AlreadyThere {
        run_id: Arc<str>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("run {0:?} is not finished; it belongs to the server it runs on")]
    Open(Arc<str>),
    #[error("another run {0:?} is there already; nothing was changed")]
    Differs(Arc<str>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the run could not be stored: {0}")]
    Journal(#[from] JournalError),
}

impl RunStore {
    /// Stores a run from a file, whole or not at all; durable when it returns. Claims on its effects do not come with
    /// it: those belong to the store the run was executed in, and a run that tries this one again asks its journal. That
    /// its commitment was carried out does, so that nobody carries it out again.
    pub async fn import(&self, exported: ExportedRun) -> Result<Imported, ImportError> {
        let (carried_out, run_id) = (carried_out(&exported.run), Arc::clone(&exported.run.run_id));
        let imported = self.import_run(exported).await?;
        // Only once the run is there: whoever finds an admission without a run creates the run.
        if let Some(commitment) = carried_out {
            self.admissions().admit(commitment, &run_id).await?;
        }
        Ok(imported)
    }

    async fn import_run(&self, exported: ExportedRun) -> Result<Imported, ImportError> {
        let ExportedRun { run, bodies, plan_text, .. } = exported;
        let run_id = Arc::clone(&run.run_id);
        if !run.is_finished() {
            return Err(ImportError::Open(run_id));
        }
        check_run_id(&run_id)?;
        let (head, entries) = (run.head(), run.entries.len() as u64);
        let same = move |store: &dyn Store| {
            let found = store.head(&run_id).map_err(StoreError::from)?;
            Ok::<_, ImportError>(found.map(|found| found.sequence == entries && found.hash == head))
        };
        let run_id = Arc::clone(&run.run_id);
        let plan_hash = run.start().plan_hash.clone();
        let check = same.clone();
        let output_bytes = bodies.values().fold(0_u64, |sum, text| sum.saturating_add(text.len() as u64));
        // The plan and the outputs come first: a run without them would be of no use, they without the run do no harm.
        let found = self
            .blocking(move |store| {
                let found = check(store)?;
                if found.is_none() {
                    plans::put(store, &plan_hash, &plan_text)?;
                    bodies.iter().try_for_each(|(digest, text)| bodies::put(store, digest, text))?;
                }
                Ok::<_, ImportError>(found)
            })
            .await?;
        let there = |is_same| match is_same {
            true => Ok(Imported::AlreadyThere { run_id: Arc::clone(&run_id) }),
            false => Err(ImportError::Differs(Arc::clone(&run_id))),
        };
        if let Some(is_same) = found {
            return there(is_same);
        }
        let journal_bytes = sealed::bytes(&run.entries);
        let summary = Summary { imported: true, journal_bytes, output_bytes, ..run.summary };
        let append = Append {
            session_id: Arc::clone(&run_id),
            expected_sequence: 0,
            expected_hash: None,
            records: run.entries.iter().map(Sealed::record).collect(),
            index: summary.index(true),
        };
        let bytes = journal_bytes.saturating_add(output_bytes);
        match self.write(append, Weight { agent_id: &summary.agent_id, bytes }).await? {
            Ok(()) => Ok(Imported::New { run_id, entries }),
            // Somebody else was faster.
            Err(AppendError::Conflict { .. }) => there(self.blocking(same).await?.unwrap_or_default()),
            Err(error) => Err(JournalError::of_append(&run_id, error).into()),
        }
    }
}

/// The commitment that a run carried out. A replay carries out none, nor does a run that was rejected because the session's
/// plan might not run, and a run that tries again goes on under the admission of the first.
fn carried_out(run: &Run) -> Option<Commitment> {
    if run.is_refused_binding() {
        return None;
    }
    let start = run.start();
    let session = start.session.as_ref().filter(|_| start.mode == RunMode::Execute && start.parent_run_id.is_none())?;
    let (session_id, commitment_hash) = (session.session_id.clone(), session.commitment_hash.clone());
    Some(Commitment { session_id, commitment_hash, epoch: start.epoch })
}

impl From<macp_ledger::Failure> for ImportError {
    fn from(failure: macp_ledger::Failure) -> Self {
        Self::Store(failure.into())
    }
}
