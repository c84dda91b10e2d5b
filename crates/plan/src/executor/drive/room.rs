//! Room: what one run keeps beside its journal is bounded, and what the runs of one agent keep together, so that no
//! run and no agent fills the disk of all (AOS-36).

use std::collections::BTreeMap;

use macp_ledger::Store;
use macp_plan_core::cause::Cause;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, Output};
use serde_json::Value;

use super::{Broken, Drive, Driven};
use crate::executor::Stopping;
use crate::executor::spending::Full;
use crate::patience::Patience;
use crate::store::{Kept, StoreError, Weight, bodies, read};

/// What the outputs of a run take that are kept apart. Not known yet where an earlier process may have kept some.
#[derive(Debug)]
pub(super) struct Room(pub(super) Option<u64>);

impl Drive<'_> {
    /// Keeps what a call gave. What cannot be kept gives a cause and a sentence about it instead.
    pub(super) async fn keep_within(&mut self, given: Value, cause: &Cause) -> Driven<Result<Kept, (Cause, String)>> {
        let prepared = match self.shared.runs.bodies().prepare(given).await {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(not_kept(error)?)),
        };
        let bytes = prepared.kept.size.text as u64;
        let is_apart = is_apart(bytes);
        let bytes_max = self.shared.settings.run_output_bytes_max;
        let taken = self.room.0.unwrap_or_default();
        let refused = if !is_apart {
            None
        } else if taken.saturating_add(bytes) > bytes_max {
            Some(format!("outputs of one run have room for {bytes_max}"))
        } else {
            self.reserve(bytes).await?
        };
        if let Some(why) = refused {
            let told = format!("its output of {bytes} bytes is not kept: {why}");
            // Where the call failed anyway, its failure says more.
            let cause = if cause.is_success() { Cause::StorageQuotaExceeded } else { cause.clone() };
            return Ok(Err((cause, told)));
        }
        Ok(match self.keep(prepared).await? {
            Ok(kept) => {
                if is_apart {
                    self.fill(taken.saturating_add(bytes));
                }
                Ok(kept)
            }
            Err(error) => {
                if is_apart && self.shared.settings.agent.kept_bytes_max.is_some() {
                    self.shared.runs.give_back(self.weight(bytes)).await;
                }
                Err(not_kept(error)?)
            }
        })
    }

    /// Counts what is kept of the run, once. Called before a call goes out: an answer could not wait for a store.
    pub(super) async fn measure(&mut self) -> Result<(), StoreError> {
        if self.room.0.is_some() {
            return Ok(());
        }
        let run_id = self.journal.run_id().to_owned();
        let taken = self.shared.runs.blocking(move |store| taken(store, &run_id)).await?;
        // A run that began before outputs were counted has less in the index than it has kept.
        let uncounted = taken.saturating_sub(self.journal.summary().output_bytes);
        if uncounted > 0 {
            self.shared.runs.count_kept(self.weight(uncounted)).await;
        }
        self.fill(taken);
        Ok(())
    }

    fn fill(&mut self, taken: u64) {
        self.room.0 = Some(taken);
        self.journal.set_output_bytes(taken);
    }

    /// Counts an answer to its agent before it is kept, so that no other takes the same room; or says why there is none.
    /// What was looked up before the call is there: only of a write that failed meanwhile it is asked whether it took
    /// place, and the answer waits for that.
    async fn reserve(&mut self, bytes: u64) -> Driven<Option<String>> {
        let Some(kept_max) = self.shared.settings.agent.kept_bytes_max else { return Ok(None) };
        let mut patience = Patience::default();
        loop {
            match self.shared.runs.reserve(self.weight(bytes), kept_max).await {
                Ok(short) => return Ok(short.map(|kept| self.beyond(kept, kept_max))),
                Err(error @ StoreError::Failure(_)) => tracing::error!(%error, "an answer waits for the store"),
                Err(error) => return Err(error.into()),
            }
            let stopped = self.stopping.wait_for(|stopping| *stopping != Stopping::No);
            if tokio::time::timeout(patience.next(), stopped).await.is_ok() {
                return Err(Broken::Stopping);
            }
        }
    }

    /// Why nothing more may be kept of the agent's runs, if that is so. The sums are kept up with every write, so that
    /// only the very first to ask has the index read; and only writes of the agent's that failed since it was last asked
    /// have the ends of their journals looked up.
    pub(super) async fn used_up(&self) -> Result<Option<String>, StoreError> {
        let agent_id = &self.machine.plan().plan.agent_id;
        Ok(self.shared.used_up(agent_id).await?.map(|Full { kept, kept_max }| self.beyond(kept, kept_max)))
    }

    fn beyond(&self, kept: u64, kept_max: u64) -> String {
        let agent_id = &self.machine.plan().plan.agent_id;
        format!("{kept} bytes are kept of the runs of `{agent_id}`, which may keep {kept_max}")
    }

    fn weight(&self, bytes: u64) -> Weight<'_> {
        Weight { agent_id: &self.machine.plan().plan.agent_id, bytes }
    }
}

/// The cause and a sentence for an output that cannot be kept.
fn not_kept(error: StoreError) -> Driven<(Cause, String)> {
    let cause = match error {
        StoreError::TooLarge { .. } => Cause::AnswerTooLarge,
        StoreError::NotCanonical { .. } => Cause::OutputMismatch,
        error => return Err(error.into()),
    };
    Ok((cause, error.to_string()))
}

/// What the attempts of a run have put beside its journal. Every one counts, as it did when it was kept, even where an
/// output is the same as another.
fn taken(store: &dyn Store, run_id: &str) -> Result<u64, StoreError> {
    let run = read::load(store, run_id)?.ok_or_else(|| StoreError::NoRun(run_id.to_owned()))?;
    let mut sizes: BTreeMap<&Digest, u64> = BTreeMap::new();
    let mut taken: u64 = 0;
    for digest in run.bodies().filter_map(own_output) {
        let bytes = match sizes.get(digest) {
            Some(bytes) => *bytes,
            None => bodies::size(store, digest)?,
        };
        sizes.insert(digest, bytes);
        if is_apart(bytes) {
            taken = taken.saturating_add(bytes);
        }
    }
    Ok(taken)
}

/// What stands in the journal is small, and there are few attempts.
fn is_apart(bytes: u64) -> bool {
    bytes > bodies::INLINE_BYTES_MAX as u64
}

/// The output an attempt of this run gave, if it is kept apart. What was taken over from another run is that run's.
fn own_output(body: &Body) -> Option<&Digest> {
    match body {
        Body::AttemptObserved { output: Output { output_ref, output: None }, .. } => output_ref.as_ref(),
        _ => None,
    }
}
