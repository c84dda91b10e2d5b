//! Whether an agent may have another run, given its others (AOS-19): asked once, before the first step.
//!
//! What counts against a limit of money is what the agent's runs of that day or month cost, the whole budgets of those
//! that are at work, and the budget of the run that asks; so runs that start together cannot pass it together. A run
//! belongs to the day it was started, in UTC. A full replay is none of them: what it costs is its own (AOS-90), and only
//! the limit per run is asked. The sums are read from the index of runs when a limit first asks for
//! them, and kept up from then on: nothing beside the index has to survive a crash.

mod book;
mod day;

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost;
use macp_plan_core::journal::{AdmissionFinding, RunMode, RunStart};
use macp_plan_core::plan::{AdmissionLimits, FrozenPlan, MICROCENTS_PER_CENT};
use macp_plan_core::taxonomy::{self, Class, Taxonomy};
use macp_wire::canonical::INTEGER_MAX;
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::Shared;
use super::settings::AgentLimits;
use crate::store::{StoreError, costs};
use book::{Book, Tally};
use day::Day;

/// No shorter than this month and the last; the book leaves out what is older.
const TWO_MONTHS_MS: u64 = 62 * 24 * 60 * 60 * 1_000;

/// What agents have spent; nothing is kept until a limit asks for it.
#[derive(Debug, Default)]
pub(super) struct Spending {
    book: Mutex<Option<Book>>,
}

/// What came of an admission.
#[derive(Debug)]
pub(super) struct Admitted {
    /// Every limit in force, and what was counted against it.
    pub(super) limits: Map<String, Value>,
    pub(super) refusal: Option<Refusal>,
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) cause: Cause,
    pub(super) finding: AdmissionFinding,
}

/// Nothing more may be kept of an agent's runs: a quota that is reached is used up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    pub(super) kept: u64,
    pub(super) kept_max: u64,
}

/// One limit in force, with what counts against it beside the run that asks.
struct Limit {
    span: Span,
    cents: u64,
    counted: Tally,
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Run,
    Day,
    Month,
}

impl Shared {
    /// Lets a run begin, unless a limit that depends on its agent's other runs is in the way.
    pub(super) async fn admit(
        &self,
        start: &RunStart,
        plan: &FrozenPlan,
        started_at_ms: u64,
    ) -> Result<Admitted, StoreError> {
        let (run_id, replays) = (start.run_id.as_str(), start.mode == RunMode::FullReplay);
        let context = &plan.plan.context;
        let (agent, agent_id) = (&self.settings.agent, &plan.plan.agent_id);
        let kept = match agent.kept_bytes_max {
            Some(kept_max) => Some((self.runs.kept_by(agent_id).await?, kept_max)),
            None => None,
        };
        let mut limits = in_force(agent, context.budget_policy.admission.as_ref());
        if replays {
            limits = AdmissionLimits { per_run_max_cents: limits.per_run_max_cents, ..AdmissionLimits::default() };
        }
        // Held until all is decided, and taken by every run: so of those that begin together each sees the others.
        let mut book = self.book(&limits).await?;
        let day = Day::of(started_at_ms);
        let asked = limits_of(&limits, book.as_mut(), run_id, agent_id, day);
        let runs_max = self.settings.agent_runs_max();
        let (has_place, others) = self.desk.admit(run_id, agent_id, runs_max);
        let mut told = Map::new();
        told.insert("runs_at_work".to_owned(), json!(others));
        told.insert("runs_max".to_owned(), json!(runs_max));
        if !asked.is_empty() {
            told.insert("day".to_owned(), json!(day.to_string()));
            told.insert("budget_cents".to_owned(), json!(context.budget_cents));
            asked.iter().for_each(|limit| limit.tell(&mut told));
        }
        let refused = |cause: Cause, reason: &str, explanation: String| {
            let code = code_of(plan, &cause);
            let finding =
                AdmissionFinding { code, reason: reason.to_owned(), step_id: None, explanation, available: Vec::new() };
            Some(Refusal { cause, finding })
        };
        if let Some((kept, kept_max)) = kept {
            told.insert("kept_bytes".to_owned(), json!(kept.min(INTEGER_MAX)));
            told.insert("kept_max_bytes".to_owned(), json!(kept_max.min(INTEGER_MAX)));
        }
        let full = kept.filter(|(kept, kept_max)| kept >= kept_max);
        let passed = asked.iter().find(|limit| limit.is_passed_by(context.budget_cents));
        let refusal = match (has_place, full, passed) {
            (false, _, _) => {
                let told = format!("the agent `{agent_id}` has {others} runs at work, which is as many as it may have");
                refused(Cause::ConcurrencyLimited, "runs_max", told)
            }
            (true, Some((kept, kept_max)), _) => {
                self.desk.withdraw(run_id);
                let told = format!(
                    "{kept} bytes are kept of the runs of the agent `{agent_id}`, which may keep {kept_max}; have the \
                     limit raised, or keep its runs in another store"
                );
                refused(Cause::StorageQuotaExceeded, "kept_max", told)
            }
            (true, None, Some(limit)) => {
                self.desk.withdraw(run_id);
                refused(Cause::QuotaExceeded, limit.reason(), limit.explain(agent_id, context.budget_cents, day))
            }
            (true, None, None) => None,
        };
        if let Some(book) = book.as_mut().filter(|_| refusal.is_none() && !replays) {
            book.reserve(run_id, agent_id, day, cost::microcents(context.budget_cents));
        }
        Ok(Admitted { limits: told, refusal })
    }

