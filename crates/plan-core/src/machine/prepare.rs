//! What is known about a step before anything of it is dispatched: its request, its effects and what it may cost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Machine;
use super::state::Held;
use crate::budget;
use crate::cause::Cause;
use crate::cost::{self, CostBasis, Price, Usage};
use crate::digest::Digest;
use crate::effect::{self, Effect};
use crate::plan::{RunIf, Step};
use crate::skill::{CostModel, IdempotencyClass, PureSkill, SkillMetadata, guarded};
use crate::{limits, reference};

/// A step that is about to run or runs, with everything that follows from its resolved parameters, worked out once.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub index: usize,
    pub gate: Gate,
    pub request_digest: Option<Digest>,
    pub skill: Arc<dyn PureSkill>,
    pub parameters: Arc<Map<String, Value>>,
    /// What they take in memory.
    pub memory: usize,
    /// They were dropped, and are resolved again before the call.
    pub is_set_down: bool,
    pub price: Option<Price>,
    pub effects: Vec<Effect>,
    pub effect_keys: Vec<String>,
    pub bound: Usage,
    pub required: u64,
    pub ceiling: Option<u64>,
    pub timeout_ms: u64,
    /// Recorded charges by attempt, used where no price can be had.
    pub charges: Vec<(u64, CostBasis)>,
    pub assumed: Option<Unknown>,
    /// It is claimed, whatever is known of its effects.
    pub claims: bool,
}

impl Prepared {
    pub(super) fn needs_claim(&self) -> bool {
        self.effects.iter().any(Effect::needs_claim)
    }

    pub(super) fn is_unrepeatable(&self) -> bool {
        self.effects.iter().any(Effect::is_unrepeatable)
    }
}

/// What keeps a request from being worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The skill is not registered.
    Skill,
    /// An output that the step refers to is no longer kept.
    Output,
}

/// Whether a step may go on to its budget check.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    Open,
    /// Its condition does not hold.
    Skip,
    Refuse {
        cause: Cause,
        details: Map<String, Value>,
    },
}

/// What to take as given about a step whose request cannot be worked out: its skill is not here, or the output it
/// refers to is no longer kept. A replay fills it from the recording, an estimate from the template.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    pub request_digest: Option<Digest>,
    pub bound: Usage,
    /// None to have it computed from the bound.
    pub required: Option<u64>,
    pub effects: Vec<Effect>,
    /// Its effects were claimed, also if none of them came about.
    pub claimed: bool,
    /// The step ended before its budget check, for this cause.
    pub refused: Option<Cause>,
    /// What attempts were charged, used only where no price can be had.
    pub charges: Vec<(u64, CostBasis)>,
}

impl Machine {
    pub(super) fn prepare(&self, index: usize, outputs: &BTreeMap<Digest, Value>) -> Prepared {
        let step = &self.plan.plan.steps[index];
        let skill = self.catalog.skill(&step.skill_id, &step.skill_version).map(|registration| registration.skill);
        let missing = skill.is_none();
        let skill = skill.unwrap_or_else(|| Arc::new(Absent::new(step)));
        let mut prepared = Prepared {
            index,
            gate: Gate::Open,
            request_digest: None,
            timeout_ms: timeout_ms(step, &step.parameters, skill.metadata()),
            skill,
            parameters: Arc::default(),
            memory: 0,
            is_set_down: false,
            price: None,
            effects: Vec::new(),
            effect_keys: Vec::new(),
            bound: Usage::default(),
            required: 0,
            ceiling: budget::ceiling(step, &self.plan.plan.context.budget_policy),
            charges: Vec::new(),
            assumed: None,
            claims: false,
        };
        if step.run_if.as_ref().is_some_and(|condition| !self.holds(condition)) {
            prepared.gate = Gate::Skip;
            return prepared;
        }
        if !self.plan.plan.context.allowed_skills.contains(&step.skill_id) {
            prepared.gate = refuse(Cause::NotAllowed, json!({"skill_id": step.skill_id}));
            return prepared;
        }
        let unknown = Cell::new(false);
        let resolved = self.resolve(step, &unknown, outputs);
        match (missing || unknown.get(), self.assumed(&step.step_id)) {
            (true, Some(assumed)) => {
                prepared.assumed = Some(if missing { Unknown::Skill } else { Unknown::Output });
                self.prepare_assumed(&mut prepared, step, assumed);
            }
            (true, None) if missing => {
                let facts = json!({"available": self.catalog.versions(&step.skill_id)});
                prepared.gate = refuse(Cause::SkillNotFound, facts);
            }
            _ => match resolved {
                Ok(parameters) => {
                    if guarded(|| self.prepare_resolved(&mut prepared, step, parameters)).is_none() {
                        prepared.gate =
                            refuse(Cause::Internal, json!({"why": "the skill panicked over its parameters"}));
                    }
                }
                Err(unresolved) => {
                    let facts = json!({"reference": unresolved.reference, "why": unresolved.why});
                    prepared.gate = refuse(Cause::ReferenceUnresolved, facts);
                }
            },
        }
        prepared
    }

