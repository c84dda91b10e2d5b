//! `json_transform`: a JMESPath expression over a JSON value. Same input, same output, no effect.
//!
//! The language has neither loops nor recursion, yet a short expression can double a value again and again; so the work
//! of an evaluation is counted, and one that wants more than its share ends as invalid input. See [`super::evaluation`].

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Effect;
use macp_plan_core::reference;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use serde_json::{Map, Value, json};

use super::expression::Expression;
use super::{document, metadata};
use crate::schema::Schema;
use crate::skill::{Call, Calling, Observation, Skill};

pub const ID: &str = "json_transform";
pub const VERSION: &str = "2.0.0";

/// The longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// The largest input with its bindings, in bytes of canonical text.
pub const INPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The largest result, in bytes of canonical text.
const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub struct JsonTransform {
    metadata: SkillMetadata,
    input: Schema,
}

impl JsonTransform {
    pub(crate) fn new() -> Self {
        let metadata = metadata::json_transform();
        let input = Schema::compile(&metadata.input_schema).expect("the skill's own schema compiles");
        Self { metadata, input }
    }

    async fn dispatch(&self, call: Call<'_>) -> Observation {
        let parameters = call.parameters.clone();
        // Off the threads that drive other runs: an evaluation within its limits can still take a while.
        let work = tokio::task::spawn_blocking(move || transform(&parameters));
        let done = match tokio::time::timeout(call.timeout, work).await {
            Ok(done) => done,
            Err(_elapsed) => {
                let told = format!("the expression was not evaluated within {} ms", call.timeout.as_millis());
                // Not the HTTP client's timeout, which is the other timer a skill can have.
                return Observation::new(Cause::GuardTimeout, told);
            }
        };
        match done {
            Ok(Ok((result, usage))) => {
                Observation::success(json!({"result": result}), "the expression was evaluated").with_usage(usage)
            }
            Ok(Err(problem)) => Observation::new(Cause::InputInvalid, problem),
            Err(panicked) => Observation::new(Cause::Internal, format!("the evaluation ended abnormally: {panicked}")),
        }
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

fn transform(parameters: &Map<String, Value>) -> Result<(Value, Usage), String> {
    let bytes = input_bytes(parameters)?;
    if bytes > INPUT_BYTES_MAX {
        return Err(format!("at /input: {bytes} bytes are more than the {INPUT_BYTES_MAX} that are taken"));
    }
    let text = parameters.get("expression").and_then(Value::as_str).ok_or("at the top: `expression` is missing")?;
    let result = compile(text)?.evaluate(&root(parameters)).map_err(|error| format!("at /expression: {error}"))?;
    let unfit = |unfit| format!("the result cannot be recorded: {unfit}");
    let size = document::size(&result).map_err(unfit)?;
    if size > RESULT_BYTES_MAX {
        return Err(format!("the result has {size} bytes, more than the {RESULT_BYTES_MAX} that are kept"));
    }
    Ok((document::settle(&result).map_err(unfit)?, usage_of(bytes)))
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
fn root(parameters: &Map<String, Value>) -> Value {
    let input = parameters.get("input").cloned().unwrap_or(Value::Null);
    match parameters.get("bindings").and_then(Value::as_object) {
        None => input,
        Some(bindings) => {
            let mut members = bindings.clone();
            members.insert("input".to_owned(), input);
            Value::Object(members)
        }
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
