//! Steps as authors write them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::Fields;
use super::policy::{self, Codes, Partial};
use crate::check::skills::not_registered;
use crate::check::structure::unknown_code;
use crate::finding::Finding;
use crate::plan::limits::shown;
use crate::plan::{OnError, RunIf, Step, StepStatus};
use crate::skill::{Catalog, Registration};
use crate::taxonomy::Taxonomy;

/// What steps take from their surroundings.
pub(super) struct Defaults<'a> {
    pub(super) policy: Option<&'a Partial>,
    pub(super) on_error: Option<&'a Value>,
    /// The most retries the agent's profile lets a step have.
    pub(super) max_retries: Option<u32>,
    pub(super) taxonomy: &'static Taxonomy,
    pub(super) catalog: &'a dyn Catalog,
}

/// Fields that belong to a run and are sometimes exported with a plan.
const RUN_STATE: [&str; 6] = ["status", "started_at", "completed_at", "attempts", "output", "error_message"];

/// The steps, and whether none is missing: one without a name or a skill cannot be put into words.
pub(super) fn read(found: &mut Vec<Finding>, authored: &[Value], defaults: &Defaults<'_>) -> (Vec<Step>, bool) {
    let mut earlier = BTreeSet::new();
    let mut steps = Vec::new();
    for (index, value) in authored.iter().enumerate() {
        let place = format!("#{index}");
        let Value::Object(members) = value else {
            found.push(Finding::error("AOS-13", "field_kind", "a step is an object").at(&place));
            continue;
        };
        let given = members.get("step_id").or_else(|| members.get("id")).and_then(Value::as_str);
        let place = given.map_or(place, shown);
        steps.extend(step(found, members, &place, &earlier, defaults));
        earlier.extend(given);
    }
    let complete = steps.len() == authored.len();
    (steps, complete)
}

fn step(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    place: &str,
    earlier: &BTreeSet<&str>,
    defaults: &Defaults<'_>,
) -> Option<Step> {
    let mut fields = Fields::new(members, "the step", Some(place), found);
    refuse(&mut fields);
    depends_on(&mut fields, earlier);
    let step_id = fields.text(&["step_id", "id"]);
    let step_id = fields.required("step_id", step_id, "AOS-13");
    let skill_id =
        fields.text(&["skill_id", "skill"]).map(|id| id.strip_prefix("skill.").map(str::to_owned).unwrap_or(id));
    let skill_id = fields.required("skill_id", skill_id, "AOS-13");
    let version = fields.text(&["skill_version"]);
    let parameters = fields.object(&["parameters", "params", "inputs"]).cloned().unwrap_or_default();
    let authored_policy = fields.object(&["retry_policy"]);
    let timeout_ms = fields.integer(&["timeout_ms"]);
    let max_cost_cents = fields.integer(&["max_cost_cents"]);
    let output_key = fields.text(&["output_key"]);
    let description = fields.text(&["description"]);
    let on_error = fields.value(&["on_error"]).or(defaults.on_error);
    let on_error = on_error.map_or(Some(OnError::Abort), |given| read_on_error(&mut fields, given));
    let run_if = fields.object(&["run_if"]);
    let registration = skill_id.as_deref().and_then(|id| registered(&mut fields, id, version.as_deref(), defaults));
    fields.finish("AOS-13");

    let run_if = run_if.and_then(|members| condition(found, members, place, defaults.taxonomy));
    let policy =
        authored_policy.map(|members| policy::read(found, members, "retry_policy", Some(place), defaults.taxonomy));
    // Without its skill the step is not frozen, but everything else that is wrong with it is still found.
    let skill = registration.as_ref().map(|registration| registration.skill.as_ref());
    let mut retry_policy = policy::effective(policy.as_ref(), defaults.policy, skill, &parameters, defaults.taxonomy);
    if let Some(most) = defaults.max_retries.filter(|most| *most < retry_policy.max_retries) {
        retry_policy.max_retries = most;
    }
    Some(Step {
        step_id: step_id?,
        skill_id: skill_id?,
        skill_version: skill.map(|skill| skill.metadata().version.clone()).or(version).unwrap_or_else(no_version),
        parameters,
        retry_policy,
        timeout_ms,
        on_error: on_error.unwrap_or_default(),
        max_cost_cents,
        run_if,
        output_key,
        description,
    })
}

/// Stands in for a version that is not given, where a finding says so.
fn no_version() -> String {
    "0.0.0".to_owned()
}

