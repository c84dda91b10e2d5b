//! The decision core of a run: what is due next, and how every entry of the journal moves it on.
//!
//! ```text
//!            ┌────────────── next ──────────────┐
//!            ▼                                  │
//!    Decide(entry) ──append──▶ apply ──▶ state ─┤
//!    Ask(question) ──answer──▶ apply ──▶ state ─┘
//! ```
//!
//! `next` looks and never touches; `apply` is the only way the state changes, for decisions and answers alike. The order
//! of entries, of which a step may leave out what does not concern it:
//!
//! ```text
//! run_started  admission?  { step_started  budget_checked  limiter_verdict?  dedupe_verdict?  effect_intent…
//!     attempt_observed?  attempt_judged  [ budget_checked  retry_scheduled  limiter_verdict? … ]  step_finished }…
//! run_finished                                                        (? is an answer, everything else is decided)
//! ```
//!
//! `budget_alert` follows what it tells of, an `attempt_judged` or `budget_checked`; `cancel_requested` and
//! `deadline_reached` come where [`Machine::boundary`] says so, and after them `step_finished` and `run_finished`;
//! `observed` may stand anywhere between these, since it moves nothing on.
//!
//! A driver is one loop:
//!
//! ```text
//! loop { match machine.next() { Decide(body) => append and apply, Ask(question) => answer, append and apply, Finished => break } }
//! ```

mod apply;
mod decide;
mod outputs;
mod prepare;
mod rules;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::budget;
use crate::cause::Cause;
use crate::cost::Usage;
use crate::digest::Digest;
use crate::effect::Effect;
use crate::journal::{Body, Entry, REVISION, RunFinished, RunMode, RunStart, StepFinished};
use crate::plan::{FrozenPlan, Plan, Step};
use crate::rate_card::{self, RateCard};
use crate::reference;
use crate::skill::Catalog;
use crate::taxonomy::Taxonomy;

use outputs::Template;
pub use outputs::{Demand, Outputs, Size};
pub use prepare::Assumed;
pub(crate) use prepare::{Unknown, timeout_ms};
pub use rules::{OVER_EVERY_BUDGET, Pinned, Rules};
use state::{Current, Held, Phase, State};

/// A run, decided entry by entry.
#[derive(Clone, Debug)]
pub struct Machine {
    plan: Arc<FrozenPlan>,
    catalog: Arc<dyn Catalog>,
    rules: Arc<dyn Rules>,
    start: RunStart,
    taxonomy: Option<&'static Taxonomy>,
    card: Option<RateCard>,
    assumptions: Option<BTreeMap<String, Assumed>>,
    /// The run is only to be ended, and what that takes needs no prices.
    closing: bool,
    /// The names every step refers to, by its place in the plan.
    reads: Arc<Vec<BTreeSet<String>>>,
    /// What is known of the steps' parameters, by their place in the plan.
    templates: Arc<Vec<Template>>,
    /// Outputs are held by digest, unless they are small.
    lean: bool,
    state: State,
}

/// What is due.
#[derive(Debug)]
pub enum Next<'m> {
    /// An entry the machine decided: append it and apply it.
    Decide(Box<Body>),
    /// The world, or a recording, must answer with an input entry.
    Ask(Question<'m>),
    Finished,
}

