//! What a skill is to the executor: a pure declaration, and one call that reaches the world.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::skill::PureSkill;
use serde_json::{Map, Value};

use crate::outbound::Http;
use crate::secrets::Secrets;

/// The answer of [`Skill::call`].
pub type Calling<'a> = Pin<Box<dyn Future<Output = Observation> + Send + 'a>>;

/// A skill version that can be called. It never retries: the executor is the only place that does.
pub trait Skill: PureSkill {
    /// Does the work once. Every way to fail is an [`Observation`]; a panic is caught and becomes one.
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a>;
}

/// One dispatch, as a skill sees it. There is deliberately nothing else: no clock, no journal, no other run.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Resolved, and checked against the input schema.
    pub parameters: &'a Map<String, Value>,
    /// After which the skill reports a timeout of its own; the executor's guard comes a second later.
    pub timeout: Duration,
    /// One per effect, in the order `effects` lists them; the same for every attempt.
    pub effect_keys: &'a [String],
    /// Where `secret://name` is looked up, at the last moment: of those that the step names and nobody bound to hosts, and
    /// of those the skill was set up with. Whatever is looked up is taken out of what the skill reports.
    pub secrets: &'a dyn Secrets,
    /// Calls out, under the rules the operator set; there is no other way that keeps to them.
    pub http: Http<'a>,
    /// The same for every attempt of the step in every replay.
    pub random_seed: u64,
}

/// What came of a dispatch.
#[derive(Clone, Debug)]
pub struct Observation {
    pub cause: Cause,
    /// What was used, if the other side said so or the skill can count it.
    pub usage: Option<Usage>,
    pub retry_after_ms: Option<u64>,
    pub output: Option<Value>,
    /// For people.
    pub message: String,
    /// Hints beside the code, such as `upstream_status` or `provider`.
    pub details: Map<String, Value>,
}

impl Observation {
    /// An attempt that ended with `cause`, about which nothing else is known yet.
    #[must_use]
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { cause, usage: None, retry_after_ms: None, output: None, message, details: Map::new() }
    }

    /// A plain success.
    #[must_use]
    pub fn success(output: Value, message: impl Into<String>) -> Self {
        Self::new(Cause::Success, message).with_output(output)
    }

    #[must_use]
    pub fn with_output(mut self, output: Value) -> Self {
        self.output = Some(output);
        self
    }

    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: Option<u64>) -> Self {
        self.retry_after_ms = retry_after_ms;
        self
    }

    #[must_use]
    pub fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// Parameters stay out: they may be large, and what a log shows is the executor's to decide.
impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("timeout", &self.timeout)
            .field("effect_keys", &self.effect_keys)
            .finish_non_exhaustive()
    }
}