/// What changes the course of a run by what was returned, or runs other skills than the plan lists, is not had here.
fn refuse(fields: &mut Fields<'_, '_>) {
    fields.refused(
        "condition",
        "AOS-16",
        "the course of a plan does not depend on what a step returned",
        "use run_if, which looks at the status or code of an earlier step",
    );
    for name in ["fallback_skill", "fallback_params"] {
        fields.refused(
            name,
            "AOS-13",
            "a step runs the one skill it names",
            "set on_error to continue and add a step with run_if {\"status_in\": [\"failure\"]}",
        );
    }
    match fields.value(&["iterations"]) {
        Some(value) if value.as_u64() != Some(1) => fields.refused(
            "iterations",
            "AOS-13",
            "a step is one call",
            "write the step as often as it shall run, each time with its own step_id",
        ),
        _ => fields.dropped("iterations", "AOS-13", "a step is one call"),
    }
    fields.dropped("idempotency_key", "AOS-75", "the key of an effect follows from plan, step and epoch");
    fields.dropped("estimated_cost_cents", "AOS-13", "the cost is computed from the pinned prices");
    for name in RUN_STATE {
        fields.dropped(name, "AOS-13", "it belongs to a run, not to a plan");
    }
}

/// The order of steps is the declared order, so dependencies can only confirm it.
fn depends_on(fields: &mut Fields<'_, '_>, earlier: &BTreeSet<&str>) {
    for name in fields.texts(&["depends_on"]).unwrap_or_default() {
        if !earlier.contains(name.as_str()) {
            let problem = format!("depends_on names `{}`, which is not an earlier step", shown(&name));
            fields.push(
                Finding::error("AOS-13", "dependency_not_earlier", problem)
                    .fix("steps run in the order they are written; move the other step before this one"),
            );
        }
    }
}

fn read_on_error(fields: &mut Fields<'_, '_>, given: &Value) -> Option<OnError> {
    match given.as_str() {
        Some("abort") => Some(OnError::Abort),
        Some("continue") => Some(OnError::Continue),
        Some("retry") => {
            fields.push(
                Finding::warning("AOS-13", "on_error_retry", "on_error `retry` is read as `abort`")
                    .fix("whether to retry is said by retry_policy alone"),
            );
            Some(OnError::Abort)
        }
        Some("fallback") => {
            fields.push(
                Finding::error("AOS-13", "on_error_unknown", "on_error `fallback` is not accepted")
                    .fix("set on_error to continue and add a step with run_if {\"status_in\": [\"failure\"]}"),
            );
            None
        }
        _ => {
            fields.push(
                Finding::error("AOS-13", "on_error_unknown", "on_error must be `abort` or `continue`")
                    .fix("use abort to stop the run, continue to go on"),
            );
            None
        }
    }
}

/// The skill in exactly one version. Without a version given there must be only one to be meant.
fn registered(
    fields: &mut Fields<'_, '_>,
    skill_id: &str,
    version: Option<&str>,
    defaults: &Defaults<'_>,
) -> Option<Registration> {
    let versions = defaults.catalog.versions(skill_id);
    let chosen = match (version, &versions[..]) {
        (Some(version), _) => Some(version),
        (None, [only]) => {
            fields.push(
                Finding::warning(
                    "AOS-13",
                    "skill_version_chosen",
                    format!("skill_version is not given: {only} is pinned"),
                )
                .fix(format!("write \"skill_version\": \"{only}\"")),
            );
            Some(only.as_str())
        }
        (None, _) => None,
    };
    let registration = chosen.and_then(|version| defaults.catalog.skill(skill_id, version)).filter(|registration| {
        let metadata = registration.skill.metadata();
        metadata.skill_id == skill_id && Some(metadata.version.as_str()) == chosen
    });
    if registration.is_none() {
        fields.push(not_registered(skill_id, version, defaults.catalog));
    }
    registration
}

fn condition(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    place: &str,
    taxonomy: &Taxonomy,
) -> Option<RunIf> {
    let mut fields = Fields::new(members, "run_if", Some(place), found);
    let step_id = fields.text(&["step_id"]);
    let step_id = fields.required("step_id", step_id, "AOS-16");
    let status_in: Option<Vec<StepStatus>> =
        fields.typed(&["status_in"], "an array of success, failure, partial and skipped");
    let listed = fields.texts(&["code_in"]);
    let kept = fields.object(&["aliases"]).cloned().unwrap_or_default();
    let mut codes = Codes::default();
    for code in listed.iter().flatten() {
        match policy::spelled(taxonomy, code) {
            Some(known) => codes.add(code, known),
            None => {
                fields.push(unknown_code(taxonomy, code, "run_if.code_in"));
                // It stays, so that a condition with nothing else is not called empty as well.
                codes.add(code, code);
            }
        }
    }
    codes.keep(&kept);
    fields.finish("AOS-16");
    let code_in = listed.map(|_| codes.codes.into_iter().collect());
    let status_in = status_in.map(with_partial);
    let aliases: BTreeMap<String, String> = codes.aliases;
    Some(RunIf { step_id: step_id?, status_in, code_in, aliases })
}

/// A part of a success counts as one to what follows (AOS-25). It is written into the plan, so that a frozen condition
/// means what it lists and nothing else.
fn with_partial(mut listed: Vec<StepStatus>) -> Vec<StepStatus> {
    if let Some(place) = listed.iter().position(|status| *status == StepStatus::Success)
        && !listed.contains(&StepStatus::Partial)
    {
        listed.insert(place + 1, StepStatus::Partial);
    }
    listed
}
