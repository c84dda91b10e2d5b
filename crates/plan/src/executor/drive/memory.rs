//! Memory: reserved before a call goes out, and before outputs are read back for a request; released while the run waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::digest::{self, BODY_LABEL, Digest};
use macp_plan_core::journal::{Body, Output};
use macp_wire::canonical;
use serde_json::Value;

use super::boundary::at;
use super::{Broken, Drive, Driven, invalid};
use crate::executor::Shared;
use crate::memory::Claim;
use crate::store::{StoreError, bodies};

/// Where the outputs are that stand in the journal of a run, by their digests.
pub(in crate::executor) type Inline = BTreeMap<Digest, u64>;

/// The claim of a run on the memory of all. That it waits is shown to those who look at the run.
pub(super) fn claim(shared: &Shared, run_id: &str, agent_id: &str) -> Arc<Claim> {
    let (desk, runs, run_id) = (Arc::clone(&shared.desk), shared.runs.clone(), run_id.to_owned());
    let waiting = move |waits: bool| desk.awaits_memory(&run_id, waits.then(|| runs.now_ms()));
    Arc::new(Claim::new(&shared.memory, agent_id, Box::new(waiting)))
}

/// The output that an entry holds itself.
pub(in crate::executor) fn inline(body: &Body) -> Option<&Digest> {
    match body {
        Body::AttemptObserved { output, .. } | Body::DedupeVerdict { output, .. } => match output {
            Output { output_ref: Some(digest), output: Some(_) } => Some(digest),
            _ => None,
        },
        _ => None,
    }
}

impl Drive<'_> {
    /// Reserves memory for the call that is due. Returns false if a cancel, a pause or the deadline comes first.
    ///
    /// A run that has to wait holds nothing meanwhile, neither memory nor a permit for its call.
    pub(super) async fn reserve_call(&mut self) -> Driven<bool> {
        let bytes = self.call_bytes();
        if self.memory.has_call(bytes) {
            return Ok(true);
        }
        self.memory.release();
        if self.memory.try_call(bytes) {
            return Ok(true);
        }
        self.put_down();
        self.permit = None;
        self.flush().await?;
        let (memory, bytes) = (Arc::clone(&self.memory), self.call_bytes());
        let deadline = self.deadline.filter(|_| self.machine.boundary());
        Ok(tokio::select! {
            biased;
            Ok(()) = self.stopping.changed() => false,
            Ok(()) = self.control.changed() => false,
            () = at(deadline) => false,
            () = memory.call(bytes) => true,
        })
    }

    /// Reads the outputs that the due step refers to, and prepares its request.
    pub(super) async fn supply(&mut self) -> Driven<()> {
        let Some(demand) = self.machine.demand() else { return Ok(()) };
        // What is reserved for a call covers its request. Before a step begins nothing is reserved, and it cannot be
        // left there for long: neither a cancel nor a deadline can be noted before the step has begun.
        let begun = self.machine.current().map(|(step, attempt)| (step.step_id.clone(), attempt));
        let is_begun = begun.is_some();
        // A call that must not be repeated needs no request.
        if let Some((step_id, attempt)) = begun
            && std::mem::take(&mut self.in_doubt)
        {
            return self.doubt(step_id, attempt);
        }
        if !is_begun {
            self.memory.work(demand.bytes).await;
        } else if !self.reserve_call().await? {
            return if self.shared.is_stopping() { Err(Broken::Stopping) } else { Ok(()) };
        }
        // An entry that is read back must be there.
        self.flush().await?;
        let outputs = match self.read(demand.outputs).await {
            Ok(outputs) => outputs,
            Err(_) if self.shared.is_stopping() => return Err(Broken::Stopping),
            Err(error @ StoreError::Failure(_)) => {
                self.trouble(&error, "read the outputs that its next step refers to").await;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.machine.supply(&outputs).map_err(invalid)?;
        drop(outputs);
        if is_begun {
            self.memory.shrink_call(self.call_bytes());
            return Ok(());
        }
        // The request is kept for the call if there is memory for both.
        if !self.memory.try_call(self.call_bytes()) {
            self.machine.set_down();
        }
        self.memory.end_work();
        Ok(())
    }

    /// Releases what a run that waits does not need: it is read back afterwards.
    pub(super) fn put_down(&mut self) {
        self.machine.set_down();
        self.reuse = None;
        self.memory.release();
    }

    /// Notes the place of an output that is part of its journal entry.
    pub(super) fn locate(&mut self, body: &Body, seq: u64) {
        if let Some(digest) = inline(body) {
            self.inline.insert(digest.clone(), seq);
        }
    }

    /// What the call that is due takes at most until its answer is read.
    fn call_bytes(&self) -> usize {
        let Some((step, _)) = self.machine.current() else { return 0 };
        let call = self.shared.registry.call_memory(&step.skill_id, &step.skill_version);
        self.machine.request_bytes().saturating_add(call)
    }

    async fn read(&self, wanted: Vec<Digest>) -> Result<BTreeMap<Digest, Value>, StoreError> {
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let run_id = self.journal.run_id().to_owned();
        let places: Vec<_> = wanted.into_iter().map(|digest| (self.inline.get(&digest).copied(), digest)).collect();
        let read = move |store: &dyn Store| {
            let mut outputs = BTreeMap::new();
            for (place, digest) in places {
                let found = match place {
                    Some(seq) => entry_output(store, &run_id, seq, &digest)?,
                    None => bodies::get(store, &digest)?,
                };
                let missing = || StoreError::Damaged {
                    what: "output",
                    key: digest.to_string(),
                    reason: "it is not there".to_owned(),
                };
                let value = found.ok_or_else(missing)?;
                outputs.insert(digest, value);
            }
            Ok(outputs)
        };
        self.shared.runs.blocking(read).await
    }
}

/// Returns the output in an entry of a journal, if it has the digest. The chain needs no check: it was checked when the run
/// was loaded, or written here.
fn entry_output(store: &dyn Store, run_id: &str, seq: u64, digest: &Digest) -> Result<Option<Value>, StoreError> {
    let Some(record) = store.read(run_id, seq, 1, usize::MAX)?.into_iter().next() else { return Ok(None) };
    let unreadable = |error: serde_json::Error| StoreError::Damaged {
        what: "journal entry",
        key: format!("{run_id}/{seq}"),
        reason: error.to_string(),
    };
    let mut entry = canonical::parse(&record.bytes).map_err(unreadable)?;
    let output = entry.get_mut("output").map(Value::take);
    Ok(output.filter(|output| digest::of_value(BODY_LABEL, output).is_ok_and(|found| found == *digest)))
}
