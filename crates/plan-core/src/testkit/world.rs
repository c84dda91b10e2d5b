//! A world that answers by script, and the driver that asks it. Time is virtual: waits are added up, not waited.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cause::Cause;
use crate::cost::Usage;
use crate::digest::{self, BODY_LABEL, Digest};
use crate::journal::{Admission, Body, DedupeVerdict, Journal, LimiterVerdict, Output, Reused, RunStart};
use crate::machine::{Machine, Next, Pinned, Question, Rules};
use crate::plan::{FrozenPlan, StepStatus};
use crate::skill::Catalog;

/// What a call gives.
#[derive(Clone, Debug)]
pub struct Answer {
    pub cause: Cause,
    pub usage: Option<Usage>,
    pub retry_after_ms: Option<u64>,
    pub output: Option<Value>,
}

impl Answer {
    /// A call that ended in some way and says nothing else.
    #[must_use]
    pub fn of(cause: Cause) -> Self {
        Self { cause, usage: None, retry_after_ms: None, output: None }
    }

    #[must_use]
    pub fn output(mut self, output: Value) -> Self {
        self.output = Some(output);
        self
    }

    #[must_use]
    pub fn tokens(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some(Usage { requests: 1, bytes: 0, input_tokens, output_tokens });
        self
    }
}

/// An answer with an HTTP status.
#[must_use]
pub fn http(status: u16) -> Answer {
    Answer::of(Cause::http(status))
}

/// Everything outside a run, by script. What is not scripted is allowed, new, and succeeds.
#[derive(Clone, Debug)]
pub struct World {
    pub admission: Admission,
    answers: BTreeMap<(String, u32), Answer>,
    always: BTreeMap<String, Answer>,
    limiter: BTreeMap<(String, u32), LimiterVerdict>,
    dedupe: BTreeMap<String, (DedupeVerdict, Option<Value>)>,
    reused: BTreeMap<String, Reused>,
    /// Applied at the first boundary of this step and attempt.
    interruption: Option<((String, u32), Body)>,
    /// Outputs with a longer canonical text are kept apart.
    pub inline_max: usize,
    /// Outputs kept apart.
    pub bodies: BTreeMap<Digest, Value>,
    /// Virtual milliseconds that passed in waits.
    pub waited_ms: u64,
    /// Every call that was made: step, attempt and effect keys.
    pub calls: Vec<(String, u32, Vec<String>)>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            admission: Admission { admitted: true, ..Admission::default() },
            answers: BTreeMap::new(),
            always: BTreeMap::new(),
            limiter: BTreeMap::new(),
            dedupe: BTreeMap::new(),
            reused: BTreeMap::new(),
            interruption: None,
            inline_max: 16 * 1024,
            bodies: BTreeMap::new(),
            waited_ms: 0,
            calls: Vec::new(),
        }
    }
}

impl World {
    /// A world where everything succeeds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The answer to one attempt.
    #[must_use]
    pub fn answer(mut self, step_id: &str, attempt: u32, answer: Answer) -> Self {
        self.answers.insert((step_id.to_owned(), attempt), answer);
        self
    }

    /// The answer to every attempt of a step that has none of its own.
    #[must_use]
    pub fn always(mut self, step_id: &str, answer: Answer) -> Self {
        self.always.insert(step_id.to_owned(), answer);
        self
    }

    #[must_use]
    pub fn limit(mut self, step_id: &str, attempt: u32, verdict: LimiterVerdict) -> Self {
        self.limiter.insert((step_id.to_owned(), attempt), verdict);
        self
    }

    #[must_use]
    pub fn dedupe(mut self, step_id: &str, verdict: DedupeVerdict, output: Option<Value>) -> Self {
        self.dedupe.insert(step_id.to_owned(), (verdict, output));
        self
    }

    /// The step was done before, by another run, and ended so.
    #[must_use]
    pub fn done_before(mut self, step_id: &str, status: StepStatus, code: &str) -> Self {
        self.reused.insert(step_id.to_owned(), Reused { status, code: code.to_owned() });
        self.dedupe(step_id, DedupeVerdict::Duplicate, None)
    }

    /// Cancels at the first boundary of this attempt.
    #[must_use]
    pub fn cancel(mut self, step_id: &str, attempt: u32) -> Self {
        let body = Body::CancelRequested { by: "operator".to_owned(), reason: "enough".to_owned() };
        self.interruption = Some(((step_id.to_owned(), attempt), body));
        self
    }

    /// Lets the deadline pass before this attempt.
    #[must_use]
    pub fn deadline(mut self, step_id: &str, attempt: u32) -> Self {
        self.interruption = Some(((step_id.to_owned(), attempt), Body::DeadlineReached { limit_ms: 1_000 }));
        self
    }

    /// The same world where nobody interrupts.
    #[must_use]
    pub fn without_interruption(mut self) -> Self {
        self.interruption = None;
        self
    }

