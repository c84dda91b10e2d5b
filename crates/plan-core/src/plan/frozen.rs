//! Frozen plans: the text, what it says, and its digest, always of one another.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::{Plan, Step, limits as rules};
use crate::digest::{self, Digest};
use crate::finding::{self, Finding};
use crate::limits;

/// A plan that can be executed. It is made from its text or by freezing and never edited afterwards.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FrozenPlan {
    pub plan: Plan,
    /// What was read, which is what the digest covers.
    pub value: Value,
    pub hash: Digest,
}

/// Why a text is no frozen plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the plan has {0} bytes, and {max} are the most", max = limits::PLAN_BYTES_MAX)]
    TooLarge(usize),
    #[error("the plan is not valid JSON: {0}")]
    Json(#[source] serde_json::Error),
    #[error("the plan has no canonical form: {0}")]
    Canonical(#[from] macp_wire::canonical::Error),
    /// Everything that does not fit the model or its limits.
    #[error("this is no frozen plan: {}", listed(.0))]
    Findings(Vec<Finding>),
}

impl PlanError {
    /// The same as findings, for reports that list everything.
    #[must_use]
    pub fn into_findings(self) -> Vec<Finding> {
        match self {
            PlanError::Findings(findings) => findings,
            PlanError::TooLarge(_) => vec![
                Finding::error("AOS-12", "plan_too_large", self.to_string())
                    .fix("pass large documents by address instead of by value"),
            ],
            PlanError::Json(_) => vec![
                Finding::error("AOS-7", "not_json", self.to_string())
                    .fix("a plan is one JSON object in UTF-8, nested at most 128 deep, in which no key is given twice"),
            ],
            PlanError::Canonical(_) => vec![
                Finding::error("AOS-7", "no_canonical_form", self.to_string())
                    .fix("write integers beyond 2^53 - 1 as strings"),
            ],
        }
    }
}

impl FrozenPlan {
    /// Reads a frozen plan. Everything the model and its limits demand of one document is checked here; whether its
    /// steps fit together and whether what it pins is available is for [`crate::check::preflight`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PlanError> {
        if bytes.len() > limits::PLAN_BYTES_MAX {
            return Err(PlanError::TooLarge(bytes.len()));
        }
        Self::from_value(macp_wire::canonical::parse(bytes).map_err(PlanError::Json)?)
    }

    /// The same for a value that has been read.
    pub fn from_value(value: Value) -> Result<Self, PlanError> {
        let text = macp_wire::canonical::to_string(&value)?;
        if text.len() > limits::PLAN_BYTES_MAX {
            return Err(PlanError::TooLarge(text.len()));
        }
        // Read again from the canonical text, where a number has one spelling: what has one digest is one plan.
        let value = macp_wire::canonical::parse(text.as_bytes()).map_err(PlanError::Json)?;
        let plan = match Plan::deserialize(&value) {
            Ok(plan) => plan,
            Err(error) => return Err(PlanError::Findings(misfits(&value, &error))),
        };
        let mut findings = rules::check(&plan);
        if !findings.is_empty() {
            finding::bound(&mut findings);
            return Err(PlanError::Findings(findings));
        }
        let hash = plan_hash(&value)?;
        Ok(Self { plan, value, hash })
    }

    /// The canonical text, as it is kept and sent.
    #[must_use]
    pub fn text(&self) -> String {
        macp_wire::canonical::to_string(&self.value).expect("a frozen plan has a canonical form")
    }
}

/// The digest of a plan. Works on every object, frozen or not.
pub fn plan_hash(value: &Value) -> Result<Digest, macp_wire::canonical::Error> {
    digest::of_value(digest::PLAN_LABEL, &covered(value))
}

/// What the digest of a plan covers: everything but when it was made (AOS-9).
#[must_use]
pub fn covered(value: &Value) -> Cow<'_, Value> {
    match value {
        Value::Object(members) if members.contains_key("created_at") => {
            let mut members = members.clone();
            members.remove("created_at");
            Cow::Owned(Value::Object(members))
        }
        other => Cow::Borrowed(other),
    }
}

/// Where a value does not fit the model. Steps are looked at one by one, so that each misfit names its step.
fn misfits(value: &Value, error: &serde_json::Error) -> Vec<Finding> {
    let misfit = |error: &serde_json::Error| {
        Finding::error("AOS-10", "not_a_plan", error.to_string())
            .fix("freeze the authored plan; frozen plans are not edited by hand")
    };
    let steps = value.get("steps").and_then(Value::as_array);
    let found: Vec<Finding> = steps
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, step)| {
            let error = Step::deserialize(step).err()?;
            let name = step.get("step_id").and_then(Value::as_str);
            Some(misfit(&error).at(name.unwrap_or(&format!("#{index}"))))
        })
        .collect();
    if found.is_empty() { vec![misfit(error)] } else { found }
}

fn listed(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