/// What only the outside knows.
#[derive(Clone, Copy, Debug)]
pub enum Question<'m> {
    /// Answered by `admission`.
    Admission,
    /// Wait so long, then may the call go? Answered by `limiter_verdict`.
    Limiter { step: &'m Step, attempt: u32, wait_ms: u64 },
    /// Is the effect key free? Answered by `dedupe_verdict`. Asked once per step.
    Dedupe { step: &'m Step, attempt: u32, effect_key: &'m str, request_digest: Option<&'m Digest> },
    /// Read the outputs that the due step refers to. Answered by [`Machine::supply`], and asked by lean machines alone.
    Outputs,
    /// Make the call. Answered by `attempt_observed`. Everything before it must be durable first.
    Dispatch {
        step: &'m Step,
        attempt: u32,
        parameters: &'m Arc<Map<String, Value>>,
        timeout_ms: u64,
        effects: &'m [Effect],
        /// One per effect.
        effect_keys: &'m [String],
    },
}

/// An entry that does not fit where it was applied.
#[derive(Debug, thiserror::Error)]
pub enum OutOfPlace {
    #[error("`{found}` cannot come here: `{expected}` is due")]
    Kind { expected: &'static str, found: &'static str },
    #[error("the entry is about step `{found}`, but `{expected}` is under way")]
    Step { expected: String, found: String },
    #[error("the entry is about attempt {found} of step `{step_id}`, but attempt {expected} is due")]
    Attempt { step_id: String, expected: u32, found: u32 },
    #[error("the plan has no step `{step_id}` at place {index}")]
    NoSuchStep { step_id: String, index: u32 },
    #[error("the run belongs to the plan {found}, not to {expected}")]
    Plan { expected: Digest, found: Digest },
    #[error("the run is decided by revision {found} of the rules, and only those up to {REVISION} are known here")]
    Revision { found: u32 },
    #[error("the output {digest} of step `{step_id}` is kept apart from the journal and was not given")]
    OutputMissing { step_id: String, digest: Digest },
    #[error("step `{step_id}` begins, but the outputs it refers to were not read")]
    Unprepared { step_id: String },
    #[error("the parameters of step `{step_id}` cannot be resolved again: {why}")]
    Changed { step_id: String, why: String },
}

impl Machine {
    /// A machine before its first entry.
    #[must_use]
    pub fn new(plan: Arc<FrozenPlan>, catalog: Arc<dyn Catalog>, rules: Arc<dyn Rules>, start: RunStart) -> Self {
        let pins = &plan.plan.pins;
        let taxonomy = Taxonomy::version(&pins.taxonomy_version);
        let card = rate_card::pinned(&pins.rate_card, catalog.as_ref()).ok();
        let reads = Arc::new(reads(&plan.plan));
        let templates = Arc::new(plan.plan.steps.iter().map(|step| Template::of(&step.parameters)).collect());
        let state = State::new(&reads);
        let (assumptions, closing, lean) = (None, false, false);
        Self { plan, catalog, rules, start, taxonomy, card, assumptions, closing, reads, templates, lean, state }
    }

    /// Takes facts as given for steps whose skill is not registered or whose references lead to outputs that are no
    /// longer kept. Replays and estimates need that; a live run never does.
    #[must_use]
    pub fn assuming(mut self, assumptions: BTreeMap<String, Assumed>) -> Self {
        self.assumptions = Some(assumptions);
        self
    }

    /// Does without the rate card, if it is not there: what was admitted stays admitted.
    pub(crate) fn closing(mut self) -> Self {
        self.closing = true;
        self
    }

    /// Brings a machine to where a journal ends. `body` gives outputs kept apart, by digest.
    pub fn recover<'e>(
        plan: Arc<FrozenPlan>,
        catalog: Arc<dyn Catalog>,
        rules: Arc<dyn Rules>,
        start: &RunStart,
        entries: impl IntoIterator<Item = &'e Entry>,
        body: &dyn Fn(&Digest) -> Option<Value>,
    ) -> Result<Self, OutOfPlace> {
        let mut machine = Self::new(plan, catalog, rules, start.clone());
        for entry in entries {
            let apart = machine.wants_output(&entry.body).and_then(body);
            machine.apply(&entry.body, apart.as_ref())?;
        }
        Ok(machine)
    }

    /// The same for a lean machine: of outputs it reads the size, and the values of what it prepares requests from.
    pub fn recover_lean<'e>(
        plan: Arc<FrozenPlan>,
        catalog: Arc<dyn Catalog>,
        rules: Arc<dyn Rules>,
        start: &RunStart,
        entries: impl IntoIterator<Item = &'e Entry>,
        outputs: &dyn Outputs,
    ) -> Result<Self, OutOfPlace> {
        let mut machine = Self::new(plan, catalog, rules, start.clone()).lean();
        for entry in entries {
            if matches!(machine.state.phase, Phase::StepStart)
                && !matches!(entry.body, Body::Observed { .. })
                && let Some(demand) = machine.demand()
            {
                let read = |digest: Digest| outputs.value(&digest).map(|value| (digest, value));
                machine.supply(&demand.outputs.into_iter().filter_map(read).collect())?;
                machine.set_down();
            }
            let size = machine.wants_output(&entry.body).and_then(|digest| outputs.size(digest));
            machine.apply_sized(&entry.body, size)?;
        }
        Ok(machine)
    }

    #[must_use]
    pub fn plan(&self) -> &Arc<FrozenPlan> {
        &self.plan
    }

    #[must_use]
    pub fn start(&self) -> &RunStart {
        &self.start
    }

    /// Whether `cancel_requested` or `deadline_reached` may be applied now: between attempts and before the first one of
    /// a step, never while a call is out.
    #[must_use]
    pub fn boundary(&self) -> bool {
        let between = matches!(self.state.phase, Phase::Budget | Phase::Schedule | Phase::Limiter | Phase::Dedupe);
        between && self.state.alert_due.is_none()
    }

    /// Whether the call that is due must not be made by a process that does not know if an earlier one made it: every
    /// intent is written and some effect does harm if repeated. Asked once, after recovery; the answer to the question
    /// is then `attempt_observed` with the cause `effect_in_doubt`.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        matches!(self.state.phase, Phase::Dispatch)
            && self.state.current.as_ref().is_some_and(|current| current.prepared.is_unrepeatable())
    }

    /// Whether the step that is under way has an effect that must be claimed. The steps of a run that tries again are all
    /// asked about, and most of them have none.
    #[must_use]
    pub fn needs_claim(&self) -> bool {
        self.state.current.as_ref().is_some_and(|current| current.prepared.needs_claim())
    }

    /// The step that is under way, and its attempt.
    #[must_use]
    pub fn current(&self) -> Option<(&Step, u32)> {
        let current = self.state.current.as_ref()?;
        Some((self.step(current), current.attempt))
    }

    /// The code with which the step that is under way succeeds.
    #[must_use]
    pub fn success_code(&self) -> Option<&'static str> {
        let skill = self.state.current.as_ref()?.prepared.skill.as_ref();
        Some(self.rules.code(self.taxonomy(), &Cause::Success, skill))
    }

    /// The most the step that is under way can use in one dispatch.
    pub(crate) fn bound(&self) -> Usage {
        self.state.current.as_ref().map(|current| current.prepared.bound).unwrap_or_default()
    }

    /// Why facts about the step that is under way are assumed, if they are, and whether it has a price nevertheless.
    pub(crate) fn assumes(&self) -> Option<(Unknown, bool)> {
        let prepared = &self.state.current.as_ref()?.prepared;
        Some((prepared.assumed?, prepared.price.is_some()))
    }

    /// Whether it is known what a call of the step that is under way costs.
    pub(crate) fn is_priced(&self) -> bool {
        self.state.current.as_ref().is_some_and(|current| current.prepared.price.is_some())
    }

    /// Whether the step that is next is refused before its budget is looked at.
    pub(crate) fn is_refused(&self) -> bool {
        self.state.current.as_ref().is_some_and(|current| matches!(current.prepared.gate, prepare::Gate::Refuse { .. }))
    }

    /// Steps that finished, in the order in which they did.
    #[must_use]
    pub fn results(&self) -> &[StepFinished] {
        &self.state.results
    }

    #[must_use]
    pub fn step_result(&self, step_id: &str) -> Option<&StepFinished> {
        self.state.results.iter().find(|result| result.step_id == step_id)
    }

    /// The digest of an output that an entry names without holding it and that a later step refers to, so that `apply`
    /// must be given it.
    #[must_use]
    pub fn wants_output<'b>(&self, body: &'b Body) -> Option<&'b Digest> {
        let (step, _) = self.current()?;
        body.output_apart().filter(|_| self.state.unread.contains_key(step.name()))
    }

    /// The output of a finished step, by the name references use, for as long as a step that refers to it is to come.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Value> {
        match self.state.outputs.get(name)? {
            Held::Known { value, .. } => Some(value),
            Held::Stored { .. } | Held::Unknown | Held::TooMuch => None,
        }
    }

    /// What has been charged so far, in microcents.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.state.spent
    }

    /// What is left of the budget, in microcents.
    #[must_use]
    pub fn remaining(&self) -> i64 {
        budget::remaining(self.plan.plan.context.budget_cents, self.state.spent)
    }

    /// How the run ended, once it has.
    #[must_use]
    pub fn finished(&self) -> Option<&RunFinished> {
        self.state.finished.as_ref()
    }

    fn step(&self, current: &Current) -> &Step {
        &self.plan.plan.steps[current.prepared.index]
    }

    fn dry(&self) -> bool {
        self.start.mode == RunMode::DryRun
    }

    /// The taxonomy; the newest one stands in only for a plan whose own is unknown, and no such plan is admitted.
    fn taxonomy(&self) -> &'static Taxonomy {
        self.taxonomy.unwrap_or_else(|| crate::taxonomy::VERSIONS.last().expect("some version is compiled in"))
    }
}

/// For every step the names of steps that its references may mean.
pub(crate) fn reads(plan: &Plan) -> Vec<BTreeSet<String>> {
    let known: BTreeSet<&str> = plan.steps.iter().map(Step::name).collect();
    let of_step = |step: &Step| {
        let references = reference::references(&step.parameters).unwrap_or_default();
        let names = references.iter().flat_map(|reference| reference.names());
        names.filter(|name| known.contains(name)).map(str::to_owned).collect()
    };
    plan.steps.iter().map(of_step).collect()
}
