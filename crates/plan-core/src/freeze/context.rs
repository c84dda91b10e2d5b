//! Context, budget policy and pins as authors write them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::Fields;
use super::{FreezeOptions, Profile};
use crate::digest::Digest;
use crate::finding::Finding;
use crate::limits;
use crate::plan::limits::{KNOWN_PINS, shown};
use crate::plan::{AdmissionLimits, BudgetPolicy, Context, JITTER, Pins, RateCardPin, SPEC, Step, TOKEN_ESTIMATOR};
use crate::rate_card::{self, RateCard};
use crate::skill::Catalog;
use crate::taxonomy::Taxonomy;

pub(super) fn read(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    profile: Option<&Profile>,
) -> Option<Context> {
    let mut fields = Fields::new(members, "the context", None, found);
    let budget_cents = fields.integer(&["budget_cents"]);
    let budget_cents = fields.required("budget_cents", budget_cents, "AOS-17");
    let authored = fields.texts(&["allowed_skills"]);
    let allowed_skills = allowed(&mut fields, authored, profile);
    let allowed_skills = fields.required("allowed_skills", allowed_skills, "AOS-17");
    let currency = fields.text(&["currency"]);
    let policy = fields.object(&["budget_policy"]);
    fields.finish("AOS-17");
    let mut budget_policy = budget_policy(found, policy.unwrap_or(&Map::new()));
    if let Some(profile) = profile {
        profile.fold(&mut budget_policy);
    }
    Some(Context { budget_cents: budget_cents?, allowed_skills: allowed_skills?, budget_policy, currency })
}

/// What the author allows must be within what the profile allows; without a list of the author it is the profile's.
fn allowed(
    fields: &mut Fields<'_, '_>,
    authored: Option<Vec<String>>,
    profile: Option<&Profile>,
) -> Option<Vec<String>> {
    let Some(profile) = profile else { return authored };
    let denied = |skill: &String| profile.denied_skills.contains(skill);
    let Some(authored) = authored else {
        return profile
            .allowed_skills
            .as_ref()
            .map(|allowed| allowed.iter().filter(|it| !denied(it)).cloned().collect());
    };
    let outside = |skill: &String| profile.allowed_skills.as_ref().is_some_and(|allowed| !allowed.contains(skill));
    for skill in authored.iter().filter(|skill| denied(skill) || outside(skill)) {
        let problem = format!("allowed_skills lists `{}`, which the agent's profile does not allow", shown(skill));
        fields.push(
            Finding::error("AOS-32", "skill_outside_profile", problem)
                .code("ERR_PERMISSION_DENIED")
                .fix("remove it, or have the profile changed"),
        );
    }
    Some(authored)
}

fn budget_policy(found: &mut Vec<Finding>, members: &Map<String, Value>) -> BudgetPolicy {
    let mut fields = Fields::new(members, "budget_policy", None, found);
    let admission = fields.object(&["admission"]);
    let mut policy = BudgetPolicy {
        hard_limit: fields.flag(&["hard_limit"]).unwrap_or(true),
        per_step_max_cents: fields.integer(&["per_step_max_cents"]),
        alert_threshold_percent: fields.small(&["alert_threshold_percent"]).unwrap_or(80),
        admission: None,
        policy_version: fields.text(&["policy_version"]).unwrap_or_else(|| "1.0.0".to_owned()),
    };
    fields.finish("AOS-18");
    policy.admission = admission.map(|members| admission_limits(found, members));
    policy
}

fn admission_limits(found: &mut Vec<Finding>, members: &Map<String, Value>) -> AdmissionLimits {
    let mut fields = Fields::new(members, "budget_policy.admission", None, found);
    let limits = AdmissionLimits {
        per_run_max_cents: fields.integer(&["per_run_max_cents"]),
        per_day_max_cents: fields.integer(&["per_day_max_cents"]),
        per_month_max_cents: fields.integer(&["per_month_max_cents"]),
    };
    fields.finish("AOS-18");
    limits
}