    /// Whether what may be kept of an agent's runs is used up.
    pub(super) async fn used_up(&self, agent_id: &str) -> Result<Option<Full>, StoreError> {
        let Some(kept_max) = self.settings.agent.kept_bytes_max else { return Ok(None) };
        let kept = self.runs.kept_by(agent_id).await?;
        Ok((kept >= kept_max).then_some(Full { kept, kept_max }))
    }

    /// Counts what a run cost, once its journal tells that it has ended.
    pub(super) async fn spent(&self, run_id: &str, cost_microcents: u64) {
        if let Some(book) = self.spending.book.lock().await.as_mut() {
            book.settle(run_id, cost_microcents);
        }
    }

    /// The sums, read from the index if a limit needs them and nobody has read them yet.
    async fn book(&self, limits: &AdmissionLimits) -> Result<MutexGuard<'_, Option<Book>>, StoreError> {
        let mut book = self.spending.book.lock().await;
        // Last month's days still count for a run that was started at its very end.
        let now_ms = self.runs.now_ms();
        let from = Day::of(now_ms).last_month();
        if let Some(book) = book.as_mut() {
            book.forget_before(from);
        } else if limits.per_day_max_cents.is_some() || limits.per_month_max_cents.is_some() {
            let desk = Arc::clone(&self.desk);
            let read = move |store: &dyn macp_ledger::Store| {
                let mut book = Book::new(from);
                costs::since(store, now_ms.saturating_sub(TWO_MONTHS_MS), |run, cost| {
                    let day = Day::of(run.started_at_ms);
                    match cost {
                        costs::Cost::Spent(microcents) => book.spend(&run.agent_id, day, microcents),
                        // Its turn is still to come: it waits for these very sums.
                        costs::Cost::AtWork(_) if desk.awaits_admission(&run.run_id) => {}
                        costs::Cost::AtWork(microcents) => {
                            book.reserve(&run.run_id, &run.agent_id, day, microcents);
                        }
                    }
                })?;
                Ok::<_, StoreError>(book)
            };
            *book = Some(self.runs.blocking(read).await?);
        }
        Ok(book)
    }
}

