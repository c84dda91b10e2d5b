//! A skill whose calls end the way a script says, one act per call.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use macp_plan_core::cause::{Cause, ConnectionFault};
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::skill::{CostModel, IdempotencyClass, PureSkill, SkillMetadata};
use macp_plan_core::taxonomy::{DEFAULT_VERSION, Taxonomy};
use serde_json::{Map, Value, json};

use crate::skill::{Call, Calling, Observation, Skill};

/// What one call does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Answers at once.
    Answer(Observation),
    /// Answers after a while, or reports a timeout of its own if that comes first.
    After(Duration, Observation),
    /// Reports a timeout of its own when its time is up.
    Timeout,
    /// Never answers, not even when its time is up: the guard must end it.
    Hang,
    Panic(String),
}

/// A text that is not a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an act: write a status such as 503, `usage IN/OUT`, ok, partial, timeout, hang, panic, refused, reset, \
     closed, dns, tls, or `retry-after MS STATUS`"
)]
pub struct NotAScript(String);

/// One call as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub parameters: Map<String, Value>,
    pub timeout: Duration,
    pub effect_keys: Vec<String>,
    pub random_seed: u64,
}

/// A skill that follows a script. A call after the last act is an internal fault, since the script says nothing of it.
#[derive(Debug)]
pub struct ScriptedSkill {
    metadata: SkillMetadata,
    effects: Vec<Effect>,
    usage_bound: Usage,
    success_code: &'static str,
    acts: Mutex<VecDeque<Act>>,
    calls: Mutex<Vec<Recorded>>,
}

impl ScriptedSkill {
    /// A skill without effects that takes any object, may fail with every code there is, and so far has no acts.
    #[must_use]
    pub fn new(skill_id: &str, version: &str) -> Self {
        Self {
            metadata: metadata(skill_id, version),
            effects: Vec::new(),
            usage_bound: Usage::default(),
            success_code: "OK",
            acts: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    /// Changes what it declares.
    #[must_use]
    pub fn declare(mut self, change: impl FnOnce(&mut SkillMetadata)) -> Self {
        change(&mut self.metadata);
        self
    }

    /// Gives every dispatch one more effect.
    #[must_use]
    pub fn effect(mut self, kind: &str, target: &str, idempotency: Idempotency) -> Self {
        let effect = Effect { kind: kind.to_owned(), target: target.to_owned(), idempotency };
        if !self.metadata.side_effects.contains(&effect.kind) {
            self.metadata.side_effects.push(effect.kind.clone());
        }
        self.metadata.idempotency = match idempotency {
            Idempotency::Natural => IdempotencyClass::Natural,
            Idempotency::Keyed => IdempotencyClass::Keyed,
            Idempotency::None => IdempotencyClass::None,
        };
        self.effects.push(effect);
        self
    }

    #[must_use]
    pub fn usage_bound(mut self, usage: Usage) -> Self {
        self.usage_bound = usage;
        self
    }

    #[must_use]
    pub fn success_code(mut self, code: &'static str) -> Self {
        self.success_code = code;
        self
    }

    /// Adds one act.
    #[must_use]
    pub fn act(self, act: Act) -> Self {
        self.push(act);
        self
    }

    /// Adds acts written as text, such as `503, timeout, usage 1200/300`.
    pub fn script(self, script: &str) -> Result<Self, NotAScript> {
        for word in script.split(',') {
            self.push(act(word.trim())?);
        }
        Ok(self)
    }

    /// Adds one act to a skill that is in use already.
    pub fn push(&self, act: Act) {
        held(&self.acts).push_back(act);
    }

    /// Every call so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Recorded> {
        held(&self.calls).clone()
    }

    /// How many acts have not been played.
    #[must_use]
    pub fn left(&self) -> usize {
        held(&self.acts).len()
    }

    async fn play(&self, call: Call<'_>) -> Observation {
        held(&self.calls).push(Recorded {
            parameters: call.parameters.clone(),
            timeout: call.timeout,
            effect_keys: call.effect_keys.to_vec(),
            random_seed: call.random_seed,
        });
        let next = held(&self.acts).pop_front();
        match next {
            Some(Act::Answer(observation)) => observation,
            Some(Act::After(wait, observation)) if wait < call.timeout => {
                tokio::time::sleep(wait).await;
                observation
            }
            Some(Act::After(..) | Act::Timeout) => {
                tokio::time::sleep(call.timeout).await;
                Observation::new(Cause::ClientTimeout, "the script lets the call run out of time")
            }
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::Panic(message)) => panic!("{message}"),
            None => Observation::new(Cause::Internal, "the skill was called more often than its script says"),
        }
    }
}

