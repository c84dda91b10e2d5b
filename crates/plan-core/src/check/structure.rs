//! How the steps of a plan fit together: names, references, conditions and codes.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::limits;
use crate::plan::{Plan, Step};
use crate::reference::{self, Reference};
use crate::taxonomy::{Category, Taxonomy};

pub(super) fn step_ids(found: &mut Vec<Finding>, plan: &Plan) {
    let mut ids = BTreeSet::new();
    let mut names = BTreeSet::new();
    for step in &plan.steps {
        if !ids.insert(&step.step_id) {
            found.push(
                Finding::error("AOS-13", "duplicate_step_id", "another step has the same step_id")
                    .at(&step.step_id)
                    .fix("give every step an id of its own"),
            );
        } else if !names.insert(step.name()) {
            let problem = format!("another step's output is already called `{}`", step.name());
            found.push(
                Finding::error("AOS-13", "duplicate_output_key", problem)
                    .at(&step.step_id)
                    .fix("give every output a name of its own"),
            );
        }
    }
}

/// References and conditions look back only.
pub(super) fn references(found: &mut Vec<Finding>, plan: &Plan) {
    let mut names = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        names.entry(step.name()).or_insert(index);
        ids.entry(step.step_id.as_str()).or_insert(index);
    }
    let mut room = limits::FINDINGS_MAX + 1;
    for (index, step) in plan.steps.iter().enumerate() {
        match reference::references(&step.parameters) {
            Ok(references) => {
                // One more than is listed shows that there are more.
                let wrong =
                    references.iter().filter_map(|it| check_reference(plan, &names, &ids, index, it)).take(room);
                let mut wrong: Vec<Finding> = wrong.map(|finding| finding.at(&step.step_id)).collect();
                offer_names(&mut wrong, plan, index);
                room -= wrong.len();
                found.append(&mut wrong);
            }
            Err(error) => found.push(
                Finding::error("AOS-15", "reference_malformed", error.to_string())
                    .at(&step.step_id)
                    .fix("write references as {{step.member[0]}}"),
            ),
        }
        if let Some(condition) = &step.run_if
            && ids.get(condition.step_id.as_str()).is_none_or(|place| *place >= index)
        {
            let problem = format!("run_if looks at `{}`, which is not an earlier step", condition.step_id);
            found.push(
                Finding::error("AOS-16", "condition_not_earlier", problem)
                    .at(&step.step_id)
                    .fix("a condition can look at earlier steps only, by their step_id"),
            );
        }
    }
}

/// Lists the names of the nearest earlier steps with the first finding of a step that asks for one: they are the same
/// for all of them.
fn offer_names(wrong: &mut [Finding], plan: &Plan, index: usize) {
    let asks = |finding: &&mut Finding| matches!(finding.reason, "reference_not_earlier" | "reference_unknown");
    if let Some(first) = wrong.iter_mut().find(asks) {
        let earlier = plan.steps.iter().take(index).skip(index.saturating_sub(limits::OFFERED_NAMES_MAX));
        first.available = earlier.map(|step| step.name().to_owned()).collect();
    }
}

fn check_reference(
    plan: &Plan,
    names: &BTreeMap<&str, usize>,
    ids: &BTreeMap<&str, usize>,
    index: usize,
    reference: &Reference,
) -> Option<Finding> {
    let text = &reference.text;
    let earlier: Vec<&str> = reference.names().filter(|name| names.get(name).is_some_and(|it| *it < index)).collect();
    match earlier[..] {
        [_] => None,
        [] => {
            let hidden = reference.names().find_map(|name| ids.get(name).filter(|it| **it < index));
            if let Some(step) = hidden.and_then(|place| plan.steps.get(*place)) {
                let problem = format!("`{{{{{text}}}}}` names step `{}` by its id", step.step_id);
                let fix = format!("its output is called `{}`, as its output_key says", step.name());
                return Some(Finding::error("AOS-15", "reference_unknown", problem).fix(fix));
            }
            let later = reference.names().any(|name| names.contains_key(name));
            let (reason, problem) = if later {
                ("reference_not_earlier", format!("`{{{{{text}}}}}` refers to this step or a later one"))
            } else {
                ("reference_unknown", format!("`{{{{{text}}}}}` names no step of this plan"))
            };
            Some(Finding::error("AOS-15", reason, problem).fix("refer to an earlier step by its name"))
        }
        [long, short, ..] => {
            let problem = format!("`{{{{{text}}}}}` can mean the output of `{long}` and of `{short}`");
            Some(
                Finding::error("AOS-15", "reference_ambiguous", problem)
                    .fix("give one of the two an output_key without points"),
            )
        }
    }
}

/// Codes exist in the pinned taxonomy, and only such are retried that it calls retryable.
pub(super) fn codes(found: &mut Vec<Finding>, plan: &Plan, taxonomy: &Taxonomy) {
    for step in &plan.steps {
        for code in &step.retry_policy.retryable_codes {
            found.extend(retryable(taxonomy, code).map(|finding| finding.at(&step.step_id)));
        }
        condition_codes(found, step, taxonomy);
    }
}

/// What is wrong with listing a code as retryable.
pub(crate) fn retryable(taxonomy: &Taxonomy, code: &str) -> Option<Finding> {
    match taxonomy.code(code) {
        None => Some(unknown_code(taxonomy, code, "retryable_codes")),
        Some(info) if !info.retryable => {
            let problem =
                format!("retryable_codes lists {code}, which taxonomy {} calls not retryable", taxonomy.number());
            let why = if info.category == Category::Success { "a success is never retried" } else { info.action };
            Some(
                Finding::error("AOS-42", "code_not_retryable", problem)
                    .fix(format!("remove it from the list: {}", lower_first(why))),
            )
        }
        Some(_) => None,
    }
}

pub(crate) fn unknown_code(taxonomy: &Taxonomy, code: &str, field: &str) -> Finding {
    let code = crate::plan::limits::shown(code);
    let problem = format!("{field} lists `{code}`, which is no code of taxonomy {}", taxonomy.number());
    Finding::error("AOS-33", "code_unknown", problem).fix("use a code of the pinned taxonomy")
}

fn condition_codes(found: &mut Vec<Finding>, step: &Step, taxonomy: &Taxonomy) {
    let listed = step.run_if.iter().flat_map(|condition| condition.code_in.iter().flatten());
    for code in listed.filter(|code| taxonomy.code(code).is_none()) {
        found.push(unknown_code(taxonomy, code, "run_if.code_in").at(&step.step_id));
    }
}

fn lower_first(text: &str) -> String {
    let mut characters = text.trim_end_matches('.').chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}