/// The smaller of what the operator and the plan allow.
fn in_force(operator: &AgentLimits, plan: Option<&AdmissionLimits>) -> AdmissionLimits {
    let plan = plan.copied().unwrap_or_default();
    let smaller = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    AdmissionLimits {
        per_run_max_cents: smaller(operator.cents_per_run, plan.per_run_max_cents),
        per_day_max_cents: smaller(operator.cents_per_day, plan.per_day_max_cents),
        per_month_max_cents: smaller(operator.cents_per_month, plan.per_month_max_cents),
    }
}

/// The limits in force, with what counts against them without the run that asks.
fn limits_of(limits: &AdmissionLimits, book: Option<&mut Book>, run_id: &str, agent_id: &str, day: Day) -> Vec<Limit> {
    let (of_day, of_month) = match book {
        None => (Tally::default(), Tally::default()),
        Some(book) => {
            // A run that a crash kept from being admitted is in the index, and so in the sums.
            book.release(run_id);
            (book.of_day(agent_id, day), book.of_month(agent_id, day))
        }
    };
    let limits = [
        (Span::Run, limits.per_run_max_cents, Tally::default()),
        (Span::Day, limits.per_day_max_cents, of_day),
        (Span::Month, limits.per_month_max_cents, of_month),
    ];
    limits.into_iter().filter_map(|(span, cents, counted)| Some(Limit { span, cents: cents?, counted })).collect()
}

impl Limit {
    /// Equality is enough.
    fn is_passed_by(&self, budget_cents: u64) -> bool {
        let budget = u128::from(cost::microcents(budget_cents));
        self.counted.spent + self.counted.reserved + budget > u128::from(cost::microcents(self.cents))
    }

    /// One word for programs.
    fn reason(&self) -> &'static str {
        match self.span {
            Span::Run => "per_run_max",
            Span::Day => "per_day_max",
            Span::Month => "per_month_max",
        }
    }

    fn explain(&self, agent_id: &str, budget_cents: u64, day: Day) -> String {
        let Self { span, cents, counted } = self;
        let (period, of) = match span {
            Span::Run => {
                return format!(
                    "a run of the agent `{agent_id}` may cost {cents} cents, and the budget of this one is \
                     {budget_cents}; freeze the plan with a smaller budget, or have the limit raised"
                );
            }
            Span::Day => ("a day", format!("of {day}")),
            Span::Month => ("a month", format!("of the month of {day}")),
        };
        format!(
            "the agent `{agent_id}` may spend {cents} cents {period}: its runs {of} have spent {}, those at work may \
             spend {}, and the budget of this one is {budget_cents}; wait for the next period, in UTC, or have the \
             limit raised",
            in_cents(counted.spent),
            in_cents(counted.reserved)
        )
    }

    /// Writes down what was looked at, for whoever asks later why the run was let in or not.
    fn tell(&self, told: &mut Map<String, Value>) {
        let number = |microcents: u128| json!(u64::try_from(microcents).unwrap_or(u64::MAX).min(INTEGER_MAX));
        let (name, period) = match self.span {
            Span::Run => ("per_run_max_cents", None),
            Span::Day => ("per_day_max_cents", Some("day")),
            Span::Month => ("per_month_max_cents", Some("month")),
        };
        told.insert(name.to_owned(), json!(self.cents));
        if let Some(period) = period {
            told.insert(format!("{period}_spent_microcents"), number(self.counted.spent));
            told.insert(format!("{period}_reserved_microcents"), number(self.counted.reserved));
        }
    }
}

fn code_of(plan: &FrozenPlan, cause: &Cause) -> String {
    // The checks before have made sure that the taxonomy is known.
    let taxonomy = Taxonomy::version(&plan.plan.pins.taxonomy_version).or(taxonomy::VERSIONS.last());
    taxonomy.expect("some version is compiled in").code_of(Class::of(cause)).to_owned()
}

/// Microcents as people read them.
fn in_cents(microcents: u128) -> String {
    let unit = u128::from(MICROCENTS_PER_CENT);
    let text = format!("{}.{:06}", microcents / unit, microcents % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
