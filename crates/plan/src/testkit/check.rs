//! Checks that every skill must pass before a plan can rely on it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Idempotency;
use macp_plan_core::limits;
use macp_plan_core::skill::IdempotencyClass;
use macp_plan_core::taxonomy::{DEFAULT_VERSION, Taxonomy};
use serde_json::{Map, Value};

use crate::executor::secrecy;
use crate::outbound::{Http, Open};
use crate::registry::{self, Registry};
use crate::schema::Schema;
use crate::secrets::{Allowed, Granted, Secrets};
use crate::skill::{Call, Observation, Skill};

/// How much later than its timeout a skill may report before the executor's guard ends the attempt.
const GRACE: Duration = Duration::from_millis(limits::GUARD_MS);

/// What is wrong with a skill, one sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<String>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|finding| writeln!(f, "- {finding}"))
    }
}

impl std::error::Error for Findings {}

/// Checks a skill's declaration, and with each sample of parameters its pure functions and one real call.
///
/// The calls go wherever the samples point and the settings of `registry` let them, so they should point at a server of
/// the test. A sample that points at one that never answers shows whether the skill keeps to `timeout`.
pub async fn check_skill(
    skill: &dyn Skill,
    samples: &[Map<String, Value>],
    registry: &Registry,
    secrets: &dyn Secrets,
    timeout: Duration,
) -> Result<(), Findings> {
    let mut findings = Findings::default();
    check_declaration(skill, &mut findings);
    if samples.is_empty() {
        findings.0.push("no samples of parameters were given, so neither functions nor calls were checked".to_owned());
    }
    for (number, sample) in samples.iter().enumerate() {
        let mut note = |finding: String| findings.0.push(format!("sample {number}: {finding}"));
        check_functions(skill, sample, &mut note);
        check_call(skill, sample, registry, secrets, timeout, &mut note).await;
    }
    if findings.0.is_empty() { Ok(()) } else { Err(findings) }
}

fn check_declaration(skill: &dyn Skill, findings: &mut Findings) {
    if let Err(error) = registry::check(skill) {
        findings.0.push(error.to_string());
    }
    let metadata = skill.metadata();
    for (which, schema) in [("input_schema", &metadata.input_schema), ("output_schema", &metadata.output_schema)] {
        if let Err(error) = Schema::compile(schema) {
            findings.0.push(format!("{which}: {error}"));
        }
    }
    if metadata.failure_modes.is_empty() {
        findings.0.push("failure_modes is empty, yet every call can fail".to_owned());
    }
}

fn check_functions(skill: &dyn Skill, sample: &Map<String, Value>, note: &mut impl FnMut(String)) {
    let metadata = skill.metadata();
    if let Err(problem) = skill.check_input(sample) {
        note(format!("check_input refuses it: {problem}"));
    }
    if let Ok(schema) = Schema::compile(&metadata.input_schema)
        && let Err(problem) = schema.check(&Value::Object(sample.clone()))
    {
        note(format!("it does not match input_schema {problem}"));
    }
    let effects = skill.effects(sample);
    if effects != skill.effects(sample) {
        note("effects gives another answer the second time".to_owned());
    }
    if skill.usage_bound(sample) != skill.usage_bound(sample) {
        note("usage_bound gives another answer the second time".to_owned());
    }
    for effect in &effects {
        if !metadata.side_effects.contains(&effect.kind) {
            note(format!("it has an effect `{}` that side_effects does not list", effect.kind));
        }
        let declared = match metadata.idempotency {
            IdempotencyClass::Natural => effect.idempotency == Idempotency::Natural,
            IdempotencyClass::Keyed => effect.idempotency == Idempotency::Keyed,
            IdempotencyClass::None => effect.idempotency == Idempotency::None,
            IdempotencyClass::PerCall => true,
        };
        if !declared {
            note(format!("its effect `{}` is not of the idempotency class that is declared", effect.kind));
        }
    }
}

async fn check_call(
    skill: &dyn Skill,
    sample: &Map<String, Value>,
    registry: &Registry,
    secrets: &dyn Secrets,
    timeout: Duration,
    note: &mut impl FnMut(String),
) {
    let effect_keys: Vec<String> =
        skill.effects(sample).iter().enumerate().map(|(at, _)| format!("check-{at}")).collect();
    let acted = AtomicBool::new(false);
    let open = registry.client_of(skill.metadata()).map(|client| Open { client, acted: &acted });
    let secrets_named = secrecy::named(sample);
    let metadata = skill.metadata();
    let (entrusted, bindings) = (registry.entrusted(&metadata.skill_id), registry.bindings());
    let allowed = Allowed { named: &secrets_named, entrusted: &entrusted };
    let http = Http::new(open, secrets, allowed, &effect_keys, timeout);
    let granted = Granted { secrets, allowed, bindings: &bindings };
    let call = Call { parameters: sample, timeout, effect_keys: &effect_keys, secrets: &granted, http, random_seed: 0 };
    match tokio::time::timeout(timeout + GRACE, skill.call(call)).await {
        Ok(observation) => check_observation(skill, &observation, &skill.usage_bound(sample), note),
        Err(_elapsed) => note(format!("it does not keep to its timeout of {} ms", timeout.as_millis())),
    }
}

fn check_observation(skill: &dyn Skill, observation: &Observation, bound: &Usage, note: &mut impl FnMut(String)) {
    let metadata = skill.metadata();
    let taxonomy = Taxonomy::version(DEFAULT_VERSION).expect("the default version of the taxonomy is kept");
    let code = taxonomy.resolve(&observation.cause, skill);
    let declared: BTreeSet<&str> = metadata.failure_modes.iter().map(String::as_str).collect();
    if code.starts_with("ERR_") && !declared.contains(code) {
        note(format!("it ends with {code}, which failure_modes does not list"));
    }
    if observation.message.trim().is_empty() {
        note("its message is empty".to_owned());
    }
    let succeeded = matches!(observation.cause, Cause::Success | Cause::Partial) || code.starts_with("OK");
    if succeeded
        && let Ok(schema) = Schema::compile(&metadata.output_schema)
        && let Err(problem) = schema.check(observation.output.as_ref().unwrap_or(&Value::Null))
    {
        note(format!("its output does not match output_schema {problem}"));
    }
    if let Some(output) = &observation.output
        && let Err(problem) = macp_wire::canonical::to_string(output)
    {
        note(format!("its output cannot be recorded: {problem}"));
    }
    if let Some(used) = observation.usage
        && (used.requests > bound.requests || used.bytes > bound.bytes || used.output_tokens > bound.output_tokens)
    {
        note("it used more than usage_bound allows for".to_owned());
    }
}
