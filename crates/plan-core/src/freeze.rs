//! Freezing: an authored plan becomes one that needs nothing but itself.
//!
//! Defaults are resolved, other spellings are read, policies and pins are written in, and the result is checked as a
//! whole. All findings are given at once, so that an author is not sent back once for each.

mod context;
mod fields;
mod policy;
pub mod profile;
mod steps;

use serde_json::{Map, Value};

use crate::check;
use crate::finding::{self, Finding};
use crate::plan::{FrozenPlan, Plan, PlanError};
use crate::skill::Catalog;
use crate::taxonomy::{self, Taxonomy};
use fields::Fields;

pub(crate) use policy::proves_no_effect;
pub use profile::Profile;

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
    /// Write in which builds of the skills are here (AOS-14). Without it a plan names versions alone, and the same text
    /// is frozen to the same digest by every build of the runtime.
    pub pin_builds: bool,
    pub profile: Option<Profile>,
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
    let Attempt { found, frozen, .. } = attempt(authored, catalog, options);
    match frozen {
        Some(plan) => Ok(Freezing { plan, notes: found }),
        None => Err(found),
    }
}

/// What came of trying to freeze a plan.
pub(crate) struct Attempt {
    /// Everything there is to say, errors first.
    pub(crate) found: Vec<Finding>,
    /// The plan, if there is no error.
    pub(crate) frozen: Option<FrozenPlan>,
    /// The plan as far as it could be made where there are errors, so that the rest of it can be looked at.
    pub(crate) draft: Option<Plan>,
}

pub(crate) fn attempt(authored: &Value, catalog: &dyn Catalog, options: &FreezeOptions) -> Attempt {
    let mut found = Vec::new();
    if let Some(plan) = already_frozen(authored) {
        let frozen = again(&mut found, plan, catalog, options);
        finding::bound(&mut found);
        return Attempt { found, frozen, draft: None };
    }
    let (mut frozen, mut draft) = (None, None);
    match authored {
        Value::Object(members) => {
            let built = build(&mut found, members, catalog, options);
            if found.iter().any(Finding::is_error) {
                if let Some((plan, complete)) = &built {
                    found.extend(check::draft(plan, *complete, catalog));
                }
                draft = built.map(|(plan, _)| plan);
            } else if let Some((plan, _)) = built {
                frozen = whole(&mut found, &plan, catalog);
                draft = frozen.is_none().then_some(plan);
            }
        }
        _ => found.push(
            Finding::error("AOS-10", "not_a_plan", "a plan is a JSON object")
                .fix("write an object with agent_id, goal, steps and context"),
        ),
    }
    finding::bound(&mut found);
    Attempt { found, frozen, draft }
}

fn already_frozen(authored: &Value) -> Option<FrozenPlan> {
    check::looks_frozen(authored).then(|| FrozenPlan::from_value(authored.clone()).ok()).flatten()
}

/// A plan that is frozen stays as it is (AOS-11), whatever freezing would make of it today; none if an error was found.
fn again(
    found: &mut Vec<Finding>,
    plan: FrozenPlan,
    catalog: &dyn Catalog,
    options: &FreezeOptions,
) -> Option<FrozenPlan> {
    found.extend(check::preflight(&plan, catalog));
    if options.profile.is_some() || options.pin_builds || options.embed_rate_card {
        let problem = "the plan is frozen already: no profile counts, and nothing more is written into it";
        let fix = "freeze the plan as its author wrote it";
        found.push(Finding::warning("AOS-11", "frozen_already", problem).fix(fix));
    }
    (!found.iter().any(Finding::is_error)).then_some(plan)
}

/// The plan as a frozen one, checked as a whole; none if an error was found.
fn whole(found: &mut Vec<Finding>, plan: &Plan, catalog: &dyn Catalog) -> Option<FrozenPlan> {
    let value = match serde_json::to_value(plan) {
        Ok(value) => value,
        Err(error) => {
            let problem = format!("the plan cannot be written: {error}");
            found.push(Finding::error("AOS-7", "no_canonical_form", problem));
            return None;
        }
    };
    match FrozenPlan::from_value(value) {
        Ok(plan) => {
            found.extend(check::preflight(&plan, catalog));
            (!found.iter().any(Finding::is_error)).then_some(plan)
        }
        Err(error) => {
            let rest = check::draft(plan, true, catalog);
            // Which limits are broken is part of the rest.
            if !matches!(error, PlanError::Findings(_)) || !rest.iter().any(Finding::is_error) {
                found.extend(error.into_findings());
            }
            found.extend(rest);
            None
        }
    }
}

/// The plan as far as it can be made, and whether it has all its steps; none where a part is missing that the rest is
/// checked with. A finding says what is missing.
fn build(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    catalog: &dyn Catalog,
    options: &FreezeOptions,
) -> Option<(Plan, bool)> {
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
    let taxonomy = taxonomy.or(taxonomy::VERSIONS.last())?;
    let default_policy =
        default_policy.map(|members| policy::read(found, members, "default_retry_policy", None, taxonomy));
    let defaults = steps::Defaults {
        policy: default_policy.as_ref(),
        on_error: default_on_error,
        max_retries: options.profile.as_ref().and_then(Profile::max_retries),
        taxonomy,
        catalog,
    };
    let (steps, complete) = steps::read(found, steps.map_or(&[], Vec::as_slice), &defaults);
    let pins = context::pins(found, authored_pins, &steps, taxonomy, catalog, options);
    let unnamed = || "?".to_owned();
    let plan = Plan {
        plan_id: plan_id.unwrap_or_else(unnamed),
        created_at: created_at.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()),
        agent_id: agent_id.unwrap_or_else(unnamed),
        goal: goal.unwrap_or_else(unnamed),
        steps,
        context: context?,
        pins: pins?,
        metadata,
    };
    if let Some(profile) = &options.profile {
        profile.check(found, &plan, catalog);
    }
    // Without any step there is nothing more to check, and why there is none was said.
    (!plan.steps.is_empty() || complete).then_some((plan, complete))
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