    fn prepare_resolved(&self, prepared: &mut Prepared, step: &Step, parameters: Map<String, Value>) {
        match effect::request_digest(&step.skill_id, &step.skill_version, &parameters) {
            Ok(digest) => prepared.request_digest = Some(digest),
            Err(error) => {
                prepared.gate = refuse(Cause::InputInvalid, json!({"why": error.to_string()}));
                return;
            }
        }
        if let Err(why) = prepared.skill.check_input(&parameters) {
            prepared.gate = refuse(Cause::InputInvalid, json!({"why": why}));
            return;
        }
        let key = &prepared.skill.metadata().cost_model.rate_card_key;
        let model = prepared.skill.model(&parameters);
        prepared.price = self.card.as_ref().and_then(|card| card.price(key, model));
        if prepared.price.is_none() && !(self.closing && self.card.is_none()) {
            let facts = json!({"why": "the rate card has no price for it", "rate_card_key": key, "model": model});
            prepared.gate = refuse(Cause::InputInvalid, facts);
            return;
        }
        prepared.bound = prepared.skill.usage_bound(&parameters).exact();
        let required = |price: &Price| self.requirement(price, prepared.skill.metadata(), &prepared.bound);
        prepared.required = prepared.price.as_ref().map_or(0, required);
        prepared.timeout_ms = timeout_ms(step, &parameters, prepared.skill.metadata());
        prepared.effects = self.rules.effects(prepared.skill.as_ref(), &parameters);
        prepared.effect_keys = self.effect_keys(step, prepared.effects.len());
        prepared.hold(parameters);
    }

    fn prepare_assumed(&self, prepared: &mut Prepared, step: &Step, assumed: &Assumed) {
        prepared.request_digest = assumed.request_digest.clone();
        if let Some(cause) = &assumed.refused {
            prepared.gate = Gate::Refuse { cause: cause.clone(), details: Map::new() };
            return;
        }
        let key = &prepared.skill.metadata().cost_model.rate_card_key;
        let model = prepared.skill.model(&step.parameters);
        prepared.price = self.card.as_ref().and_then(|card| card.price(key, model));
        prepared.bound = assumed.bound.exact();
        prepared.required = match (assumed.required, &prepared.price) {
            (Some(required), _) => required,
            (None, Some(price)) => self.requirement(price, prepared.skill.metadata(), &prepared.bound),
            (None, None) => 0,
        };
        prepared.charges.clone_from(&assumed.charges);
        prepared.effects.clone_from(&assumed.effects);
        prepared.claims = assumed.claimed;
        prepared.effect_keys = self.effect_keys(step, assumed.effects.len());
        prepared.hold(step.parameters.clone());
    }

    /// What must be in the budget before an attempt: its worst case by formula or the skill's own estimate, whichever
    /// is more, and nothing for what the card gives away.
    pub(super) fn requirement(&self, price: &Price, metadata: &SkillMetadata, bound: &Usage) -> u64 {
        if price.is_free() {
            return 0;
        }
        let estimate = cost::microcents(metadata.cost_estimate_cents).min(super::OVER_EVERY_BUDGET);
        self.rules.cost(price, bound).max(estimate)
    }

    /// Keys of the effects of one dispatch; at least one, since a step without effects can be claimed too.
    fn effect_keys(&self, step: &Step, effects: usize) -> Vec<String> {
        let session = self.start.session.as_ref().map_or("", |session| session.session_id.as_str());
        let key = |index| {
            let plan_id = &self.plan.plan.plan_id;
            effect::effect_key(&self.start.namespace, session, plan_id, &step.step_id, self.start.epoch, index)
        };
        (0..u32::try_from(effects.max(1)).unwrap_or(u32::MAX)).map(key).collect()
    }

