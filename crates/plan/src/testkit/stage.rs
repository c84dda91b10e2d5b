//! Whole plans in a scripted world: executed by the real executor over a store in memory, then looked at.

use std::sync::Arc;
use std::time::Duration;

use macp_ledger::MemoryStore;
use macp_plan_core::cause::Cause;
use macp_plan_core::compare::{Report, Verdict};
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::journal::Body;
use macp_plan_core::replay::WhatIf;
use macp_plan_core::skill::Catalog;
use serde_json::{Map, Value, json};

use super::Act;
use crate::executor::{Executor, ExecutorSettings, Start, Unobserved};
use crate::registry::Registry;
use crate::result::{RunResult, StepResult};
use crate::secrets::Held;
use crate::skill::{Observation, Skill};
use crate::store::{Run, RunStore};

/// The rate card of a stage.
const CARD: &str = "stage";

/// Skills, prices and secrets for one run.
#[derive(Debug)]
pub struct Stage {
    registry: Registry,
    prices: Map<String, Value>,
    secrets: Held,
}

impl Stage {
    /// A registry with skills of one's own, such as [`crate::registry::standard`] gives; it may be empty.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self { registry, prices: Map::new(), secrets: Held::default() }
    }

    /// Takes in a skill. It is free unless it is given a price.
    ///
    /// # Panics
    /// If its declaration cannot be registered.
    #[must_use]
    pub fn with(mut self, skill: Arc<dyn Skill>) -> Self {
        self.registry.register(skill, None).unwrap_or_else(|error| panic!("the skill cannot be registered: {error}"));
        self
    }

    /// The price of a skill, under the key its cost model names, as a rate card writes it.
    #[must_use]
    pub fn price(mut self, rate_card_key: &str, price: Value) -> Self {
        self.prices.insert(rate_card_key.to_owned(), price);
        self
    }

    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets = self.secrets.with(name, value);
        self
    }

    /// Freezes a plan, executes it to its end and replays it. Under tokio's paused clock nothing waits.
    ///
    /// # Panics
    /// If the plan cannot be frozen, or the run cannot be executed.
    pub async fn run(mut self, plan: &Value) -> Performance {
        let keys = self.registry.registrations().map(|it| it.skill.metadata().cost_model.rate_card_key.clone());
        for key in keys.collect::<Vec<_>>() {
            self.prices.entry(key).or_insert(json!({"base": 0}));
        }
        let card = json!({"id": CARD, "currency": "USD", "skills": self.prices});
        self.registry.add_rate_card(card).unwrap_or_else(|error| panic!("the prices cannot be used: {error}"));
        let registry = Arc::new(self.registry);
        let options = FreezeOptions {
            plan_id: Some("plan".to_owned()),
            created_at: Some("2026-01-01T00:00:00Z".to_owned()),
            rate_card: Some(CARD.to_owned()),
            ..FreezeOptions::default()
        };
        let plan = freeze(plan, &*registry as &dyn Catalog, &options)
            .unwrap_or_else(|findings| panic!("the plan cannot be frozen: {findings:#?}"));
        let runs = RunStore::open(Arc::new(MemoryStore::new())).expect("a store in memory opens");
        let settings = ExecutorSettings { shutdown_grace: Duration::ZERO, ..ExecutorSettings::default() };
        let executor = Executor::open(runs, registry, Arc::new(self.secrets), settings, Arc::new(Unobserved));
        let performed = perform(&executor, Start::execute(plan, "stage")).await;
        executor.shutdown().await;
        performed.unwrap_or_else(|problem| panic!("{problem}"))
    }
}

async fn perform(executor: &Executor, start: Start) -> Result<Performance, String> {
    let run_id = executor.start(start).await.map_err(|error| format!("the run does not start: {error}"))?.run_id;
    let result = executor.finished(&run_id).await.map_err(|error| error.to_string())?;
    let run = executor.runs().load(&run_id).await.map_err(|error| error.to_string())?;
    let replay = executor.mock_replay(&run_id, WhatIf::default()).await.map_err(|error| error.to_string())?;
    let gone = || "the run is gone".to_owned();
    Ok(Performance { result: result.ok_or_else(gone)?, run: run.ok_or_else(gone)?, replay })
}

/// A run that has ended, and what is said of it. Every assertion panics where the test stands.
#[derive(Debug)]
pub struct Performance {
    pub result: RunResult,
    /// With its journal.
    pub run: Run,
    /// Its replay from the recording.
    pub replay: Report,
}

impl Performance {
    /// This plan ends with this code, after so many retries in all, at this cost in microcents.
    #[track_caller]
    pub fn ends(&self, code: &str, retries: u32, cost_microcents: u64) -> &Self {
        let RunResult { final_code, retry_count, total_cost_microcents, .. } = &self.result;
        let found = (final_code.as_deref(), *retry_count, *total_cost_microcents);
        assert_eq!(found, (Some(code), retries, cost_microcents), "code, retries and cost; {:#?}", self.result.stop);
        self
    }

    /// A step ends with this code after so many attempts.
    #[track_caller]
    pub fn step(&self, step_id: &str, code: &str, attempts: usize) -> &Self {
        let found = self.outcome(step_id).map(|step| (step.final_code.as_str(), step.attempts.len()));
        assert_eq!(found, Some((code, attempts)), "code and attempts of step {step_id}");
        self
    }

    /// The journal has these kinds of entries, in this order; `observed` is for people and left out.
    #[track_caller]
    pub fn journal(&self, kinds: &[&str]) -> &Self {
        let told = self.run.bodies().map(Body::kind).filter(|kind| *kind != "observed");
        assert_eq!(told.collect::<Vec<_>>(), kinds, "the entries of the journal");
        self
    }

    /// Every decision follows from what was recorded, and nothing in it was changed since.
    #[track_caller]
    pub fn replays(&self) -> &Self {
        assert_eq!(self.replay.verdict, Verdict::Match, "{:#?}", self.replay.mismatches);
        self
    }

    #[must_use]
    pub fn outcome(&self, step_id: &str) -> Option<&StepResult> {
        self.result.steps.iter().find(|step| step.step_id == step_id)
    }
}

/// Turns what happened to a step into the script of a skill that does it again: one act per attempt. `body` gives outputs
/// that are kept apart, such as [`crate::export::ExportedRun::body`]; without it their attempts have none.
#[must_use]
pub fn script_of(
    run: &Run,
    step_id: &str,
    body: &dyn Fn(&macp_plan_core::digest::Digest) -> Option<Value>,
) -> Vec<Act> {
    let acts = run.bodies().filter_map(|entry| match entry {
        Body::AttemptObserved { step_id: of, cause, usage, retry_after_ms, output, .. } if of == step_id => {
            let value = output.output.clone().or_else(|| body(output.output_ref.as_ref()?));
            let observation = Observation {
                usage: *usage,
                retry_after_ms: *retry_after_ms,
                output: value,
                ..Observation::new(cause.clone(), "recorded")
            };
            Some(match cause {
                Cause::GuardTimeout => Act::Hang,
                Cause::ClientTimeout => Act::Timeout,
                _ => Act::Answer(observation),
            })
        }
        _ => None,
    });
    acts.collect()
}
