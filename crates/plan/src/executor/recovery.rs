//! Reading runs back: after a restart, after a write that failed, and for whoever asks what became of one.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::check;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, DedupeVerdict};
use macp_plan_core::machine::{Machine, OutOfPlace, Outputs, Pinned, Size};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::skill::{Catalog, guarded};
use serde_json::Value;

use super::caught::PANICKED;
use super::drive::{Inline, inline, scope};
use super::{ControlError, Executor, Shared};
use crate::memory::Claim;
use crate::store::{ClaimRequest, Run, StoreError, bodies, plans, read};

/// Unfinished runs read at a time.
const PAGE: usize = 256;

/// The fact under which the journal tells when a wait is over.
pub(crate) const DUE: &str = "due_unix_ms";

impl Executor {
    /// Goes on with every run that has not ended and is not held; says how many there are.
    ///
    /// All of them go on, however many there are: they were admitted once.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        self.shared.desk.open();
        let (mut resumed, mut after) = (0, None);
        loop {
            let page = self.shared.runs.open_runs(after, PAGE).await?;
            for run_id in &page {
                let gone_on = match self.shared.desk.why_held(run_id) {
                    Some(why) => self.shared.heed_kept_cancel(run_id, why).await.map(|()| false),
                    None => self.shared.resume(run_id).await,
                };
                match gone_on {
                    Ok(is_resumed) => resumed += usize::from(is_resumed),
                    // The others need not wait for it.
                    Err(error @ StoreError::Damaged { .. }) => {
                        tracing::error!(run = %run_id, %error, "the run cannot go on");
                        self.hold(run_id, error.to_string());
                    }
                    Err(error) => return Err(error),
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.to_string()),
                _ => return Ok(resumed),
            }
        }
    }

    /// Goes on with one run that has not ended, if nobody does.
    pub(crate) async fn go_on_with(&self, run_id: &str) -> Result<bool, StoreError> {
        self.shared.resume(run_id).await
    }

    /// Lets nobody go on with a run that has not ended, until it is told to stop or the process ends.
    pub fn hold(&self, run_id: &str, why: String) {
        self.shared.desk.hold(run_id, why);
    }

    /// Whether nobody goes on with a run.
    pub(crate) fn is_held(&self, run_id: &str) -> bool {
        self.shared.desk.why_held(run_id).is_some()
    }

    /// Counts what a run cost that ended without anybody being at work on it.
    pub(crate) async fn spent(&self, run_id: &str, cost_microcents: u64) {
        self.shared.spent(run_id, cost_microcents).await;
    }
}

/// A run under way, as its journal tells it.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) run: Run,
    pub(super) machine: Machine,
    /// When the wait that is due is over, by the clock on the wall.
    pub(super) due_unix_ms: Option<u64>,
    /// The claim that the step under way holds.
    pub(super) claim: Option<ClaimRequest>,
    /// Where the outputs are that stand in the journal.
    pub(super) inline: Inline,
}

/// What a run reads its journal back with. Outputs in it are taken from there.
struct Stored<'r> {
    store: &'r dyn Store,
    run: &'r Run,
    inline: &'r Inline,
}

impl Outputs for Stored<'_> {
    fn value(&self, digest: &Digest) -> Option<Value> {
        let Some(seq) = self.inline.get(digest) else { return bodies(self.store)(digest) };
        let entry = self.run.entries.get(usize::try_from(*seq).ok()?)?;
        match entry.body() {
            Body::AttemptObserved { output, .. } | Body::DedupeVerdict { output, .. } => output.output.clone(),
            _ => None,
        }
    }

    fn size(&self, digest: &Digest) -> Option<Size> {
        match bodies::measured(self.store, digest) {
            Ok(size) => size,
            Err(error) => {
                tracing::error!(%error, %digest, "a stored output cannot be read");
                None
            }
        }
    }
}