    /// Whether a step that is next is worth a request: its condition holds, and its skill is allowed.
    pub(super) fn is_due(&self, step: &Step) -> bool {
        step.run_if.as_ref().is_none_or(|condition| self.holds(condition))
            && self.plan.plan.context.allowed_skills.contains(&step.skill_id)
    }

    pub(super) fn resolve(
        &self,
        step: &Step,
        unknown: &Cell<bool>,
        outputs: &BTreeMap<Digest, Value>,
    ) -> Result<Map<String, Value>, reference::Unresolved> {
        let too_much = RefCell::new(None);
        let resolved = reference::resolve(&step.parameters, &|name| match self.state.outputs.get(name) {
            Some(Held::Known { value, .. }) => Some(value),
            // Checked to be there before a step is prepared from it.
            Some(Held::Stored { digest, .. }) => outputs.get(digest),
            Some(Held::Unknown) => {
                unknown.set(true);
                None
            }
            Some(Held::TooMuch) => {
                too_much.borrow_mut().get_or_insert_with(|| name.to_owned());
                None
            }
            None => None,
        });
        match too_much.into_inner() {
            None => resolved,
            Some(reference) => {
                let why = format!(
                    "it is not held: outputs that later steps refer to would take more than {} bytes together",
                    limits::HELD_BYTES_MAX
                );
                Err(reference::Unresolved { reference, why })
            }
        }
    }

    fn holds(&self, condition: &RunIf) -> bool {
        self.state.seen.get(&condition.step_id).is_some_and(|seen| condition.holds(seen.status, &seen.code))
    }

    fn assumed(&self, step_id: &str) -> Option<&Assumed> {
        self.assumptions.as_ref()?.get(step_id)
    }
}

fn refuse(cause: Cause, facts: Value) -> Gate {
    let details = match facts {
        Value::Object(details) => details,
        _ => Map::new(),
    };
    Gate::Refuse { cause, details }
}

/// The first timeout that exists: the parameter where the skill has one, the step's, the skill's.
pub(crate) fn timeout_ms(step: &Step, parameters: &Map<String, Value>, metadata: &SkillMetadata) -> u64 {
    let has_parameter = metadata.input_schema.pointer("/properties/timeout_ms").is_some();
    let parameter = parameters.get("timeout_ms").and_then(Value::as_u64).filter(|_| has_parameter);
    parameter.or(step.timeout_ms).unwrap_or(metadata.timeout_ms)
}

/// Stands where a skill is not registered, so that what does not need the skill can still be decided.
#[derive(Debug)]
struct Absent {
    metadata: SkillMetadata,
}

impl Absent {
    fn new(step: &Step) -> Self {
        let metadata = SkillMetadata {
            skill_id: step.skill_id.clone(),
            name: step.skill_id.clone(),
            version: step.skill_version.clone(),
            description: String::new(),
            input_schema: Value::Bool(true),
            output_schema: Value::Bool(true),
            timeout_ms: step.timeout_ms.unwrap_or_default(),
            cost_estimate_cents: 0,
            retry: None,
            permissions: Vec::new(),
            side_effects: Vec::new(),
            deterministic: false,
            stable_fields: Vec::new(),
            nondeterminism: None,
            failure_modes: Vec::new(),
            idempotency: IdempotencyClass::PerCall,
            cost_model: CostModel { rate_card_key: format!("{}@{}", step.skill_id, step.skill_version) },
            constraints: Map::new(),
        };
        Self { metadata }
    }
}

impl PureSkill for Absent {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, _: &Map<String, Value>) -> Vec<Effect> {
        Vec::new()
    }

    fn usage_bound(&self, _: &Map<String, Value>) -> Usage {
        Usage::default()
    }

    fn model<'a>(&self, parameters: &'a Map<String, Value>) -> Option<&'a str> {
        parameters.get("model").and_then(Value::as_str)
    }

    /// The success codes of the shared table; every other skill says `OK`.
    fn success_code(&self) -> &'static str {
        match self.metadata.skill_id.as_str() {
            "http_call" => "OK_HTTP_CALL",
            "llm_invoke" => "OK_LLM_INVOKE",
            "json_transform" => "OK_JSON_TRANSFORM",
            _ => "OK",
        }
    }

    fn check_input(&self, _: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }
}
