//! `json_transform`: a JMESPath expression over a JSON value. Same input, same output, no effect.
//!
//! The language has neither loops nor recursion, yet a short expression can double a value again and again; so the work
//! of an evaluation is counted, and one that wants more than its share ends as invalid input. See [`super::evaluation`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Effect;
use macp_plan_core::reference;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use serde_json::{Map, Value, json};
use tokio::task::JoinError;

use super::evaluation::MEMORY_MAX;
use super::expression::{Error, Expression};
use super::{document, metadata};
use crate::memory;
use crate::schema::Schema;
use crate::shares::{Place, Places};
use crate::skill::{Call, Calling, Observation, Skill};

pub const ID: &str = "json_transform";
pub const VERSION: &str = "2.0.0";

/// The longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// The largest input with its bindings, in bytes of canonical text.
pub const INPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Evaluations at the same time: each may take some hundred MiB and a thread, and the store needs threads too.
const EVALUATIONS_MAX: usize = 4;
/// What an evaluation may make at first; only one that makes more is given all.
const MEMORY_FIRST: u64 = 8 * 1024 * 1024;
/// How often what is given is there while it is evaluated: once copied, and once as the values of the evaluation, which
/// are three times as large.
const INPUT_COPIES: usize = 4;
/// Of one agent.
const AGENT_EVALUATIONS_MAX: usize = 2;

#[derive(Debug)]
pub struct JsonTransform {
    metadata: SkillMetadata,
    input: Schema,
    evaluations: Places,
}

/// Tells an evaluation, once this is dropped, that nobody waits for it any more.
#[derive(Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl JsonTransform {
    pub(crate) fn new() -> Self {
        let metadata = metadata::json_transform();
        let input = Schema::compile(&metadata.input_schema).expect("the skill's own schema compiles");
        Self { metadata, input, evaluations: Places::new(EVALUATIONS_MAX, AGENT_EVALUATIONS_MAX) }
    }

    async fn dispatch(&self, call: Call<'_>) -> Observation {
        tokio::select! {
            biased;
            observation = self.evaluate(call.parameters) => observation,
            () = memory::elapsed(call.timeout) => {
                let told = format!("the expression was not evaluated within {} ms", call.timeout.as_millis());
                // Not the HTTP client's timeout, which is the other timer a skill can have.
                Observation::new(Cause::GuardTimeout, told)
            }
        }
    }

    async fn evaluate(&self, parameters: &Map<String, Value>) -> Observation {
        let place = Arc::new(self.evaluations.take().await);
        // Most expressions make little. One that makes more is evaluated once more, with all that it may have: what it
        // makes follows from the expression and its input alone.
        match self.evaluate_within(parameters, MEMORY_FIRST, &place).await {
            Ok(Err(Refused::Memory(_))) => {}
            ended => return observed(ended),
        }
        observed(self.evaluate_within(parameters, MEMORY_MAX, &place).await)
    }

    /// Evaluates with so much memory for what the expression makes, once all that takes is reserved.
    async fn evaluate_within(
        &self,
        parameters: &Map<String, Value>,
        memory_max: u64,
        place: &Arc<Place>,
    ) -> Result<Result<(Value, Usage), Refused>, JoinError> {
        if let Some(claim) = memory::current() {
            let given: usize = parameters.values().map(macp_wire::memory::of).sum();
            let made = usize::try_from(memory_max).unwrap_or(usize::MAX);
            claim.work(given.saturating_mul(INPUT_COPIES).saturating_add(made.saturating_mul(2))).await;
        }
        let waiting = Waiting::default();
        let (parameters, abandoned, place) = (parameters.clone(), Arc::clone(&waiting.0), Arc::clone(place));
        // Off the threads that drive other runs: an evaluation within its limits can still take a while.
        let work = tokio::task::spawn_blocking(move || {
            // Held until the work ends, which may be after everybody stopped waiting for it.
            let _place = place;
            transform(parameters, &abandoned, memory_max)
        });
        work.await
    }
}

fn observed(ended: Result<Result<(Value, Usage), Refused>, JoinError>) -> Observation {
    match ended {
        Ok(Ok((result, usage))) => {
            Observation::success(json!({"result": result}), "the expression was evaluated").with_usage(usage)
        }
        Ok(Err(Refused::Memory(problem) | Refused::Input(problem))) => Observation::new(Cause::InputInvalid, problem),
        Err(panicked) => Observation::new(Cause::Internal, format!("the evaluation ended abnormally: {panicked}")),
    }
}

/// Why an expression has no result.
#[derive(Debug)]
enum Refused {
    /// It makes more than it may have.
    Memory(String),
    Input(String),
}

impl From<String> for Refused {
    fn from(problem: String) -> Self {
        Self::Input(problem)
    }
}

impl PureSkill for JsonTransform {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, _parameters: &Map<String, Value>) -> Vec<Effect> {
        Vec::new()
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        // What has no canonical text is refused before it costs anything.
        input_bytes(parameters).map(usage_of).unwrap_or_default()
    }

    fn success_code(&self) -> &'static str {
        "OK_JSON_TRANSFORM"
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        self.input.check(&Value::Object(parameters.clone()))?;
        check_written(parameters)
    }

    /// What it is given is mostly a reference, and what it makes of it mostly written.
    fn check_template(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        if reference::is_literal(parameters) { self.check_input(parameters) } else { check_written(parameters) }
    }
}

