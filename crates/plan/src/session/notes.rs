//! What must outlive the process about runs of sessions, as documents: which runs are still to be reported, why an epoch
//! was begun, which commitments are superseded, and how far the watcher has come.

use std::sync::Arc;

use macp_ledger::{Document, Store};
use macp_plan_core::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::store::documents::{decode, get, key, put_if_absent, replace};
use crate::store::{StoreError, blocking};

const REPORTS: &str = "aos.report";
const EPOCHS: &str = "aos.epoch";
const SUPERSEDED: &str = "aos.superseded";
const CHECKPOINT: &str = "aos.watched";

/// The only checkpoint there is.
const CHECKPOINT_KEY: &str = "resolved";

/// Reports looked up at once.
const PAGE: usize = 256;

/// A run that is to be started, if it has not been, and reported in an execution session. Kept from before the run
/// exists until its report is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) run_id: String,
    pub(super) session_id: String,
    pub(super) commitment_hash: String,
    pub(super) epoch: u64,
    pub(super) plan_id: String,
    pub(super) plan_hash: Digest,
    /// Who started the session that committed to the plan.
    pub(super) coordinator: String,
    /// Who took part in it, the coordinator perhaps among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) participants: Vec<String>,
    pub(super) authority_scope: String,
    /// Who had the run started; empty if it was started elsewhere.
    pub(super) by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch_reason: Option<String>,
    /// How long the execution session may live.
    pub(super) ttl_ms: i64,
    /// It tries again what another run left undone: if it never came to be, whoever wants it asks again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_retry: bool,
}

/// Why effects were deliberately repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochNote {
    pub session_id: String,
    pub commitment_hash: String,
    pub epoch: u64,
    pub by: String,
    pub reason: String,
    pub at_ms: i64,
}

/// The commitment that took the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseding {
    pub session_id: String,
    pub commitment_hash: String,
    pub committer: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint {
    at_ms: i64,
}

/// The documents, in the store of runs; but what may not be forgotten where that store is lost is kept beside the
/// sessions.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    runs: Arc<dyn Store>,
    sessions: Arc<dyn Store>,
}

impl Notes {
    pub(super) fn new(runs: Arc<dyn Store>, sessions: Arc<dyn Store>) -> Self {
        Self { runs, sessions }
    }

    pub(super) async fn keep_report(&self, report: Report) -> Result<(), StoreError> {
        self.blocking(move |store| put_if_absent(store, REPORTS, &report.run_id, &report).map(drop)).await
    }

    pub(super) async fn drop_report(&self, run_id: &str) -> Result<(), StoreError> {
        let run_id = run_id.to_owned();
        self.blocking(move |store| Ok(store.delete_document(REPORTS, &run_id).map(drop)?)).await
    }

    /// A page of the reports that are not complete, after a run, and the last run of the page. One that cannot be read is
    /// left out: the others need not wait for it.
    pub(super) async fn reports(&self, after: Option<String>) -> Result<(Vec<Report>, Option<String>), StoreError> {
        self.blocking(move |store| {
            let documents = store.documents(REPORTS, after.as_deref(), PAGE)?;
            let last = documents.last().map(|document| document.key.to_string());
            let read = |document: &Document| {
                decode(REPORTS, &document.key, &document.bytes)
                    .inspect_err(|error| tracing::error!(run = %document.key, %error, "the run is not reported"))
                    .ok()
            };
            Ok((documents.iter().filter_map(read).collect(), last))
        })
        .await
    }

    /// The first reason given for an epoch stands.
    pub(super) async fn keep_epoch(&self, note: EpochNote) -> Result<(), StoreError> {
        self.blocking(move |store| {
            let key = key(&[&note.session_id, &note.commitment_hash, &note.epoch.to_string()]);
            put_if_absent(store, EPOCHS, &key, &note).map(drop)
        })
        .await
    }

    pub(super) async fn epoch(
        &self,
        session_id: &str,
        commitment_hash: &str,
        epoch: u64,
    ) -> Result<Option<EpochNote>, StoreError> {
        let key = key(&[session_id, commitment_hash, &epoch.to_string()]);
        self.blocking(move |store| get(store, EPOCHS, &key)).await
    }

    /// The first commitment to supersede another stands.
    pub(super) async fn supersede(
        &self,
        session_id: &str,
        commitment_hash: &str,
        by: Superseding,
    ) -> Result<(), StoreError> {
        let key = key(&[session_id, commitment_hash]);
        blocking(&self.sessions, move |store| put_if_absent(store, SUPERSEDED, &key, &by).map(drop)).await
    }

    pub(super) async fn superseded(
        &self,
        session_id: &str,
        commitment_hash: &str,
    ) -> Result<Option<Superseding>, StoreError> {
        let key = key(&[session_id, commitment_hash]);
        blocking(&self.sessions, move |store| get(store, SUPERSEDED, &key)).await
    }

    pub(super) async fn checkpoint(&self) -> Result<Option<i64>, StoreError> {
        let checkpoint: Option<Checkpoint> = self.blocking(|store| get(store, CHECKPOINT, CHECKPOINT_KEY)).await?;
        Ok(checkpoint.map(|checkpoint| checkpoint.at_ms))
    }

    pub(super) async fn set_checkpoint(&self, at_ms: i64) -> Result<(), StoreError> {
        let checkpoint = Checkpoint { at_ms };
        self.blocking(move |store| replace(store, CHECKPOINT, CHECKPOINT_KEY, &checkpoint)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        blocking(&self.runs, work).await
    }
}