    /// The same world where nobody says what was used, so that the bound is charged.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        self.answers.values_mut().chain(self.always.values_mut()).for_each(|answer| answer.usage = None);
        self
    }

    /// What interrupts the run before this attempt, once.
    fn interrupt(&mut self, step_id: &str, attempt: u32) -> Option<Body> {
        let due = self.interruption.as_ref().is_some_and(|((step, at), _)| step == step_id && *at == attempt);
        due.then(|| self.interruption.take()).flatten().map(|(_, body)| body)
    }

    /// Answers a question of a machine.
    pub fn ask(&mut self, question: &Question<'_>) -> Body {
        match question {
            Question::Admission => Body::Admission(self.admission.clone()),
            Question::Limiter { step, attempt, wait_ms } => {
                self.waited_ms += wait_ms;
                let verdict = self.limiter.get(&(step.step_id.clone(), *attempt)).copied();
                let verdict = verdict.unwrap_or(LimiterVerdict::Allowed);
                Body::LimiterVerdict { step_id: step.step_id.clone(), attempt: *attempt, verdict }
            }
            Question::Dedupe { step, effect_key, .. } => {
                let scripted = self.dedupe.get(&step.step_id).cloned();
                let (verdict, output) = scripted.unwrap_or((DedupeVerdict::New, None));
                Body::DedupeVerdict {
                    step_id: step.step_id.clone(),
                    effect_key: (*effect_key).to_owned(),
                    verdict,
                    reused_run_id: (verdict == DedupeVerdict::Duplicate).then(|| "r-earlier".to_owned()),
                    reused: self.reused.get(&step.step_id).cloned(),
                    output: self.store(output),
                }
            }
            Question::Outputs => unreachable!("only a lean machine asks for outputs"),
            Question::Dispatch { step, attempt, effect_keys, .. } => {
                self.calls.push((step.step_id.clone(), *attempt, effect_keys.to_vec()));
                let scripted = self.answers.get(&(step.step_id.clone(), *attempt));
                let scripted = scripted.or_else(|| self.always.get(&step.step_id)).cloned();
                let answer = scripted
                    .unwrap_or_else(|| Answer::of(Cause::Success).output(json!({"of": step.step_id, "body": "fine"})));
                Body::AttemptObserved {
                    step_id: step.step_id.clone(),
                    attempt: *attempt,
                    cause: answer.cause,
                    usage: answer.usage,
                    retry_after_ms: answer.retry_after_ms,
                    output: self.store(answer.output),
                }
            }
        }
    }

    fn store(&mut self, output: Option<Value>) -> Output {
        let Some(output) = output else { return Output::default() };
        let digest = digest::of_value(BODY_LABEL, &output).expect("scripted outputs have a canonical form");
        if output.to_string().len() <= self.inline_max {
            return Output { output_ref: Some(digest), output: Some(output) };
        }
        self.bodies.insert(digest.clone(), output);
        Output { output_ref: Some(digest), output: None }
    }
}

/// A run that came to its end.
#[derive(Clone, Debug)]
pub struct Run {
    pub journal: Journal,
    pub machine: Machine,
    pub world: World,
}

/// Executes a plan in a world under the pinned rules.
#[must_use]
pub fn execute(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>, world: World) -> Run {
    run(plan, catalog, Arc::new(Pinned), super::start(plan, "r-original"), world)
}

/// Executes a plan with everything given.
#[must_use]
pub fn run(
    plan: &Arc<FrozenPlan>,
    catalog: &Arc<dyn Catalog>,
    rules: Arc<dyn Rules>,
    start: RunStart,
    mut world: World,
) -> Run {
    let mut machine = Machine::new(Arc::clone(plan), Arc::clone(catalog), rules, start.clone());
    let mut journal = Journal::begin(start).expect("a start has a canonical form");
    machine.apply(&journal.entries()[0].body, None).expect("a run begins with its start");
    drive(&mut machine, &mut journal, &mut world);
    Run { journal, machine, world }
}

/// Goes on from where a machine is to the end of its run: the loop of every executor.
pub fn drive(machine: &mut Machine, journal: &mut Journal, world: &mut World) {
    loop {
        let interruption = match machine.current() {
            Some((step, attempt)) if machine.boundary() => world.interrupt(&step.step_id.clone(), attempt),
            _ => None,
        };
        let body = match interruption {
            Some(body) => body,
            None => match machine.next() {
                Next::Finished => return,
                Next::Decide(body) => *body,
                Next::Ask(question) => world.ask(&question),
            },
        };
        let apart = body.output_apart().and_then(|digest| world.bodies.get(digest)).cloned();
        machine.apply(&body, apart.as_ref()).expect("what is due fits");
        journal.append(body).expect("scripted entries have a canonical form");
    }
}