/// A script that panicked on purpose leaves nothing half done behind its lock.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PureSkill for ScriptedSkill {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, _parameters: &Map<String, Value>) -> Vec<Effect> {
        self.effects.clone()
    }

    fn usage_bound(&self, _parameters: &Map<String, Value>) -> Usage {
        self.usage_bound
    }

    fn success_code(&self) -> &'static str {
        self.success_code
    }

    fn check_input(&self, _parameters: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }
}

impl Skill for ScriptedSkill {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(self.play(call))
    }
}

fn act(word: &str) -> Result<Act, NotAScript> {
    let unknown = || NotAScript(word.to_owned());
    if let Some(tokens) = word.strip_prefix("usage ") {
        let (input, output) = tokens.split_once('/').ok_or_else(unknown)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_not_a_number| unknown());
        let usage =
            Usage { requests: 1, input_tokens: number(input)?, output_tokens: number(output)?, ..Usage::default() };
        return Ok(Act::Answer(Observation::success(json!({"text": "scripted"}), "scripted").with_usage(usage)));
    }
    if let Some(hint) = word.strip_prefix("retry-after ") {
        let (wait, status) = hint.split_once(' ').ok_or_else(unknown)?;
        let wait = wait.parse().map_err(|_not_a_number| unknown())?;
        return Ok(Act::Answer(answered(status, unknown)?.with_retry_after_ms(Some(wait))));
    }
    let fault = |fault| Act::Answer(Observation::new(Cause::Connection { fault }, "scripted"));
    Ok(match word {
        "ok" => Act::Answer(Observation::success(json!({}), "scripted")),
        "partial" => Act::Answer(Observation::new(Cause::Partial, "scripted").with_output(json!({}))),
        "timeout" => Act::Timeout,
        "hang" => Act::Hang,
        "panic" => Act::Panic("the script panics".to_owned()),
        "refused" => fault(ConnectionFault::Refused),
        "reset" => fault(ConnectionFault::Reset),
        "closed" => fault(ConnectionFault::ClosedEarly),
        "dns" => Act::Answer(Observation::new(Cause::DnsFailure, "scripted")),
        "tls" => Act::Answer(Observation::new(Cause::Tls, "scripted")),
        status => Act::Answer(answered(status, unknown)?),
    })
}

fn answered(status: &str, unknown: impl Fn() -> NotAScript) -> Result<Observation, NotAScript> {
    let status: u16 = status.trim().parse().map_err(|_not_a_number| unknown())?;
    let output = json!({"status_code": status, "body": {"scripted": true}});
    let usage = Usage { requests: 1, ..Usage::default() };
    Ok(Observation::new(Cause::http(status), format!("scripted {status}"))
        .with_output(output)
        .with_usage(usage)
        .with_detail("upstream_status", status))
}

fn metadata(skill_id: &str, version: &str) -> SkillMetadata {
    let taxonomy = Taxonomy::version(DEFAULT_VERSION).expect("the default version of the taxonomy is kept");
    let failures = taxonomy.codes().map(|info| info.code.to_owned()).filter(|code| code.starts_with("ERR_"));
    SkillMetadata {
        skill_id: skill_id.to_owned(),
        name: format!("Scripted {skill_id}"),
        version: version.to_owned(),
        description: "Ends the way its script says.".to_owned(),
        input_schema: json!({"type": "object"}),
        output_schema: json!({}),
        timeout_ms: 1000,
        cost_estimate_cents: 0,
        retry: None,
        permissions: Vec::new(),
        side_effects: Vec::new(),
        deterministic: false,
        stable_fields: Vec::new(),
        nondeterminism: Some("whatever the script says".to_owned()),
        failure_modes: failures.collect(),
        idempotency: IdempotencyClass::Natural,
        cost_model: CostModel { rate_card_key: format!("{skill_id}@{version}") },
        constraints: Map::new(),
    }
}