impl Skill for JsonTransform {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(self.dispatch(call))
    }
}

fn transform(
    parameters: Map<String, Value>,
    abandoned: &AtomicBool,
    memory_max: u64,
) -> Result<(Value, Usage), Refused> {
    let bytes = input_bytes(&parameters)?;
    if bytes > INPUT_BYTES_MAX {
        return Err(format!("at /input: {bytes} bytes are more than the {INPUT_BYTES_MAX} that are taken").into());
    }
    let text = parameters.get("expression").and_then(Value::as_str);
    let text = text.ok_or_else(|| "at the top: `expression` is missing".to_owned())?;
    let expression = compile(text)?;
    let result = expression.evaluate(root(parameters), abandoned, memory_max).map_err(|error| {
        let problem = format!("at /expression: {error}");
        if matches!(error, Error::TooMuchMemory) { Refused::Memory(problem) } else { Refused::Input(problem) }
    })?;
    let settled = document::settle(result).map_err(|unfit| format!("the result cannot be recorded: {unfit}"))?;
    Ok((settled, usage_of(bytes)))
}

/// Whether the expression is one, as far as it is written and not referred to.
fn check_written(parameters: &Map<String, Value>) -> Result<(), String> {
    match parameters.get("expression").and_then(Value::as_str) {
        Some(text) if !super::has_reference(text) => compile(text).map(|_| ()),
        _ => Ok(()),
    }
}

fn compile(text: &str) -> Result<Expression, String> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(format!("at /expression: it is longer than {EXPRESSION_BYTES_MAX} bytes"));
    }
    Expression::compile(text).map_err(|error| format!("at /expression: {error}"))
}

/// What the expression sees.
fn root(mut parameters: Map<String, Value>) -> Value {
    let input = parameters.remove("input").unwrap_or(Value::Null);
    match parameters.remove("bindings") {
        Some(Value::Object(mut members)) => {
            members.insert("input".to_owned(), input);
            Value::Object(members)
        }
        _ => input,
    }
}

fn input_bytes(parameters: &Map<String, Value>) -> Result<usize, String> {
    let size = |name: &str| match parameters.get(name) {
        Some(value) => document::size(value).map_err(|unfit| format!("at /{name}: {unfit}")),
        None => Ok(0),
    };
    Ok(size("input")? + size("bindings")?)
}

fn usage_of(bytes: usize) -> Usage {
    Usage { bytes: bytes.try_into().unwrap_or(u64::MAX), ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outbound::Http;
    use crate::secrets::Held;
    use crate::shares::in_name_of;

    async fn evaluated(skill: &JsonTransform, parameters: &Map<String, Value>, timeout: Duration) -> Observation {
        let secrets = Held::default();
        let http = Http::closed(&secrets);
        skill.call(Call { parameters, timeout, effect_keys: &[], secrets: &secrets, http, random_seed: 0 }).await
    }

    fn parameters(expression: &str) -> Map<String, Value> {
        Map::from_iter([("input".to_owned(), json!([1])), ("expression".to_owned(), json!(expression))])
    }

    /// Whoever waits for a place waits within its own time, and what nobody waits for any more gives its place back.
    #[tokio::test(start_paused = true)]
    async fn few_evaluate_at_once() {
        let skill = JsonTransform::new();
        let mut taken = Vec::new();
        for _ in 0..AGENT_EVALUATIONS_MAX {
            taken.push(skill.evaluations.take().await);
        }
        let late = evaluated(&skill, &parameters("@"), Duration::from_millis(50)).await;
        assert_eq!(late.cause, Cause::GuardTimeout, "{late:?}");
        let other = in_name_of("other".into(), evaluated(&skill, &parameters("@"), Duration::from_secs(60))).await;
        assert_eq!(other.cause, Cause::Success, "{other:?}");
        drop(taken);
        assert_eq!(evaluated(&skill, &parameters("@"), Duration::from_secs(60)).await.cause, Cause::Success);
        // It may end in no time: only that its permit is released counts.
        drop(evaluated(&skill, &parameters("@"), Duration::ZERO).await);
        for _ in 0..AGENT_EVALUATIONS_MAX {
            drop(skill.evaluations.take().await);
        }
    }

    #[test]
    fn an_evaluation_ends_once_nobody_waits_for_it() {
        let told = transform(parameters("@"), &AtomicBool::new(true), MEMORY_MAX).expect_err("nobody waits");
        assert!(matches!(&told, Refused::Input(told) if told.contains("given up")), "{told:?}");
    }

    /// What is evaluated twice ends as if it had been evaluated once.
    #[tokio::test]
    async fn an_expression_that_makes_much_has_its_result() {
        let skill = JsonTransform::new();
        let input: Vec<Value> = (0..20_000).map(|at| json!({"n": at})).collect();
        let mut parameters = parameters("length([*].{a: n, b: n})");
        parameters.insert("input".to_owned(), Value::from(input));
        assert!(matches!(
            transform(parameters.clone(), &AtomicBool::new(false), MEMORY_FIRST),
            Err(Refused::Memory(_))
        ));
        let observed = evaluated(&skill, &parameters, Duration::from_secs(60)).await;
        assert_eq!(observed.output, Some(json!({"result": 20_000})), "{observed:?}");
    }
}
