//! Replays: against the recording, against the live world, and before anything has happened at all.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::compare::Report;
use macp_plan_core::dry_run::{self, Estimate};
use macp_plan_core::journal::{Journal, RunMode, RunStart};
use macp_plan_core::machine::OutOfPlace;
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::replay::{self, Mock, Options, WhatIf};

use super::recovery::{bodies, load};
use super::{Executor, ReplayError, Start, StartMode};
use crate::store::{Run, RunId, StoreError};

impl Executor {
    /// What a plan would cost and how long it could take. Nothing is called, and nothing is kept.
    pub fn dry_run(&self, plan: &Arc<FrozenPlan>) -> Result<Estimate, OutOfPlace> {
        let run_id = RunId::new(self.shared.runs.now_ms()).into_string();
        let start = RunStart {
            run_id: run_id.clone(),
            plan_id: plan.plan.plan_id.clone(),
            plan_hash: plan.hash.clone(),
            pins: plan.plan.pins.clone(),
            mode: RunMode::DryRun,
            epoch: 1,
            jitter_seed: run_id,
            namespace: self.shared.settings.namespace.clone(),
            executor: env!("CARGO_PKG_VERSION").to_owned(),
            original_run_id: None,
            parent_run_id: None,
            retry_from_step: None,
            session: None,
            deadline_ms: None,
            started_by: String::new(),
        };
        dry_run::dry_run(plan, &self.shared.catalog(), start)
    }

    /// Takes every decision of a run again from what was recorded. There is no client in it that could call anything.
    pub async fn mock_replay(&self, run_id: &str, what_if: WhatIf) -> Result<Report, ReplayError> {
        let catalog = self.shared.catalog();
        let mut options = Options::new(RunId::new(self.shared.runs.now_ms()).into_string());
        options.what_if = what_if;
        let report = self.with_run(run_id, move |store, run, plan| {
            let journal = recorded(&run)?;
            let Mock { report, .. } = replay::mock_replay(&plan, &journal, &bodies(store), &catalog, &options)?;
            Ok(report)
        });
        let report = report.await?;
        self.shared.observer.replayed(&report);
        Ok(report)
    }

    /// Executes a run's plan against the live world again, and says what differs and whose doing that is.
    pub async fn full_replay(&self, run_id: &str, allow_steps: Vec<String>, by: &str) -> Result<Report, ReplayError> {
        let plan = self.with_run(run_id, |_, _, plan| Ok(plan)).await?;
        let mode = StartMode::FullReplay { original_run_id: run_id.to_owned(), allow_steps };
        let start = Start { mode, ..Start::execute(FrozenPlan::clone(&plan), by) };
        let started = self.start(start).await?;
        self.finished(&started.run_id).await?;
        self.compare(run_id, &started.run_id).await
    }

    /// The report about a full replay that has ended.
    pub async fn compare(&self, original_run_id: &str, replay_run_id: &str) -> Result<Report, ReplayError> {
        let catalog = self.shared.catalog();
        let replay_id = replay_run_id.to_owned();
        let report = self.with_run(original_run_id, move |store, original, plan| {
            let (replayed, _) = load(store, &replay_id)?.ok_or_else(|| ReplayError::NoRun(replay_id.clone()))?;
            let (original, replayed) = (recorded(&original)?, recorded(&replayed)?);
            Ok(replay::full_replay(&plan, &original, &replayed, &bodies(store), &catalog)?)
        });
        let report = report.await?;
        self.shared.observer.replayed(&report);
        Ok(report)
    }

    /// Reads a run that has ended, where blocking is allowed.
    async fn with_run<T: Send + 'static>(
        &self,
        run_id: &str,
        work: impl FnOnce(&dyn Store, Run, Arc<FrozenPlan>) -> Result<T, ReplayError> + Send + 'static,
    ) -> Result<T, ReplayError> {
        let run_id = run_id.to_owned();
        self.shared
            .runs
            .blocking(move |store| {
                let (run, plan) = load(store, &run_id)?.ok_or_else(|| ReplayError::NoRun(run_id.clone()))?;
                if !run.is_finished() {
                    return Err(ReplayError::NotFinished(run_id));
                }
                work(store, run, plan)
            })
            .await
    }
}

/// The journal as the decision core reads it. Loading has checked the chain, so that this finds it whole.
fn recorded(run: &Run) -> Result<Journal, StoreError> {
    let entries = run.entries.iter().map(|sealed| (sealed.text.clone(), sealed.hash.to_string()));
    Journal::read(entries).map_err(|broken| StoreError::Damaged {
        what: "journal",
        key: run.run_id.to_string(),
        reason: broken.to_string(),
    })
}

impl From<macp_ledger::Failure> for ReplayError {
    fn from(failure: macp_ledger::Failure) -> Self {
        Self::Store(failure.into())
    }
}
