//! Replays: against the recording, against the live world, and before anything has happened at all.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::compare::Report;
use macp_plan_core::dry_run::{self, Estimate};
use macp_plan_core::journal::{Journal, RunMode};
use macp_plan_core::machine::OutOfPlace;
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::replay::{self, Mock, Options, WhatIf};
use serde_json::json;

use super::recovery::{bodies, load};
use super::{Executor, ReplayError, Start, StartMode};
use crate::result;
use crate::store::{Corruption, Run, RunId, StoreError, Summary};

impl Executor {
    /// What a plan would cost and how long it could take. Nothing is called, and nothing is kept.
    pub fn dry_run(&self, plan: &Arc<FrozenPlan>) -> Result<Estimate, OutOfPlace> {
        let run_id = RunId::new(self.shared.runs.now_ms()).into_string();
        let start = self.shared.bare(&run_id, plan, RunMode::DryRun);
        dry_run::dry_run(plan, &self.shared.catalog(), start)
    }

    /// Takes every decision of a run again from what was recorded. There is no client in it that could call anything.
    pub async fn mock_replay(&self, run_id: &str, what_if: WhatIf) -> Result<Report, ReplayError> {
        let catalog = self.shared.catalog();
        let replay_run_id = RunId::new(self.shared.runs.now_ms()).into_string();
        let mut options = Options::new(replay_run_id.clone());
        options.what_if = what_if;
        let report = self.with_run(run_id, RunMode::MockReplay, &replay_run_id, move |store, run, plan| {
            let journal = recorded(&run)?;
            let Mock { report, .. } = replay::mock_replay(&plan, &journal, &bodies(store), &catalog, &options)?;
            Ok(report)
        });
        let report = either(report.await?);
        self.count_replay(&report).await;
        Ok(report)
    }

    /// Executes a run's plan against the live world again, and says what differs and whose doing that is. Where the
    /// record cannot be believed there is nothing to compare with, and nothing is called.
    pub async fn full_replay(&self, run_id: &str, allow_steps: Vec<String>, by: &str) -> Result<Report, ReplayError> {
        let replay_run_id = RunId::new(self.shared.runs.now_ms()).into_string();
        let read = self.with_run(run_id, RunMode::FullReplay, &replay_run_id, |_, _, plan| Ok(plan)).await?;
        let plan = match read {
            Read::Whole(plan) => plan,
            Read::Broken(report) => {
                self.count_replay(&report).await;
                return Ok(*report);
            }
        };
        let mode = StartMode::FullReplay { original_run_id: run_id.to_owned(), allow_steps };
        let start = Start { mode, ..Start::execute(FrozenPlan::clone(&plan), by) };
        let started = self.start_as(replay_run_id, start).await?;
        self.wait(&started.run_id).await?;
        let report = self.compare(run_id, &started.run_id).await?;
        self.count_replay(&report).await;
        Ok(report)
    }

    /// The report about a full replay that has ended. It may be asked for again and again, and is not counted here.
    pub async fn compare(&self, original_run_id: &str, replay_run_id: &str) -> Result<Report, ReplayError> {
        let catalog = self.shared.catalog();
        let replay_id = replay_run_id.to_owned();
        let report =
            self.with_run(original_run_id, RunMode::FullReplay, replay_run_id, move |store, original, plan| {
                let (replayed, _) = load(store, &replay_id)?.ok_or_else(|| ReplayError::NoRun(replay_id.clone()))?;
                if !replayed.is_finished() {
                    return Err(ReplayError::NotFinished(replay_id));
                }
                let (original, replayed) = (recorded(&original)?, recorded(&replayed)?);
                Ok(replay::full_replay(&plan, &original, &replayed, &bodies(store), &catalog)?)
            });
        Ok(either(report.await?))
    }

    /// Counts a replay, and tells of it in a trace (AOS-97, AOS-98). To be called once for every replay.
    pub async fn count_replay(&self, report: &Report) {
        self.shared.observer.replayed(report);
        // A report names its plan by the digest alone, and the index knows it by its name. Without it the rest is told.
        let summary = self.shared.runs.summary(&report.original_run_id).await.ok().flatten();
        tracing::info!(
            trace_id = result::trace_id(&report.replay_run_id),
            run_id = report.replay_run_id,
            plan_id = summary.map(|summary| summary.plan_id),
            plan_hash = %report.plan_hash,
            replay_mode = %json!(report.replay_mode),
            original_run_id = report.original_run_id,
            behavior_match = %json!(report.behavior_match),
            verdict = %json!(report.verdict),
            "replayed"
        );
    }

    /// Reads a run that has ended, where blocking is allowed.
    async fn with_run<T: Send + 'static>(
        &self,
        run_id: &str,
        mode: RunMode,
        replay_run_id: &str,
        work: impl FnOnce(&dyn Store, Run, Arc<FrozenPlan>) -> Result<T, ReplayError> + Send + 'static,
    ) -> Result<Read<T>, ReplayError> {
        let (run_id, replay_run_id) = (run_id.to_owned(), replay_run_id.to_owned());
        self.shared
            .runs
            .blocking(move |store| {
                let (run, plan) = match load(store, &run_id) {
                    Ok(found) => found.ok_or_else(|| ReplayError::NoRun(run_id.clone()))?,
                    Err(StoreError::Corruption(corruption)) => {
                        return broken(store, mode, replay_run_id, &corruption).map(Read::Broken);
                    }
                    Err(error) => return Err(error.into()),
                };
                if !run.is_finished() {
                    return Err(ReplayError::NotFinished(run_id));
                }
                work(store, run, plan).map(Read::Whole)
            })
            .await
    }
}

/// What was read of a run.
enum Read<T> {
    Whole(T),
    /// Its journal cannot be believed; the report says where not.
    Broken(Box<Report>),
}

fn either(read: Read<Report>) -> Report {
    match read {
        Read::Whole(report) => report,
        Read::Broken(report) => *report,
    }
}

/// The report about a run whose journal is damaged. Which plan it had is in the index too.
fn broken(
    store: &dyn Store,
    mode: RunMode,
    replay_run_id: String,
    corruption: &Corruption,
) -> Result<Box<Report>, ReplayError> {
    let run_id = &corruption.run_id;
    let head = store.head(run_id)?.ok_or_else(|| ReplayError::NoRun(run_id.clone()))?;
    let plan_hash = Summary::of_head(&head)?.plan_hash;
    let why = corruption.to_string();
    Ok(Box::new(replay::broken(mode, run_id.clone(), replay_run_id, plan_hash, corruption.seq, why)))
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