impl Shared {
    /// Ends a held run that was told to stop before it was held.
    async fn heed_kept_cancel(&self, run_id: &str, why: String) -> Result<(), StoreError> {
        let Some(cancel) = self.kept_cancel(run_id).await? else { return Ok(()) };
        let Some(summary) = self.runs.summary(run_id).await? else { return Ok(()) };
        match self.end_held(run_id, &summary.agent_id, why, cancel).await {
            Err(ControlError::Store(error)) => Err(error),
            // It stays as it is, and says so to whoever looks at it.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Brings a run to where its journal ends; none if there is no such run.
    pub(super) async fn recovered(&self, run_id: &str) -> Result<Option<Recovered>, StoreError> {
        let (run_id, catalog) = (run_id.to_owned(), self.catalog());
        // Its journal, and the outputs that its request is prepared from: how much that is shows only then. In the name
        // of no agent, since whose run it is does too.
        let memory = Claim::new(&self.memory, "", Box::new(|_| {}));
        memory.work(self.memory.spare()).await;
        self.runs
            .blocking(move |store| {
                let Some((run, plan)) = load(store, &run_id)? else {
                    return Ok(None);
                };
                let entries = run.entries.iter().map(|sealed| &sealed.entry);
                let places =
                    run.entries.iter().filter_map(|sealed| Some((inline(sealed.body())?.clone(), sealed.seq())));
                let inline: Inline = places.collect();
                let recover = || {
                    let (plan, catalog, rules) = (Arc::clone(&plan), Arc::clone(&catalog), Arc::new(Pinned));
                    let outputs = Stored { store, run: &run, inline: &inline };
                    Machine::recover_lean(plan, catalog, rules, run.start(), entries, &outputs)
                };
                let recovered = guarded(recover).ok_or_else(|| damaged(&run_id, PANICKED.to_owned()))?;
                let machine = recovered.map_err(|error| misfit(&run_id, &error, &plan, &*catalog))?;
                if let Some(reason) = missing(&machine, &*catalog).filter(|_| !run.is_finished()) {
                    return Err(StoreError::Unfit { run_id, reason });
                }
                let (due_unix_ms, claim) = (due(&run), claim(&run, &machine));
                Ok(Some(Recovered { run, machine, due_unix_ms, claim, inline }))
            })
            .await
    }

    /// Why nobody goes on with a run that has not ended, if nobody can or did.
    pub(super) async fn why_stuck(&self, run_id: &str) -> Result<Option<String>, StoreError> {
        if self.desk.has(run_id) {
            return Ok(None);
        }
        match self.recovered(run_id).await {
            Ok(Some(recovered)) if !recovered.run.is_finished() => Ok(self.desk.why_stuck(run_id)),
            Ok(_) => Ok(None),
            Err(StoreError::Damaged { reason, .. } | StoreError::Unfit { reason, .. }) => Ok(Some(reason)),
            Err(error) => Err(error),
        }
    }
}

/// A run and its plan.
pub(super) fn load(store: &dyn Store, run_id: &str) -> Result<Option<(Run, Arc<FrozenPlan>)>, StoreError> {
    let Some(run) = read::load(store, run_id)? else {
        return Ok(None);
    };
    let hash = &run.start().plan_hash;
    let (_, value) =
        plans::text(store, hash)?.ok_or_else(|| damaged(run_id, format!("its plan {hash} is not there")))?;
    let plan = FrozenPlan::from_value(value).map_err(|error| damaged(run_id, error.to_string()))?;
    Ok(Some((run, Arc::new(plan))))
}

/// Outputs kept apart. One that cannot be read is as good as gone: whoever needs it says so.
pub(super) fn bodies(store: &dyn Store) -> impl Fn(&Digest) -> Option<Value> {
    move |digest| match bodies::get(store, digest) {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(%error, %digest, "an output that is kept apart cannot be read");
            None
        }
    }
}

pub(super) fn damaged(run_id: &str, reason: String) -> StoreError {
    StoreError::Damaged { what: "run", key: run_id.to_owned(), reason }
}

/// Why a journal does not fit its plan here. Mostly that is because a skill or a rate card is not what it was, and then
/// nothing is wrong with the journal.
fn misfit(run_id: &str, error: &OutOfPlace, plan: &FrozenPlan, catalog: &dyn Catalog) -> StoreError {
    let findings = check::preflight(plan, catalog);
    let findings: Vec<_> = findings.iter().filter(|finding| finding.is_error()).map(ToString::to_string).collect();
    match findings.as_slice() {
        [] => damaged(run_id, error.to_string()),
        findings => StoreError::Unfit {
            run_id: run_id.to_owned(),
            reason: format!("its plan cannot run here: {} ({error})", findings.join("; ")),
        },
    }
}

/// Why a run cannot go on although its journal fits: the skill of a step that is still to come is gone. To let it fail
/// there would be to decide by what is registered today, and not by the plan and what was observed (AOS-5).
fn missing(machine: &Machine, catalog: &dyn Catalog) -> Option<String> {
    machine.current()?;
    let mut remaining = machine.plan().plan.steps.iter().skip(machine.results().len());
    let step = remaining.find(|step| catalog.skill(&step.skill_id, &step.skill_version).is_none())?;
    let (skill_id, version, step_id) = (&step.skill_id, &step.skill_version, &step.step_id);
    Some(format!("its plan cannot run here: the skill {skill_id}@{version} of step `{step_id}` is not registered"))
}

/// When the wait after the last scheduled retry is over, if the journal has come no further than that.
fn due(run: &Run) -> Option<u64> {
    let observed = run.bodies().rev().map_while(|body| match body {
        Body::Observed { facts, .. } => Some(facts),
        _ => None,
    });
    observed.filter_map(|facts| facts.shown().get(DUE)?.as_u64()).next()
}

/// The claim of the step under way, as the journal tells it. Whoever went down with it cannot say what becomes of it.
fn claim(run: &Run, machine: &Machine) -> Option<ClaimRequest> {
    let (step, _) = machine.current().filter(|_| machine.needs_claim())?;
    let of_step = run.bodies().rev().take_while(|body| !matches!(body, Body::StepFinished(_)));
    let (mut claimed, mut requested) = (None, None);
    for body in of_step.filter(|body| body.step_id() == Some(&step.step_id)) {
        match body {
            Body::DedupeVerdict { effect_key, verdict: DedupeVerdict::New, .. } => claimed = Some(effect_key),
            Body::StepStarted { request_digest, .. } => requested = request_digest.as_ref(),
            _ => {}
        }
    }
    Some(ClaimRequest {
        effect_key: claimed?.clone(),
        request_digest: requested?.clone(),
        run_id: run.run_id.to_string(),
        step_id: step.step_id.clone(),
        scope: scope(run.start()),
    })
}