/// The pins that are written into the plan. What the author pinned stays and must be right.
pub(super) fn pins(
    found: &mut Vec<Finding>,
    authored: Option<&Map<String, Value>>,
    steps: &[Step],
    taxonomy: &Taxonomy,
    catalog: &dyn Catalog,
    options: &FreezeOptions,
) -> Option<Pins> {
    let empty = Map::new();
    let mut fields = Fields::new(authored.unwrap_or(&empty), "pins", None, found);
    for (name, known) in KNOWN_PINS {
        if let Some(given) = fields.text(&[name]).filter(|given| given != known) {
            let problem = format!("pins.{name} is `{}`, which is not known here", shown(&given));
            fields.push(
                Finding::error("AOS-14", "pin_unavailable", problem).fix(format!("leave it away or write `{known}`")),
            );
        }
    }
    let _ = fields.value(&["taxonomy_version"]);
    let card = fields.object(&["rate_card"]);
    let authored_builds: Option<BTreeMap<String, Digest>> =
        fields.typed(&["skill_builds"], "an object of digests by `skill@version`");
    fields.finish("AOS-14");
    let rate_card = rate_card_pin(found, card.unwrap_or(&empty), catalog, options)?;
    let mut builds = if options.pin_builds { builds(steps, catalog) } else { BTreeMap::new() };
    builds.extend(authored_builds.unwrap_or_default());
    Some(Pins {
        spec: SPEC.to_owned(),
        taxonomy_version: taxonomy.number().to_owned(),
        jitter: JITTER.to_owned(),
        token_estimator: TOKEN_ESTIMATOR.to_owned(),
        rate_card,
        skill_builds: (!builds.is_empty()).then_some(builds),
    })
}

/// The builds that are here of the skills that are used.
fn builds(steps: &[Step], catalog: &dyn Catalog) -> BTreeMap<String, Digest> {
    let used: BTreeSet<(&str, &str)> =
        steps.iter().map(|step| (step.skill_id.as_str(), step.skill_version.as_str())).collect();
    let here = used.into_iter().filter_map(|(skill_id, version)| {
        Some((format!("{skill_id}@{version}"), catalog.skill(skill_id, version)?.build?))
    });
    here.collect()
}

fn rate_card_pin(
    found: &mut Vec<Finding>,
    members: &Map<String, Value>,
    catalog: &dyn Catalog,
    options: &FreezeOptions,
) -> Option<RateCardPin> {
    let mut fields = Fields::new(members, "pins.rate_card", None, found);
    let id = fields.text(&["id"]).or_else(|| options.rate_card.clone());
    let hash: Option<Digest> = fields.typed(&["hash"], "a digest, `sha256:` and 64 digits");
    let carried = fields.value(&["card"]).cloned();
    fields.finish("AOS-14");
    let embed = options.embed_rate_card || carried.is_some();
    let carried_id = carried.as_ref().and_then(|card| card.get("id")).and_then(Value::as_str).map(str::to_owned);
    let id = id.or(carried_id).unwrap_or_else(|| rate_card::BUILTIN_ID.to_owned());
    let Some(value) = carried.or_else(|| catalog.rate_card(&id)) else {
        let problem = format!("the rate card `{}` is not known here", shown(&id));
        found.push(
            Finding::error("AOS-55", "rate_card_unavailable", problem)
                .fix("install the card, embed it under pins.rate_card.card, or name another"),
        );
        return None;
    };
    let card = match RateCard::from_value(value) {
        Ok(card) => card,
        Err(error) => {
            found.push(
                Finding::error("AOS-55", "rate_card_unusable", format!("the rate card `{}`: {error}", shown(&id)))
                    .fix("a card is {\"id\", \"currency\", \"skills\": {\"skill@version\": {…}}}, with prices as whole numbers"),
            );
            return None;
        }
    };
    if card.id() != id || hash.is_some_and(|hash| hash != *card.digest()) {
        let problem = format!("the rate card `{}` is not the pinned one: its digest is {}", shown(&id), card.digest());
        found.push(
            Finding::error("AOS-55", "rate_card_differs", problem).fix("a price change is a new card under a new id"),
        );
        return None;
    }
    let size = macp_wire::canonical::to_string(card.value()).map_or(usize::MAX, |text| text.len());
    if embed && size > limits::EMBEDDED_CARD_BYTES_MAX {
        let problem =
            format!("the rate card has {size} bytes, and {} can be embedded", limits::EMBEDDED_CARD_BYTES_MAX);
        found.push(Finding::error("AOS-14", "rate_card_too_large", problem).fix("pin the card without embedding it"));
        return None;
    }
    Some(RateCardPin { id, hash: card.digest().clone(), card: embed.then(|| card.value().clone()) })
}
