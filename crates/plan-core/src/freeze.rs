//! Freezing: an authored plan becomes one that needs nothing but itself.
//!
//! Defaults are resolved, other spellings are read, policies and pins are written in, and the result is checked as a
//! whole. All findings are given at once, so that an author is not sent back once for each.

mod context;
mod fields;
mod policy;
mod steps;

use serde_json::{Map, Value};

use crate::check;
use crate::finding::{self, Finding};
use crate::plan::{FrozenPlan, Plan};
use crate::skill::Catalog;
use crate::taxonomy::{self, Taxonomy};
use fields::Fields;

pub(crate) use policy::{proves_no_effect, repeats_do_harm};

/// What the author of a plan may leave to whoever freezes it.
#[derive(Clone, Debug, Default)]
pub struct FreezeOptions {
    /// Used if the plan names none; there is no chance in this room to make one up.
    pub plan_id: Option<String>,
    /// Used if the plan names none; there is no clock in this room.
    pub created_at: Option<String>,
    /// The newest unless given here or in the plan.
    pub taxonomy_version: Option<String>,
    /// Id of the card to pin; the one that comes with the runtime unless given here or in the plan.
    pub rate_card: Option<String>,
    /// Write the card itself into the plan, if it is small enough.
    pub embed_rate_card: bool,
    pub profile: Option<Profile>,
}

/// What an agent's profile contributes when its plans are frozen. Later changes of the profile change no plan.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub allowed_skills: Option<Vec<String>>,
    pub denied_skills: Vec<String>,
    pub max_retries_per_step: Option<u32>,
}

/// A plan that was frozen, and what its author should know about how.
#[derive(Clone, Debug)]
pub struct Freezing {
    pub plan: FrozenPlan,
    /// Warnings only: what was dropped, read in another spelling, or will hardly work.
    pub notes: Vec<Finding>,
}

/// Freezes an authored plan. Freezing a frozen plan gives the same plan.
pub fn freeze(authored: &Value, catalog: &dyn Catalog, options: &FreezeOptions) -> Result<FrozenPlan, Vec<Finding>> {
    freeze_with_notes(authored, catalog, options).map(|freezing| freezing.plan)
}

/// The same, with the notes an author should see.
pub fn freeze_with_notes(
    authored: &Value,
    catalog: &dyn Catalog,
    options: &FreezeOptions,
) -> Result<Freezing, Vec<Finding>> {
    let mut found = Vec::new();
    let Value::Object(members) = authored else {
        let finding = Finding::error("AOS-10", "not_a_plan", "a plan is a JSON object");
        return Err(vec![finding.fix("write an object with agent_id, goal, steps and context")]);
    };
    let plan = build(&mut found, members, catalog, options);
    if let Some(plan) = plan.filter(|_| !found.iter().any(Finding::is_error)) {
        let value = serde_json::to_value(&plan).map_err(|error| {
            vec![Finding::error("AOS-7", "no_canonical_form", format!("the plan cannot be written: {error}"))]
        })?;
        match FrozenPlan::from_value(value) {
            Ok(plan) => {
                found.extend(check::preflight(&plan, catalog));
                if !found.iter().any(Finding::is_error) {
                    finding::bound(&mut found);
                    return Ok(Freezing { plan, notes: found });
                }
            }
            Err(error) => found.extend(error.into_findings()),
        }
    }
    finding::bound(&mut found);
    Err(found)
}

/// The frozen plan as far as it can be made; none where a part is missing, and then the finding says which.
fn build(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    catalog: &dyn Catalog,
    options: &FreezeOptions,
) -> Option<Plan> {
    let mut fields = Fields::new(members, "the plan", None, found);
    for run_state in ["status", "current_step_id", "started_at", "completed_at", "duration_seconds"] {
        fields.dropped(run_state, "AOS-10", "it belongs to a run, not to a plan");
    }
    let plan_id = fields.text(&["plan_id"]).or_else(|| options.plan_id.clone());
    let plan_id = fields.required("plan_id", plan_id, "AOS-10");
    let created_at = fields.text(&["created_at"]).or_else(|| options.created_at.clone());
    let created_at = fields.required("created_at", created_at, "AOS-10");
    let agent_id = fields.text(&["agent_id"]);
    let agent_id = fields.required("agent_id", agent_id, "AOS-10");
    let goal = fields.text(&["goal"]);
    let goal = fields.required("goal", goal, "AOS-10");
    let metadata = fields.object(&["metadata"]).cloned();
    let authored_pins = fields.object(&["pins"]);
    let default_policy = fields.object(&["default_retry_policy"]);
    let default_on_error = fields.value(&["default_on_error"]);
    let steps = fields.array(&["steps"]);
    let steps = fields.required("steps", steps, "AOS-10");
    let authored_context = fields.object(&["context"]);
    let authored_context = fields.required("context", authored_context, "AOS-17");
    fields.finish("AOS-10");

    let taxonomy = pinned_taxonomy(found, authored_pins, options);
    let context = authored_context.and_then(|members| context::read(found, members, options.profile.as_ref()));
    let taxonomy = taxonomy?;
    let default_policy =
        default_policy.map(|members| policy::read(found, members, "default_retry_policy", None, taxonomy));
    let defaults = steps::Defaults {
        policy: default_policy.as_ref(),
        on_error: default_on_error,
        max_retries: options.profile.as_ref().and_then(|profile| profile.max_retries_per_step),
        taxonomy,
        catalog,
    };
    let steps = steps::read(found, steps.map_or(&[], Vec::as_slice), &defaults);
    let pins = context::pins(found, authored_pins, &steps, taxonomy, catalog, options);
    Some(Plan {
        plan_id: plan_id?,
        created_at: created_at?,
        agent_id: agent_id?,
        goal: goal?,
        steps,
        context: context?,
        pins: pins?,
        metadata,
    })
}

fn pinned_taxonomy(
    found: &mut Vec<Finding>,
    pins: Option<&Map<String, Value>>,
    options: &FreezeOptions,
) -> Option<&'static Taxonomy> {
    let authored = pins.and_then(|pins| pins.get("taxonomy_version")).and_then(Value::as_str);
    let version = authored.or(options.taxonomy_version.as_deref()).unwrap_or(taxonomy::DEFAULT_VERSION);
    let taxonomy = Taxonomy::version(version);
    if taxonomy.is_none() {
        let problem = format!("the taxonomy {} is not known here", crate::plan::limits::shown(version));
        found.push(
            Finding::error("AOS-38", "taxonomy_unavailable", problem)
                .fix("leave the pin away to get the newest")
                .available(taxonomy::VERSIONS.iter().map(|version| version.number().to_owned()).collect()),
        );
    }
    taxonomy
}
